"""Forecasts of `hub`: windows, splits by time, scaling by training, baselines, missing steps, answers."""

from __future__ import annotations

import csv
import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy
import pegboard
import pytest
import torch
from pegboard import PegboardError, Series, Values
from pegboard.cli import main
from pegboard_datasets import Hub, Target, series_options
from pegboard_datasets.restoring import restore
from pegboard_datasets.season import find_season
from pegboard_datasets.series_time import find_clock, on_grid, read_times

LOAD = Target(column="load", kind="forecast")


def series(**fields: Any) -> series_options.Series:
    return series_options.Series(**{"time": "day", "window": 4, "horizon": 2} | fields)


def days(count: int, start: str = "2024-01-01") -> list[str]:
    return [str(numpy.datetime64(start) + step) for step in range(count)]


def table(path: Path, rows: list[tuple[Any, ...]], header: str = "day,load") -> str:
    lines = [",".join("" if cell is None else str(cell) for cell in row) for row in rows]
    path.write_text("\n".join((header, *lines)) + "\n")
    return str(path)


def counted(path: Path, count: int = 40) -> str:
    """A load that is the number of its day."""
    return table(path, [(day, step) for step, day in enumerate(days(count))])


@pytest.fixture
def forecast(hub):
    """Splits of unscaled windows of a column that tells its step."""
    return lambda path, **more: hub(
        **{"path": path, "inputs": ("load",), "target": LOAD, "normalize": "none", "series": series()} | more
    )


def test_a_sample_is_a_window_and_the_steps_that_follow(forecast, tmp_path):
    splits = forecast(counted(tmp_path / "load.csv"))
    assert splits.spec.inputs == (Series(4, 1),) and splits.spec.target == Values(2, ("load+1", "load+2"))
    for source in (splits.train, splits.val, splits.test):
        first = source.inputs[0][:, 0, 0]
        assert torch.equal(source.inputs[0][..., 0], first[:, None] + torch.arange(4))
        assert torch.equal(source.target, first[:, None] + torch.tensor([4, 5]))


@pytest.mark.parametrize("gap", [0, 3])
@pytest.mark.parametrize("horizon", [1, 3])
def test_no_target_of_a_split_lies_before_the_end_of_the_one_before(forecast, tmp_path, gap, horizon):
    path = counted(tmp_path / "load.csv", 90)
    splits = forecast(path, series=series(gap=gap, horizon=horizon))
    parts = [splits.train.target, splits.val.target, splits.test.target]
    for before, after in itertools.pairwise(parts):
        assert int(after.min()) == int(before.max()) + 1 + gap
    assert int(parts[2].max()) == 89 and int(parts[0].min()) == 4
    assert f"{gap} steps apart" in splits.notes["about"] or not gap


def test_what_is_learned_of_scales_comes_from_the_time_of_training_alone(hub, tmp_path):
    fields = {"inputs": ("load",), "target": LOAD, "series": series()}
    splits = hub(path=counted(tmp_path / "load.csv"), **fields)
    last = splits.spec.target.invert(splits.train.target.double()).max()
    seen = torch.arange(int(last.round()) + 1, dtype=torch.float64)
    assert splits.spec.target.shift == pytest.approx([float(seen.mean())] * 2)
    assert splits.spec.target.scale == pytest.approx([float(seen.std(correction=0))] * 2)
    # Other values in the time of val and test change neither the scale nor a training sample.
    rows = [(day, step if step <= last else 1e6 * step) for step, day in enumerate(days(40))]
    other = hub(path=table(tmp_path / "other.csv", rows), **fields)
    assert other.spec == splits.spec
    assert torch.equal(other.train.inputs[0], splits.train.inputs[0])
    assert torch.equal(other.train.target, splits.train.target)
    assert not torch.equal(other.val.target, splits.val.target)


