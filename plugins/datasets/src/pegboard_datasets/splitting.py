"""Who is in which split: an order of the samples from a seed, cut into three."""

from __future__ import annotations

from typing import NamedTuple

import torch
from pegboard import Context, cut_fold
from torch import Tensor


class Parts(NamedTuple):
    """Numbers of the samples in each split; an empty one is None."""

    train: Tensor
    val: Tensor | None
    test: Tensor | None


def sample_order(size: int, split_seed: int, classes: Tensor | None = None) -> Tensor:
    """Every number below `size` once, in an order that `split_seed` alone decides.

    With `classes` (size,) every stretch of the order holds the classes in their overall shares: the
    j-th of a class of n samples, in random order, stands at the place (j + 1/2) / n.
    """
    generator = Context(seed=split_seed, key="datasets").generator("split", "cpu")
    order = torch.randperm(size, generator=generator)
    if classes is None or size == 0:
        return order
    _, member, count = torch.unique(classes[order], return_inverse=True, return_counts=True)
    by_class = torch.argsort(member, stable=True)
    first = count.cumsum(0) - count
    rank = torch.empty_like(order)
    rank[by_class] = torch.arange(size) - first[member[by_class]]
    place = (rank + 0.5) / count[member]
    return order[torch.argsort(place, stable=True)]


def cut(
    order: Tensor, val: float, test: float, limit: int | None = None, fold: tuple[int, int] | None = None
) -> Parts:
    """The first share of the order is the test, the next the validation, the rest trains up to `limit`.

    The test does not depend on the share for validation, nor either of them on `limit`. With a `fold` that
    fold of all but the test is the validation, whatever its share.
    """
    tests, vals = round(len(order) * test), round(len(order) * val)
    train, validation = order[tests + vals :], order[tests : tests + vals]
    if fold is not None:
        train, validation = cut_fold(order[tests:], fold)
    if limit is not None:
        train = train[:limit]
    return Parts(train, _some(validation), _some(order[:tests]))


def _some(index: Tensor) -> Tensor | None:
    return index if len(index) else None
