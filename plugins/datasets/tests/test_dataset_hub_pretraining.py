"""`hub` on text to pretrain on: pairs of sentences, and symbols hidden anew in every epoch."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from pegboard import DataSpec, Facts, PegboardError, Tokens
from pegboard.data import padded_splits
from pegboard.engine.evaluate import reading_batches
from pegboard_datasets import Hub, Input, SplitNames, Target, check_hub, hub_spec
from pegboard_transformer import Masked

WORDS = ["red", "green", "blue", "black", "white", "brown", "pink", "grey"]
DOCUMENTS = [[f"{WORDS[i % 8]} {WORDS[k]} d{i} s{k}" for k in range(6)] for i in range(40)]


def write(path: Path, documents=DOCUMENTS, nested: bool = False) -> str:
    lines = documents if nested else [s for d in documents for s in (*d, "")]
    path.write_text("\n".join(json.dumps({"text": line}) for line in lines))
    return str(path)


def fields(path: str, length: int = 12, **more) -> dict:
    options = {"tokens": "whitespace"} | more.pop("options", {})
    return {
        "path": path,
        "inputs": {"text": Input(kind="text", length=length, **options)},
        "target": Target(kind="masked"),
    } | more


def whole(source, epoch: int = 0):
    """All samples of an epoch, and what they are with nothing hidden."""
    source.begin((), 0, epoch)
    batch = source.gather(torch.arange(len(source)))
    hidden = batch.target[:, 1:]
    return batch, torch.where(hidden == -100, batch.inputs[0], hidden)


@pytest.mark.parametrize("nested", [False, True])
def test_half_the_pairs_follow_each_other_in_their_document(hub, tmp_path, nested):
    splits = hub(**fields(write(tmp_path / "t.jsonl", nested=nested), val=0, test=0))
    symbols = splits.notes["statistics"]["text"]["symbols"]
    assert symbols[:5] == ["<pad>", "<unk>", "<cls>", "<sep>", "<mask>"]
    assert splits.spec == DataSpec(
        (Tokens(len(symbols), 12, 0, 2, 3), Tokens(2, 12)), Masked(len(symbols), 12), ("text", "segments")
    )
    batch, texts = whole(splits.train)
    assert len(batch.target) == 40 * 5
    assert batch.target[:, 0].sum() == 100
    follows = {(a, b) for d in DOCUMENTS for a, b in pairwise(d)}
    for row, sides, follow in zip(
        texts.tolist(), batch.inputs[1].tolist(), batch.target[:, 0].tolist(), strict=True
    ):
        said = " ".join(symbols[n] for n in row if n)
        first, second = said.removeprefix("<cls> ").removesuffix(" <sep>").split(" <sep> ")
        assert ((first, second) in follows) == bool(follow)
        assert sides == [0] * 6 + [1] * 5


def test_the_spec_is_known_without_reading(tmp_path):
    light = hub_spec(Hub(**fields(write(tmp_path / "t.jsonl"))))
    marked = Tokens(None, 12, 0, 2, 3)
    assert light == DataSpec((marked, Tokens(2, 12)), Masked(None, 12), ("text", "segments"))


def test_three_in_twenty_symbols_are_hidden_and_never_a_mark(hub, tmp_path):
    splits = hub(**fields(write(tmp_path / "t.jsonl"), val=0, test=0))
    batches = [whole(splits.train, epoch) for epoch in range(30)]
    texts = torch.stack([text for _, text in batches])
    hidden = torch.stack([batch.target[:, 1:] for batch, _ in batches])
    shown = torch.stack([batch.inputs[0] for batch, _ in batches])
    ordinary = texts > 4
    asked = hidden != -100
    assert not (asked & ~ordinary).any()
    count = int(ordinary.sum())  # 30 epochs of 200 samples with 8 symbols: three deviations are 0.005
    assert abs(float(asked.sum()) / count - 0.15) < 0.005
    assert abs(float((shown[asked] == 4).float().mean()) - 0.8) < 0.02
    assert (shown[~asked] == texts[~asked]).all()


def test_hidden_symbols_are_decided_by_seed_epoch_and_sample_alone(build, rows_cache, tmp_path):
    given = fields(write(tmp_path / "t.jsonl"))
    one, again, other = (build("hub", run_seed=seed, **given) for seed in (1, 1, 2))
    batch, texts = whole(one.train, 3)
    first, _ = whole(one.train, 0)
    assert not torch.equal(first.inputs[0], batch.inputs[0])
    # A run that goes on in the middle of an epoch asks for the batches that are left, in any order.
    again.train.begin((), 0, 3)
    index = torch.tensor([7, 3, 50])
    width = again.train.gather(index).inputs[0].shape[1]
    assert torch.equal(again.train.gather(index).inputs[0], batch.inputs[0][index, :width])
    assert torch.equal(again.train.gather(index).target, batch.target[index, : 1 + width])
    another, same = whole(other.train, 3)
    assert torch.equal(same, texts) and not torch.equal(another.inputs[0], batch.inputs[0])
    assert one.notes["fingerprint"] == other.notes["fingerprint"]
    # Val and test are the same in every epoch of every run.
    for source, twin in ((one.val, other.val), (one.test, other.test)):
        assert torch.equal(whole(source, 0)[0].inputs[0], whole(twin, 5)[0].inputs[0])


def test_samples_of_one_length_have_the_same_symbols(hub, tmp_path):
    splits = hub(**fields(write(tmp_path / "t.jsonl"), length=16, val=0, test=0))
    assert splits.train.lengths is not None
    batch, _ = whole(splits.train, 2)
    train = padded_splits(splits).train.to("cpu")
    assert train.lengths is None
    filled, _ = whole(train, 2)
    assert filled.inputs[0].shape == (200, 16) and filled.target.shape == (200, 17)
    width = batch.inputs[0].shape[1]
    assert torch.equal(filled.inputs[0][:, :width], batch.inputs[0])
    assert torch.equal(filled.target[:, : 1 + width], batch.target)
    assert (filled.target[:, 1 + width :] == -100).all() and (filled.inputs[0][:, width:] == 0).all()
    assert [len(batch) for batch in reading_batches(train, "cpu", 90)] == [90, 90, 20]  # not all at once


def test_long_rows_are_cut_into_sentences(hub, tmp_path):
    text = " ".join(f"w{i % 50} v{i % 7}" for i in range(200))
    splits = hub(**fields(write(tmp_path / "t.jsonl", [[text]]), length=13, val=0, test=0))
    batch, texts = whole(splits.train)
    assert len(splits.train) == 400 // 5 - 1
    assert texts.shape[1] == 13 and (texts[:, -1] == 3).all()
    symbols = splits.notes["statistics"]["text"]["symbols"]
    words = text.split()
    for row, (codes, follow) in enumerate(zip(texts.tolist(), batch.target[:, 0].tolist(), strict=True)):
        said = [symbols[n] for n in codes]
        assert said[1:6] == words[5 * row : 5 * row + 5]
        assert (said[7:12] == words[5 * row + 5 : 5 * row + 10]) == bool(follow)


def test_limits_keep_the_beginning(hub, tmp_path):
    path = write(tmp_path / "t.jsonl")
    splits = hub(**fields(path, limit=20, eval_limit=7))
    assert splits.notes["sizes"] == {"train": 20, "val": 7, "test": 7}
    assert splits.train.held.target.sum() == 10
    all_of_it, some = whole(hub(**fields(path)).train)[1], whole(splits.train)[1]
    assert torch.equal(all_of_it[:20, :6], some[:, :6])


def test_text_without_a_pair_is_an_error(hub, tmp_path):
    path = write(tmp_path / "t.jsonl", [["one sentence"], ["another one"]])
    with pytest.raises(PegboardError, match="the train text has 2 sentences, of which 0 have another after"):
        hub(**fields(path, val=0, test=0))


@pytest.mark.parametrize(
    ("given", "where"),
    [
        ({"inputs": {"a": Input()}}, "inputs.a.length"),
        ({"inputs": {"a": Input(length=4)}}, "inputs.a.length"),
        ({"inputs": {"a": Input(length=16), "b": Input(length=16)}}, "inputs"),
        ({"inputs": {"a": Input(length=16)}, "memory": "never"}, "memory"),
        ({"inputs": {"a": Input(length=16)}, "target": Target(kind="masked", column="b")}, "target.column"),
    ],
)
def test_what_cannot_be_is_told_without_reading(given, where):
    config = Hub(path="owner/name", **({"target": Target(kind="masked")} | given))
    assert where in [p.field for p in check_hub(config, Facts())]


@pytest.mark.data
def test_wikitext_has_pairs_of_its_sections(mirror, hub):
    text = Input(kind="text", tokens="whitespace", vocab=2000, length=63)
    splits = hub(
        path="Salesforce/wikitext",
        subset="wikitext-2-v1",
        inputs={"text": text},
        target=Target(kind="masked"),
        limit=2000,
        eval_limit=200,
        splits=SplitNames(train="validation", val="cut"),
    )
    assert len(splits.train) == 2000
    batch, _ = whole(splits.train, 1)
    assert batch.target[:, 0].float().mean() == 0.5
    assert batch.inputs[0].shape[1] == 63


@pytest.mark.parametrize("kind", ["masked", "span"])
def test_without_the_plugin_of_its_spec_the_check_says_what_to_install(kind, monkeypatch):
    monkeypatch.setattr("pegboard_datasets.hub_options.find_spec", lambda name: None)
    config = Hub(path="texts.txt", inputs={"text": Input(length=12)}, target=Target(kind=kind))
    found = [p for p in check_hub(config, Facts()) if p.field == "target.kind"]
    assert [p.hint for p in found] == ["pip install pegboard-transformer"]
    assert "hidden symbols and answers are specs of pegboard-transformer" in found[0].message
    monkeypatch.undo()
    assert not [p for p in check_hub(config, Facts()) if "pegboard-transformer" in p.message]
