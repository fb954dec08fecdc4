"""`pegboard sample` and `pegboard predict` on texts and pictures, with what a run keeps of its data set."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pegboard
import pytest
import torch
from pegboard import DataSpec, PegboardError, Tokens
from pegboard.cli import main
from pegboard.inference.readable import worded
from pegboard.inference.trained import Trained
from pegboard_generation.writer import Writer
from pegboard_transformer import Masked, Span
from torch import Tensor

Config = Callable[..., dict[str, Any]]
Capture = pytest.CaptureFixture[str]
TOY, TEXTS = (str(Path(__file__).parents[1].joinpath(name)) for name in ("toy.py", "toy_texts.py"))
LOCAL = ["--local", TOY, "--local", TEXTS]


def trained(
    root: Path, model: str = "bigram", data: str = "letters", epochs: int = 20, **fields: Any
) -> Path:
    given = {
        "data": {"name": data, "batch_size": 8, **fields},
        "model": model,
        "optimizer": {"name": "plain", "lr": 2.0, "momentum": 0.9},
        "objective": "guess" if data == "dots" else "symbols",
        "trainer": {"epochs": epochs, "device": "cpu"},
        "plugins": {"local": [TOY, TEXTS]},
    }
    return pegboard.train(given, root=root, quiet=True).folder


@pytest.fixture(scope="module")
def letters(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A run that has learned that a and b take turns, and that a line break follows."""
    return str(trained(tmp_path_factory.mktemp("letters")))


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(trained(tmp_path_factory.mktemp("pairs"), "echo", pair=True, epochs=1))


@pytest.fixture(scope="module")
def dots(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(trained(tmp_path_factory.mktemp("dots"), "flat", "dots", epochs=5))


def no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "pegboard.inference.trained.read_data", lambda *args: pytest.fail("the data was read")
    )


def test_a_prompt_is_continued_without_the_data(
    letters: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_data(monkeypatch)
    assert main(["sample", letters, "--prompt", "a", "--length", "7", "--temperature", "0", *LOCAL]) == 0
    assert capsys.readouterr().out == "ab\nab\nab\n"
    words = ["sample", letters, "--prompt", "ab", "--prompt", "b", "--length", "1", *LOCAL]
    assert main([*words, "--beams", "2"]) == 0
    assert capsys.readouterr().out == "ab\n\n--------------------\nb\n\n"


def test_a_text_begins_after_a_line_break_where_there_is_no_prompt(letters: str, capsys: Capture) -> None:
    assert main(["sample", letters, "--length", "2", "--temperature", "0", *LOCAL]) == 0
    said = capsys.readouterr()
    assert said.out == "ab\n" and "it begins after a line break" in said.err


@pytest.mark.parametrize(
    ("fields", "said", "first"),
    [
        ({"marked": True}, "the symbol that begins a text", "^"),
        ({"lines": False}, "a symbol of the training data", "ab\n"),
    ],
)
def test_a_text_without_a_prompt_begins_as_its_data_does(
    tmp_path: Path, fields: dict[str, Any], said: str, first: str
) -> None:
    run = trained(tmp_path, epochs=1, **fields)
    symbol, words = Writer(Trained(run, local=[TOY, TEXTS]), seed=3).beginning
    assert words == said and symbol.shape == (1, 1) and "_^$ab\n"[int(symbol)] in first


def test_what_is_drawn_is_repeated_by_its_seed(letters: str, tmp_path: Path, capsys: Capture) -> None:
    words = ["sample", letters, "--prompt", "a", "--temperature", "9", "-n", "4", *LOCAL]
    said = []
    for seed in ("1", "1", "2"):
        assert main([*words, "--seed", seed]) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1] != said[2] and len(set(said[0].split("-" * 20))) == 4
    assert main([*words, "--top-k", "1", "--length", "3"]) == 0
    assert set(capsys.readouterr().out.split(f"{'-' * 20}\n")) == {"ab\na\n"}
    assert main([*words, "--top-p", "0.01", "--length", "3", "-o", str(tmp_path / "out.json")]) == 0
    assert json.loads((tmp_path / "out.json").read_text()) == [{"prompt": "a", "text": "b\na"}] * 4
    assert (
        main([*words[:4], "--temperature", "0", "--length", "3", "-o", str(tmp_path / "o.txt"), *LOCAL]) == 0
    )
    assert (tmp_path / "o.txt").read_text() == "ab\na\n"


