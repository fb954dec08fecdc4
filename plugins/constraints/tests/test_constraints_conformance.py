from pegboard.testing import conformance

test_part = conformance("pegboard-constraints", strict=True)
