"""Measuring a model on a split."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..contract.results import Batch, Metric, Objective, Source, Splits
from ..data import Resident, Sequences, by_length, in_batches, known_target, reading, widths_of
from ..planning.plan import private_rng
from .precision import Precision

LOWEST = -1e9  # a score that no place has


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


def reading_order(source: Source, device: str) -> Tensor:
    """Every number once, in order, where the source wants them."""
    return torch.arange(len(source), device="cpu" if source.index_on_cpu else device)


def reading_batches(source: Source, device: str, size: int, order: Tensor | None = None) -> Sequence[Tensor]:
    """Samples in batches, all where no order names some; by length where they differ in it."""
    order = reading_order(source, device) if order is None else order
    if (widths := widths_of(source)) is not None:
        return by_length(widths, order, size)
    return in_batches(source, order, size)


@dataclass(frozen=True, kw_only=True)
class Evaluator:
    """Measures the mean loss and every metric of models over splits."""

    objective: Objective
    precision: Precision
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    batch_size: int
    device: str = "cpu"
    workers: int = 0  # processes that read ahead what is not in memory
    seed: int = 0  # by it all is drawn that an objective draws: the same weights give the same figures
    halted: Callable[[], int] = int  # asked between two batches; its yes is raised as `Halted`

    def measure(
        self,
        model: nn.Module,
        source: Source,
        order: Tensor | None = None,
        watch: Callable[[Any, Batch], None] | None = None,
    ) -> dict[str, float]:
        """Loss and metrics of a model over a split; waits for the device once, at the end.

        `order` has the samples to measure, where not all; `watch` is shown every batch with its output.
        """
        for metric in self.metrics.values():
            metric.reset()
        total: Tensor | float = 0.0
        weights: Tensor | float = 0.0
        judge = self.precision.wrap(self.objective.evaluate)
        numbers = reading_batches(source, self.device, self.batch_size, order)
        feeds = [_feed(metric) for metric in self.metrics.values()]
        stream = private_rng(self.seed, "evaluate", device=self.device)
        with stream, eval_mode(model), reading(source, numbers, self.workers) as batches:
            for batch in batches:
                loss, output = judge(model, batch)
                share = self.objective.mass(batch)
                counted = loss.float() * share
                # Of texts without a symbol nothing counts, and a mean of nothing is nan.
                total = total + (counted.where(share != 0, 0.0) if isinstance(share, Tensor) else counted)
                weights = weights + share
                for feed in feeds:
                    feed(output, batch)
                if watch is not None:
                    watch(output, batch)
                if self.halted():
                    raise Halted
            results = {"loss": float(total / weights)}
            return results | {name: float(metric.compute()) for name, metric in self.metrics.items()}


def measure_rules(
    evaluator: Evaluator, splits: Splits, names: Sequence[str], failed: Callable[[str, Exception], None]
) -> dict[str, dict[str, dict[str, float]]]:
    """For each rule without learning that the data set has, its figures by split, of those that are named.

    One that the objective cannot measure is left out, and `failed` is told of it.
    """
    found: dict[str, dict[str, dict[str, float]]] = {}
    for name, by_split in splits.baselines.items():
        for split in names:
            target, weight = known_target(getattr(splits, split))
            if split not in by_split or target is None:
                continue
            try:  # the rule's outputs take the place of a model's
                answers = Resident([by_split[split]], target.cpu(), None if weight is None else weight.cpu())
                figures = evaluator.measure(nn.Identity(), answers.to(evaluator.device))
            except Halted:
                raise
            except Exception as error:
                failed(name, error)
                break
            found.setdefault(name, {})[split] = figures
    return found


def _feed(metric: Metric) -> Callable[[Any, Batch], None]:
    """How a metric is told of a batch: with weights where it takes them, else without what has none."""
    update: Any = metric.update
    weighs = list(inspect.signature(update).parameters)[2:3] == ["weight"]

    def feed(output: Any, batch: Batch) -> None:
        target, weight = batch.target, batch.weight
        if weight is None:
            update(output, target)
        elif weighs:
            update(output, target, weight)
        else:
            kept = weight != 0
            update(output[kept], None if target is None else target[kept])

    return feed


def on_cpu(output: Any, copied: Callable[[Tensor], Tensor] | None = None) -> Any:
    """A nest of tensors on the CPU, with numbers that are not narrower than single precision.

    Each is what `copied` makes of it, where that is given.
    """
    if isinstance(output, Tensor):
        if copied is not None:
            return copied(output)
        return output.float().cpu() if output.is_floating_point() else output.cpu()
    if isinstance(output, Mapping):
        return {key: on_cpu(value, copied) for key, value in output.items()}
    if isinstance(output, tuple) and hasattr(output, "_fields"):
        return type(output)(*(on_cpu(value, copied) for value in output))
    if isinstance(output, list | tuple):
        return type(output)(on_cpu(value, copied) for value in output)
    return output


def collect(
    model: nn.Module, source: Source, batch_size: int, device: str, precision: Precision, workers: int = 0
) -> tuple[Any, Tensor | None, Tensor | None]:
    """All outputs, each a tensor, targets and weights of a split, on the CPU, in the order of its samples."""
    outputs, targets, weights = [], [], []
    forward, numbers = precision.wrap(model), reading_batches(source, device, batch_size)
    with eval_mode(model), reading(source, numbers, workers) as batches:
        for batch in batches:
            outputs.append(forward(*batch.inputs).float().cpu())
            targets += [] if batch.target is None else [batch.target.cpu()]
            weights += [] if batch.weight is None else [batch.weight.cpu()]
    output = joined(outputs)
    padding = source.target.padding if isinstance(source.target, Sequences) else 0
    target = joined(targets, padding) if targets else None
    weight = joined(weights) if weights else None
    if source.lengths is None:
        return output, target, weight
    back = torch.argsort(torch.cat(list(numbers)))
    return output[back], None if target is None else target[back], None if weight is None else weight[back]


def joined(parts: Sequence[Tensor], padding: int = 0) -> Tensor:
    """Batches (rows, ...) as one tensor; where they have rows of different length, all as the longest.

    The length may be any axis. Where it is the last of several, an output is a score of every place, and
    what is filled up has the lowest.
    """
    if len({part.shape[1:] for part in parts}) > 1:
        whole = [max(sizes) for sizes in zip(*(part.shape[1:] for part in parts), strict=True)]
        places = len(whole) > 1 and len({part.shape[-1] for part in parts}) > 1
        value = LOWEST if places and parts[0].is_floating_point() else padding
        parts = [functional.pad(part, _sides(part, whole), value=value) for part in parts]
    return torch.cat(list(parts))


def _sides(part: Tensor, whole: Sequence[int]) -> list[int]:
    """What `pad` adds on both sides of every axis but the first, the last axis first."""
    added = [size - own for size, own in zip(whole, part.shape[1:], strict=True)]
    return [n for more in reversed(added) for n in (0, more)]
