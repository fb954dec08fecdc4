"""From plain texts to answers by configs alone: a run is pretrained, and three others go on from it."""

from __future__ import annotations

import csv
import io
import json
import random
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pegboard
import pytest
import torch
from pegboard.cli import main
from torch import Tensor

pytestmark = pytest.mark.usefixtures("lean")

NAMES, VERBS, THINGS = ("anna", "bernd", "carla"), ("sees", "likes", "finds"), ("dog", "cat", "house")
MODEL = {"name": "bert", "layers": 1, "width": 32, "heads": 2, "longest": 32}
HEADS = ("sentiment", "tags", "answers")


def lines(path: Path, rows: list[Any]) -> str:
    path.write_text("\n".join(map(json.dumps, rows)))
    return str(path)


def stories(count: int) -> list[dict[str, Any]]:
    """Who did what to what, and whether they like it."""
    draw = random.Random(0)
    rows = []
    for _ in range(count):
        name, verb, thing = draw.choice(NAMES), draw.choice(VERBS), draw.choice(THINGS)
        text = f"Yesterday {name} {verb} the {thing} again"
        words = text.split()
        rows.append({
            "text": text,
            "likes": "yes" if verb == "likes" else "no",
            "words": words,
            "tags": ["name" if w == name else "verb" if w == verb else "other" for w in words],
            "question": f"Who {verb} the {thing}?",
            "start": text.index(name),
            "answer": name,
        })  # fmt: skip
    return rows


class Chain(NamedTuple):
    folder: Path  # of the first run, which is gone
    weights: dict[str, Tensor]  # of it
    symbols: bytes
    heads: dict[str, pegboard.Run]
    started: dict[str, pegboard.Run]  # the same after a step that moves nothing


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory, lean: None) -> Chain:
    import datasets

    root = tmp_path_factory.mktemp("chain")
    rows = stories(240)
    told, sentences = lines(root / "stories.jsonl", rows), root / "texts.txt"
    # A document of three sentences each, with an empty line after it.
    texts = [r["text"] + ("\n" if i % 3 == 2 else "") for i, r in enumerate(rows)]
    sentences.write_text("\n".join(texts))

    def run(data: dict[str, Any], lr: float = 5e-3, **trainer: Any) -> pegboard.Run:
        given = {
            "data": {"name": "hub", "batch_size": 32, **data},
            "model": MODEL | ({"weights": str(data["vocabulary"])} if "vocabulary" in data else {}),
            "optimizer": {"name": "adam", "lr": lr},
            "trainer": {"epochs": 4, "device": "cpu", "threads": 1, **trainer},
        }
        return pegboard.train(given, root=root / "runs", quiet=True)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets.config, "HF_DATASETS_CACHE", root / "rows")
        symbols = {"tokens": "wordpiece", "vocab": 90, "lowercase": True, "length": 28}
        first = run({"path": str(sentences), "inputs": {"text": symbols}, "target": {"kind": "masked"}})
        from_run = {"path": told, "marked": True, "vocabulary": str(first.folder)}
        span = {"column": ["start", "answer"], "kind": "span"}
        data = {
            "sentiment": from_run | {"inputs": {"text": {}}, "target": "likes"},
            "tags": from_run | {"inputs": {"words": {}}, "target": {"column": "tags", "kind": "tags"}},
            "answers": from_run | {"inputs": {"question": {}, "text": {}}, "target": span},
        }
        heads = {head: run(data[head], epochs=16) for head in HEADS}
        started = {head: run(data[head], 1e-30, epochs=None, steps=1) for head in HEADS}
    (symbols_file,) = first.folder.glob("data/tokenizer*")
    made = Chain(first.folder, first.model.state_dict(), symbols_file.read_bytes(), heads, started)
    for path in (Path(told), sentences):
        path.unlink()
    for path in (root / "rows", first.folder):
        shutil.rmtree(path)
    return made


@pytest.mark.catalogue("S4-106", "S4-109", "S4-110", "S4-111")
@pytest.mark.parametrize("head", HEADS)
def test_a_pretrained_run_gives_its_weights_and_its_symbols_to_every_head(chain: Chain, head: str) -> None:
    start = chain.started[head].model.state_dict()
    body = {name for name in chain.weights if not name.startswith("head.")}
    assert {"words.weight", "segments.weight", "encoder.blocks.0.feed.up.bias"} <= body
    assert all(torch.equal(start[name], chain.weights[name]) for name in body)
    (symbols,) = chain.heads[head].folder.glob("data/tokenizer*")
    assert symbols.read_bytes() == chain.symbols
    figure = {"sentiment": "accuracy", "tags": "accuracy", "answers": "exact_match"}[head]
    assert chain.heads[head].figures[f"test/{figure}"] >= 0.9


def answered(words: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    assert main(["predict", *words]) == 0, capsys.readouterr().err
    (row,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    return row


def test_every_head_answers_when_data_and_the_pretrained_run_are_gone(
    chain: Chain, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not chain.folder.exists()
    text = "Yesterday carla likes the dog again"
    said = answered([str(chain.heads["sentiment"].folder), "--text", text], capsys)
    assert said["text"] == text and said["class"] == "yes"
    said = answered([str(chain.heads["tags"].folder), "--text", text], capsys)
    assert said["class"] == "other name verb other other other"  # a tag for each word
    assert len(json.loads(said["probability"])) == 6
    table = tmp_path / "asked.csv"
    table.write_text(f"question,text\nWho likes the dog?,{text}\n")
    said = answered([str(chain.heads["answers"].folder), "--input", str(table)], capsys)
    assert said["answer"] == "carla" and int(said["start"]) <= int(said["end"])
    assert main(["predict", str(chain.heads["answers"].folder)]) == 2
    assert "there is no file or folder" in capsys.readouterr().err
