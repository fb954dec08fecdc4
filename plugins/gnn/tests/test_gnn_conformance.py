from pegboard.testing import conformance

test_part = conformance("pegboard-gnn", strict=True)
