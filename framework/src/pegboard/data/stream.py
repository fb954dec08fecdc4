"""Data that is not held in memory: every batch is one read, by processes ahead of the step where asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from ..base.random_keys import key_seed
from ..contract.results import Batch, Source
from ..contract.specs import DataSpec, Spec, Tokens
from .batches import Batches
from .workers import Pool, Read, read_rows, size_of

T = TypeVar("T")


def fill_up(tensor: Tensor, spec: Spec | None) -> Tensor:
    """Symbols (rows, width) padded to the length that their spec says; anything else as it is."""
    if not isinstance(spec, Tokens) or spec.length is None or tensor.shape[1] >= spec.length:
        return tensor
    return torch.nn.functional.pad(tensor, (0, spec.length - tensor.shape[1]), value=spec.padding)


@dataclass(frozen=True)
class Filled:
    """Reads what another function reads, padded to the lengths of a spec."""

    read: Read
    spec: DataSpec

    def __call__(self, rows: list[int], *key: int) -> Batch:
        batch = self.read(rows, *key)
        inputs = tuple([fill_up(x, of) for x, of in zip(batch.inputs, self.spec.inputs, strict=True)])
        target = None if batch.target is None else fill_up(batch.target, self.spec.target)
        return Batch(inputs, target, batch.weight, batch.rows)

    def targets(self) -> Tensor | None:
        """The target of all samples, where what is padded knows it."""
        return _targets(self.read)


def _targets(read: Read) -> Tensor | None:
    found: Callable[[], Tensor | None] = getattr(read, "targets", lambda: None)
    return found()


def _same(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors are one piece of memory; nothing of it is looked at."""
    return one is other or (
        (one.data_ptr(), one.shape, one.stride()) == (other.data_ptr(), other.shape, other.stride())
    )


class Stream(Source):
    """Samples that `read(rows)` fetches, a batch of CPU tensors at a time.

    `read` gets the row numbers of a batch, below `size`. With `data.workers` it runs in other processes, so
    it must be picklable and keep no open file that processes cannot share. One that knows the target of all
    samples may have a method `targets() -> Tensor`, which lets a run look at the classes before it begins.
    It never draws from the global random streams: with a `seed` it is called as `read(rows, key)`, where
    `key` is a number of the seed and the epoch, from which it derives what is random of a sample, as
    `(key, row)`.

    With `lengths`, the number of symbols of each sample, those of similar length are read together; a batch
    is as long as the longest of its own samples. Where samples have several texts, `lengths` is
    (samples, texts). Batches that differ in shape otherwise, as those of graphs, are `varied`.
    """

    def __init__(
        self,
        read: Read,
        size: int,
        *,
        seed: int | None = None,
        device: str = "cpu",
        lengths: Tensor | None = None,
        varied: bool = False,
    ) -> None:
        self.read, self.size, self.seed, self.device = read, size, seed, device
        self.widths, self.varied = lengths, varied
        self.lengths = lengths.amax(1) if lengths is not None and lengths.dim() > 1 else lengths
        self._key: int | None = None
        self._set_epoch(0)
        self._order: Sequence[Tensor] = ()  # what was announced
        self._at = 0  # how much of it was asked for
        self._first: Batch | None = None
        self._pool: Pool | None = None

    def __len__(self) -> int:
        return self.size

    def to(self, device: str) -> Stream:
        more = {"lengths": self.widths, "varied": self.varied}
        return Stream(self.read, self.size, seed=self.seed, device=device, **more)  # type: ignore[arg-type]

    def padded(self, spec: DataSpec) -> Stream:
        """The same samples, all as long as the spec says."""
        if not any(isinstance(s, Tokens) for s in (*spec.inputs, spec.target)):
            return self
        return Stream(Filled(self.read, spec), self.size, seed=self.seed, device=self.device)

    def targets(self) -> Tensor | None:
        return _targets(self.read)

    def begin(self, order: Sequence[Tensor], workers: int, epoch: int = 0) -> None:
        """Announce the batches of an epoch that are still to come; `workers` processes read them ahead."""
        self._set_epoch(epoch)
        self._forget()
        if not workers or not order:
            self.close()
            return
        rows = max(map(len, order))
        pool = self._pool
        if pool is not None and pool.workers == workers and pool.fits(rows):
            self._order = order
            self._safely(lambda: pool.begin(order, self._key))
        else:
            room = 0 if pool is None else pool.largest
            self.close()
            # The first batch is read here: it shows how much room a batch takes.
            self._first = read_rows(self.read, order[0].tolist(), self._key)
            room = max(room, self._room(self._first, order, rows))
            self._pool = Pool(self.read, workers, rows, room, self.device.startswith("cuda"))
            self._pool.begin(order, self._key, first=1)
            self._order = order

    def _room(self, first: Batch, order: Sequence[Tensor], rows: int) -> int:
        """Bytes of the largest of these batches of at most so many samples, as the first shows it."""
        count, size = max(len(order[0]), 1), size_of(first)
        if self.lengths is None:
            return size * rows // count
        own = self._longest(order[0])
        # What is as long as the sequences grows with places, the rest with samples alone.
        long = [t for t in (*first.inputs, first.target) if t is not None and t.shape[1:2] == (own,)]
        grows = sum(t.numel() * t.element_size() for t in long)
        if isinstance(order, Batches):  # of many, each has as many samples as the one with the longest
            places = rows * max(int(self.lengths.max()), 1)
        else:  # the longest may be alone in its piece of a batch
            places = max(len(index) * self._longest(index) for index in order)
        return grows * places // (count * own) + (size - grows) * rows // count

    def _longest(self, index: Tensor) -> int:
        assert self.lengths is not None
        return max(int(self.lengths[index.cpu()].max()), 1)

    def gather(self, index: Tensor) -> Batch:
        """The samples with these numbers, on the device; what was not announced is read here and now."""
        if self._at == len(self._order) or not _same(self._order[self._at], index):
            return self._place(read_rows(self.read, index.tolist(), self._key), index)
        self._at += 1
        if self._first is not None:
            batch, self._first = self._first, None
        else:
            assert self._pool is not None
            batch = self._safely(self._pool.next)
        return self._place(batch, index)

    def close(self) -> None:
        """End the processes that read ahead."""
        self._forget()
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def _forget(self) -> None:
        self._order, self._at, self._first = (), 0, None

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
        index = index.to(self.device, non_blocking=True)

        def move(t: Tensor | None) -> Tensor | None:
            return None if t is None else t.to(self.device, non_blocking=True)

        inputs = tuple([x.to(self.device, non_blocking=True) for x in batch.inputs])
        return Batch(inputs, move(batch.target), move(batch.weight), index)
