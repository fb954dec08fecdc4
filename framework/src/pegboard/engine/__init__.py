"""The training engine: the linked step, the loop around it, precision and checkpoints."""
