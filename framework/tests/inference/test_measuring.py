"""What an evaluation measures, and which way a figure is better."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from pegboard.base.errors import PegboardError
from pegboard.config.check import check
from pegboard.contract.results import Objective
from pegboard.data import Resident
from pegboard.engine.evaluate import Evaluator
from pegboard.engine.monitor import choose_monitor
from pegboard.engine.precision import choose_precision
from pegboard.planning.plan import assemble, make_plan
from torch import Tensor, nn

Config = Callable[..., dict[str, Any]]


class Squares(Objective):
    def loss(self, output: Any, target: Tensor, weight: Tensor | None = None) -> Tensor:
        losses = (output - target).square()
        return losses.mean() if weight is None else (losses * weight).sum() / weight.sum()


class Seen:
    """How many samples it was shown."""

    def reset(self) -> None:
        self.count = 0

    def update(self, preds: Tensor, target: Tensor) -> None:
        self.count += len(target)

    def compute(self) -> Tensor:
        return torch.tensor(self.count)

    def to(self, device: str) -> Seen:
        return self


@pytest.mark.parametrize("weight", [None, torch.tensor([1.0, 0.1, 3.0, 0.5, 9.0])])
def test_the_batches_of_a_split_do_not_show_in_its_figures(weight: Tensor | None) -> None:
    x, y = torch.tensor([1.0, 2.0, 4.0, 8.0, 16.0]), torch.zeros(5)
    source, precision, metrics = Resident([x], y, weight), choose_precision("fp32", "cpu"), {"seen": Seen()}
    for size in (1, 2, 5, 9):  # 2 leaves a last batch of one
        evaluator = Evaluator(objective=Squares(), precision=precision, metrics=metrics, batch_size=size)
        found = evaluator.measure(nn.Identity(), source)
        assert found == {"loss": pytest.approx(float(Squares().loss(x, y, weight))), "seen": 5}


@pytest.mark.parametrize(
    ("name", "higher"),
    [("right", True), ("loss", False), ("gain", True), ("error", False)],
)
def test_a_metric_says_whether_more_of_it_is_better(config: Config, name: str, higher: bool) -> None:
    plan = make_plan(check(config(), [f"trainer.monitor=val/{name}"]), read=True)
    assembly = assemble(plan, "cpu")
    more = {"gain": SimpleNamespace(higher_is_better=True), "error": SimpleNamespace(higher_is_better=False)}
    known = {**assembly.objective.metrics(), **more}
    assembly.objective.metrics = lambda: known  # type: ignore[method-assign, assignment]
    assert plan.splits is not None
    assert choose_monitor(assembly, plan.splits) == (f"val/{name}", higher)


@pytest.mark.parametrize("silent", [SimpleNamespace(), SimpleNamespace(higher_is_better=None)])
def test_a_metric_that_does_not_say_is_asked_about(config: Config, silent: SimpleNamespace) -> None:
    for words, told in (([], True), (["trainer.mode=max"], False)):
        plan = make_plan(check(config(), ["trainer.monitor=val/silent", *words]), read=True)
        assembly = assemble(plan, "cpu")
        assembly.objective.metrics = lambda: {"silent": silent}  # type: ignore[method-assign]
        assert plan.splits is not None
        if told:
            with pytest.raises(PegboardError, match="set trainer.mode to min or max"):
                choose_monitor(assembly, plan.splits)
        else:
            assert choose_monitor(assembly, plan.splits) == ("val/silent", True)
