from pegboard.testing import conformance

test_part = conformance("pegboard-generative", strict=True)
