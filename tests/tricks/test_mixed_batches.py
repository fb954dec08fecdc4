"""A trick that edits inputs and target of a batch together, with one draw for both."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pegboard
import points
import pytest
import torch
from torch import nn

MIXUP = """
    from dataclasses import dataclass
    from pegboard import Regularizer, Trick, hookimpl

    @dataclass(frozen=True)
    class Mixup:
        '''Train on mixtures of two samples and of their targets.'''
        apart: bool = False  # another draw for the targets

    def build(config, context):
        import torch

        class MixupTrick(Trick):
            def edit_batch(self, batch):
                (x,), y = batch.inputs, batch.target
                share = torch.rand(len(x), 1, device=x.device)
                other = torch.randperm(len(x), device=x.device)
                inputs = (share * x + (1 - share) * x[other],)
                if config.apart:
                    share = torch.rand(len(x), 1, device=x.device)
                return batch.replace(inputs=inputs, target=share * y + (1 - share) * y[other])

        return MixupTrick()

    @hookimpl
    def pegboard_regularizers():
        return [Regularizer("mixup", Mixup, build, stages={"edit_batch": "mix"})]
"""


def config(tmp_path: Path, mixup: dict[str, Any] | None, **trainer: Any) -> dict[str, Any]:
    """Values that are linear in the inputs: only mixtures by one share for both lie on the plane."""
    file = tmp_path / "mixup.py"
    file.write_text(textwrap.dedent(MIXUP))
    torch.manual_seed(0)
    x = torch.randn(32, 3)
    given = points.given(
        x, values=x @ torch.tensor([[1.0], [-2.0], [0.5]]), model={"name": "linear"},
        optimizer={"name": "sgd", "lr": 0.2}, regularizers={"mixup": mixup},
    )  # fmt: skip
    given["plugins"] = {"local": [*given["plugins"]["local"], str(file)]}
    given["trainer"] = {"steps": 200, "eval_every": 200, "device": "cpu", "diagnose": False, **trainer}
    return given


def losses(run: pegboard.Run) -> list[float]:
    return [row["train/loss"] for row in run.history if "train/loss" in row]


def test_one_draw_mixes_inputs_and_target(tmp_path: Path) -> None:
    together = points.run(config(tmp_path, {}), tmp_path)
    apart = points.run(config(tmp_path, {"apart": True}), tmp_path)
    assert losses(together)[-1] < 1e-6 < 1e-2 < losses(apart)[-1]


def test_figures_are_of_the_samples_as_they_are(tmp_path: Path) -> None:
    still: dict[str, Any] = {"optimizer": {"name": "sgd", "lr": 1e-30}}
    mixed, plain = (points.run(config(tmp_path, m, steps=3) | still, tmp_path) for m in ({}, None))
    assert mixed.summary["figures"]["test/loss"] == plain.summary["figures"]["test/loss"]
    assert losses(mixed) != losses(plain)
    x, y = (torch.tensor(config(tmp_path, None)["data"][name]) for name in ("x", "values"))
    with torch.no_grad():
        output = pegboard.load(mixed, which="last")(x)
    loss = nn.functional.mse_loss(output, y).item()
    assert mixed.summary["figures"]["test/loss"] == pytest.approx(loss, rel=1e-5)


def test_a_graph_of_the_step_mixes_as_steps_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch._dynamo.reset()
    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx", lambda graph, inputs, **options: graph)
    eager = points.run(config(tmp_path, {}, steps=12), tmp_path)
    traced = points.run(config(tmp_path, {}, steps=12, compile="step", steps_per_call=4), tmp_path)
    assert traced.summary["compiled"]["level"] == "step"
    one, two = (pegboard.load(run, which="last").state_dict() for run in (eager, traced))
    assert all(torch.allclose(one[key], two[key], rtol=0, atol=1e-6) for key in one)
