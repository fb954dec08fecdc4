from pegboard.testing import conformance

NOT_TRACED = "torch does not trace its recurrent kernels"
test_part = conformance(
    "pegboard-rnn",
    fails={"model-rnn-compiles_whole": NOT_TRACED, "model-seq2seq-compiles_whole": NOT_TRACED},
    strict=True,
)
