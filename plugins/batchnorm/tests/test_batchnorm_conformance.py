from pegboard.testing import conformance

test_part = conformance("pegboard-batchnorm", strict=True)
