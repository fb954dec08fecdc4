"""The order in which an epoch visits its samples, keyed by (seed, epoch)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import overload

import torch
from torch import Tensor

from ..rng import key_seed

POOL = 100  # batches whose samples are sorted by length together


def epoch_order(size: int, seed: int, epoch: int, shuffle: bool) -> Tensor:
    """Each number below `size` once; drawn from a generator of its own, never the global one."""
    if not shuffle:
        return torch.arange(size)
    generator = torch.Generator().manual_seed(key_seed(seed, "order", epoch))
    return torch.randperm(size, generator=generator)


def similar_order(lengths: Tensor, batch_size: int, seed: int, epoch: int, shuffle: bool) -> Tensor:
    """Each number once, so that samples of similar length share a batch; a smaller batch comes last.

    The samples are shuffled, sorted by length inside pools of about `POOL` batches and cut into batches, and
    the batches are shuffled.
    """
    size = len(lengths)
    if not shuffle:
        return torch.arange(size)
    generator = torch.Generator().manual_seed(key_seed(seed, "order", epoch))
    order = torch.randperm(size, generator=generator)
    whole, rest = divmod(size, batch_size)
    count = math.ceil(size / batch_size)
    pool = batch_size * math.ceil(count / max(round(count / POOL), 1))  # samples, pools as equal as can be
    key = lengths.long()[order] + torch.arange(size) // pool * (int(lengths.max()) + 1)
    order = order[key.argsort(stable=True)]
    # Of the last pool, neighbours from anywhere: always the longest would be left out by drop_last.
    at = int(torch.randint((size - 1) // pool * pool, size - rest + 1, (), generator=generator))
    full = torch.cat([order[:at], order[at + rest :]]).view(whole, batch_size)
    shuffled = full[torch.randperm(whole, generator=generator)]
    return torch.cat([shuffled.flatten(), order[at : at + rest]])


def padding_share(lengths: Tensor, order: Tensor, batch_size: int) -> float:
    """The share of padding in the batches of an order, each as long as its longest sample."""
    pieces = torch.split(lengths[order], batch_size)
    places = sum(len(piece) * max(int(piece.max()), 1) for piece in pieces)
    return 1 - int(lengths.sum()) / places


class Batches(Sequence[Tensor]):
    """An order cut into batches, each when it is asked for: of many rows nothing is kept but their order."""

    def __init__(self, order: Tensor, size: int) -> None:
        self.order, self.size = order, size

    def __len__(self) -> int:
        return -(-len(self.order) // self.size)

    @overload
    def __getitem__(self, at: int) -> Tensor: ...
    @overload
    def __getitem__(self, at: slice) -> Batches: ...
    def __getitem__(self, at: int | slice) -> Tensor | Batches:
        if isinstance(at, slice):
            start, stop = _ends(at, len(self))
            return Batches(self.order[start * self.size : stop * self.size], self.size)
        at = range(len(self))[at]
        return self.order[at * self.size : (at + 1) * self.size]


class Groups(Sequence[tuple[Tensor, ...]]):
    """Batches, so many to an update, cut in the same way."""

    def __init__(self, batches: Batches, together: int) -> None:
        self.batches, self.together = batches, together

    def __len__(self) -> int:
        return -(-len(self.batches) // self.together)

    @overload
    def __getitem__(self, at: int) -> tuple[Tensor, ...]: ...
    @overload
    def __getitem__(self, at: slice) -> Groups: ...
    def __getitem__(self, at: int | slice) -> tuple[Tensor, ...] | Groups:
        if isinstance(at, slice):
            start, stop = _ends(at, len(self))
            return Groups(self.batches[start * self.together : stop * self.together], self.together)
        at = range(len(self))[at]
        return tuple(self.batches[at * self.together : (at + 1) * self.together])


def _ends(at: slice, size: int) -> tuple[int, int]:
    start, stop, step = at.indices(size)
    if step != 1:
        raise ValueError("batches follow each other: no step but 1")
    return start, max(start, stop)
