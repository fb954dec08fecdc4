from pegboard.testing import conformance

test_part = conformance("pegboard-averaging", strict=True)
