"""Real vectors for every step: losses and metrics over the steps that are known."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pegboard import Batch, Context, DataSpec, Series
from pegboard_objectives import pegboard_objectives

PARTS = {part.name: part for part in pegboard_objectives()}
LONG, SHORT = Series(4, 2), Series(4, 2, padded=True)


def built(name: str, target: Series, **fields: Any) -> Any:
    part = PARTS[name]
    return part.build(part.config(**fields), Context(spec=DataSpec((target,), target)))


@pytest.mark.parametrize(("name", "of"), [("mse", torch.square), ("l1", torch.abs)])
def test_steps_after_the_end_do_not_count(name: str, of: Any) -> None:
    torch.manual_seed(0)
    output, target = torch.randn(3, 4, 2), torch.randn(3, 4, 2)
    torch.testing.assert_close(built(name, LONG).loss(output, target), of(output - target).mean())
    target[0, 2:], target[2, 1:] = torch.nan, torch.nan
    there = ~target.isnan()
    loss = built(name, SHORT).loss(output.requires_grad_(), target)
    torch.testing.assert_close(loss, of(output - target)[there].mean())
    loss.backward()
    assert output.grad is not None and output.grad.isfinite().all() and not output.grad[~there].any()


def test_the_mean_of_an_evaluation_is_over_all_known_numbers() -> None:
    objective = built("mse", SHORT)
    target = torch.zeros(2, 4, 2)
    target[0, 1:] = torch.nan
    assert float(objective.mass(Batch((target,), target))) == 10
    assert float(objective.mass(Batch((target,), target, torch.tensor([2.0, 1.0])))) == 12


def test_metrics_take_batches_of_different_length() -> None:
    torch.manual_seed(0)
    metrics = built("mse", SHORT, metrics=("mae", "rmse", "r2")).metrics()
    outputs, targets, weights = [], [], []
    for length in (4, 3):
        output, target = torch.randn(5, length, 2), torch.randn(5, length, 2)
        target[0, 2:] = torch.nan
        weight = torch.rand(5)
        for metric in metrics.values():
            metric.update(output, target, weight)
        outputs.append(output.flatten(0, 1))
        targets.append(target.flatten(0, 1))
        weights.append(weight.repeat_interleave(length))
    output, target, weight = torch.cat(outputs).double(), torch.cat(targets).double(), torch.cat(weights)
    mass = torch.where(target.isnan(), 0.0, weight.double().unsqueeze(1))
    error = torch.where(target.isnan(), 0.0, output - target)
    mae = (error.abs() * mass).sum() / mass.sum()
    torch.testing.assert_close(metrics["mae"].compute().double(), mae)
    rmse = ((error.square() * mass).sum() / mass.sum()).sqrt()
    torch.testing.assert_close(metrics["rmse"].compute().double(), rmse)
    known = target.nan_to_num()
    centre = (known * mass).sum(0) / mass.sum(0)
    spread = ((known - centre).square() * mass).sum(0)
    r2 = (1 - (error.square() * mass).sum(0) / spread).mean()
    torch.testing.assert_close(metrics["r2"].compute().double(), r2)
