from pegboard.testing import conformance

test_part = conformance("pegboard-plots", strict=True)
