from pegboard.testing import conformance

test_part = conformance("pegboard-generation", strict=True)
