"""How much of the batches of sequences is padding, and how some are cut so that it is little."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from itertools import chain, count

import torch
from torch import Tensor, nn

from ..contract.results import Source
from .batches import Batches

PADDING = 0.1  # the share of padding from which on batches are cut


def widths_of(source: Source) -> Tensor | None:
    """How many symbols the sequences of each sample have, (samples,) or (samples, sequences); None of others.

    A source that tells but its `lengths` has one sequence, as far as is known.
    """
    return source.lengths if source.widths is None else source.widths


def padding_share(widths: Tensor, batches: Sequence[Tensor]) -> float:
    """The share of padding in batches, whose sequences are each as long as the longest of the batch."""
    drawn = [_columns(widths)[batch] for batch in batches]
    places = sum(len(sizes) * int(sizes.amax(0).clamp(min=1).sum()) for sizes in drawn)
    return 1 - sum(int(sizes.sum()) for sizes in drawn) / places


def by_length(widths: Tensor, order: Tensor, size: int) -> Sequence[Tensor]:
    """Samples in any order as batches of like lengths, the longest first, of which little is padding.

    The longest come first because all fit where they do.
    """
    lengths = _columns(widths).amax(1)
    order = order[lengths[order].argsort(descending=True, stable=True)]
    found = in_pieces(widths, order, size)
    if found is None:
        return Batches(order, size)
    return sorted(chain(*found), key=lambda batch: int(lengths[batch].max()), reverse=True)


def least_samples(model: nn.Module) -> int:
    """Samples that a piece of a batch has at least: of one alone a batch norm has nothing to compute."""
    return 2 if any(hasattr(module, "running_mean") for module in model.modules()) else 1


def in_pieces(widths: Tensor, order: Tensor, size: int, least: int = 1) -> list[tuple[Tensor, ...]] | None:
    """The batches of an order, each as the pieces in which it is computed; None where all stay whole.

    Where some samples are far longer than the rest, or batches are few, much of them is padding. They are cut
    where that saves most, one cut after the other, until less than `PADDING` of all is. A piece has at least
    `least` samples. `widths` is (samples,), or (samples, sequences) where each has several.
    """
    sizes = _columns(widths)[order].long().clamp(min=1)
    symbols, rest = int(sizes.sum()), len(sizes) % size
    places = size * int(sizes[: len(sizes) - rest].view(-1, size, sizes.shape[1]).amax(1).sum())
    places += rest * int(sizes[len(sizes) - rest :].amax(0).sum()) if rest else 0
    if _little(symbols, places):
        return None
    batches, number = torch.split(order, size), count()
    if least > 1:
        lost = sum(_lost(found) for found in torch.split(sizes, size))
        if not _little(symbols, symbols + lost):
            symbols += lost  # no cut saves that, and all others would not do

    def piece(at: int, rows: Tensor, sizes: Tensor) -> tuple[int, int, int, int, Tensor, Tensor]:
        saved, cut, by = _best_cut(sizes, least)
        return -saved, next(number), cut, at, rows[by], sizes[by]

    heap = []  # the pieces; first the one whose cut saves most
    for at, (batch, found) in enumerate(zip(batches, torch.split(sizes, size), strict=True)):
        heap.append(piece(at, batch, found))
    heapq.heapify(heap)
    while heap[0][0] and not _little(symbols, places):
        gain, _, cut, at, rows, sizes = heapq.heappop(heap)
        places += gain
        heapq.heappush(heap, piece(at, rows[:cut], sizes[:cut]))
        heapq.heappush(heap, piece(at, rows[cut:], sizes[cut:]))
    pieces: list[list[Tensor]] = [[] for _ in batches]
    for _, _, _, at, rows, _ in sorted(heap, key=lambda entry: entry[1]):
        pieces[at].append(rows)
    return [tuple(p) if len(p) > 1 else (batch,) for p, batch in zip(pieces, batches, strict=True)]


def _columns(widths: Tensor) -> Tensor:
    """(samples, sequences), also where each sample has one."""
    return widths.unsqueeze(1) if widths.dim() == 1 else widths


def _little(symbols: int, places: int) -> bool:
    return places - symbols < PADDING * places or not places


def _lost(sizes: Tensor) -> int:
    """The padding of a sample that shares a piece with the longest of its batch."""
    if len(sizes) < 2:
        return 0
    first, second = sizes.topk(2, 0).values
    return int((first - second).sum())


def _best_cut(sizes: Tensor, least: int) -> tuple[int, int, Tensor]:
    """How much padding one cut of samples saves at most, before which it is, and in which order of them.

    Whatever is cut off are the shortest by one of their sequences. `sizes` is (samples, sequences).
    """
    count = len(sizes)
    found = 0, 0, torch.arange(count)
    if count < 2 * least:
        return found
    at = torch.arange(least, count - least + 1)
    for sequence in range(sizes.shape[1]):
        by = sizes[:, sequence].argsort(stable=True)
        short = sizes[by].cummax(0).values.sum(1)  # places of a sample, where the first so many share a piece
        long = sizes[by].flip(0).cummax(0).values.flip(0).sum(1)
        saved = count * long[0] - at * short[at - 1] - (count - at) * long[at]
        best = int(saved.argmax())
        if int(saved[best]) > found[0]:
            found = int(saved[best]), int(at[best]), by
    return found
