"""Compiled runs: both ways to choose them, runs of before, models that are used without the plugin."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pegboard
import pytest
import torch
import yaml
from pegboard.config.check import ConfigError, check
from pegboard.engine.loop import Interrupted
from pegboard.store.checkpoint import digest
from pegboard.testing.runs import differences, lean, points, watched, whole
from pegboard_compile import stepping
from pegboard_compile.graph import reason

CONFIG: dict[str, Any] = {
    "seed": 1,
    "data": {"name": "moons", "samples": 96, "batch_size": 16},
    "model": {"name": "mlp", "hidden": [4]},
    "optimizer": {"name": "sgd", "lr": 0.1},
    "trainer": {"epochs": 2, "device": "cpu", "diagnose": False},
}


@pytest.fixture(autouse=True)
def only_traced(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Steps are traced whole and linked as graphs, and left uncompiled: a second instead of ten."""
    torch.compiler.reset()
    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx", lambda graph, inputs, **options: graph)
    with lean():
        yield


def config(stepper: dict[str, Any] | None = None, **trainer: Any) -> dict[str, Any]:
    given = {**CONFIG, "trainer": CONFIG["trainer"] | trainer}
    return given if stepper is None else given | {"stepper": {"name": "compiled", **stepper}}


def test_the_section_and_the_fields_of_the_trainer_are_one_thing(tmp_path: Path) -> None:
    section, fields = (
        pegboard.train(given, root=tmp_path / str(at), quiet=True)
        for at, given in enumerate((config({"steps_per_call": 2}), config(compile="step", steps_per_call=2)))
    )
    assert differences(section.folder, fields.folder) == []
    assert section.summary["compiled"]["level"] == fields.summary["compiled"]["level"] == "step"
    written = [yaml.safe_load((run.folder / "config.yaml").read_text()) for run in (section, fields)]
    assert written[0]["stepper"]["steps_per_call"] == 2 and written[0]["trainer"]["compile"] == "off"
    assert "stepper" not in written[1] and written[1]["trainer"]["compile"] == "step"
    assert [check(text).stepper for text in written] != [None, None]


def test_both_at_once_are_one_mistake() -> None:
    with pytest.raises(ConfigError) as caught:
        check(config({}, compile="auto"))
    (mistake,) = caught.value.mistakes
    assert mistake.path == "trainer.compile" and "stepper=null, or trainer.compile=off" in mistake.hint


@pytest.mark.parametrize("how", ["off", "step"])
def test_a_run_that_was_saved_before_there_were_steppers_goes_on(how: str, tmp_path: Path) -> None:
    given = config(compile=how)
    one, events = whole(given, tmp_path / "whole")
    cut = points(events, 1)[0]
    with watched(cut), pytest.raises(Interrupted):
        pegboard.train(given, root=tmp_path / "cut", quiet=True)
    (folder,) = (path for path in (tmp_path / "cut").glob("*/2*") if path.is_dir())
    (state,) = (folder / "checkpoints" / "last").resolve().glob("state.pt")
    saved = torch.load(state, weights_only=True)
    now = saved.pop("stepper")
    if how == "step":
        assert now["level"] == "step" and now["spent"]["graphs"] == 1
    made = {"asked": how, "level": how, "why": "", "seconds": 9.0, "graphs": 1, "recompiled": []}
    saved["compiled"] = made
    torch.save(saved, state)
    manifest = state.with_name("manifest.json")
    manifest.write_text(rewritten(manifest.read_text(), state))
    again = pegboard.resume(folder, quiet=True)
    assert differences(one, again.folder) == []
    if how == "step":
        assert again.summary["compiled"]["seconds"] > 9 and again.summary["compiled"]["graphs"] == 2


def rewritten(manifest: str, state: Path) -> str:
    """The manifest of a checkpoint whose state is another."""
    found = json.loads(manifest)
    found["sha256"][state.name] = digest(state)
    return json.dumps(found)


def test_a_model_is_used_where_nothing_compiles(tmp_path: Path) -> None:
    folder = pegboard.train(config(compile="step"), root=tmp_path, quiet=True).folder
    file = folder / "config.yaml"
    text = yaml.safe_load(file.read_text())
    text["plugins"]["disable"] = ["compile"]
    file.write_text(yaml.safe_dump(text))
    with pytest.raises(ConfigError, match="pegboard-compile"):
        check(file)
    model = pegboard.load(folder)
    assert model(torch.zeros(1, 2)).shape == (1, 2)


def test_what_cannot_be_traced_is_not_said_of_the_stepper(tmp_path: Path) -> None:
    given = config(compile="step") | {
        "data": {"name": "adding", "samples": 40, "length": 4, "batch_size": 8},
        "model": {"name": "rnn", "cell": "lstm", "hidden": 4},
    }
    made = pegboard.train(given, root=tmp_path, quiet=True).summary["compiled"]
    assert made["level"] == "off" and made["why"].startswith("model (rnn, cells.py:"), made["why"]
    plan = pegboard.plan(given)
    error = RuntimeError(f'no\n  File "{tmp_path}/x.py", line 3\n  File "{stepping.__file__}", line 9')
    assert reason(error, plan) == "no (stepping.py:9)"
