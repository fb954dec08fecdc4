from pegboard.testing import conformance

test_part = conformance("pegboard-datasets", strict=True)
