"""Which samples an epoch visits, and in which order, keyed by (seed, epoch)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cached_property

import torch
from torch import Generator, Tensor

from ..base.errors import PegboardError
from ..base.random_keys import key_seed
from ..config.build_errors import mistake_of
from ..config.errors import Mistake
from ..config.nodes import Settings
from ..contract.options import DataOptions
from ..contract.results import Splits
from .draw_weights import class_shares, weight_shares
from .padding import in_pieces, widths_of

POOL = 100  # batches whose samples are sorted by length together

Draw = Callable[[int, Generator], Tensor]  # (number of samples, where randomness is from) -> their numbers


def each_once(size: int, generator: Generator) -> Tensor:
    """Every sample once."""
    return torch.randperm(size, generator=generator)


def all_alike(size: int, generator: Generator) -> Tensor:
    """As many samples as there are, each draw independent of the others."""
    return torch.randint(size, (size,), generator=generator)


def by_shares(shares: Tensor) -> Draw:
    """The same, where a draw is sample i with the probability `shares[i]`, in float64; they sum up to 1."""

    def draw(size: int, generator: Generator) -> Tensor:
        ends = shares.cumsum(0)
        ends /= ends[-1].clone()  # the last is 1 and no draw reaches it, so a share of 0 is never drawn
        draws = torch.rand(size, dtype=torch.float64, generator=generator)
        return torch.searchsorted(ends, draws, right=True)

    return draw


def epoch_order(size: int, seed: int, epoch: int, shuffle: bool, draw: Draw = each_once) -> Tensor:
    """The numbers of an epoch's samples; drawn from a generator of its own, never the global one."""
    if not shuffle:
        return torch.arange(size)
    return draw(size, torch.Generator().manual_seed(key_seed(seed, "order", epoch)))


def similar_order(
    lengths: Tensor, batch_size: int, seed: int, epoch: int, shuffle: bool, draw: Draw = each_once
) -> Tensor:
    """The same, so that samples of similar length share a batch; a smaller batch comes last.

    The samples are drawn, sorted by length inside pools of about `POOL` batches and cut into batches, and
    the batches are shuffled.
    """
    size = len(lengths)
    if not shuffle:
        return torch.arange(size)
    generator = torch.Generator().manual_seed(key_seed(seed, "order", epoch))
    order = draw(size, generator)
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


class Sampler:
    """Draws the training samples of every epoch, and says how many batches and updates they make."""

    def __init__(self, splits: Splits, options: DataOptions, accumulate: int, seed: int) -> None:
        self.splits, self.options, self.accumulate, self.seed = splits, options, accumulate, seed

    def size(self, epoch: int) -> int:
        """Samples in a batch of an epoch."""
        size = self.options.size_in(epoch)
        return len(self.splits.train) if size == "all" else size

    def batches(self, epoch: int) -> int:
        """Batches of an epoch."""
        return self.options.batches(epoch, len(self.splits.train))

    def updates(self, epoch: int) -> int:
        """Updates of an epoch."""
        return math.ceil(self.batches(epoch) / self.accumulate)

    def total(self, epochs: int) -> int:
        """Updates of so many epochs."""
        return self.options.updates(epochs, len(self.splits.train), self.accumulate)

    @cached_property
    def shares(self) -> Tensor | None:
        """How likely a draw is each sample, None where all are alike; some sources are read to find it."""
        options = self.options
        if options.sampling not in ("weighted", "balanced"):
            return None
        find = weight_shares if options.sampling == "weighted" else class_shares
        return find(self.splits.train, options.eval_size, options.workers)

    def mistakes(self, settings: Settings, read: bool) -> Iterator[Mistake]:
        """No training samples, and draws that the data does not allow; those only where it is `read`."""
        if not len(self.splits.train):
            found = f"data set {settings.data.entry.part.name!r} has no training samples"
            yield Mistake(path="data", message=found, at_key=True)
            return
        if not read:
            return
        try:
            _ = self.shares
        except PegboardError as error:
            mistake = mistake_of(error, settings)
            if mistake is None:
                raise
            yield mistake

    def order(self, epoch: int) -> Tensor:
        """The numbers of an epoch's samples, batch after batch, on the CPU."""
        options, size, shuffle = self.options, self.size(epoch), self.options.shuffle
        draw: Draw = each_once if options.sampling == "epoch" else all_alike
        if self.shares is not None:
            draw = by_shares(self.shares)
        elif draw is each_once and options.size_in(epoch) == "all":
            shuffle = False  # in one batch no order matters, and that of the data rounds alike in all epochs
        samples, lengths = len(self.splits.train), self.splits.train.lengths
        if lengths is None:
            order = epoch_order(samples, self.seed, epoch, shuffle, draw)
        else:
            order = similar_order(lengths, size, self.seed, epoch, shuffle, draw)
        return order[: samples // size * size] if options.drop_last else order

    def pieces(self, epoch: int, order: Tensor, least: int = 1) -> list[tuple[Tensor, ...]] | None:
        """The batches of an order in pieces, where whole they would be padding to a large part; else None.

        A piece has at least `least` samples.
        """
        widths = widths_of(self.splits.train)
        if widths is None or not self.options.shuffle:
            return None
        return in_pieces(widths, order, self.size(epoch), least)
