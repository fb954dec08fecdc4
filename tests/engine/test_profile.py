"""`pegboard train --profile`: a trace of some steps, and a table of where all the time went."""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pegboard
import pytest
from pegboard.cli import main
from pegboard.planning.plan import assemble, overrides
from pegboard.registry.discovery import Registry
from pegboard.tools.ledger import ImportTimes
from proofs import Config, all_tricks, differences, plain
from sweeps import first_of_each

# 16 updates of two batches, with all that the core can do in them.
TRAINER = {"steps": 16, "accumulate": 2, "log_every": 2, "device": "cpu"}
IN_ORDER = [
    *("check", "data and plan", "model and optimizer", "explain", "run folder", "data to device", "trackers"),
    *("steps", "checkpoint", "first step", "evaluation", "last evaluation", "drawing", "report"),
    "elsewhere",
]
IN_A_STEP = ("hang", "edit_batch", "edit_target", "edit_loss", "edit_grads", "after_step", "eval_weights")


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without what takes longer than the run and has no part in it."""
    discover: Any = functools.cache(Registry.discover)
    monkeypatch.setattr(
        Registry,
        "discover",
        lambda local=(), disable=(), only=None: discover(*map(tuple, (local, disable)), only),
    )
    monkeypatch.setattr("pegboard.run.training.explained_plan", lambda *_: "a plan\n")
    monkeypatch.setattr("pegboard.run.finish.draw_curves", lambda rows, path, *_: path)


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Config:
    return all_tricks(tmp_path_factory.mktemp("shelf").resolve()) | {"trainer": TRAINER}


@pytest.fixture
def profiled(given: Config, tmp_path: Path) -> Path:
    return pegboard.train(given, root=tmp_path / "profiled", quiet=True, profile=True).folder


def times(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "profile" / "times.json").read_text())
    return found


def acting(given: Config) -> set[str]:
    """What the tricks of a config do in a step."""
    tricks = assemble(pegboard.plan(given), "meta").tricks
    return {f"{s} {key}" for key, trick in tricks.items() for s in IN_A_STEP if overrides(trick, s)}


def test_every_part_of_a_step_and_every_trick_has_a_row(given: Config, profiled: Path) -> None:
    core = {"data", "forward and loss of model", "backward", "guard", "decay", "update"}
    around = {"rows and trackers", "progress", "evaluation", "checkpoint", "elsewhere"}
    calls = {row["part"]: row["calls"] for row in times(profiled)["parts"]}
    assert calls.keys() - {"imports"} == core | around | acting(given)
    assert len(acting(given)) >= 4
    assert calls["data"] == calls["backward"] == calls["forward and loss of model"] == 16 * 2
    assert calls["update"] == calls["edit_grads clip"] == calls["guard"] == 16
    assert calls["hang dropout"] == 16 * 2  # of the one peg it hangs on, and not in evaluations


def test_the_times_add_up_to_that_of_the_run(profiled: Path) -> None:
    found = times(profiled)
    assert sum(row["share"] for row in found["parts"]) == pytest.approx(1, abs=0.01)
    assert sum(row["seconds"] for row in found["parts"]) == pytest.approx(found["seconds"])
    assert all(row["seconds"] >= 0 for row in found["parts"])
    assert found["steps"] == 16


def test_the_trace_holds_some_steps_under_our_names(given: Config, profiled: Path) -> None:
    events = json.loads((profiled / "profile" / "trace.json").read_text())["traceEvents"]
    named = [e["name"] for e in events if e.get("cat") == "user_annotation"]
    assert {f"pegboard::{name}" for name in ("data", "backward", "update", *acting(given))} <= set(named)
    assert named.count("pegboard::update") == 8  # the second half of so short a run
    assert any(e["name"] == "aten::addmm" for e in events)


def test_a_long_run_is_traced_in_part(given: Config, tmp_path: Path) -> None:
    longer = plain(trainer={"steps": 40, "device": "cpu"})
    folder = pegboard.train(longer, root=tmp_path, quiet=True, profile=True).folder
    events = json.loads((folder / "profile" / "trace.json").read_text())["traceEvents"]
    assert sum(e["name"] == "pegboard::update" for e in events if e.get("cat") == "user_annotation") == 20
    assert {row["part"]: row["calls"] for row in times(folder)["parts"]}["update"] == 40


def test_a_profiled_run_computes_the_same_bits(given: Config, profiled: Path, tmp_path: Path) -> None:
    usual = pegboard.train(given, root=tmp_path / "usual", quiet=True).folder
    assert differences(usual, profiled) == []
    assert not (usual / "profile").exists()


def test_the_command_prints_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    local = ",".join(plain()["plugins"]["local"])
    parts = (f"{kind}: {{name: partner}}" for kind in ("data", "model", "optimizer", "objective"))
    Path("cfg.yaml").write_text("\n".join([*parts, f"plugins: {{local: [{local}]}}\n"]))
    assert main(["train", "cfg.yaml", "trainer.steps=3", "--profile"]) == 0
    out, err = capsys.readouterr()
    _, of_run, of_training = re.split("where the time of (?:the run|training) went: .*\n", out)
    for table, columns in (
        (of_run, "part calls seconds share"),
        (of_training, "part calls ms per step share"),
    ):
        lines = table.splitlines()
        assert lines[0].split() == columns.split()
        rows = [line for line in lines[1:] if line.endswith("%") and not line.startswith("  ")]
        assert sum(float(row.split()[-1].rstrip("%")) for row in rows) == pytest.approx(100, abs=2)
    last = of_training.splitlines()[-1]
    assert last.startswith("trace") and "profile/trace.json" in last
    assert err == ""


def test_every_second_of_the_run_is_in_one_row(profiled: Path) -> None:
    found = json.loads((profiled / "profile" / "run.json").read_text())
    rows = {row["part"]: row for row in found["parts"]}
    assert sum(row["seconds"] for row in found["parts"]) == pytest.approx(found["seconds"])
    assert all(row["seconds"] >= 0 for row in found["parts"])
    phases = [row["part"] for row in found["parts"] if row["phase"] != "imports"]
    assert [name for name in phases if name in IN_ORDER] == IN_ORDER
    assert "profiler" in rows
    assert rows["first step"]["calls"] == rows["steps"]["calls"] == 1
    of_training = {row["part"]: row["calls"] for row in times(profiled)["parts"]}
    assert rows["evaluation"]["calls"] == of_training["evaluation"]
    assert rows["checkpoint"]["calls"] == of_training["checkpoint"]


def test_the_ledger_of_all_folds_is_one(given: Config, tmp_path: Path) -> None:
    two = plain(trainer={"steps": 3, "folds": 2, "device": "cpu"})
    folder = pegboard.train(two, root=tmp_path, quiet=True, profile=True).folder
    found = json.loads((folder / "fold-0" / "profile" / "run.json").read_text())
    calls = {row["part"]: row["calls"] for row in found["parts"]}
    assert calls["steps"] == calls["last evaluation"] == 2
    assert not (folder / "fold-1" / "profile").exists()
    assert [finder for finder in sys.meta_path if isinstance(finder, ImportTimes)] == []


def test_a_run_that_fails_leaves_its_trace(tmp_path: Path) -> None:
    poisoned = plain(regularizers={"poison": {"row": 3}}, trainer={"epochs": 1, "device": "cpu"})
    with pytest.raises(pegboard.PegboardError, match="the loss was nan"):
        pegboard.train(poisoned, root=tmp_path, quiet=True, profile=True)
    (folder,) = (path for path in tmp_path.glob("*/2*") if path.is_dir())
    assert times(folder)["steps"] < 8


def test_compiled_steps_are_one_row(given: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    as_traced: Callable[..., Any] = lambda graph, inputs, **options: graph  # noqa: E731
    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx", as_traced)
    compiled = plain(trainer={"steps": 6, "device": "cpu", "compile": "step"})
    folder = pegboard.train(compiled, root=tmp_path, quiet=True, profile=True).folder
    rows = {row["part"]: row["calls"] for row in times(folder)["parts"]}
    assert rows["compiled step"] + rows["step, not compiled"] == 6
    assert rows["making graphs"] == 1 and "backward" not in rows
    assert sum(row["share"] for row in times(folder)["parts"]) == pytest.approx(1, abs=0.01)


def test_a_run_that_is_one_call_of_a_graph_is_traced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx", lambda graph, inputs, **options: graph)
    trainer = {"epochs": 1, "device": "cpu", "compile": "step", "steps_per_call": 64}
    given = plain(data={"name": "partner", "batch_size": 1}, trainer=trainer)
    folder = pegboard.train(given, root=tmp_path, quiet=True, profile=True).folder
    events = json.loads((folder / "profile" / "trace.json").read_text())["traceEvents"]
    assert "pegboard::compiled step" in [e["name"] for e in events]


@pytest.mark.parametrize("how", first_of_each(["auto", "step"]))
def test_steps_that_do_not_become_graphs_are_told_in_their_parts(
    how: str, given: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Because it does not pay in so short a run, or because of an optimizer without a functional form."""
    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx", lambda graph, inputs, **options: graph)
    trainer = {**TRAINER, "compile": how, "steps": 40}
    asked = {
        **given,
        "trainer": trainer,
        "optimizer": {"name": "lbfgs" if how == "step" else "sgd", "lr": 0.1},
    }
    run = pegboard.train(asked, root=tmp_path, quiet=True, profile=True)
    assert run.summary["compiled"]["level"] == ("off" if how == "auto" else "model")
    rows = {row["part"]: row["calls"] for row in times(run.folder)["parts"]}
    parts = {part for part in acting(asked) if how == "auto" or not part.startswith("hang ")}
    assert {"data", "forward and loss of model", "backward", "update", *parts} <= rows.keys()
    assert rows["update"] + rows.get("step, not compiled", 0) == 40
    assert rows["data"] == rows["update"] * 2


@pytest.mark.sweep
def test_a_command_shows_its_ledger_when_it_exits(tmp_path: Path) -> None:
    config = Path(__file__).parents[2] / "configs" / "quickstart.yaml"
    done = subprocess.run(
        [sys.executable, "-m", "pegboard", "train", str(config), "trainer.steps=2", "--profile"],
        cwd=tmp_path,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    lines = done.stdout.split("where the time of the run went: ")[1].splitlines()
    rows = {line.split("  ")[0] for line in lines if line.endswith("%")}
    assert {"interpreter and command line", "imports", "check", "steps", "exit", "elsewhere"} <= rows
    assert {"torch", "pegboard"} <= {line.split()[0] for line in lines if line.startswith("  ")}
