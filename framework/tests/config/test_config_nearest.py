from __future__ import annotations

import pytest
from pegboard.base.nearest import nearest

NAMES = """
name seed data model optimizer objective regularizers trainer trackers plugins batch_size
eval_batch_size shuffle drop_last weights epochs steps device precision accumulate eval_every
log_every monitor mode threads deterministic lr momentum betas eps weight_decay hidden activation
schedule warmup temperature teacher
""".split()
# What is written, and what is meant by it.
MEANT = """
nmae name, Name name, sead seed, dat data, modell model, optimiser optimizer, optimzer optimizer,
regularisers regularizers, batch batch_size, batchSize batch_size, BATCH_SIZE batch_size, bs
batch_size, eval_batch eval_batch_size, shufle shuffle, droplast drop_last, num_epochs epochs,
n_epochs epochs, epcohs epochs, max_steps steps, num_steps steps, iterations steps, devcie device,
prec precision, learning_rate lr, learningRate lr, lrr lr, l_r lr, wd weight_decay, weight-decay
weight_decay, weightdecay weight_decay, momentm momentum, epsilon eps, beta betas, hiden hidden,
hidden_layers hidden, activations activation, act_fn activation, warm-up warmup, warmup_steps
warmup, temprature temperature, temp temperature, techer teacher, loss objective, logger trackers,
gradient_accumulation accumulate, accumulation accumulate
"""


@pytest.mark.parametrize(
    ("word", "meant"),
    [tuple(pair.split()) for pair in MEANT.split(",")],
)
def test_the_name_that_was_meant_comes_first(word: str, meant: str) -> None:
    assert nearest(word, NAMES)[:1] == [meant]


@pytest.mark.parametrize("word", ["zzz", "q", "", "foo_bar_baz", "???", "x" * 500])
def test_a_word_like_nothing_gets_no_suggestion(word: str) -> None:
    assert nearest(word, NAMES) == []
