"""`trainer.compile: auto`: an estimate from a few timed updates, kept in the checkpoint, looked at again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pegboard
import pytest
import torch
from pegboard.store import checkpoint
from pegboard_compile.estimate import TIMED, WARM, Estimate
from safetensors.torch import load_file

pytestmark = pytest.mark.usefixtures("lean")


def estimate(monkeypatch: pytest.MonkeyPatch, step: float, operations: int) -> Estimate:
    """As after updates that took `step` seconds, on a machine where the smallest operation takes 1 us."""
    monkeypatch.setattr("pegboard_compile.estimate.smallest_operation", lambda device: 1e-6)
    made = Estimate("cpu", 4)
    made.times, made.operations = [9.0] * (WARM + 1) + [step] * TIMED, operations
    return made


def test_what_is_saved_must_outweigh_what_the_graph_takes_to_make(monkeypatch: pytest.MonkeyPatch) -> None:
    small = estimate(monkeypatch, 300e-6, 40)  # of which Python and dispatch are 40 * 5 us
    pays, why = small.decide(1_000_000)
    assert pays and "1000000 updates of 0.3 ms" in why and "save about 0.2 ms" in why and "11 s" in why
    assert not small.decide(50_000)[0]  # 10 s saved for 11 s


def test_a_step_that_is_all_arithmetic_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    large = estimate(monkeypatch, 1.0, 40)  # an hour of it saves less than a second
    assert not large.decide(3600)[0]


def test_no_graph_is_taken_to_save_the_whole_step(monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = estimate(monkeypatch, 100e-6, 1000)
    assert "save about 0.075 ms" in tiny.decide(10)[1]


def test_updates_before_the_machine_is_warm_are_not_timed() -> None:
    made, calls = Estimate("cpu", 4), 0

    def update() -> None:
        nonlocal calls
        calls += 1
        torch.zeros(1) + 1

    while not made.watch(update):
        pass
    assert calls == WARM + 1 + TIMED and made.operations == 2


def config(**trainer: Any) -> dict[str, Any]:
    return {
        "data": {"name": "digits", "batch_size": 32},
        "model": {"name": "mlp", "hidden": [8]},
        "optimizer": {"name": "sgd", "lr": 0.1},
        "trainer": {"steps": 90, "device": "cpu", "compile": "auto", "steps_per_call": 4, **trainer},
    }


def compiled(run: pegboard.Run) -> dict[str, Any]:
    return json.loads((run.folder / "summary.json").read_text())["compiled"]  # type: ignore[no-any-return]


def test_a_short_run_is_not_compiled_and_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = pegboard.train(config(), root=tmp_path)
    found = compiled(run)
    assert found["level"] == "off" and found["graphs"] == 0
    assert f"{90 - WARM - 1 - TIMED} updates of" in found["why"]
    assert f"compile: nothing is compiled, because {found['why']}" in capsys.readouterr().out


@pytest.mark.usefixtures("only_traced")
def test_a_run_that_pays_is_compiled_from_then_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Estimate, "decide", lambda self, left: (True, "it pays"))
    monkeypatch.setattr(Estimate, "slower", lambda self, seconds: "")
    run = pegboard.train(config(), root=tmp_path, quiet=True)
    assert compiled(run)["level"] == "step" and compiled(run)["why"] == "it pays"
    eager = pegboard.train(config(compile="off", steps_per_call=1), root=tmp_path, quiet=True)
    for (name, a), b in zip(weights(run).items(), weights(eager).values(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6, msg=name)


@pytest.mark.usefixtures("only_traced")
def test_a_graph_that_turns_out_slower_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Estimate, "decide", lambda self, left: (True, "it pays"))
    monkeypatch.setattr(Estimate, "slower", lambda self, seconds: "an update took 1 ms and then 2 ms")
    run = pegboard.train(config(), root=tmp_path, quiet=True)
    assert compiled(run)["level"] == "off" and "took 1 ms" in compiled(run)["why"]


def test_slower_is_told_beyond_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    made = estimate(monkeypatch, 1e-3, 40)
    assert made.slower(1.04e-3) == ""
    assert made.slower(1.2e-3) == "an update took 1 ms without a graph and 1.2 ms with one"


def test_a_resumed_run_keeps_the_decision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = pegboard.train(config(save_every=50, keep=100), root=tmp_path, quiet=True)
    for path in (run.folder / "checkpoints").glob("step-*"):
        if path.name > "step-00000050":
            shutil.rmtree(path)
    monkeypatch.setattr(Estimate, "decide", lambda self, left: (True, "it would pay now"))
    resumed = pegboard.resume(run.folder, quiet=True)
    assert compiled(resumed)["level"] == "off" and f"{90 - WARM - 1 - TIMED}" in compiled(resumed)["why"]


def weights(run: pegboard.Run) -> dict[str, torch.Tensor]:
    return load_file(run.folder / "checkpoints" / "last" / checkpoint.WEIGHTS)
