from pegboard.testing import conformance

test_part = conformance("pegboard-compile", strict=True)
