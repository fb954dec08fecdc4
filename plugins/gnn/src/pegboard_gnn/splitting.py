"""Which samples train, validate and test."""

from __future__ import annotations

import torch
from pegboard import Context, cut_fold
from torch import Tensor


def even_order(target: Tensor, seed: int) -> Tensor:
    """A random order in every stretch of which classes have about the share that they have in all."""
    generator = torch.Generator().manual_seed(seed)
    shuffled = torch.randperm(len(target), generator=generator)
    classes = target[shuffled]
    by_class = torch.argsort(classes, stable=True)
    counts = torch.bincount(classes)
    begin = torch.repeat_interleave(counts.cumsum(0) - counts, counts)
    turn = (torch.arange(len(target)) - begin + 0.5) / torch.repeat_interleave(counts, counts)
    return shuffled[by_class[torch.argsort(turn, stable=True)]]


def parts(target: Tensor, val: float, test: float, context: Context) -> tuple[Tensor, Tensor, Tensor]:
    """The numbers of the samples that train, validate and test, the same in every run."""
    order = even_order(target, 0)
    tested = round(test * len(order))
    rest = order[tested:]
    if context.fold is not None:
        train, validated = cut_fold(rest, context.fold)
    else:
        count = max(round(val * len(order)), 1)
        train, validated = rest[count:], rest[:count]
    return train, validated, order[:tested]