@pytest.mark.parametrize("layout", ["lists", "wide", "files", "arrays"])
def test_whole_series_in_rows_and_files_are_forecast_too(forecast, tmp_path, layout):
    from pegboard_datasets import Input

    # Without times all series end together, whatever their lengths.
    lengths = [40, 30, 36]
    loads = [[1000.0 * n + step for step in range(length)] for n, length in enumerate(lengths)]
    given = series_options.Series(window=4, horizon=2)
    if layout == "lists":
        import pyarrow
        import pyarrow.parquet

        path = str(tmp_path / "loads.parquet")
        pyarrow.parquet.write_table(pyarrow.table({"load": loads, "plant": ["a", "b", "c"]}), path)
        splits = forecast(path, series=series_options.Series(window=4, horizon=2, key="plant"))
        assert set(splits.table("test", {})["plant"]) == {"a", "b", "c"}
    elif layout == "wide":
        rows = [(*row, *[None] * (40 - len(row))) for row in loads]
        path = table(tmp_path / "wide.csv", rows, ",".join(f"t{n}" for n in range(40)))
        splits = forecast(path, inputs={"load": Input(kind="series", columns="t*")}, series=given)
        assert set(splits.table("test", {})["series"]) == {"0", "1", "2"}
    else:
        (folder := tmp_path / "plants").mkdir()
        for name, row in zip("abc", loads, strict=True):
            if layout == "files":
                table(folder / f"{name}.csv", list(zip(days(len(row)), row, strict=True)))
            else:
                numpy.save(folder / f"{name}.npy", numpy.array(row))
        name = "load" if layout == "files" else "values"
        given = series_options.Series(window=4, horizon=2, layout="files" if layout == "files" else "auto")
        target = Target(column=name, kind="forecast")
        splits = forecast(str(folder), inputs=(name,), target=target, series=given)
        assert set(splits.table("test", {})["file"]) == {
            f"{n}.{'csv' if layout == 'files' else 'npy'}" for n in "abc"
        }
    ends: dict[str, set[int]] = {}
    for split in ("train", "val", "test"):
        source = getattr(splits, split)
        steps = torch.cat([source.inputs[0][..., 0], source.target], 1)
        assert (steps.diff() == 1).all()
        before = [int(length - last % 1000) for n, length in enumerate(lengths)
                  for last in source.target[:, -1].tolist() if last // 1000 == n]  # fmt: skip
        ends[split] = set(before)  # steps before the end of its series
    assert min(ends["train"]) > max(ends["val"]) and min(ends["val"]) > max(ends["test"])


def test_lists_of_time_stamps_order_the_steps_of_a_row(forecast, tmp_path):
    import pyarrow
    import pyarrow.parquet

    path = str(tmp_path / "loads.parquet")
    stamps = [days(20), days(20, "2024-01-11")]
    loads = [[float(n) for n in range(20)], [10.0 + n for n in range(20)]]
    pyarrow.parquet.write_table(pyarrow.table({"load": loads, "day": stamps}), path)
    splits = forecast(path)
    assert splits.train.target.max() < splits.val.target.min()  # a load is the number of its day


def two_keys(path: Path, counts: tuple[int, int] = (30, 24)) -> str:
    rows = [
        (key, day, 1000 * number + step)
        for number, (key, count) in enumerate(zip("ab", counts, strict=True))
        for step, day in enumerate(days(count))
    ]
    return table(
        path, [rows[n] for n in numpy.random.default_rng(1).permutation(len(rows))], "plant,day,load"
    )


def test_no_window_crosses_from_one_key_to_the_next_and_time_is_shared(forecast, tmp_path):
    splits = forecast(two_keys(tmp_path / "plants.csv"), series=series(key="plant"))
    cut: dict[str, list[float]] = {}
    for split in ("train", "val", "test"):
        source = getattr(splits, split)
        steps = torch.cat([source.inputs[0][..., 0], source.target], 1)
        assert (steps.diff() == 1).all()
        times = source.target % 1000
        cut[split] = [float(times.min()), float(times.max())]
    assert cut["train"][1] < cut["val"][0] and cut["val"][1] < cut["test"][0]
    assert {int(first) // 1000 for first in splits.train.inputs[0][:, 0, 0]} == {0, 1}


def test_series_that_are_too_short_are_told(forecast, tmp_path):
    splits = forecast(two_keys(tmp_path / "plants.csv", (30, 5)), series=series(key="plant"))
    assert splits.warnings == (
        "1 of 2 series are shorter than window and horizon, 6 steps, and have no sample",
    )
    with pytest.raises(PegboardError, match=r"need 42 steps, and the longest series has 30"):
        forecast(two_keys(tmp_path / "plants.csv"), series=series(key="plant", window=40))


def test_columns_known_ahead_are_read_over_the_horizon_and_others_are_not(hub, tmp_path):
    rows = [(day, step, 100 + step, -step) for step, day in enumerate(days(40))]
    path = table(tmp_path / "load.csv", rows, "day,load,holiday,wind")
    splits = hub(
        path=path, inputs=("load", "wind"), target=LOAD, normalize="none", series=series(known=("holiday",))
    )
    assert splits.spec.inputs == (Series(6, 4),)
    x, first = splits.train.inputs[0], splits.train.inputs[0][:, 0, 0]
    assert torch.equal(x[..., 2], 100 + first[:, None] + torch.arange(6))
    assert (x[:, 4:, :2] == 0).all() and torch.equal(x[:, :4, 1], -x[:, :4, 0])
    assert x[0, :, 3].tolist() == [0, 0, 0, 0, 1, 1]


def test_several_columns_are_predicted_step_by_step(hub, tmp_path):
    rows = [(day, step, 100 + step) for step, day in enumerate(days(40))]
    target = Target(column=("load", "wind"), kind="forecast")
    path = table(tmp_path / "load.csv", rows, "day,load,wind")
    splits = hub(path=path, inputs=("load",), target=target, normalize="none", series=series())
    assert splits.spec.target.names == ("load+1", "wind+1", "load+2", "wind+2")
    assert splits.train.target[0].tolist() == [4, 104, 5, 105]
    answers = splits.table("test", {"value": splits.test.target.tolist()})
    assert (
        answers["forecast load"] == answers["target load"]
        and answers["forecast wind"] == answers["target wind"]
    )


@pytest.mark.parametrize("stride", [1, 3])
def test_windows_stand_a_stride_apart(forecast, tmp_path, stride):
    splits = forecast(counted(tmp_path / "load.csv"), series=series(stride=stride))
    assert (splits.train.inputs[0][:, 0, 0].diff() == stride).all()


def test_windows_that_are_read_when_needed_are_those_that_are_held(forecast, tmp_path):
    path = counted(tmp_path / "load.csv")
    held, read = (forecast(path, memory=memory) for memory in ("always", "never"))
    index = torch.tensor([5, 0, 3])
    one, other = held.train.gather(index), read.train.gather(index)
    assert torch.equal(one.inputs[0], other.inputs[0]) and torch.equal(one.target, other.target)
    assert held.notes["fingerprint"] == read.notes["fingerprint"]


def test_folds_validate_on_what_comes_after_all_that_trains(hub, parts, tmp_path, rows_cache):
    from pegboard import Context

    config = parts["hub"].config(
        path=counted(tmp_path / "load.csv"), inputs=("load",), target=LOAD, normalize="none", series=series()
    )
    ends = []
    for number in range(3):
        splits = parts["hub"].build(config, Context(fold=(number, 3)))
        assert splits.train.target.max() < splits.val.target.min()
        assert splits.val.target.max() < splits.test.target.min()
        ends.append(int(splits.train.target.max()))
    assert ends == sorted(set(ends))


def test_splits_of_a_source_that_overlap_in_time_are_told(hub, tmp_path):
    (folder := tmp_path / "data").mkdir()
    counted(folder / "train.csv")
    table(folder / "test.csv", [(day, step) for step, day in enumerate(days(20, "2024-02-05"))])
    splits = hub(path=str(folder), inputs=("load",), target=LOAD, series=series(), val=0.0)
    assert len(splits.warnings) == 1 and "test begins at 2024-02-05" in splits.warnings[0]


GAP = [(day, step) for step, day in enumerate(days(40)) if step != 10]


def test_steps_without_a_row_are_an_error_that_names_them(forecast, tmp_path):
    with pytest.raises(
        PegboardError, match=r"a step has no value.*no row for 2024-01-11, after .*row 9 \(0 is"
    ):
        forecast(table(tmp_path / "gap.csv", GAP))
    rows = [(day, None if step in (10, 11) else step) for step, day in enumerate(days(40))]
    with pytest.raises(PegboardError, match=r"2 steps have no value.*column 'load', .*row 10 .*: nothing"):
        forecast(table(tmp_path / "gap.csv", rows))


@pytest.mark.parametrize(("missing", "stands"), [("forward", 9.0), ("zero", 0.0), ("mask", 0.0)])
def test_what_stands_in_for_a_step_is_read_and_never_predicted(forecast, tmp_path, missing, stands):
    path = table(tmp_path / "gap.csv", GAP)
    splits = forecast(path, series=series(missing=missing))
    x, y = splits.train.inputs[0], splits.train.target
    read = x[(x[:, 0, 0] == 7)][0]
    assert read[:, 0].tolist() == [7, 8, 9, stands]
    assert not ((y[:, 0] == 9) | (y[:, 0] == 10)).any() and not (y == stands).all(1).any()
    assert (missing == "mask") == (x.shape[-1] == 2)
    if missing == "mask":
        assert read[:, 1].tolist() == [1, 1, 1, 0]
    assert "1 of 40 steps have no value" in splits.notes["about"]
    assert "2 windows of train are left out" in splits.notes["about"]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([("2024-02-10", "many")], r"column 'load', split 'train', row 40 .*'many'"),
        ([("2024-02-10T07:00", 3)], r"row 40 .*2024-02-10T07:00 lies between two steps"),
        ([("2024-01-05", 3)], r"row 40 .* the same time stamp as split 'train', row 4 "),
        ([("", 3)], r"column 'day', split 'train', row 40 .*nothing"),
    ],
)
def test_bad_rows_are_told_with_their_place(forecast, tmp_path, rows, said):
    path = Path(counted(tmp_path / "load.csv"))
    path.write_text(path.read_text() + "\n".join(f"{day},{load}" for day, load in rows) + "\n")
    with pytest.raises(PegboardError, match=said):
        forecast(str(path))


