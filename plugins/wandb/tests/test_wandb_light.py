"""The light module, and what happens without W&B."""

from __future__ import annotations

import dataclasses
import sys
import types
from pathlib import Path

import pytest
from light import loaded
from pegboard import Context, Facts, PegboardError, RunInfo, Tracker
from pegboard_wandb import Wandb, build, check, pegboard_trackers
from pegboard_wandb.tracker import WandbTracker, shown_name


def info(folder: Path) -> RunInfo:
    return RunInfo(folder=folder, name="run", id="id", config={}, plan="", environment={})


def test_light_module_imports_neither_wandb_nor_torch_nor_numpy() -> None:
    code = "import pegboard_wandb as p; from pegboard import Context; p.build(p.Wandb(), Context())"
    assert not loaded(code, ("wandb", "torch", "numpy"))


def test_record_is_a_tracker_with_defaults_for_every_field() -> None:
    (part,) = pegboard_trackers()
    assert (part.kind, part.name, part.config) == ("tracker", "wandb", Wandb)
    assert part.summary == "Weights & Biases: log the run, online or offline."
    assert not part.reserved & {field.name for field in dataclasses.fields(Wandb)}
    assert list(check(Wandb(), Facts())) == []


def test_tags_that_the_server_would_refuse_are_problems() -> None:
    problems = list(check(Wandb(tags=("ok", "", "x" * 65, "ok")), Facts()))
    assert [p.field for p in problems] == ["tags.1", "tags.2", "tags"]
    assert "65 characters" in problems[1].message and "64" in problems[1].expected


def test_disabled_and_other_ranks_get_a_tracker_that_does_nothing() -> None:
    assert type(build(Wandb(mode="disabled"), Context())) is Tracker
    assert type(build(Wandb(), Context(rank=1))) is Tracker
    assert type(build(Wandb(), Context())) is WandbTracker


def test_missing_package_is_named_with_the_pip_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(PegboardError, match=r"(?s)needs the package wandb.*pip install wandb"):
        WandbTracker(Wandb()).start(info(tmp_path))


def test_folder_named_wandb_is_not_taken_for_the_package(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    namespace = types.ModuleType("wandb")
    namespace.__path__ = ["somewhere/wandb"]
    monkeypatch.setitem(sys.modules, "wandb", namespace)
    with pytest.raises(PegboardError, match=r"(?s)only a folder.*somewhere/wandb.*pip install wandb"):
        WandbTracker(Wandb()).start(info(tmp_path))


def test_tracker_that_did_not_start_takes_every_call(tmp_path: Path) -> None:
    tracker = WandbTracker(Wandb())
    tracker.log({"step": 1})
    tracker.checkpoint(tmp_path, ["last"])
    tracker.figure("curves", tmp_path / "none.png")
    tracker.finish("failed", {})


def test_runs_of_a_cross_validation_share_a_name_and_say_which_they_are(tmp_path: Path) -> None:
    alone = info(tmp_path / "20260101-abc")
    fold = dataclasses.replace(alone, folder=tmp_path / "abc" / "fold-1", id="abc-fold-1", group="abc")
    whole = dataclasses.replace(alone, folder=tmp_path / "abc", id="abc", group="abc")
    assert [shown_name("iris", run) for run in (alone, fold, whole)] == [
        "iris",
        "iris fold-1",
        "iris all folds",
    ]
