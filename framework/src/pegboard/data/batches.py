"""An order of samples cut into batches, and these into updates, without a list of them all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

from torch import Tensor


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