def test_persistence_is_the_last_value_and_the_seasonal_one_that_of_a_season_before(forecast, tmp_path):
    rows = [(day, 10 * (step // 7) + step % 7) for step, day in enumerate(days(60))]
    path = table(tmp_path / "weeks.csv", rows)
    splits = forecast(path, series=series(season=7, horizon=9))
    x, y = splits.test.inputs[0][..., 0], splits.test.target
    last = splits.baselines["persistence"]["test"]
    assert torch.equal(last, x[:, -1:].expand(-1, 9))
    weeks = splits.baselines["seasonal persistence"]["test"]
    assert torch.equal(weeks[:, :7], y[:, :7] - 10)  # a week before is 10 less
    assert torch.equal(weeks[:, 7:], weeks[:, :2])  # and of the second week ahead the same days are known
    first = splits.baselines["seasonal persistence"]["train"][0]
    assert first[:3].tolist() == [3.0] * 3 and first[3].item() == 0  # nothing is known before the first day


def test_a_season_is_found_in_training_or_stated(forecast, tmp_path):
    draw = numpy.random.default_rng(0)
    rows = [
        (day, round(0.1 * s + 5 * math.sin(2 * math.pi * s / 7) + draw.normal(), 3))
        for s, day in enumerate(days(120))
    ]
    path = table(tmp_path / "weeks.csv", rows)
    assert forecast(path).notes["season"] == 7 and "a season of 7 steps" in forecast(path).notes["about"]
    assert forecast(path, series=series(season=30)).notes["season"] == 30
    none = forecast(path, series=series(season=None))
    assert "season" not in none.notes and [*none.baselines] == ["persistence"]


def test_noise_walks_and_lines_have_no_season():
    for seed in range(20):
        draw = numpy.random.default_rng(seed).normal(size=400)
        assert find_season([draw]) is None
        assert find_season([draw.cumsum()]) is None
    assert find_season([numpy.arange(100.0)]) is None and find_season([numpy.ones(50)]) is None
    wave = numpy.sin(2 * numpy.pi * numpy.arange(400) / 24)
    assert find_season([wave, wave * 3 + 100])[0] == 24  # type: ignore[index]


@pytest.mark.parametrize(
    ("stamps", "says", "following"),
    [
        (["2023-11-01", "2023-12-01", "2024-01-01"], "a month", "2024-02-01"),
        (["2023-11", "2023-12", "2024-01"], "a month", "2024-02-01"),
        (["2023-12-31", "2024-01-31", "2024-02-29"], "a month", "2024-03-31"),
        (["2021-01-01", "2022-01-01", "2023-01-01"], "a year", "2024-01-01"),
        (["2024-01-01T00:00", "2024-01-01T01:00", "2024-01-01T02:00"], "an hour", "2024-01-01T03:00"),
        (["2024-01-01 00:00:00", "2024-01-01 00:15:00"], "15 minutes", "2024-01-01T00:30"),
        (["2024-01-01T00:00:00+02:00", "2024-01-01T00:00:30+02:00"], "30 seconds", "2023-12-31T22:01"),
        (["2024-01-01", "2024-01-08", "2024-01-15"], "7 days", "2024-01-22"),
        ([1990, 1991, 1992], "1", 1993),
        ([0.0, 0.1, 0.2, 0.30000000000000004], "0.1", 0.4),
    ],
)
def test_steps_of_time_are_found_in_the_stamps(stamps, says, following):
    times, dates = read_times(stamps, str)
    clock = find_clock([times], dates)
    assert clock.says() == says
    assert on_grid(clock, times, "error", str).tolist() == list(range(len(stamps)))
    assert clock.shown(clock.ticks(times)[-1:] + 1) == [following]


def trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: list[tuple[Any, ...]], **more: Any
) -> pegboard.Run:
    monkeypatch.chdir(tmp_path)
    path = table(tmp_path / "load.csv", rows, more.pop("header", "day,load"))
    config = {
        "data": {
            "name": "hub", "path": path, "inputs": ["load"], "target": {"column": "load", "kind": "forecast"},
            "series": {"time": "day", "window": 14, "horizon": 3, **more.pop("series", {})}, "batch_size": 16,
        },
        "model": {"name": "mlp", "hidden": [8]}, "optimizer": {"name": "adamw", "lr": 0.01},
        "trainer": {"epochs": 1, "device": "cpu"}, **more,
    }  # fmt: skip
    return pegboard.train(config, quiet=True)


WEEKS = [(day, 100 + 20 * math.sin(2 * math.pi * step / 7)) for step, day in enumerate(days(100))]


def test_a_run_behind_persistence_says_so_with_its_figures(tmp_path, rows_cache, monkeypatch, capsys):
    optimizer = {"name": "sgd", "lr": 1e-9}  # it learns nothing
    run = trained(tmp_path, monkeypatch, WEEKS, optimizer=optimizer)
    told = capsys.readouterr().err
    assert run.diagnosis["verdict"] == "behind seasonal persistence"
    assert "warning: the run ends behind seasonal persistence: test/mae" in told
    beside = run.summary["baselines"]
    assert beside["figures"]["seasonal persistence"]["test/mae"] == pytest.approx(0, abs=1e-3)
    assert beside["ratios"]["persistence"] == pytest.approx(
        run.figures["test/mae"] / beside["figures"]["persistence"]["test/mae"]
    )
    page = (run.folder / "report.html").read_text()
    assert "test, seasonal persistence" in page and "behind seasonal persistence" in page


def test_persistence_stands_beside_later_evaluations_too(tmp_path, rows_cache, monkeypatch, capsys):
    run = trained(tmp_path, monkeypatch, WEEKS)
    capsys.readouterr()
    assert main(["eval", str(run.folder), "--split", "val", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    there = run.summary["baselines"]["figures"]
    for rule in ("persistence", "seasonal persistence"):
        assert found["baselines"][rule]["val/mae"] == pytest.approx(there[rule]["val/mae"], abs=1e-6)
    assert main(["eval", str(run.folder)]) == 0
    shown = capsys.readouterr().out
    assert "\ntest, persistence " in shown and "\ntest, seasonal persistence " in shown
    assert f"baselines   test/mae is {run.figures['test/mae']:.4g}: " in shown


def test_a_run_ahead_of_persistence_keeps_its_verdict(tmp_path, rows_cache, monkeypatch, capsys):
    draw = numpy.random.default_rng(0)
    rows = [(day, load + draw.normal(0, 8)) for day, load in WEEKS]
    run = trained(tmp_path, monkeypatch, rows, trainer={"epochs": 60, "device": "cpu"})
    assert max(run.summary["baselines"]["ratios"].values()) < 1.1
    assert not run.diagnosis["verdict"].startswith("behind") and "behind" not in capsys.readouterr().err


def test_metrics_and_forecasts_are_in_the_units_of_the_data(tmp_path, rows_cache, monkeypatch, capsys):
    run = trained(tmp_path, monkeypatch, WEEKS)
    assert main(["predict", str(run.folder), "-o", "out.csv"]) == 0
    with Path("out.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [*rows[0]] == ["from", "day", "forecast", "target"] and len(rows) % 3 == 0
    known = dict(WEEKS)
    assert all(float(row["target"]) == pytest.approx(known[row["day"]], rel=1e-4) for row in rows)
    error = sum(abs(float(row["forecast"]) - float(row["target"])) for row in rows) / len(rows)
    assert run.figures["test/mae"] == pytest.approx(error, rel=1e-3)
    shown = json.loads((run.folder / "tables.json").read_text())["predictions"]
    place = shown["columns"].index("target")
    assert all(75 < value < 125 for row in shown["rows"] for value in row[place])


def test_forecasts_go_on_where_a_table_ends_with_keys_and_times(tmp_path, rows_cache, monkeypatch):
    rows = [(key, day, float(load)) for key in "ab" for day, load in WEEKS]
    run = trained(tmp_path, monkeypatch, rows, header="plant,day,load", series={"key": "plant"})
    written = [("b", day, load) for day, load in WEEKS[:20]] + [
        ("new", day, load) for day, load in WEEKS[30:60]
    ]
    table(tmp_path / "ask.csv", written, "plant,day,load")
    (tmp_path / "load.csv").unlink()  # what the run kept is enough
    assert main(["predict", str(run.folder), "--input", "ask.csv", "-o", "out.json"]) == 0
    found = json.loads(Path("out.json").read_text())
    assert [(row["plant"], row["from"], row["day"]) for row in found] == [
        (key, str(last), str(last + ahead))
        for key, last in (("b", numpy.datetime64("2024-01-20")), ("new", numpy.datetime64("2024-02-29")))
        for ahead in (1, 2, 3)
    ]


def test_a_table_that_is_too_short_or_lacks_what_is_known_ahead_is_refused(hub, tmp_path):
    rows = [(day, step, step % 2) for step, day in enumerate(days(40))]
    path = table(tmp_path / "load.csv", rows, "day,load,open")
    fields = {"path": path, "inputs": ("load",), "target": LOAD, "series": series(known=("open",))}
    splits = hub(**fields)
    (folder := tmp_path / "data").mkdir()
    for name, data in splits.files.items():
        (folder / name).write_bytes(data)
    codec = restore(Hub(**fields), folder)
    ask = {"day": days(6), "load": [0.0, 1.0, 2.0, 3.0, "", ""], "open": [0.0, 1.0, 0.0, 1.0, 0.0, 1.0]}
    (x,) = codec.encode(ask)
    assert torch.equal(x, splits.train.inputs[0][:1])
    with pytest.raises(
        PegboardError, match=r"the table has 3 steps before those that are asked for\n  expected: at least 4"
    ):
        codec.encode({name: cells[1:] for name, cells in ask.items()})
    with pytest.raises(
        PegboardError,
        match=r"the table has 1 step after the last value\n  expected: rows for the 2 steps to come",
    ):
        codec.encode({name: cells[:5] for name, cells in ask.items()})


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"series": {}}, "the window of the forecast is missing"),
        ({"series": {"window": 3, "missing": "linear"}}, "a line between steps looks ahead"),
        ({"series": {"window": 3, "known": ["load"]}}, "column 'load' is predicted, and known ahead"),
        ({"series": {"window": 3}, "normalize_target": True}, "a forecast scales its target as the column"),
        ({"inputs": {"load": {"kind": "text"}}, "series": {"window": 3}}, "a forecast reads no text"),
        ({"series": {"window": 3, "time": "load"}}, "is key or time, and an input or target"),
        ({"target": {"kind": "forecast"}, "series": {"window": 3}}, "the forecast names no column"),
    ],
)
def test_forecasts_that_mean_nothing_are_found_by_check(tmp_path, data, said):
    path = counted(tmp_path / "load.csv")
    target = {"column": "load", "kind": "forecast"}
    config = {
        "data": {"name": "hub", "path": path, "inputs": ["load"], "target": target, **data},
        "model": {"name": "rnn"}, "optimizer": {"name": "adamw"},
    }  # fmt: skip
    with pytest.raises(PegboardError, match=said):
        pegboard.plan(config)


def test_targets_of_tables_that_were_scaled_are_measured_in_their_own_units(hub, tmp_path):
    rows = [(step, 1000 + 10 * step) for step in range(40)]
    path = table(tmp_path / "t.csv", rows, "x,y")
    splits = hub(path=path, inputs=("x",), target=Target(column="y", kind="values"), normalize_target=True)
    values = splits.spec.target.invert(splits.test.target.double())
    assert torch.allclose(values, values.round(decimals=-1), atol=1e-3) and values.min() >= 1000
    assert splits.test.target.abs().max() < 3
