from pegboard.testing import conformance

test_part = conformance("pegboard-label-smoothing", strict=True)
