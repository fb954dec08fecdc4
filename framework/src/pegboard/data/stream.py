"""Data that is not held in memory: every batch is one read, by processes ahead of the step where asked."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from ..contracts import Batch
from ..rng import key_seed
from .workers import Pool, Read, read_rows, size_of

T = TypeVar("T")


class Stream:
    """Samples that `read(rows)` fetches, a batch of CPU tensors at a time.

    `read` gets the row numbers of a batch, below `size`. With `data.workers` it runs in other processes, so
    it must be picklable and keep no open file that processes cannot share. It never draws from the global
    random streams: with a `seed` it is called as `read(rows, key)`, where `key` is a number of the seed and
    the epoch, from which it derives what is random of a sample, as `(key, row)`.
    """

    def __init__(self, read: Read, size: int, *, seed: int | None = None, device: str = "cpu") -> None:
        self.read, self.size, self.seed, self.device = read, size, seed, device
        self._key: int | None = None
        self._set_epoch(0)
        self._coming: deque[Tensor] = deque()  # what was announced, in order
        self._first: Batch | None = None
        self._pool: Pool | None = None

    def __len__(self) -> int:
        return self.size

    def to(self, device: str) -> Stream:
        return Stream(self.read, self.size, seed=self.seed, device=device)

    def begin(self, order: Sequence[Tensor], workers: int, epoch: int = 0) -> None:
        """Announce the batches of an epoch that are still to come; `workers` processes read them ahead."""
        self._set_epoch(epoch)
        self._coming.clear()
        self._first = None
        if not workers or not order:
            self.close()
            return
        sizes = [len(index) for index in order]
        rows = torch.split(torch.cat(list(order)).cpu(), sizes)
        pool = self._pool
        if pool is not None and pool.workers == workers and pool.fits(max(sizes)):
            self._coming.extend(order)
            self._safely(lambda: pool.begin(rows, self._key))
        else:
            room = 0 if pool is None else pool.largest
            self.close()
            # The first batch is read here: it shows how much room a batch takes.
            self._first = read_rows(self.read, rows[0].tolist(), self._key)
            room = max(room, size_of(self._first) * max(sizes) // max(sizes[0], 1))
            self._pool = Pool(self.read, workers, max(sizes), room, self.device.startswith("cuda"))
            self._pool.begin(rows[1:], self._key)
            self._coming.extend(order)

    def gather(self, index: Tensor) -> Batch:
        """The samples with these numbers, on the device; what was not announced is read here and now."""
        if not self._coming or self._coming[0] is not index:
            batch = read_rows(self.read, index.tolist(), self._key)
        else:
            self._coming.popleft()
            if self._first is not None:
                batch, self._first = self._first, None
            else:
                assert self._pool is not None
                batch = self._safely(self._pool.next)
        return self._place(batch, index)

    def close(self) -> None:
        """End the processes that read ahead."""
        self._coming.clear()
        self._first = None
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def _safely(self, act: Callable[[], T]) -> T:
        try:
            return act()
        except BaseException:  # whatever is under way is of no more use
            self.close()
            raise

    def _set_epoch(self, epoch: int) -> None:
        self._key = None if self.seed is None else key_seed(self.seed, "read", epoch)

    def _place(self, batch: Batch, index: Tensor) -> Batch:
        if self.device == "cpu":
            return batch._replace(rows=index)

        def move(t: Tensor | None) -> Tensor | None:
            return None if t is None else t.to(self.device, non_blocking=True)

        inputs = tuple([x.to(self.device, non_blocking=True) for x in batch.inputs])
        return Batch(inputs, move(batch.target), move(batch.weight), index)
