"""How likely a sample is to be drawn: by its weight, or so that all classes are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from ..base.errors import PegboardError
from ..contract.results import Batch, Source
from .batches import Batches
from .resident import Resident


def in_batches(source: Source, order: Tensor, size: int) -> Batches:
    """An order cut into batches; one batch where any samples cost as much as all of them."""
    return Batches(order, max(len(order), 1) if getattr(source, "whole", False) else size)


@contextmanager
def reading(source: Source, batches: Sequence[Tensor], workers: int) -> Iterator[Iterator[Batch]]:
    """Batches of samples, one after the other; processes that read them ahead end with it."""
    begin = getattr(source, "begin", None)
    try:
        if begin is not None:
            # One batch is sooner read than a process started.
            begin(batches, workers if len(batches) > 1 else 0)
        yield map(source.gather, batches)
    finally:
        getattr(source, "close", lambda: None)()


def weight_shares(source: Source, size: int, workers: int) -> Tensor:
    """Shares of the samples in all draws, by their weights."""
    (weight,) = _columns(source, ("weight",), size, workers)
    if weight is None:
        raise PegboardError(
            "data.sampling is weighted, but the training samples have no weights\n"
            "  expected: a data set whose batches have a `weight`\n"
            "  draw all alike with data.sampling=replacement, or take each once with data.sampling=epoch"
        )
    weight = weight.double()
    wrong = torch.nonzero(~(torch.isfinite(weight) & (weight >= 0)))
    if len(wrong) or not weight.any():
        row = int(wrong[0]) if len(wrong) else 0
        found = f"{float(weight[row]):g} for sample {row}" if len(wrong) else "0 for every sample"
        raise PegboardError(
            f"data.sampling is weighted, but a weight cannot be used: found {found}\n"
            "  expected: finite numbers from 0 on, of which one at least is more"
        )
    return weight / weight.sum()


def class_shares(source: Source, size: int, workers: int) -> Tensor:
    """Shares by which every class that occurs is drawn as often as any other.

    A sample whose weight is 0 or whose class is below 0 has no known class: it is never drawn.
    """
    target, weight = _columns(source, ("target", "weight"), size, workers)
    assert target is not None  # of a spec of classes
    known = torch.ones(len(target), dtype=torch.bool) if weight is None else weight != 0
    if target.dim() == 1:
        known = known & (target >= 0)
        counts = torch.bincount(target[known])
        shares = torch.zeros(len(target), dtype=torch.float64)
        shares[known] = 1 / counts[target[known]].double()
    else:  # (samples, classes): a sample stands for a class as far as it belongs to it
        belongs = target.double() * known.unsqueeze(1)
        counts = belongs.sum(0)
        shares = (belongs / torch.where(counts > 0, counts, 1)).sum(1)
    if not shares.any():
        raise PegboardError(
            "data.sampling is balanced, but no training sample has a class: "
            "all have the weight 0, or a class below 0"
        )
    return shares / shares.sum()


def _columns(source: Source, names: tuple[str, ...], size: int, workers: int) -> list[Tensor | None]:
    """What a source knows of all its samples; one that does not hold it is read once, from end to end."""
    if all(hasattr(source, name) for name in names):
        held = (getattr(source, name) for name in names)
        return [None if column is None else column.cpu() for column in held]
    found: list[tuple[Tensor | None, ...]] = []
    with reading(source, in_batches(source, torch.arange(len(source)), size), workers) as batches:
        for batch in batches:
            found.append(tuple([getattr(batch, name) for name in names]))
            if found[0][0] is None:
                return [None for _ in names]
    columns = zip(*found, strict=True)
    return [None if column[0] is None else torch.cat([t.cpu() for t in column]) for column in columns]


class Unweighted:
    """The samples of a source without their weights."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def __len__(self) -> int:
        return len(self._source)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def gather(self, index: Tensor) -> Batch:
        return self._source.gather(index)._replace(weight=None)

    def to(self, device: str) -> Unweighted:
        return Unweighted(self._source.to(device))


def unweighted(source: Source) -> Source:
    """The same samples, all of which weigh alike."""
    return Resident(source.inputs, source.target) if isinstance(source, Resident) else Unweighted(source)
