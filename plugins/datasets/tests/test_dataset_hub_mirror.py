"""`hub` on real data sets, where PEGBOARD_DATA names a folder that holds them."""

from __future__ import annotations

import pytest
import torch
from pegboard import Classes, DataSpec, Image, Tokens
from pegboard.data import padding_share, similar_order
from pegboard_datasets import Input, Target

pytestmark = pytest.mark.data


@pytest.mark.catalogue("T108")
def test_mnist_has_pictures_of_28_by_28_in_ten_classes(mirror, hub):
    splits = hub(path="ylecun/mnist", inputs=("image",), target="label", limit=2000, eval_limit=500)
    names = tuple("0123456789")
    assert splits.spec == DataSpec((Image(1, 28, 28),), Classes(10, names), ("image",))
    assert splits.notes["sizes"] == {"train": 2000, "val": 500, "test": 500}
    assert splits.notes["statistics"]["image"]["mean"][0] == pytest.approx(0.1307, abs=0.004)
    assert splits.notes["statistics"]["image"]["std"][0] == pytest.approx(0.3081, abs=0.004)
    # The nearest mean picture of a class is right four times in five, so labels and pictures fit.
    (x,), y = splits.train.inputs, splits.train.target
    means = torch.stack([x[y == k].mean(0).flatten() for k in range(10)])
    nearest = torch.cdist(splits.test.inputs[0].flatten(1), means).argmin(1)
    assert (nearest == splits.test.target).float().mean() > 0.75


def test_trec_questions(mirror, hub):
    text = Input(tokens="words", vocab=2000, length=20, lowercase=True)
    splits = hub(path="CogComp/trec", inputs={"text": text}, target="coarse_label")
    assert splits.spec.inputs == (Tokens(2000, 20, 0),)
    assert splits.spec.target.count == 6
    assert splits.notes["sizes"] == {"train": 4907, "val": 545, "test": 500}
    (encoded,) = splits.encode({"text": ["What is the capital of Yugoslavia ?"]})
    assert encoded[0, :5].ne(1).all()


def test_trec_questions_waste_less_than_a_tenth_on_padding(mirror, hub):
    text = Input(kind="text", tokens="words", vocab=5000)
    lengths = hub(path="CogComp/trec", inputs={"text": text}, target="coarse_label").train.lengths
    for size in (32, 64):
        shares = [
            padding_share(lengths, torch.split(similar_order(lengths, size, 0, e, True), size))
            for e in (0, 1)
        ]
        assert max(shares) < 0.05
        assert padding_share(lengths, torch.split(torch.arange(len(lengths)), size)) > 0.4


def test_tiny_shakespeare_by_characters(mirror, hub):
    text = Input(kind="text", tokens="characters", length=64, unknown=False)
    splits = hub(path="karpathy/tiny_shakespeare", inputs={"text": text}, target=Target(kind="next"))
    assert splits.spec.inputs == (Tokens(65, 64, -1),)
    assert splits.notes["sizes"] == {"train": 1003854 // 64, "val": 871, "test": 871}
    symbols = splits.notes["statistics"]["text"]["symbols"]
    beginning = "".join(symbols[n] for n in splits.train.inputs[0][0].tolist())
    assert beginning.startswith("First Citizen:\nBefore we proceed")
    assert torch.equal(splits.train.inputs[0].flatten()[1:], splits.train.target.flatten()[:-1])


def test_wikitext_by_words_has_its_known_size(mirror, hub):
    text = Input(kind="text", tokens="whitespace", length=35)
    splits = hub(
        path="Salesforce/wikitext", subset="wikitext-2-v1", inputs={"text": text}, target=Target(kind="next")
    )
    assert splits.spec.inputs == (Tokens(33278, 35, -1, end=1),)
    assert splits.notes["sizes"] == {
        "train": (2_088_628 - 1) // 35,
        "val": (217_646 - 1) // 35,
        "test": (245_569 - 1) // 35,
    }
