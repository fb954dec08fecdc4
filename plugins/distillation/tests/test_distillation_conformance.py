from pegboard.testing import conformance

test_part = conformance("pegboard-distillation", strict=True)
