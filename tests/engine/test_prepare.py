"""When a trick is shown the training samples before the first step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from pegboard.config.check import check
from pegboard.engine.loop import Loop
from pegboard.engine.precision import choose_precision
from pegboard.planning.plan import assemble, make_plan
from pegboard.preview.explain import explain

PARTS = '''
from dataclasses import dataclass

from pegboard import Regularizer, Trick, hookimpl


@dataclass(frozen=True)
class Nothing:
    """No fields."""


def build(config, context):
    import torch

    class Looks(Trick):
        seen = None

        def prepare(self, train, size):
            torch.rand(3)  # which must not move the stream of the run
            for rows in torch.arange(len(train), device=train.inputs[0].device).split(size):
                train.gather(rows)
            self.seen = (len(train), size)

        def edit_loss(self, loss, output, batch):
            if self.seen is None:  # what need not be computed in every step
                (x,) = batch.inputs
                x.flatten(1) @ x.flatten(1).T
            return loss

    return Looks()


def build_mover(config, context):
    class Moves(Trick):
        def edit_batch(self, batch):
            return batch._replace(inputs=tuple(x + 1 for x in batch.inputs))

    return Moves()


@hookimpl
def pegboard_regularizers():
    return [
        Regularizer("looks", Nothing, build, stages={"edit_loss": "term"}),
        Regularizer("moves", Nothing, build_mover, stages={"edit_batch": "augment"}),
    ]
'''


class Nobody:
    """A watcher that looks away from all but how far a trick has come."""

    def __init__(self) -> None:
        self.bars: list[list[int]] = []

    @contextmanager
    def working(self, total: int, unit: str) -> Iterator[Any]:
        self.bars.append([total])
        yield self.bars[-1].append

    def __getattr__(self, name: str) -> Any:
        return lambda *args: None


def config(tmp_path: Path, trainer: dict[str, Any], *others: str) -> dict[str, Any]:
    (tmp_path / "parts.py").write_text(PARTS)
    return {
        "data": {"name": "digits", "batch_size": 50},
        "model": {"name": "mlp", "hidden": [4]},
        "optimizer": {"name": "sgd", "lr": 0.1},
        "trainer": {"device": "cpu", **trainer},
        "regularizers": {"looks": {}, **{name: {} for name in others}},
        "plugins": {"local": [str(tmp_path / "parts.py")]},
    }


def seen(tmp_path: Path, trainer: dict[str, Any], *others: str) -> Any:
    """What the trick was shown when the loop was made."""
    plan = make_plan(check(config(tmp_path, trainer, *others)), read=True)
    assert plan.splits is not None
    assembly, before, watcher = assemble(plan, "cpu"), torch.get_rng_state(), Nobody()
    Loop(assembly, plan.splits, choose_precision("fp32", "cpu"), watcher, tmp_path)  # type: ignore[arg-type]
    assert torch.equal(before, torch.get_rng_state())
    shown = assembly.tricks["looks"].seen  # type: ignore[attr-defined]
    count = len(plan.splits.train)
    assert shown is None or shown == (count, 200)
    assert watcher.bars == ([] if shown is None else [[count, *range(200, count, 200), count]])
    assert "gather" not in vars(plan.splits.train)
    return shown


def test_samples_in_memory_that_come_again_are_shown(tmp_path: Path) -> None:
    assert seen(tmp_path, {"epochs": 2}) is not None


@pytest.mark.parametrize("trainer", [{"epochs": 1}, {"steps": 5}])
def test_a_run_that_sees_samples_once_shows_none(tmp_path: Path, trainer: dict[str, Any]) -> None:
    assert seen(tmp_path, trainer) is None


def test_where_a_trick_edits_batches_none_are_shown(tmp_path: Path) -> None:
    assert seen(tmp_path, {"epochs": 2}, "moves") is None


@pytest.mark.parametrize("read", [False, True])
def test_a_step_is_not_said_to_cost_what_is_done_once(tmp_path: Path, read: bool) -> None:
    def flops(*others: str, epochs: int) -> int:
        plan = make_plan(check(config(tmp_path, {"epochs": epochs}, *others)), read=read)
        (line,) = (line for line in explain(plan).splitlines() if line.startswith("a step "))
        return int(line.split()[2].replace(",", ""))

    once, always = flops(epochs=2), flops(epochs=1)
    assert always - once == 2 * 50 * 64 * 50  # the product of a batch of 50 pictures with itself
    assert flops("moves", epochs=2) == always
