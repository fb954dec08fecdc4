from pegboard.testing import conformance

test_part = conformance("pegboard-rnn", strict=True)
