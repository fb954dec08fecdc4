"""Cross-validation: a run for each fold, what is said of them together, and resuming."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import signal
import statistics
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pegboard
import pytest
import torch
import yaml
from pegboard import Resident
from pegboard.cli import main
from pegboard.config.check import check
from pegboard.engine.loop import Interrupted
from pegboard.tools.cross_validation import describe, judge, quantile, shared_epoch
from sweeps import first_of_each

Config = Callable[..., dict[str, Any]]
Capture = pytest.CaptureFixture[str]
WATCHING = """
import json
from dataclasses import dataclass
from pathlib import Path
from pegboard import Tracker, TrackerPart, hookimpl

@dataclass(frozen=True)
class Watch:
    path: str  # where it writes

class Watching(Tracker):
    def __init__(self, path):
        self.path = Path(path)

    def write(self, *words):
        with self.path.open("a") as file:
            file.write(json.dumps(words) + chr(10))

    def start(self, run):
        self.write("start", run.id, run.group, run.resumed)

    def finish(self, status, summary):
        self.write("finish", status, summary.get("figures"))

@hookimpl
def pegboard_trackers():
    return [TrackerPart("watch", Watch, lambda config, context: Watching(config.path))]
"""


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    """Nobody looks at the curves, nor at what git says."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pegboard.run.finish.draw_curves", lambda rows, path, *_: path)
        patch.setattr("pegboard.run.provenance.git_state", lambda: ({}, ""))
        yield


# Mean and interval.
@pytest.mark.parametrize(
    ("freedom", "t"),
    [(1, 12.7062), (2, 4.30265), (3, 3.18245), (4, 2.77645), (9, 2.26216), (29, 2.04523), (120, 1.97993)],
)
def test_quantiles_of_students_distribution_are_those_of_tables(freedom: int, t: float) -> None:
    assert quantile(0.95, freedom) == pytest.approx(t, abs=6e-6 * t)


def test_the_quantile_of_many_degrees_is_that_of_the_normal_distribution() -> None:
    assert quantile(0.95, 10**5) == pytest.approx(statistics.NormalDist().inv_cdf(0.975), rel=3e-5)


def test_mean_deviation_and_interval_by_hand() -> None:
    found = describe([1.0, 2.0, 3.0, 4.0])
    assert found["mean"] == 2.5
    assert found["std"] == pytest.approx(math.sqrt(5 / 3))
    half = 3.182446305 * math.sqrt(5 / 3) / 2
    assert found["interval"] == pytest.approx([2.5 - half, 2.5 + half])
    equal = describe([0.925000011920929] * 3)
    assert (equal["std"], equal["interval"]) == (0.0, [equal["mean"]] * 2)
    assert all(math.isnan(x) for x in describe([1.0, math.nan])["interval"])


@pytest.mark.parametrize(
    ("verdicts", "said"),
    [
        (["fine", "fine", "fine"], "fine: in 3 of 3 folds"),
        (["overfits", "fine", "overfits"], "overfits: in 2 of 3 folds, fine in 1"),
        (["fine", None, "fine"], "fine: in 2 of 3 folds, no verdict in 1"),
        (["fine", "overfits"], "no verdict: fine in 1, overfits in 1 of 2 folds"),
        ([None, None, "fine"], "no verdict: no verdict in 2, fine in 1 of 3 folds"),
        ([None, None], "no verdict: all alike"),
    ],
)
def test_the_whole_is_judged_as_most_folds_are(verdicts: list[str | None], said: str) -> None:
    found = [{"verdict": v, "gap": float(i), "rule": "all alike"} for i, v in enumerate(verdicts)]
    judged = judge(found)
    assert str(judged) == said and judged.gap == (len(verdicts) - 1) / 2
    assert judge([*found, {"verdict": None, "gap": None, "rule": ""}]).gap is None


# The runs.
def folded(config: Config, **more: Any) -> dict[str, Any]:
    trainer = {"epochs": 2, "device": "cpu", "folds": 3, "threads": 1, "log_every": 2}
    return config(regularizers={"drop": {"p": 0.3}}, trainer=trainer | more)


@pytest.fixture(scope="module")
def whole(config: Config, tmp_path_factory: pytest.TempPathFactory) -> pegboard.Run:
    """A cross-validation of three folds that nothing interrupted."""
    return pegboard.train(folded(config), root=tmp_path_factory.mktemp("whole"), quiet=True)


def whole_page(run: pegboard.Run) -> str:
    return (run.folder / "report.html").read_text("utf-8")


