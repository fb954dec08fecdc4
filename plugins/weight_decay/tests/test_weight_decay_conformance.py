from pegboard.testing import conformance

test_part = conformance("pegboard-weight-decay", strict=True)
