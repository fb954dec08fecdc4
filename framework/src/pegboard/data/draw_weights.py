"""How likely a sample is to be drawn: by its weight, or so that all classes are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from ..base.errors import PegboardError
from ..contract.results import Batch, Source
from .batches import Batches
from .ragged import Sequences
from .resident import Resident
from .wrapping import Wrapped


def in_batches(source: Source, order: Tensor, size: int) -> Batches:
    """An order cut into batches; one batch where any samples cost as much as all of them."""
    return Batches(order, max(len(order), 1) if source.whole else size)


@contextmanager
def reading(source: Source, batches: Sequence[Tensor], workers: int) -> Iterator[Iterator[Batch]]:
    """Batches of samples, one after the other; processes that read them ahead end with it."""
    try:
        source.begin(batches, workers if len(batches) > 1 else 0)  # one is sooner read than a process started
        yield map(source.gather, batches)
    finally:
        source.close()


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
    held = source.target is not None or (source.weight is not None and names == ("weight",))
    if held and not isinstance(source.target, Sequences):
        known = {"target": source.target, "weight": source.weight}
        return [None if (column := known[name]) is None else column.cpu() for name in names]
    found: list[tuple[Tensor | None, ...]] = []
    with reading(source, in_batches(source, torch.arange(len(source)), size), workers) as batches:
        for batch in batches:
            found.append(tuple([getattr(batch, name) for name in names]))
            if found[0][0] is None:
                return [None for _ in names]
    columns = zip(*found, strict=True)
    return [None if column[0] is None else torch.cat([t.cpu() for t in column]) for column in columns]


class Unweighted(Wrapped):
    """The samples of a source without their weights."""

    weight = None

    def gather(self, index: Tensor) -> Batch:
        return self.source.gather(index)._replace(weight=None)


def unweighted(source: Source) -> Source:
    """The same samples, all of which weigh alike; what is wrapped stays wrapped."""
    if isinstance(source, Wrapped):
        return source.around(unweighted(source.source))
    return Resident(source.inputs, source.target) if isinstance(source, Resident) else Unweighted(source)
