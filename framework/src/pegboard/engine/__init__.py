"""The training engine: the step, the loop around it, and precision."""
