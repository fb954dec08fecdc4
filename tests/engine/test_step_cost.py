"""What a step costs in Python calls, which do not depend on the machine."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pegboard
import pytest
import torch
from calls import count_calls
from crowd import install_crowd
from pegboard import Resident
from pegboard.config.check import check
from pegboard.engine.loop import Loop
from pegboard.engine.precision import choose_precision
from pegboard.planning.plan import assemble, make_plan
from pegboard_constraints.functional import clip_norm, clip_value
from torch import nn
from torch.nn import functional

CORE = str(Path(pegboard.__file__).parent)
TRICKS: dict[str, dict[str, Any]] = {
    "batchnorm": {},
    "dropout": {"p": 0.2},
    "weight_decay": {"value": 0.01},
    "label_smoothing": {"epsilon": 0.1},
    "distillation": {"teacher": "zoo:digits/mlp"},
}


def loop_of(tmp_path: Path, **nodes: Any) -> Loop:
    base: dict[str, Any] = {
        "data": {"name": "digits", "batch_size": 32},
        "model": {"name": "mlp", "hidden": [128, 128]},
        "optimizer": {"name": "adam", "lr": 1e-3},
    }

    class Nobody:
        def working(self, total: int, unit: str) -> Any:
            return nullcontext(lambda done: None)

        def __getattr__(self, name: str) -> Callable[..., None]:
            return lambda *args: None

    plan = make_plan(check(base | nodes), read=True)
    assert plan.splits is not None
    watcher: Any = Nobody()
    return Loop(assemble(plan, "cpu"), plan.splits, choose_precision("fp32", "cpu"), watcher, tmp_path)


def per_step(loop: Loop, inside: str = "") -> float:
    """Calls of one steady step."""
    groups = loop.groups(0)
    loop.span(groups, 3)

    def ten() -> None:
        loop.span(groups, loop.progress.position + 10)

    def none() -> None:
        loop.span(groups, loop.progress.position)

    return (count_calls(ten, inside) - count_calls(none, inside)) / 10


def by_hand(loop: Loop) -> float:
    """Calls of one step of the loop a person writes, around the same network without pegs."""
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.Adam(model.parameters(), 1e-3, fused=True)
    source: Any = loop.splits.train
    x, y, order = source.inputs[0].flatten(1), source.target, [g[0] for g in loop.groups(0)]

    def run(indices: list[torch.Tensor]) -> None:
        for index in indices:
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(x[index]), y[index])
            loss.backward()
            optimizer.step()

    run(order[:3])
    return (count_calls(lambda: run(order[3:13])) - count_calls(lambda: run([]))) / 10


def test_a_step_without_tricks_makes_at_most_20_calls_more_than_a_hand_written_one(tmp_path: Path) -> None:
    loop = loop_of(tmp_path)
    pegs = 6  # unfilled, one call each
    assert per_step(loop) - by_hand(loop) <= 20 + pegs


@pytest.mark.parametrize("trick", TRICKS)
def test_a_trick_adds_at_most_5_calls_of_the_core(trick: str, tmp_path: Path) -> None:
    plain = per_step(loop_of(tmp_path), CORE)
    body = 6 if trick == "distillation" else 0  # the unfilled pegs of its teacher
    assert per_step(loop_of(tmp_path, regularizers={trick: TRICKS[trick]}), CORE) - plain <= 5 + body


@pytest.mark.parametrize("by", ["norm", "value"])
def test_clipping_costs_little_more_than_its_arithmetic(by: str, tmp_path: Path) -> None:
    clip = {"norm": clip_norm, "value": clip_value}[by]
    clipped = loop_of(tmp_path, regularizers={"clip": {"bound": 0.5, "by": by}})
    grads = [p.detach().clone() for p in clipped.assembly.model.parameters()]
    arithmetic = count_calls(lambda: clip(grads, 0.5)) - count_calls(lambda: None)
    assert per_step(clipped) - per_step(loop_of(tmp_path)) <= arithmetic + 3


def test_an_average_of_weights_adds_no_call_of_python(tmp_path: Path) -> None:
    plain = per_step(loop_of(tmp_path))
    average = {"decay": 0.99}
    assert per_step(loop_of(tmp_path, regularizers={"ema": average})) == plain  # one of torch, of C
    warming = per_step(loop_of(tmp_path, regularizers={"ema": average | {"warmup": True}}))
    assert warming - plain <= 4


def test_weight_decay_adds_no_work_to_the_optimizer(tmp_path: Path) -> None:
    decayed = loop_of(tmp_path, regularizers={"weight_decay": TRICKS["weight_decay"]})
    assert len(decayed.assembly.kits[0].optimizer.param_groups) == 1
    assert per_step(decayed) - per_step(loop_of(tmp_path)) <= 5


def test_all_five_together_add_at_most_25_calls_of_the_core(tmp_path: Path) -> None:
    plain = per_step(loop_of(tmp_path), CORE)
    assert per_step(loop_of(tmp_path, regularizers=TRICKS), CORE) - plain <= 25 + 6


def test_what_is_installed_adds_no_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = per_step(loop_of(tmp_path))
    site = tmp_path / "site"
    for i in range(20):
        (site / f"stranger_{i}-1.0.dist-info").mkdir(parents=True)
        (site / f"stranger_{i}.py").write_text("")
        (site / f"stranger_{i}-1.0.dist-info" / "METADATA").write_text(f"Name: stranger-{i}\nVersion: 1.0\n")
        point = f"[pegboard]\nstranger_{i} = stranger_{i}\n"
        (site / f"stranger_{i}-1.0.dist-info" / "entry_points.txt").write_text(point)
    monkeypatch.syspath_prepend(str(site))
    assert per_step(loop_of(tmp_path)) == before


def test_plugins_that_nobody_uses_add_no_call_to_a_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = per_step(loop_of(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(str(install_crowd(tmp_path / "site", 500)))
    loop = loop_of(tmp_path)
    registry = loop.settings.registry
    assert registry is not None and len(registry.plugins) > 500
    assert per_step(loop) == alone


SHIFT = """
from dataclasses import dataclass

from pegboard import Regularizer, Trick, hookimpl


@dataclass(frozen=True)
class Shift:
    \"\"\"Move each picture of a batch.\"\"\"

    most: int = 1  # pixels


def build(config, context):
    import torch

    class Moves(Trick):
        def edit_batch(self, batch):
            (x,) = batch.inputs
            which = torch.rand(len(x), 1, 1, 1, device=x.device) < 0.5
            return batch._replace(inputs=(torch.where(which, x.roll(config.most, -1), x),))

    return Moves()


@hookimpl
def pegboard_regularizers():
    return [Regularizer("shift", Shift, build, stages={"edit_batch": "augment"})]
"""


def test_a_batch_in_memory_takes_the_same_calls_however_many_samples_it_has(tmp_path: Path) -> None:
    (tmp_path / "shift.py").write_text(SHIFT)
    nodes = {"regularizers": {"shift": {}}, "plugins": {"local": [str(tmp_path / "shift.py")]}}

    def calls(batch: int) -> int:
        loop = loop_of(tmp_path, data={"name": "digits", "batch_size": batch}, **nodes)
        assert isinstance(loop.splits.train, Resident)
        groups = loop.groups(0)
        loop.span(groups, 1)
        return count_calls(lambda: loop.span(groups, 2))

    assert calls(8) == calls(512)
