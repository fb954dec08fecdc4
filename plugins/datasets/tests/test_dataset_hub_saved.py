"""The files that a run keeps of `hub`: rows are read and answers written without the data, bit for bit."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from pegboard import Facts, PegboardError
from pegboard_datasets import Hub, Input, Target, check_hub
from PIL import Image

TEXTS = ["the cat sat on the mat", "a dog barked at the cat!", "Nobody watched", "the watching dog sat"] * 4
SYMBOLS = ("words", "whitespace", "characters", "bpe", "wordpiece", "unigram")


def write(path: Path, rows: list[dict]) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(map(json.dumps, rows)))
    return str(path)


def table() -> list[dict]:
    return [
        {
            "text": t,
            "other": t[::-1],
            "size": 0.1 * i**2,
            "pair": [i / 3, 1 - i],
            "kind": "abc"[i % 3],
            "y": i % 2,
            "tags": ["O"] * len(t.split()),
        }
        for i, t in enumerate(TEXTS)
    ]


WRITTEN = {
    "text": ["the cat barked", "unheard of: 猫"],
    "other": ["tac eht", "x"],
    "size": [3, "0.7"],
    "pair": [[1, 2], "[0.5, 0.25]"],
    "kind": ["c", "never seen"],
}


def text(tokens: str = "words", **more) -> Input:
    return Input(kind="text", tokens=tokens, vocab=300, lowercase=True, **more)


CONFIGS: dict[str, dict[str, Any]] = {
    **{f"text-{t}": {"inputs": {"text": text(t)}, "target": "y"} for t in SYMBOLS},
    **{f"next-{t}": {"inputs": {"text": text(t, length=6)}, "target": Target(kind="next")} for t in SYMBOLS},
    **{
        f"pairs-{t}": {"inputs": {"text": text(t)}, "target": Target(column="other", kind="text")}
        for t in SYMBOLS
    },
    "table": {"inputs": {"size": Input(), "pair": Input(), "kind": Input(kind="category")}, "target": "y"},
    "range": {"inputs": ("size", "text"), "target": "y", "normalize": "minmax"},
    "raw": {"inputs": ("size",), "target": "y", "normalize": "none"},
    "marked": {"inputs": {"text": text("bpe"), "other": Input()}, "target": "y", "marked": True},
    "tags": {"inputs": {"text": text("wordpiece")}, "target": Target(column="tags", kind="tags")},
    "masked": {"inputs": {"text": text("wordpiece", length=12)}, "target": Target(kind="masked")},
}


def keep(splits, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in splits.files.items():
        (folder / name).write_bytes(data)
    return folder


@pytest.mark.parametrize("name", CONFIGS)
def test_what_is_restored_reads_and_writes_as_the_data_did(hub, parts, tmp_path, name):
    given = {"path": write(tmp_path / "data" / "t.jsonl", table()), "val": 0, "test": 0, **CONFIGS[name]}
    splits = hub(**given)
    folder = keep(splits, tmp_path / "run" / "data")
    shutil.rmtree(tmp_path / "data")
    codec = parts["hub"].restore(Hub(**given), folder)
    assert codec.columns == splits.columns
    rows = [{k: [v[i]] for k, v in WRITTEN.items()} for i in (0, 1)]  # prompts of one length at a time
    for row in rows:
        ours, theirs = splits.encode(row), codec.encode(row)
        assert len(ours) == len(theirs)
        for one, two in zip(ours, theirs, strict=True):
            assert one.dtype == two.dtype and torch.equal(one, two)
        if splits.decode_input is not None and ours[0].dtype == torch.int64:
            assert codec.decode_input(0, ours[0]) == splits.decode_input(0, ours[0])
        if splits.asked is not None:
            assert torch.equal(codec.asked(row), splits.asked(row))
    assert (splits.asked is None) == (codec.asked is None) == (name != "tags")
    assert (splits.decode is None) == (codec.decode is None)
    if splits.decode is not None:
        target = splits.train.gather(torch.arange(len(splits.train))).target.clamp(min=0)
        assert codec.decode(target) == splits.decode(target)
    for data in splits.files.values():
        json.loads(data)


def test_pictures_are_read_from_paths_and_bytes_as_the_data_was(hub, parts, rows_cache, tmp_path):
    draw = torch.Generator().manual_seed(0)
    for i in range(12):
        pixels = torch.randint(256, (6, 5, 3), generator=draw, dtype=torch.uint8)
        place = tmp_path / "pictures" / "ab"[i % 2] / f"{i}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.numpy()).save(place)
    given = {"path": str(tmp_path / "pictures"), "inputs": ("image",), "target": "label", "val": 0, "test": 0}
    splits = hub(**given)
    codec = parts["hub"].restore(Hub(**given), keep(splits, tmp_path / "run"))
    paths = sorted((tmp_path / "pictures").rglob("*.png"))
    held = {tuple(x.flatten().tolist()) for x in splits.train.inputs[0]}
    for values in ([str(p) for p in paths], paths, [p.read_bytes() for p in paths]):
        (found,) = codec.encode({"image": values})
        assert {tuple(x.flatten().tolist()) for x in found} == held
    larger = io.BytesIO()
    Image.new("L", (50, 60)).save(larger, "png")
    assert codec.encode({"image": [larger.getvalue()]})[0].shape == (1, 3, 6, 5)
    with pytest.raises(PegboardError, match="there is no file"):
        codec.encode({"image": [str(tmp_path / "none.png")]})


@pytest.mark.parametrize("tokens", ["bpe", "wordpiece", "unigram"])
def test_a_tokenizer_knows_the_training_texts_alone(hub, tmp_path, tokens):
    rows = [{"text": t, "y": i % 2} for i, t in enumerate(TEXTS)]
    write(tmp_path / "d" / "train.jsonl", rows)
    write(tmp_path / "d" / "test.jsonl", [{"text": "zzzz qqqq " * 30, "y": 0}] * 8)
    splits = hub(path=str(tmp_path / "d"), inputs={"text": text(tokens)}, target="y", val=0)
    symbols = splits.notes["statistics"]["text"]["symbols"]
    assert not {s for s in symbols if "zz" in s or "qq" in s}


def damage(data: bytes, how: str) -> bytes:
    if how == "cut":
        return data[: len(data) // 2]
    if how == "other":
        return data.replace(b'"lowercase": true', b'"lowercase": false', 1).replace(b'"cat"', b'"dot"', 1)
    return {"empty": b"", "list": b"[]", "deep": b"[" * 100_000, "bytes": b"\xff\x00\x80"}[how]


@pytest.mark.parametrize("how", ["cut", "other", "empty", "list", "deep", "bytes"])
@pytest.mark.parametrize("name", ["text-bpe", "text-words"])
def test_a_damaged_file_is_one_message(hub, parts, tmp_path, name, how):
    given = {"path": write(tmp_path / "t.jsonl", table()), "val": 0, "test": 0, **CONFIGS[name]}
    folder = keep(hub(**given), tmp_path / "run")
    for path in sorted(folder.iterdir()):
        whole = path.read_bytes()
        broken = damage(whole, how)
        if broken == whole:
            continue
        path.write_bytes(broken)
        with pytest.raises(PegboardError) as caught:
            parts["hub"].restore(Hub(**given), folder)
        assert str(path) in str(caught.value) and "is damaged" in str(caught.value)
        assert len(str(caught.value).splitlines()) == 3
        path.unlink()
        with pytest.raises(PegboardError, match="cannot be read"):
            parts["hub"].restore(Hub(**given), folder)
        path.write_bytes(whole)
    parts["hub"].restore(Hub(**given), folder)


def test_the_symbols_of_one_run_serve_another(hub, tmp_path):
    path = write(tmp_path / "t.jsonl", table())
    first = hub(path=path, val=0, test=0, **CONFIGS["masked"])
    run = tmp_path / "run"
    keep(first, run / "data")
    known = first.notes["statistics"]["text"]["vocabulary"]
    other = write(
        tmp_path / "o.jsonl", [{"text": "a watching mat", "y": i % 2, "t": ["X"] * 3} for i in range(6)]
    )
    for given in (
        {"target": "y", "marked": True},
        {"target": "y"},
        {"target": Target(column="t", kind="tags"), "marked": True},
    ):
        splits = hub(path=other, inputs=("text",), vocabulary=str(run), val=0, test=0, **given)
        assert splits.notes["statistics"]["text"]["vocabulary"] == known
        assert splits.spec.inputs[0].vocab == first.spec.inputs[0].vocab
    (ours,) = splits.encode({"text": ["the cat"]})
    theirs, _ = first.encode({"text": ["the cat"]})
    assert ours[0, :4].tolist() == theirs[0, :4].tolist()
    with pytest.raises(PegboardError, match="lacks <begin>, <end>"):
        hub(path=path, inputs=("text",), target=Target(column="other", kind="text"), vocabulary=str(run))


def test_a_run_without_symbols_is_told_without_reading(tmp_path):
    config = {"path": "owner/name", "inputs": {"a": Input(tokens="bpe")}, "target": "y"}
    found = check_hub(Hub(vocabulary=str(tmp_path), **config), Facts())
    assert [p.field for p in found] == ["vocabulary", "inputs.a.tokens"]


def test_a_prompt_of_any_length_is_read_from_its_end(hub, tmp_path):
    splits = hub(path=write(tmp_path / "t.jsonl", table()), val=0, test=0, **CONFIGS["next-words"])
    end = splits.spec.target.end
    for prompt, expected in (("", 1), ("the", 1), ("the cat sat on the mat and barked", 6)):
        (found,) = splits.encode({"text": [prompt]})
        assert found.shape == (1, expected)
    assert splits.encode({"text": [""]})[0].tolist() == [[end]]
    (found,) = splits.encode({"text": ["the cat sat on the mat watching nobody sat"]})
    stopped = torch.cat([found, torch.tensor([[end, 5, 5]])], 1)
    assert splits.decode(stopped) == splits.decode(found) == ["on the mat watching nobody sat"]
