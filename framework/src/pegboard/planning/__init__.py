"""From checked settings to a plan, and from a plan to the objects of a run: pegs, tricks, optimizers."""
