from pegboard.testing import conformance

test_part = conformance("pegboard-wandb", strict=True)
