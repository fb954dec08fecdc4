"""`hub` on series: a row, a key or a file each; classes and values of whole series."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy
import pegboard
import pytest
import torch
from pegboard import Classes, PegboardError, Series, Values, Vector
from pegboard_datasets import Hub, Input, Target, series_options
from pegboard_datasets.restoring import restore
from pegboard_datasets.series_reading import wide_columns

LISTED = Input(kind="series")
COUNT = 30


def write_rows(path: Path, columns: dict[str, list[Any]]) -> str:
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    return str(path)


def lists(lengths: list[int], by: float = 1.0) -> list[list[float]]:
    return [[by * (100 * row + step) for step in range(length)] for row, length in enumerate(lengths)]


def csv(path: Path, header: str, rows: list[str]) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join((header, *rows)) + "\n")
    return str(path)


@pytest.fixture
def whole(hub):
    """Splits in which all rows train, in their order."""
    return lambda **fields: hub(**{"val": 0.0, "test": 0.0, "normalize": "none"} | fields)


def by_first(splits) -> torch.Tensor:
    """The inputs of training, ordered by their first number."""
    x = splits.train.inputs[0]
    return x[x[:, 0, 0].argsort()]


def test_lists_are_channels_of_a_series(whole, tmp_path):
    path = write_rows(
        tmp_path / "a.parquet",
        {"a": lists([4] * COUNT), "b": lists([4] * COUNT, -1.0), "y": [n % 2 for n in range(COUNT)]},
    )
    splits = whole(path=path, inputs={"a": LISTED, "b": LISTED}, target="y")
    assert splits.spec.inputs == (Series(4, 2),) and splits.spec.target == Classes(2, ("0", "1"))
    x = by_first(splits)
    assert x[3, :, 0].tolist() == [300, 301, 302, 303] and torch.equal(x[..., 1], -x[..., 0])


def test_lists_of_lists_have_a_channel_for_each_number(whole, tmp_path):
    rows = [[[float(step), 10.0 * row] for step in range(3)] for row in range(COUNT)]
    path = write_rows(tmp_path / "a.parquet", {"a": rows, "y": [float(row) for row in range(COUNT)]})
    splits = whole(
        path=path,
        inputs={"a": LISTED},
        target=Target(column="y", kind="values"),
    )
    assert splits.spec.inputs == (Series(3, 2),) and isinstance(splits.spec.target, Values)
    assert torch.equal(splits.train.inputs[0][:, 0, 1], 10 * splits.train.target[:, 0])


@pytest.mark.parametrize("memory", ["always", "never"])
def test_shorter_series_end_in_nan_whether_held_or_read(hub, tmp_path, memory):
    lengths = [2 + n % 3 for n in range(COUNT)]
    path = write_rows(tmp_path / "a.parquet", {"a": lists(lengths), "y": lengths})
    splits = hub(path=path, inputs=("a",), target=Target(column="y", kind="values"), memory=memory)
    assert splits.spec.inputs == (Series(4, 1, True),)  # auto: lists of different length are series
    batch = splits.train.gather(torch.arange(len(splits.train)))
    assert torch.equal((~batch.inputs[0].isnan()).sum((1, 2)).float(), batch.target[:, 0])


def test_lists_of_one_length_stay_a_vector_and_the_run_says_so(whole, tmp_path):
    path = write_rows(tmp_path / "a.parquet", {"a": lists([4] * COUNT), "y": [n % 2 for n in range(COUNT)]})
    splits = whole(path=path, inputs=("a",), target="y")
    assert splits.spec.inputs == (Vector(4),)
    assert (
        splits.notes["about"] == "column 'a' is read as a vector of 4 numbers; kind: series reads its steps"
    )


def test_scaling_is_that_of_the_training_rows_by_channel(hub, tmp_path):
    path = write_rows(
        tmp_path / "a.parquet",
        {"a": lists([3 + n % 2 for n in range(COUNT)]), "y": [n % 2 for n in range(COUNT)]},
    )
    plain, scaled = (
        hub(path=path, inputs={"a": LISTED}, target="y", normalize=how) for how in ("none", "standard")
    )
    known = plain.train.inputs[0][~plain.train.inputs[0].isnan()].double()
    mean, deviation = known.mean(), known.std(correction=0)
    for split in ("train", "test"):
        x = (getattr(plain, split).inputs[0] - mean) / deviation
        assert torch.allclose(x.float(), getattr(scaled, split).inputs[0], equal_nan=True, atol=1e-5)
    assert torch.allclose(
        scaled.invert(scaled.test.inputs[0]), plain.test.inputs[0], equal_nan=True, atol=1e-3
    )


@pytest.mark.parametrize("columns", ["t0..t11", "t*", [f"t{n}" for n in range(12)]])
def test_wide_tables_are_series_whose_steps_stand_in_order(whole, tmp_path, columns):
    names = [f"t{n}" for n in range(12)]
    order = sorted(names)  # t0, t1, t10, t11, t2, ...
    rows = [",".join([*(str(100 * row + int(n[1:])) for n in order), str(row % 2)]) for row in range(COUNT)]
    path = csv(tmp_path / "wide.csv", ",".join([*order, "y"]), rows)
    given = Input(kind="series", columns=tuple(columns) if isinstance(columns, list) else columns)
    splits = whole(path=path, inputs={"wave": given}, target="y")
    assert splits.spec.inputs == (Series(12, 1),) and splits.spec.names == ("wave",)
    assert by_first(splits)[2, :, 0].tolist() == [200.0 + n for n in range(12)]
    assert list(splits.columns) == names


def test_wide_series_end_where_nothing_follows(whole, tmp_path):
    rows = [f"{n},{n + 1},{n + 2 if n % 2 else ''},{n % 2}" for n in range(COUNT)]
    path = csv(tmp_path / "wide.csv", "t0,t1,t2,y", rows)
    splits = whole(path=path, inputs={"w": Input(kind="series", columns="t*")}, target="y")
    assert splits.spec.inputs == (Series(3, 1, True),)
    assert torch.equal((~splits.train.inputs[0].isnan()).sum((1, 2)), 2 + splits.train.target)


def test_columns_that_are_not_there_are_named():
    assert wide_columns("a08..a10", ["a08", "a09", "a10"]) == ("a08", "a09", "a10")
    with pytest.raises(PegboardError, match="there is no column 'a2' among the steps"):
        wide_columns("a0..a2", ["a0", "a1"])
    with pytest.raises(PegboardError, match=r"no column like 'b\*'"):
        wide_columns("b*", ["a0", "a1"])


STEPS = series_options.Series(key="id", time="when")


def long_table(path: Path, order: list[int] | None = None, odd: str = "") -> str:
    rows = [
        f"k{key},2024-01-{1 + step:02},{10 * key + step},{-step},{'up' if key % 2 else 'down'}"
        for key in range(12)
        for step in range(5)
    ]
    rows = rows if order is None else [rows[n] for n in order]
    return csv(path, "id,when,a,b,y", [row for row in rows if not odd or not row.startswith(odd)])


def test_steps_are_put_together_by_key_in_the_order_of_time(whole, tmp_path):
    shuffled = numpy.random.default_rng(0).permutation(60).tolist()
    path = long_table(tmp_path / "long.csv", shuffled)
    splits = whole(path=path, inputs=("a", "b"), target="y", series=STEPS)
    assert splits.spec.inputs == (Series(5, 2),) and splits.spec.target == Classes(2, ("down", "up"))
    x = by_first(splits)
    assert x[7, :, 0].tolist() == [70, 71, 72, 73, 74] and x[7, :, 1].tolist() == [0, -1, -2, -3, -4]
    table = splits.table("train", {"class": ["?"] * 12})
    firsts = [f"k{int(first) // 10}" for first in splits.train.inputs[0][:, 0, 0]]
    assert table["id"] == firsts and [*table] == ["id", "class"]


def test_a_step_without_a_row_is_an_error_that_a_rule_mends(whole, tmp_path):
    path = long_table(tmp_path / "long.csv", odd="k3,2024-01-03")
    with pytest.raises(PegboardError, match=r"series 'k3' has no row for 2024-01-03, after .*row 16 \(0 is"):
        whole(path=path, inputs=("a",), target="y", series=STEPS)
    third = {"forward": 31.0, "linear": 32.0, "zero": 0.0, "mask": 0.0}
    for missing, value in third.items():
        series = series_options.Series(key="id", time="when", missing=missing)
        x = by_first(whole(path=path, inputs=("a",), target="y", series=series))
        assert x[3, 2, 0] == value and x[3, :2, 0].tolist() == [30, 31]
    assert x.shape[-1] == 2 and x[3, :, 1].tolist() == [1, 1, 0, 1, 1] and x[2, :, 1].all()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("k1,2024-01-06,nope,0,up", r"column 'a', split 'train', row 60 .*'nope'"),
        ("k1,2024-01-02,5,0,up", r"row 60 .* the same time stamp as .*row 6 "),
        (
            "k1,2024-01-02T11:00,5,0,up",
            r"2024-01-02T11:00 lies between two steps, 2024-01-02T00:00 and 2024-01-03",
        ),
        ("k1,soon,5,0,up", r"column 'when', .*row 60 .*'soon'"),
        ("k1,2024-01-06,5,0,down", r"column 'y': series 'k1' has 'up' in .* and 'down' in .*row 60"),
        ("k1,2024-01-06,inf,0,up", r"column 'a', .*row 60 .*inf"),
    ],
)
def test_what_is_wrong_in_a_table_of_steps_is_told_with_its_row(whole, tmp_path, line, said):
    path = Path(long_table(tmp_path / "long.csv"))
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(PegboardError, match=said):
        whole(path=str(path), inputs=("a",), target="y", series=STEPS)


@pytest.mark.parametrize(("irregular", "steps"), [("nearest", 3), ("rows", 3)])
def test_irregular_stamps_are_moved_or_counted_where_a_config_says_so(whole, tmp_path, irregular, steps):
    rows = [
        f"k{key},2024-01-01T0{step}:0{key % 3},{key + step},{key % 2}"
        for key in range(12)
        for step in range(3)
    ]
    rows[4] = "k1,2024-01-01T01:09,2,1"
    path = csv(tmp_path / "long.csv", "id,when,a,y", rows)
    with pytest.raises(PegboardError, match=r"row 4 .*2024-01-01T01:09 lies between two steps"):
        whole(path=path, inputs=("a",), target="y", series=STEPS)
    series = series_options.Series(key="id", time="when", irregular=irregular)
    assert whole(path=path, inputs=("a",), target="y", series=series).spec.inputs == (Series(steps, 1),)


def test_each_file_of_a_folder_is_a_series_labelled_by_its_folder(hub, tmp_path):
    for number in range(20):
        rows = [f"{n},{100 * number + n}" for n in range(3 + number % 2)]
        csv(tmp_path / "walks" / ("slow", "fast")[number % 2] / f"{number:02}.csv", "t,x", rows)
    fields = {"path": str(tmp_path / "walks"), "inputs": ("x",), "target": "folder", "normalize": "none"}
    splits = hub(series=series_options.Series(layout="files"), **fields)
    assert splits.spec.inputs == (Series(4, 1, True),) and splits.spec.target == Classes(2, ("fast", "slow"))
    number = splits.test.inputs[0][:, 0, 0] / 100
    assert torch.equal(splits.test.target, 1 - number.long() % 2)
    assert splits.table("test", {})["file"] == [
        f"{('slow', 'fast')[int(n) % 2]}/{int(n):02}.csv" for n in number
    ]


def test_arrays_are_labelled_by_an_index_that_may_name_splits(hub, tmp_path):
    folder = tmp_path / "arrays"
    folder.mkdir()
    for number in range(12):
        numpy.save(folder / f"{number}.npy", numpy.full((4, 2), number, "float32"))
    rows = [f"{number},{number / 2},{'test' if number > 8 else 'train'}" for number in range(11)]
    csv(folder / "index.csv", "file,speed,split", rows)
    series = series_options.Series(index="index.csv")
    target = Target(column="speed", kind="values")
    splits = hub(
        path=str(folder), inputs=("values",), target=target, series=series, val=0.0, normalize="none"
    )
    assert splits.spec.inputs == (Series(4, 2),) and len(splits.train) == 9 and len(splits.test) == 2
    assert torch.equal(splits.test.inputs[0][:, 0, 0] / 2, splits.test.target[:, 0])
    assert splits.warnings == ("1 files are left out, as index.csv has no row for them: 11.npy",)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("bad.csv", "x\n1\nword\n", r"bad\.csv, column 'x', row 1: 'word'"),
        ("other.csv", "z\n1\n2\n", r"there is no column 'x' in other\.csv"),
        ("empty.csv", "", r"empty\.csv' cannot be read"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(hub, tmp_path, name, text, said):
    csv(tmp_path / "walks" / "good.csv", "x", ["1", "2"])
    (tmp_path / "walks" / name).write_text(text)
    with pytest.raises(PegboardError, match=said):
        hub(
            path=str(tmp_path / "walks"),
            inputs=("x",),
            target="folder",
            series=series_options.Series(layout="files"),
        )


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([1.0, None, 3.0], r"column 'a', split 'train', row 1 .*step 1: nothing"),
        ([1.0, math.inf], r"column 'a', split 'train', row 1 .*step 1: inf"),
        ([], r"row 1 .*a series without a step"),
        (None, r"column 'a', split 'train', row 1 .*: nothing"),
    ],
)
def test_bad_lists_are_told_with_row_and_step(whole, tmp_path, value, said):
    path = write_rows(
        tmp_path / "a.parquet", {"a": [[1.0, 2.0], value, *[[4.0, 5.0]] * 13], "y": [0, 1, 0] * 5}
    )
    with pytest.raises(PegboardError, match=said):
        whole(path=path, inputs={"a": LISTED}, target="y")


def test_channels_of_different_length_are_told_unless_they_are_cut(whole, tmp_path):
    path = write_rows(
        tmp_path / "a.parquet", {"a": lists([4] * COUNT), "b": lists([3] * COUNT), "y": [0, 1] * 15}
    )
    with pytest.raises(PegboardError, match="4 steps of 'a' and 3 of 'b'"):
        whole(path=path, inputs={"a": LISTED, "b": LISTED}, target="y")
    cut = Input(kind="series", length=3)
    assert whole(path=path, inputs={"a": cut, "b": cut}, target="y").spec.inputs == (Series(3, 2),)


@pytest.mark.parametrize("layout", ["lists", "wide", "steps"])
def test_what_is_restored_reads_tables_as_the_data_was_read(whole, tmp_path, layout):
    if layout == "steps":
        path = long_table(tmp_path / "long.csv")
        fields: dict[str, Any] = {"path": path, "inputs": ("a", "b"), "target": "y", "series": STEPS}
        table: dict[str, Any] = {
            "id": ["k7"] * 5 + ["k1"] * 5,
            "when": [f"2024-01-0{1 + n}" for n in range(5)] * 2,
            "a": [70.0 + n for n in range(5)] + [10.0 + n for n in range(5)],
            "b": [0.0 - n for n in range(5)] * 2,
        }
    elif layout == "wide":
        rows = [f"{n},{n + 1},{n % 2}" for n in range(COUNT)]
        fields = {"path": csv(tmp_path / "wide.csv", "t0,t1,y", rows), "target": "y",
                  "inputs": {"w": Input(kind="series", columns="t*")}}  # fmt: skip
        table = {"t0": [7.0, 1.0], "t1": [8.0, 2.0]}
    else:
        path = write_rows(tmp_path / "a.parquet", {"a": lists([2] * COUNT), "y": [0, 1] * 15})
        fields = {"path": path, "inputs": {"a": LISTED}, "target": "y"}
        table = {"a": ["[700, 701]", [100, 101]]}
    splits = whole(**fields | {"normalize": "standard"})
    (folder := tmp_path / "data").mkdir()
    for name, data in splits.files.items():
        (folder / name).write_bytes(data)
    codec = restore(Hub(**fields), folder)
    (x,) = codec.encode(table)
    known = splits.train.inputs[0][splits.train.inputs[0][:, 0, 0].argsort()]
    assert torch.equal(x, known[[1, 7]] if layout == "steps" else known[[7, 1]])
    if layout == "steps":
        assert codec.table(table, {"class": [0, 1]}) == {"id": ["k1", "k7"], "class": [0, 1]}


@pytest.mark.parametrize("model", ["rnn", "cnn", "mlp", "encoder"])
def test_every_family_trains_on_series_of_hub(model, tmp_path, rows_cache, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = write_rows(
        tmp_path / "a.parquet", {"a": lists([8] * COUNT, 0.01), "y": [n % 2 for n in range(COUNT)]}
    )
    config = {
        "data": {"name": "hub", "path": path, "inputs": {"a": {"kind": "series"}}, "target": "y"},
        "model": {"name": model}, "optimizer": {"name": "adamw"}, "trainer": {"steps": 2, "device": "cpu"},
    }  # fmt: skip
    assert pegboard.train(config, quiet=True).status == "finished"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"inputs": {"a": {"kind": "series", "vocab": 9}}}, "vocab means nothing for a column of series"),
        ({"inputs": {"a": {"kind": "numbers", "columns": "t*"}}}, "columns of a wide table are the steps"),
        ({"series": {"window": 3}}, "window means nothing without a forecast"),
        ({"series": {"layout": "rows", "key": "id"}}, "key means nothing where a row is a series"),
        ({"series": {"layout": "steps"}}, "all rows would be one series"),
        ({"series": {"layout": "files"}}, "one file a sample, but"),
        ({"series": {"key": "a"}}, "column 'a' is key or time, and an input"),
    ],
)
def test_configs_that_mean_nothing_are_found_by_check(tmp_path, data, said):
    path = csv(tmp_path / "a.csv", "id,a,y", ["k,1,0"])
    config = {
        "data": {"name": "hub", "path": path, "inputs": ["a"], "target": "y", **data},
        "model": {"name": "rnn"}, "optimizer": {"name": "adamw"},
    }  # fmt: skip
    with pytest.raises(PegboardError, match=said):
        pegboard.plan(config)