def outcome(run: pegboard.Run) -> dict[str, bytes]:
    """What of each fold must be the same to the byte: config, history, weights."""
    names = (
        "config.yaml",
        "metrics.jsonl",
        "checkpoints/best/model.safetensors",
        "checkpoints/last/state.pt",
    )
    return {f"{fold.folder.name}/{n}": (fold.folder / n).read_bytes() for fold in run.folds for n in names}


def test_every_fold_is_a_run_and_the_whole_has_their_means(whole: pegboard.Run) -> None:
    assert [fold.folder.name for fold in whole.folds] == ["fold-0", "fold-1", "fold-2"]
    assert sorted(p.name for p in whole.folder.glob("fold-*")) == ["fold-0", "fold-1", "fold-2"]
    assert whole.status == "finished" and {fold.status for fold in whole.folds} == {"finished"}
    assert whole.history == [] and whole.folds[0].folds == []
    saved = [yaml.safe_load((run.folder / "config.yaml").read_text()) for run in (whole, *whole.folds)]
    assert [c["trainer"]["fold"] for c in saved] == [None, 0, 1, 2]
    own = {name: mean for name, mean in whole.figures.items() if not name.startswith("shared/")}
    for name, mean in own.items():
        values = [fold.figures[name] for fold in whole.folds]
        assert mean == pytest.approx(statistics.fmean(values))
        said = whole.summary["statistics"][name]
        assert said["values"] == values
        assert said["std"] == pytest.approx(statistics.stdev(values))
        assert said["interval"][0] <= mean <= said["interval"][1]
    assert {"val/loss", "test/right"} <= set(whole.figures)
    gaps = [fold.diagnosis["gap"] for fold in whole.folds]
    assert whole.diagnosis["gap"] == pytest.approx(statistics.fmean(gaps))
    assert "of 3 folds" in whole.diagnosis["rule"] and whole.diagnosis["rule"] in whole_page(whole)
    for name in ("plan.txt", "environment.json", "origins.json", "report.html"):
        assert (whole.folder / name).is_file()
    assert "3 such runs, one for each fold" in (whole.folder / "plan.txt").read_text()
    assert "fold 2 of 3" in (whole.folds[2].folder / "plan.txt").read_text()
    assert not (whole.folder / "latest").exists() and (whole.folder.parent / "latest").is_symlink()


def test_one_fold_alone_repeats_that_fold_exactly(config: Config, whole: pegboard.Run, root: Path) -> None:
    again = pegboard.train(whole.folds[2].folder / "config.yaml", root=root, quiet=True)
    named = pegboard.train(folded(config, fold=2), root=root / "named", quiet=True)
    for run in (again, named):
        assert run.folds == [] and run.figures == whole.folds[2].figures
        for name in ("metrics.jsonl", "checkpoints/last/model.safetensors"):
            assert (run.folder / name).read_bytes() == (whole.folds[2].folder / name).read_bytes()
    assert pegboard.train(folded(config, fold=0), root=root, quiet=True).figures != again.figures


def test_a_finished_one_says_so_and_stays_as_it_is(whole: pegboard.Run, capsys: Capture) -> None:
    before = {p: p.stat().st_mtime_ns for p in whole.folder.rglob("*") if p.is_file()}
    pegboard.resume(whole)
    shown = capsys.readouterr().out
    assert "all 3 folds are finished" in shown and "val/loss" in shown
    assert f"verdict     {whole.diagnosis['verdict'] or 'no verdict'}: {whole.diagnosis['rule']}\n" in shown
    assert {p: p.stat().st_mtime_ns for p in whole.folder.rglob("*") if p.is_file()} == before


def test_a_fold_says_that_the_core_cut_it(config: Config, root: Path, capsys: Capture) -> None:
    pegboard.train(folded(config, folds=2, epochs=1), root=root)
    shown = capsys.readouterr().out
    assert "fold 1 of 2, counted from 0, validates; cut by the core" in shown
    assert "2 folds: mean" in shown


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["trainer.fold=1"], "fold 1 of no folds"),
        (["trainer.folds=3", "trainer.fold=3"], "expected 0 to 2, as there are 3 folds"),
        (["trainer.folds=1"], "at least 2"),
        (["trainer.folds=3", "trainer.fold=-1"], "at least 0"),
    ],
)
def test_folds_that_are_none_are_mistakes_of_the_config(
    config: Config, words: list[str], message: str
) -> None:
    with pytest.raises(pegboard.PegboardError, match=message):
        check(config(), words)


