from pegboard.testing import conformance

test_part = conformance("pegboard-cnn", strict=True)
