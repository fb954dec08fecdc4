"""The run folder and what is in it: checkpoints, metrics, claims, reading back, recipes."""
