from pegboard.testing import conformance

test_part = conformance("pegboard-optimizers", strict=True)
