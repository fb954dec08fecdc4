from pegboard.testing import conformance

test_part = conformance("pegboard-transformer", strict=True)
