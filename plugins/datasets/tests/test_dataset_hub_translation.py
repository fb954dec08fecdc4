"""`hub` on pairs of texts: marks, lengths, vocabularies, and the way back to text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from pegboard import DataSpec, Facts, PegboardError, Tokens
from pegboard.data import similar_order
from pegboard_datasets import Hub, Input, Target, check_hub, hub_spec

GERMAN = ["ein Hund", "ein Hund und ein Kind", "Kind", "zwei Hunde schlafen"]
ENGLISH = ["a dog", "a dog and a child", "child", "two dogs sleep here now"]


def write(path: Path, times: int = 3) -> str:
    rows = list(zip(GERMAN, ENGLISH, strict=True)) * times
    path.write_text("\n".join(json.dumps({"de": de, "en": en}) for de, en in rows))
    return str(path)


def fields(path: str, source: dict | None = None, **target) -> dict:
    return {
        "path": path,
        "inputs": {"de": Input(kind="text", **(source or {}))},
        "target": Target(column="en", kind="text", **target),
        "val": 0,
        "test": 0,
    }


def texts(splits, symbols: torch.Tensor, column: str) -> list[str]:
    names = splits.notes["statistics"][column]["symbols"]
    return [" ".join(names[n] for n in row) for row in symbols.tolist()]


def test_a_model_reads_the_text_and_its_answer_shifted_by_a_begin(hub, tmp_path):
    splits = hub(**fields(write(tmp_path / "t.jsonl")))
    batch = splits.train.gather(torch.arange(12))
    sources = texts(splits, batch.inputs[0], "de")
    shifted = texts(splits, batch.inputs[1], "en")
    answers = texts(splits, batch.target, "en")
    padding = " <pad>"
    found = {(s.replace(padding, ""), b.replace(padding, ""), t.replace(padding, "")) for s, b, t in zip(
        sources, shifted, answers, strict=True)}  # fmt: skip
    expected = {
        (f"{de} <end>", f"<begin> {en}", f"{en} <end>") for de, en in zip(GERMAN, ENGLISH, strict=True)
    }
    assert found == expected
    read, said, target = *splits.spec.inputs, splits.spec.target
    assert (read.begin, read.end, read.padding) == (-1, 3, 0)
    assert said == target == Tokens(said.vocab, 6, 0, 2, 3)
    bare = [s.replace(padding, "").removesuffix(" <end>") for s in sources]
    assert splits.decode_input(0, batch.inputs[0]) == bare
    assert splits.decode_input(1, batch.inputs[1]) == splits.decode(batch.target)
    assert splits.decode(batch.target) == [t.replace(padding, "").removesuffix(" <end>") for t in answers]


def test_what_is_known_without_reading_holds_of_the_data(hub, tmp_path):
    given = fields(write(tmp_path / "t.jsonl"), {"length": 9, "tokens": "bpe", "vocab": 300}, length=7)
    light, built = hub_spec(Hub(**given)), hub(**given).spec
    assert light == DataSpec(
        (Tokens(None, 9, 0, -1, 2), Tokens(None, 7, 0, 1, 2)), Tokens(None, 7, 0, 1, 2), ("de", "en")
    )
    assert [(s.length, s.padding, s.begin, s.end) for s in (*light.inputs, light.target)] == [
        (s.length, s.padding, s.begin, s.end) for s in (*built.inputs, built.target)
    ]
    assert light.names == built.names


def test_the_target_is_read_as_the_input_unless_it_says_otherwise(hub, tmp_path):
    path = write(tmp_path / "t.jsonl")
    splits = hub(**fields(path, {"tokens": "characters", "lowercase": True}))
    assert splits.notes["statistics"]["en"]["tokens"] == "characters"
    other = hub(**fields(path, {"tokens": "characters"}, tokens="words", vocab=6))
    assert other.notes["statistics"]["en"]["symbols"] == ["<pad>", "<unk>", "<begin>", "<end>", "a", "child"]


@pytest.mark.parametrize("tokens", ["words", "bpe", "wordpiece", "unigram"])
def test_a_shared_vocabulary_is_learned_from_both_columns(hub, tmp_path, tokens):
    given = fields(write(tmp_path / "t.jsonl"), {"tokens": tokens, "vocab": 300}, shared=True)
    splits = hub(**given)
    one, two = splits.spec.inputs
    assert one.vocab == two.vocab == splits.spec.target.vocab
    assert one.end == two.end
    statistics = splits.notes["statistics"]
    assert statistics["de"]["vocabulary"] == statistics["en"]["vocabulary"]
    assert len([name for name in splits.files if name != "pipeline.json"]) == 1
    (source, begin) = splits.encode({"de": ["ein child"]})
    assert not (source == 1).any() or tokens == "bpe"  # nothing is unknown
    assert begin.tolist() == [[one.end - 1]]


def test_long_pairs_are_cut_or_dropped_from_training(hub, tmp_path):
    path = write(tmp_path / "t.jsonl")
    cut = hub(**fields(path, {"length": 4}, length=4))
    assert len(cut.train) == 12
    assert cut.notes["overlong"] == {"train": {"cut": 6}}
    assert cut.train.lengths.max() == 4
    batch = cut.train.gather(torch.arange(12))
    assert all(row[-1] in (0, 3) and 3 in row for row in batch.target.tolist())
    assert all(3 in row for row in batch.inputs[0].tolist())
    dropped = hub(**{**fields(path, {"length": 4}, length=4, overlong="drop"), "test": 0.5})
    assert len(dropped.test) == 6 and dropped.notes["overlong"]["test"].keys() == {"cut"}
    assert len(dropped.train) + dropped.notes["overlong"]["train"]["dropped"] == 6
    assert {"a dog", "child"} >= set(
        dropped.decode(dropped.train.gather(torch.arange(len(dropped.train))).target)
    )
    with pytest.raises(PegboardError, match="none of the 12 training pairs has room"):
        hub(**fields(path, {"length": 2}, length=2, overlong="drop", tokens="characters"))


def test_pairs_of_like_length_share_a_batch(hub, tmp_path):
    draw = torch.Generator().manual_seed(0)
    counts = torch.randint(3, 40, (3000,), generator=draw)
    others = (counts + torch.randint(-2, 3, (3000,), generator=draw)).clamp(min=1)
    rows = [
        {"de": "wort " * a, "en": "word " * b} for a, b in zip(counts.tolist(), others.tolist(), strict=True)
    ]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    train = hub(**fields(str(tmp_path / "t.jsonl"))).train
    order = similar_order(train.lengths, 32, 0, 0, True)
    batches = [train.gather(index) for index in torch.split(order, 32)]
    places = [x for batch in batches for x in (*batch.inputs, batch.target)]
    assert sum(int((x == 0).sum()) for x in places) / sum(x.numel() for x in places) < 0.1


def problems(**given) -> list[str]:
    made = {"path": "owner/name", "inputs": {"de": Input(kind="text")}} | given
    return [p.field for p in check_hub(Hub(**made), Facts())]


@pytest.mark.parametrize(
    ("given", "where"),
    [
        ({"inputs": ("a", "b"), "target": Target(column="en", kind="text")}, "inputs"),
        ({"target": Target(column=("en", "fr"), kind="text")}, "target.kind"),
        ({"target": Target(kind="text")}, "target.column"),
        ({"target": Target(column="en", kind="text"), "memory": "never"}, "memory"),
        ({"target": Target(column="en", kind="text"), "marked": True}, "marked"),
        ({"target": Target(column="en", kind="text"), "labelled": 0.5}, "labelled"),
        ({"target": Target(column="en", kind="text", tokens="bpe", vocab=100)}, "target.vocab"),
        ({"target": Target(column="en", kind="text", shared=True, tokens="bpe")}, "target.tokens"),
        ({"target": Target(column="en", kind="classes", shared=True)}, "target.shared"),
        ({"target": Target(column="en", kind="classes", length=8)}, "target.length"),
        ({"target": Target(column="en", kind="tags", overlong="drop")}, "target.overlong"),
        ({"inputs": {"x": Input(kind="image")}, "target": Target(column="en", kind="text")}, "inputs.x.kind"),
        ({"inputs": {"x": Input(length=1)}, "target": Target(column="en", kind="text")}, "inputs.x.length"),
    ],
)
def test_what_cannot_be_is_told_without_reading(given, where):
    assert problems(target=Target(column="en", kind="text")) == []
    assert where in problems(**given)


@pytest.mark.data
def test_multi30k_wastes_less_than_a_tenth_on_padding(mirror, hub):
    splits = hub(
        path="bentrevett/multi30k",
        inputs={"de": Input(kind="text", tokens="bpe", vocab=4000)},
        target=Target(column="en", kind="text", shared=True),
        limit=6000,
        eval_limit=100,
    )
    assert splits.notes["sizes"] == {"train": 6000, "val": 100, "test": 100}
    batch = splits.test.gather(torch.arange(100))
    assert (batch.inputs[1][:, 0] == splits.spec.target.begin).all()
    assert (batch.target == splits.spec.target.end).sum(1).eq(1).all()
    assert splits.decode(batch.target)[0].endswith(".")
    order = similar_order(splits.train.lengths, 128, 0, 0, True)
    places = [
        x for i in torch.split(order, 128) for b in [splits.train.gather(i)] for x in (*b.inputs, b.target)
    ]
    assert sum(int((x == 0).sum()) for x in places) / sum(x.numel() for x in places) < 0.1
