"""Predictions of a split say which row they are of and what the data says; no cell is a formula."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pegboard
import pytest
from pegboard.cli import main
from pegboard.inference.tables import write_table

Config = Callable[..., dict[str, Any]]
HERE = Path(__file__).parents[1]
LOCAL = [w for name in ("toy.py", "toy_samples.py", "toy_texts.py") for w in ("--local", str(HERE / name))]


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_a_split_is_predicted_with_row_numbers_and_true_labels(
    config: Config, root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = pegboard.train(config(), root=root, quiet=True)
    command = ["predict", str(run.folder), "--split", "val", *LOCAL[:2]]
    assert main(command) == 0
    found = rows(capsys.readouterr().out)
    assert list(found[0]) == ["row", "target", "class", "probability"]
    assert [row["row"] for row in found] == [str(n) for n in range(16)]
    assert [row["target"] for row in found] == ["left", "right"] * 8
    right = sum(row["target"] == row["class"] for row in found) / 16
    assert right == pytest.approx(run.figures["val/right"])
    assert main([*command, "-o", str(tmp_path / "out.json")]) == 0
    first = json.loads((tmp_path / "out.json").read_text())[0]
    assert (first["row"], first["target"]) == (0, "left")
    (tmp_path / "rows.csv").write_text("x,y\n1,2\n")  # of which nobody knows the labels
    capsys.readouterr()
    assert main(["predict", str(run.folder), "--input", str(tmp_path / "rows.csv"), *LOCAL[:2]]) == 0
    assert list(rows(capsys.readouterr().out)[0]) == ["class", "probability"]


@pytest.mark.parametrize(
    ("cell", "written"),
    [
        ("=1+1", "'=1+1"),
        ("+cmd|' /C calc'!A0", "'+cmd|' /C calc'!A0"),
        ("-2+3", "'-2+3"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\tx", "'\tx"),
        ("\rx", "'\rx"),
        ("-1", "-1"),
        ("+1.5e3", "+1.5e3"),
        ("plain = text", "plain = text"),
        ("", ""),
        (-1.5, "-1.5"),
        (-3, "-3"),
        (["=1"], '["=1"]'),
    ],
)
def test_no_cell_of_a_table_is_a_formula(tmp_path: Path, cell: Any, written: str) -> None:
    text = write_table({"=name": [cell]}, None)
    assert list(csv.reader(io.StringIO(text, newline=""))) == [["'=name"], [written]]
    write_table({"=name": [cell]}, tmp_path / "out.json")  # which no spreadsheet works out
    assert json.loads((tmp_path / "out.json").read_text()) == [{"=name": cell}]


def test_a_model_that_generates_samples_is_refused_with_the_command_that_shows_them(
    config: Config, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = config(data="bare", model={"name": "cloud", "codes": False}, objective={"name": "near"})
    given["plugins"] = {"local": [LOCAL[1], LOCAL[3]]}
    run = pegboard.train(given, root=root, quiet=True)
    for words in ([], ["--text", "x"]):
        assert main(["predict", str(run.folder), *words, *LOCAL[:4]]) == 2
        assert f"what it generates: pegboard sample {run.folder}" in capsys.readouterr().err
