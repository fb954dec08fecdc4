"""What a plan will do, found by a step on the meta device: explain, cost, synchronisations, determinism."""
