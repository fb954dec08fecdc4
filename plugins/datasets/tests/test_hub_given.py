"""Files and tables that a trained run of `hub` is asked about, read as its data was."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy
import pegboard
import pyarrow
import pyarrow.parquet
import pytest
import torch
from pegboard import Classes, Codec, PegboardError, Splits
from pegboard.cli import main
from pegboard_datasets import Hub, Input, Target, series_options
from pegboard_datasets.restoring import restore


@pytest.fixture
def kept(hub, tmp_path):
    """Splits, and the codec that their run folder gives."""

    def made(**fields: Any) -> tuple[Splits, Codec]:
        splits = hub(**fields)
        (folder := tmp_path / "run").mkdir()
        for name, data in splits.files.items():
            (folder / name).write_bytes(data)
        return splits, restore(Hub(**fields), folder)

    return made


def lines(path: Path, *rows: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(rows) + "\n")
    return str(path)


def parquet(path: Path, columns: dict[str, Any]) -> str:
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    return str(path)


def days(count: int) -> list[str]:
    return [str(numpy.datetime64("2024-01-01") + step) for step in range(count)]


def write_walks(folder: Path, count: int = 12) -> None:
    """A file for each walk, its steps in disorder, in a folder that names its gait."""
    for number in range(count):
        steps = [f"{20 * step},{number + step / 10},{-number}" for step in (2, 0, 1, 3)]
        lines(folder / ("slow", "fast")[number % 2] / f"{number:02}.csv", "ms,x,y", *steps)


def test_a_run_on_files_answers_files_and_tells_them_apart(tmp_path, rows_cache, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_walks(Path("walks"))
    config = {
        "data": {"name": "hub", "path": "walks", "inputs": ["x", "y"], "target": "folder", "val": 0.0,
                 "test": 0.25, "series": {"layout": "files", "time": "ms"}},
        "model": {"name": "mlp", "hidden": [4]}, "optimizer": {"name": "sgd"},
        "trainer": {"steps": 1, "device": "cpu"},
    }  # fmt: skip
    folder = str(pegboard.train(config, quiet=True).folder)

    def rows(*words: str) -> dict[str, dict[str, str]]:
        assert main(["predict", folder, *words, "-o", "out.csv"]) == 0
        with open("out.csv") as file:
            return {row["file"]: row for row in csv.DictReader(file)}

    held_out = rows()  # each beside what it is
    assert len(held_out) == 3 and all(
        row["target"] == Path(name).parent.name for name, row in held_out.items()
    )
    found = rows("--input", "walks")
    assert len(found) == 12
    for name, row in held_out.items():
        assert found[name] == {key: cell for key, cell in row.items() if key != "target"}
    assert [*rows("--input", "walks/slow/00.csv", "walks/fast/01.csv")] == [
        "walks/slow/00.csv",
        "walks/fast/01.csv",
    ]


@pytest.mark.parametrize(
    ("path", "said"),
    [("walks/none.csv", "is not there"), ("bytes.bin", "is no series"), ("empty", "holds no series")],
)
def test_what_is_no_series_is_refused_with_its_name(kept, tmp_path, path, said):
    write_walks(tmp_path / "walks")
    (tmp_path / "empty").mkdir()
    (tmp_path / "bytes.bin").touch()
    series = series_options.Series(layout="files")
    _, codec = kept(path=str(tmp_path / "walks"), inputs=("x",), target="folder", series=series)
    with pytest.raises(PegboardError, match=said):
        codec.read([str(tmp_path / path)])


def test_a_table_in_parquet_is_answered(kept, tmp_path):
    signals = [[float(row + step) for step in range(4)] for row in range(20)]
    path = parquet(tmp_path / "ecg.parquet", {"signal": signals, "label": ["a", "b"] * 10})
    splits, codec = kept(
        path=path, inputs={"signal": Input(kind="series")}, target="label", val=0.0, test=0.0
    )
    (x,) = codec.encode(codec.read([path]))
    known = splits.train.inputs[0]
    assert torch.equal(x, known[known[:, 0, 0].argsort()])
    assert codec.read([str(tmp_path / "rows.csv")]) is None  # which every run reads alike


@pytest.mark.parametrize("layout", ["lists", "texts", "wide", "files", "arrays"])
def test_series_that_are_whole_in_rows_and_files_are_continued(kept, tmp_path, layout):
    loads = {"a": [float(step) for step in range(40)], "b": [100.0 + step for step in range(30)]}
    series, inputs, name, key = {"window": 4, "horizon": 2}, ("load",), "load", "plant"
    asked: Any = None
    if layout == "wide":
        rows = [",".join([key, *map(str, load), *[""] * (40 - len(load))]) for key, load in loads.items()]
        path = lines(tmp_path / "wide.csv", "plant," + ",".join(f"t{n}" for n in range(40)), *rows)
        inputs, series["key"] = {"load": Input(kind="series", columns="t*")}, "plant"
        asked = {"plant": [*loads]} | {
            f"t{n}": [v[n] if n < len(v) else "" for v in loads.values()] for n in range(40)
        }
    elif layout in ("lists", "texts"):
        path = parquet(tmp_path / "loads.parquet", {"plant": [*loads], "load": [*loads.values()]})
        series["key"] = "plant"
        asked = {"plant": [*loads], "load": [*map(str, loads.values())]} if layout == "texts" else None
    else:
        path, key = str(tmp_path / "plants"), "file"
        (tmp_path / "plants").mkdir()
        for plant, load in loads.items():
            if layout == "files":
                rows = [f"{day},{value}" for day, value in zip(days(len(load)), load, strict=True)]
                lines(tmp_path / "plants" / f"{plant}.csv", "day,load", *rows[::-1])
            else:
                numpy.save(tmp_path / "plants" / f"{plant}.npy", numpy.array(load))
        name = "load" if layout == "files" else "values"
        inputs, series = (name,), series | ({"layout": "files", "time": "day"} if layout == "files" else {})
    _, codec = kept(
        path=path, inputs=inputs, target=Target(column=name, kind="forecast"),
        series=series_options.Series(**series), normalize="none",
    )  # fmt: skip
    asked = codec.read([path]) if asked is None else asked
    (x,) = codec.encode(asked)
    assert x[..., 0].tolist() == [load[-4:] for load in loads.values()]
    answers = codec.table(asked, {"value": [[1.0, 2.0], [3.0, 4.0]]})
    assert [Path(cell).stem for cell in answers[key]] == ["a", "a", "b", "b"]
    assert answers["forecast"] == [1.0, 2.0, 3.0, 4.0]


def test_rows_that_are_counted_are_continued_without_a_date(kept, tmp_path):
    stamps = [day for day in days(60) if numpy.is_busday(day)]
    path = lines(tmp_path / "stocks.csv", "day,price", *(f"{day},{n}" for n, day in enumerate(stamps)))
    splits, codec = kept(
        path=path, inputs=("price",), target=Target(column="price", kind="forecast"),
        series=series_options.Series(time="day", window=4, horizon=3, irregular="rows"),
    )  # fmt: skip
    assert "4 steps are read and 3 predicted" in splits.notes["about"]
    table = {"day": stamps[:8], "price": [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, "", ""]}
    found = codec.table(table, {"value": [[6.0, 7.0, 8.0]]})
    assert found["from"] == [stamps[5]] * 3 and found["day"] == [*stamps[6:8], "+3"]


def test_a_season_that_lies_before_no_window_is_told(hub, tmp_path):
    path = lines(tmp_path / "load.csv", "day,load", *(f"{day},{n}" for n, day in enumerate(days(60))))
    fields: dict[str, Any] = {
        "path": path,
        "inputs": ("load",),
        "target": Target(column="load", kind="forecast"),
    }
    found = [
        hub(**fields, series=series_options.Series(time="day", window=4, horizon=2, season=season)).warnings
        for season in (7, 50)
    ]
    assert found[0] == ()
    assert [warning.partition(" begin")[0] for warning in found[1]] == [
        "5 of 5 windows of val", "2 of 11 windows of test",
    ]  # fmt: skip


def test_files_without_a_line_of_names_keep_their_first_row(kept, tmp_path):
    rows = [f"{1 + n % 2}\t" + "\t".join(f"{n + step / 8}" for step in range(3)) for n in range(20)]
    path = lines(tmp_path / "gun.tsv", *rows)
    fields: dict[str, Any] = {
        "path": path, "inputs": {"trace": Input(kind="series", columns="1..3")}, "val": 0.0, "test": 0.0,
        "target": Target(column="0", kind="classes"), "normalize": "none",
    }  # fmt: skip
    with pytest.raises(PegboardError, match=r"gun\.tsv: the first line holds numbers and no names: 1, 0\.0"):
        kept(**fields)
    splits, codec = kept(**fields, header=False)
    assert len(splits.train) == 20 and splits.spec.target == Classes(2, ("1", "2"))
    (x,) = codec.encode(codec.read([path]))
    assert x[:, 0, 0].tolist() == list(range(20))


def test_quotes_of_a_table_that_is_asked_about_are_those_of_training(kept, tmp_path):
    rows = [f'"{n} tv\t{n}\t{n % 2}' for n in range(20)]
    path = lines(tmp_path / "stray.tsv", "name\tx\ty", *rows)
    _, codec = kept(path=path, inputs=("x",), target="y", val=0.0, test=0.0)
    assert codec.read([path])["name"][3] == '"3 tv' and len(codec.encode(codec.read([path]))[0]) == 20
    with pytest.raises(PegboardError, match=r"row 1 \(0 is the first\): 2 cells\n.*3, as in the first line"):
        codec.read([lines(tmp_path / "short.tsv", "name\tx\ty", "a\t1\t0", "b\t2")])


def test_a_header_of_files_that_have_none_is_refused(tmp_path):
    config = {
        "data": {"name": "hub", "path": lines(tmp_path / "rows.jsonl", "{}"), "inputs": ["a"], "target": "b",
                 "header": False},
        "model": {"name": "mlp"}, "optimizer": {"name": "adamw"},
    }  # fmt: skip
    with pytest.raises(PegboardError, match=r"header means nothing for \.jsonl files"):
        pegboard.plan(config)