def test_a_prompt_is_translated(pairs: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    no_data(monkeypatch)
    assert main(["sample", pairs, "--prompt", "ab", "--prompt", "b", *LOCAL]) == 0
    assert capsys.readouterr().out == f"ab\n{'-' * 20}\nb\n"
    assert main(["sample", pairs, *LOCAL]) == 2
    assert "needs a text: --prompt TEXT" in capsys.readouterr().err


def test_what_cannot_write_says_what_it_is(
    letters: str, pairs: str, dots: str, tmp_path: Path, capsys: Capture
) -> None:
    said = {
        (dots,): "the model 'flat' of .* writes no text: it predicts Classes(2) from Image(1, 2, 2)",
        (letters, "--prompt", "xyz"): "'xyz' has other letters than",
        (letters, "--prompt", "a", "--prompt", ""): "an empty prompt says nothing to go on from: without",
        (pairs, "--prompt", ""): "an empty prompt says nothing to go on from",
        (letters, "-n", "2", "--beams", "2"): "beams leaves nothing to chance: all 2 texts would be the same",
        (pairs, "--prompt", "a", "-n", "3"): "a temperature of 0 leaves nothing to chance",
        (str(trained(tmp_path, decodes=False, epochs=1)),): "does not say how its symbols read as text",
    }
    for words, message in said.items():
        assert main(["sample", *words, *LOCAL]) == 2
        told = capsys.readouterr().err
        assert all(part in told for part in message.split(".*")), told
    for option, value in (("--top-p", "2"), ("--length", "0"), ("--temperature", "nan"), ("--seed", "x")):
        with pytest.raises(SystemExit):
            main(["sample", letters, option, value])
        assert f"found '{value}', expected a" in capsys.readouterr().err


def test_a_run_keeps_what_its_data_set_needs_to_read_and_write(letters: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(letters, run, symlinks=True)
    kept = run / "data" / "alphabet.json"
    assert json.loads(kept.read_text()) == "_^$ab\n"
    assert pegboard.resume(run, quiet=True, local=[TOY, TEXTS]).status == "finished" and kept.is_file()
    kept.write_text('"_^$xy\\n"')
    with pytest.raises(
        PegboardError, match=r"alphabet.json is damaged: its hash(.|\n)*the data itself is read"
    ):
        _ = Trained(run, local=[TOY, TEXTS]).codec
    kept.unlink()
    with pytest.raises(PegboardError, match="alphabet.json is not there"):
        _ = Trained(run, local=[TOY, TEXTS]).codec
    (run / "environment.json").unlink()
    with pytest.raises(PegboardError, match="data set 'letters' cannot read what it kept in .*FileNotFound"):
        _ = Trained(run, local=[TOY, TEXTS]).codec
    kept.parent.rmdir()
    codec = Trained(run, local=[TOY, TEXTS]).codec
    assert codec is not None and codec.columns == ("line",)


def test_every_fold_keeps_its_own(tmp_path: Path) -> None:
    given = {
        "data": {"name": "letters", "batch_size": 8},
        "model": "bigram",
        "optimizer": {"name": "plain"},
        "objective": "symbols",
        "trainer": {"epochs": 1, "device": "cpu", "folds": 2},
        "plugins": {"local": [TOY, TEXTS]},
    }
    run = pegboard.train(given, root=tmp_path, quiet=True)
    assert [(fold.folder / "data" / "alphabet.json").is_file() for fold in run.folds] == [True, True]
    assert not (run.folder / "data").exists()


def answers(*words: str, capsys: Capture) -> list[dict[str, str]]:
    assert main(["predict", *words, *LOCAL]) == 0
    return list(csv.DictReader(capsys.readouterr().out.splitlines()))


def test_pictures_in_folders_and_files_are_predicted(
    dots: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in {"in/b.png": 255, "in/sub/a.PNG": 0, "c.png": 0, "in/.x/d.png": 0}.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(bytes([value] * 4))
    Path("in/notes.txt").write_text("no picture")
    found = answers(dots, "--input", "in", "c.png", capsys=capsys)
    assert [(row["file"], row["class"]) for row in found] == [
        ("in/b.png", "light"), ("in/sub/a.PNG", "dark"), ("c.png", "dark"),
    ]  # fmt: skip
    assert list(found[0]) == ["file", "class", "probability"]
    Path("in/bad.png").write_bytes(b"1")
    Path("worse.png").write_bytes(b"12345")
    assert main(["predict", dots, "--input", "in", "c.png", "worse.png", *LOCAL]) == 2
    told = capsys.readouterr().err.splitlines()
    assert told == ["2 of 5 cannot be read:", "  in/bad.png: 1 dots", "  worse.png: 5 dots"]
    assert main(["predict", dots, "--input", "d.png", "nothing", *LOCAL]) == 2
    assert "no file d.png; did you mean 'c.png'?\nno file nothing" in capsys.readouterr().err
    Path("empty").mkdir()
    assert main(["predict", dots, "--input", "empty", *LOCAL]) == 2
    assert "empty holds no picture: expected files that end in .png" in capsys.readouterr().err
    assert main(["predict", dots, "--text", "dark", *LOCAL]) == 2
    assert "the model reads Image(1, 2, 2), from the columns dots: no text alone" in capsys.readouterr().err


def test_texts_of_files_lines_and_words_are_predicted(
    letters: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    no_data(monkeypatch)
    monkeypatch.chdir(tmp_path)
    Path("one.txt").write_text("ab\n")
    Path("two.txt").write_text("\ufeffb\n\nba\n")
    found = answers(letters, "--text", "ab", "--text", "a", capsys=capsys)
    assert [row["text"] for row in found] == ["ab", "a"]  # of several lengths: each by itself
    assert list(found[0]) == ["text", "class", "probability"] and found[1]["class"] == "b"
    found = answers(letters, "--input", "two.txt", "one.txt", "--lines", capsys=capsys)
    assert [(row["file"], row["line"]) for row in found] == [
        ("two.txt", "1"),
        ("two.txt", "3"),
        ("one.txt", "1"),
    ]
    assert [row["file"] for row in answers(letters, "--input", ".", capsys=capsys)] == ["one.txt", "two.txt"]
    Path("bytes.txt").write_bytes(b"\xff\xfe\xff")
    assert main(["predict", letters, "--input", ".", *LOCAL]) == 2
    assert capsys.readouterr().err == "1 of 3 cannot be read:\n  bytes.txt: no text in UTF-8\n"
    Path("rows.csv").write_text("line\nab\n")
    for words, message in {
        ("--input", "one.txt", "--text", "a"): "--input or --text, not both",
        ("--input", "one.txt", "rows.csv"): "one table is read at a time",
        ("--text", "a", "--lines"): "--lines is for text files",
        ("--beams", "3"): "--beams is for models that answer with a text, and 'bigram' does not",
        ("--beams", "0"): "expected at least 1",
    }.items():
        assert main(["predict", letters, *words, *LOCAL]) == 2
        assert message in capsys.readouterr().err


def test_translations_stand_beside_what_they_should_be(pairs: str, capsys: Capture) -> None:
    found = answers(pairs, "--split", "test", capsys=capsys)
    assert len(found) == 16 and found[1] == {"row": "1", "translation": "bba", "target": "bba"}
    assert answers(pairs, "--text", "ab", capsys=capsys) == [{"text": "ab", "translation": "ab"}]
    assert answers(pairs, "--text", "ab", "--beams", "2", capsys=capsys)[0]["translation"] == ""


def test_a_model_of_text_is_not_asked_to_predict_a_split_of_it(letters: str, capsys: Capture) -> None:
    assert main(["predict", letters, *LOCAL]) == 2
    assert f"what it writes: pegboard sample {letters} --prompt TEXT" in capsys.readouterr().err


def test_symbols_are_read_as_text_in_the_tables_of_a_run(letters: str) -> None:
    table = json.loads((Path(letters) / "tables.json").read_text())["predictions"]
    assert table["columns"] == ["sample", "target", "class", "probability"]
    assert table["rows"][0][1:3] == ["b\nab\nab\n", "b\nab\nab\n"]


def read(number: int, symbols: Tensor) -> list[str]:
    return ["".join("-abcde"[n] for n in row) for row in symbols.tolist()]


def test_answers_that_point_at_symbols_are_shown_as_text() -> None:
    text = torch.tensor([[1, 2, 3, 0], [5, 4, 0, 0]])
    spec = DataSpec((Tokens(6, 4, 0), Tokens(2, 4)), Span(4))
    columns = {"start": torch.tensor([1, 0]), "end": torch.tensor([2, 0])}
    found = worded(columns, (text, text), spec, read=read)
    assert found == {"answer": ["bc", "e"], "start": [1, 0], "end": [2, 0]}
    assert worded(columns, (text, text), spec) == {"start": [1, 0], "end": [2, 0]}
    columns = {"follows": torch.tensor([0.5, 0.25]), "symbols": text + 0}
    found = worded(columns, (text, text), DataSpec(spec.inputs, Masked(6, 4)), read=read)
    assert found == {"follows": [0.5, 0.25], "symbols": ["abc", "ed"]}  # up to the end of each


def test_steps_that_are_not_asked_are_left_out_of_tables() -> None:
    text = torch.tensor([[1, 2, 3, 0], [5, 4, 0, 0]])
    spec = DataSpec((Tokens(6, 4, 0),), Tokens(3, 4))
    asked = torch.tensor([[False, True, True, True], [True, False, True, False]])
    columns = {"class": torch.tensor([[0, 1, 2, 2], [2, 1, 0, 0]]), "probability": torch.ones(2, 4)}
    found = worded(columns, (text,), spec, lambda s: read(0, s), asked=asked)
    assert found == {"class": ["ab", "b"], "probability": [[1.0, 1.0], 1.0]}