# Interruptions.
def the_only(root: Path) -> Path:
    (folder,) = root.glob("run/2*")
    return folder


@pytest.mark.parametrize(
    "name",
    first_of_each(["fold-0", "fold-1/checkpoints/step-00000008", "fold-1/summary.json", "summary.json"]),
)
def test_killed_at_any_instant_it_ends_with_the_same_bytes(
    config: Config, whole: pegboard.Run, root: Path, name: str
) -> None:
    """Killed just before a file or a folder takes its name, which is when others see it."""
    child = os.fork()
    if not child:

        def watch(event: str, args: Any) -> None:
            if event == "os.rename" and re.search(rf"run/2[^/]*/{name}$", str(args[1])):
                os.kill(os.getpid(), signal.SIGKILL)

        try:
            sys.addaudithook(watch)
            pegboard.train(folded(config), root=root, quiet=True)
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    left = pegboard.Run(the_only(root))
    assert not (left.folder / name).exists() and left.status == "unfinished"
    run = pegboard.resume(left, quiet=True)
    assert outcome(run) == outcome(whole)
    assert (run.status, run.figures) == ("finished", whole.figures)


def test_a_signal_ends_the_whole_with_its_code_and_resume_finishes_it(
    config: Config, whole: pegboard.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("run.yaml").write_text(yaml.safe_dump(folded(config)))
    gather, count = Resident.gather, 0

    def counted(self: Any, index: torch.Tensor) -> Any:
        nonlocal count
        count += 1
        if count == 25:
            os.kill(os.getpid(), signal.SIGTERM)
        return gather(self, index)

    monkeypatch.setattr(Resident, "gather", counted)
    assert main(["train", "run.yaml"]) == 128 + signal.SIGTERM
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    folder = the_only(Path("runs"))
    said = capsys.readouterr().err
    assert f"in fold 1 of 3, saved; go on with: pegboard resume {folder} --local" in said
    run = pegboard.Run(folder)
    assert run.status == "interrupted" and len(run.folds) == 2
    assert main(["resume", str(folder), "--quiet"]) == 0
    assert outcome(run) == outcome(whole) and run.status == "finished"


def test_a_signal_too_late_for_a_fold_keeps_the_next_from_beginning(
    config: Config, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked_to_end(rows: Any, path: Path, *_: Any) -> Path:
        os.kill(os.getpid(), signal.SIGINT)
        return path

    monkeypatch.setattr("pegboard.run.finish.draw_curves", asked_to_end)
    with pytest.raises(Interrupted, match="in fold 0 of 2") as end:
        pegboard.train(folded(config, folds=2, diagnose=False), root=root, quiet=True)
    monkeypatch.undo()
    assert end.value.signal == signal.SIGINT
    run = pegboard.Run(the_only(root))
    assert [fold.status for fold in run.folds] == ["finished"] and run.status == "interrupted"
    assert [fold.status for fold in pegboard.resume(run, quiet=True).folds] == ["finished"] * 2


def test_a_signal_between_the_steps_of_two_folds_ends_a_command_in_order(
    config: Config, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pegboard.run.interruption import until_exit
    from pegboard.tools import cross_validation

    begin = cross_validation.begin_run

    def asked_to_end(settings: Any, *args: Any, **more: Any) -> int:
        if settings.trainer.fold == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return begin(settings, *args, **more)

    monkeypatch.setattr(cross_validation, "begin_run", asked_to_end)
    with until_exit(), pytest.raises(Interrupted, match="in fold 1 of 2") as end:
        pegboard.train(folded(config, folds=2, epochs=1, diagnose=False), root=root, quiet=True)
    assert end.value.signal == signal.SIGTERM
    run = pegboard.Run(the_only(root))
    assert run.status == "interrupted" and [fold.status for fold in run.folds] == ["finished"]


def test_a_fold_that_fails_is_told_and_the_rest_waits(
    config: Config, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    from pegboard.tools import cross_validation

    begin = cross_validation.begin_run

    def failing(settings: Any, *args: Any, **more: Any) -> int:
        if settings.trainer.fold == 1:
            raise pegboard.PegboardError("no more room\nfor anything")
        return begin(settings, *args, **more)

    monkeypatch.setattr(cross_validation, "begin_run", failing)
    with pytest.raises(pegboard.PegboardError, match="no more room"):
        pegboard.train(folded(config, epochs=1), root=root, quiet=True)
    run = pegboard.Run(the_only(root))
    assert run.status == "failed" and run.summary["why"] == "fold 1: PegboardError: no more room"
    assert f"all go on with: pegboard resume {run.folder}" in capsys.readouterr().err


# What others make of it.
def test_commands_that_need_one_model_name_the_folds(whole: pegboard.Run, capsys: Capture) -> None:
    for command in ("eval", "predict"):
        assert main([command, str(whole.folder)]) == 2
        said = capsys.readouterr().err
        assert "is a cross-validation of 3 runs" in said and f"as {whole.folder / 'fold-0'}" in said
    with pytest.raises(pegboard.PegboardError, match="cross-validation"):
        pegboard.load(whole)
    assert main(["eval", str(whole.folder / "fold-1"), "--split", "val", "--json"]) == 0
    measured = json.loads(capsys.readouterr().out)
    assert measured["val/loss"] == pytest.approx(whole.folds[1].figures["val/loss"], abs=1e-6)


def test_compare_looks_into_the_folds_and_shows_the_interval(
    config: Config, whole: pegboard.Run, root: Path, capsys: Capture
) -> None:
    shutil.copytree(whole.folder, root / "copy", symlinks=True)
    assert main(["compare", str(whole.folder), str(root / "copy")]) == 0
    other = pegboard.train(folded(config), "optimizer.lr=0.02", root=root, quiet=True)
    capsys.readouterr()
    assert main(["compare", str(whole.folder), str(other.folder)]) == 1
    shown = capsys.readouterr().out
    low, high = whole.summary["statistics"]["val/loss"]["interval"]
    assert f"(95 %: {low:.4g} to {high:.4g})" in shown and "fold-2/last" in shown
    assert "the first difference is at step 2" in shown


def test_trackers_hear_of_every_fold_and_of_the_means(config: Config, root: Path, tmp_path: Path) -> None:
    (tmp_path / "watching.py").write_text(WATCHING)
    given = folded(config, folds=2, epochs=1)
    given["plugins"] = {"local": [*given["plugins"]["local"], str(tmp_path / "watching.py")]}
    given["trackers"] = {"watch": {"path": str(tmp_path / "heard")}}
    run = pegboard.train(given, root=root, quiet=True)
    name = run.folder.name
    heard = [json.loads(line) for line in (tmp_path / "heard").read_text().splitlines()]
    assert heard == [
        ["start", f"{name}-fold-0", name, False],
        ["finish", "finished", run.folds[0].figures],
        ["start", f"{name}-fold-1", name, False],
        ["finish", "finished", run.folds[1].figures],
        ["start", name, name, False],
        ["finish", "finished", run.figures],
    ]
    pegboard.resume(run.folder.parent / "latest" / "fold-1", quiet=True)
    assert json.loads((tmp_path / "heard").read_text().splitlines()[6])[1:3] == [f"{name}-fold-1", name]


# One epoch for all folds.
@pytest.mark.parametrize(("mode", "epoch", "right"), [("max", 2, [0.6, 0.7]), ("min", 1, [0.5, 0.2])])
def test_the_shared_epoch_is_best_in_the_mean_over_the_folds(
    mode: str, epoch: int, right: list[float]
) -> None:
    curves = [[0.5, 0.6, 0.9, 0.1], [0.2, 0.7, 0.3]]  # alone, the first fold is best at epoch 3
    rows = [
        [{"epoch": at, "val/right": value, "val/loss": -value} for at, value in enumerate(curve, 1)]
        for curve in curves
    ]
    found = [{"monitor": "val/right", "mode": mode}] * 2
    assert shared_epoch(found, rows) == (epoch, {"right": right, "loss": [-value for value in right]})
    assert shared_epoch([{"monitor": "train/loss", "mode": "min"}] * 2, rows) == (None, {})


def test_a_cross_validation_gives_the_figures_of_one_epoch_for_all_folds(whole: pegboard.Run) -> None:
    epoch = whole.summary["shared_epoch"]
    rows = [next(row for row in fold.history if row["epoch"] == epoch) for fold in whole.folds]
    monitor = whole.summary["monitor"]
    found = whole.summary["statistics"][f"shared/{monitor.removeprefix('val/')}"]
    assert found["values"] == [row[monitor] for row in rows]
    assert whole.figures[f"shared/{monitor.removeprefix('val/')}"] == found["mean"]
    means = [
        statistics.fmean(row[monitor] for row in at)
        for at in zip(*([r for r in fold.history if monitor in r] for fold in whole.folds), strict=True)
    ]
    assert found["mean"] == (max if whole.folds[0].summary["mode"] == "max" else min)(means)
    assert "shared/" in whole_page(whole)
