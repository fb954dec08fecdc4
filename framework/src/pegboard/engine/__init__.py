"""The training engine: the step, the loop around it, precision and compilation."""
