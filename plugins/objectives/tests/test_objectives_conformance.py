from pegboard.testing import conformance

test_part = conformance("pegboard-objectives", strict=True)
