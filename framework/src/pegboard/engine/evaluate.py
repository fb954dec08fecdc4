"""Measuring a model on a split."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ..contracts import Batch, Metric, Objective, Source
from .precision import Precision


class Halted(Exception):
    """An evaluation was given up because a signal asked the run to end."""


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """The model in eval mode and no gradients, then as it was."""
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(training)


def batches(source: Source, size: int, device: str) -> Iterator[Batch]:
    """Every sample once, in order."""
    for index in torch.split(torch.arange(len(source), device=device), size):
        yield source.gather(index)


def evaluate(
    model: nn.Module,
    objective: Objective,
    metrics: Mapping[str, Metric],
    source: Source,
    batch_size: int,
    device: str,
    precision: Precision,
    halted: Callable[[], int] = int,
) -> dict[str, float]:
    """The mean loss and every metric over a split; waits for the device once, at the end.

    `halted` is asked between two batches; its yes is raised as `Halted`.
    """
    for metric in metrics.values():
        metric.reset()
    total: Tensor | float = 0.0
    weights: Tensor | float = 0.0
    forward = precision.wrap(model)
    with eval_mode(model):
        for batch in batches(source, batch_size, device):
            output = forward(*batch.inputs)
            assert batch.target is not None
            share = len(batch.inputs[0]) if batch.weight is None else batch.weight.sum()
            total = total + objective.loss(output, batch.target, batch.weight).float() * share
            weights = weights + share
            for metric in metrics.values():
                metric.update(output, batch.target)
            if halted():
                raise Halted
        results = {"loss": float(total / weights)}
        return results | {name: float(metric.compute()) for name, metric in metrics.items()}


def collect(
    model: nn.Module, source: Source, batch_size: int, device: str, precision: Precision
) -> tuple[Any, Tensor | None]:
    """All outputs and targets of a split, on the CPU."""
    outputs, targets = [], []
    forward = precision.wrap(model)
    with eval_mode(model):
        for batch in batches(source, batch_size, device):
            outputs.append(forward(*batch.inputs).float().cpu())
            targets.append(None if batch.target is None else batch.target.cpu())
    known = [t for t in targets if t is not None]
    return torch.cat(outputs), torch.cat(known) if known else None
