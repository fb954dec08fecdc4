"""`pegboard probe`: measurements of a trained run, with the same messages for mistakes as a config gives."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pegboard
import pytest
import torch
from pegboard.cli import main

Config = Callable[..., dict[str, Any]]
Capture = pytest.CaptureFixture[str]
PROBES = """
from dataclasses import dataclass
from typing import Annotated
from pegboard import Ge, Probe, ProbePart, Problem, hookimpl

@dataclass(frozen=True)
class Sizes:
    \"\"\"Counts what it is given.\"\"\"

    factor: Annotated[int, Ge(1)] = 1  # of every count
    even: bool = False  # refuse an odd factor
    loss: str = ""  # refuse runs with another objective

class Counting(Probe):
    def __init__(self, config, context):
        self.config, self.context = config, context

    def measure(self, model, splits, device):
        import torch

        found = {name: len(getattr(splits, name)) * self.config.factor for name in ("train", "val", "test")}
        weights = sum(float(p.detach().double().sum()) for p in model.parameters())
        drawn = float(torch.rand(()))
        return {**found, "weights": weights, "drawn": drawn, "training": float(model.training)}

def check(config, facts):
    if config.even and config.factor % 2:
        yield Problem("an odd factor", "factor", "an even number")
    if config.loss and facts.objective is not None and facts.objective.name != config.loss:
        found = f"{facts.model.name} {facts.optimizer.name} {facts.spec} {facts.objective.name}"
        yield Problem(found, "loss", config.loss)

@hookimpl
def pegboard_probes():
    return [ProbePart("sizes", Sizes, Counting, check=check)]
"""


@pytest.fixture(scope="module")
def run(config: Config, tmp_path_factory: pytest.TempPathFactory) -> pegboard.Run:
    return pegboard.train(config(), root=tmp_path_factory.mktemp("probed"), quiet=True)


@pytest.fixture
def local(config: Config, tmp_path: Path) -> list[str]:
    """The words that name the toy plugin and one with a probe."""
    (tmp_path / "probes.py").write_text(PROBES)
    return ["--local", *config()["plugins"]["local"], "--local", str(tmp_path / "probes.py")]


def test_a_probe_measures_the_best_weights_on_the_splits_of_the_run(
    run: pegboard.Run, local: list[str], capsys: Capture
) -> None:
    assert main(["probe", str(run.folder), "sizes", "factor=2", "--json", *local]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["train"], found["val"], found["test"], found["training"]) == (128, 32, 32, 0.0)
    weights = sum(float(p.detach().double().sum()) for p in run.model.parameters())
    assert found["weights"] == pytest.approx(weights)
    torch.rand(3)
    assert main(["probe", str(run.folder), "sizes", *local]) == 0
    shown = capsys.readouterr().out
    assert "best checkpoint, sizes" in shown and "figure" in shown and "train     64" in shown
    assert f"{found['drawn']:.4g}" in shown  # whatever was drawn before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "no probe is named"),
        (["size"], "did you mean 'sizes'"),
        (["sizes", "facto=2"], "did you mean 'factor'"),
        (["sizes", "factor=0"], "at least 1"),
        (["sizes", "factor=3", "even=true"], "expected an even number"),
        (["sizes", "factor"], "factor"),
    ],
)
def test_mistakes_are_told_as_those_of_a_config(
    run: pegboard.Run, local: list[str], capsys: Capture, words: list[str], message: str
) -> None:
    assert main(["probe", str(run.folder), *words, *local]) == 2
    said = capsys.readouterr().err
    assert message in said and "Traceback" not in said
    if not words or words == ["size"]:
        assert "sizes" in said  # what there is


def test_a_probe_that_its_rules_keep_from_this_run_is_refused_with_the_word_that_named_it(
    run: pegboard.Run, local: list[str], capsys: Capture
) -> None:
    assert main(["probe", str(run.folder), "sizes", "loss=other", *local]) == 2
    said = capsys.readouterr().err
    plan = pegboard.plan(run.folder / "config.yaml")
    objective = plan.objective.entry.part.name
    assert "command line, 'loss=other': probe.loss" in said and "expected other" in said
    assert f"{plan.settings.model.entry.part.name} " in said and f"{plan.spec} {objective}" in said
    assert main(["probe", str(run.folder), "sizes", f"loss={objective}", *local]) == 0


def test_what_is_no_run_is_told(run: pegboard.Run, local: list[str], capsys: Capture) -> None:
    assert main(["probe", str(run.folder.parent / "other"), "sizes", *local]) == 2
    assert "no run or checkpoint" in capsys.readouterr().err


def test_mistakes_are_answered_without_torch(run: pegboard.Run, local: list[str]) -> None:
    code = (
        "import sys; from pegboard.cli import main; "
        f"code = main({['probe', str(run.folder), 'sizes', 'factor=0', *local]!r}); "
        "print(code, 'torch' in sys.modules)"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).split() == ["2", "False"]
