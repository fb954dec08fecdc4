"""How much of the batches of sequences is padding, and how some are cut so that it is little."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from itertools import chain, count

import torch
from torch import Tensor

from ..contracts import Source
from .batches import Batches

PADDING = 0.1  # the share of padding from which on batches are cut
LEAST = 2  # samples in a piece of training: of one alone a batch norm has nothing to compute


def widths_of(source: Source) -> Tensor | None:
    """How many symbols the sequences of each sample have, (samples,) or (samples, sequences); None of others.

    A source that tells but its `lengths` has one sequence, as far as is known.
    """
    widths: Tensor | None = getattr(source, "widths", None)
    return getattr(source, "lengths", None) if widths is None else widths


def padding_share(widths: Tensor, batches: Sequence[Tensor]) -> float:
    """The share of padding in batches, whose sequences are each as long as the longest of the batch."""
    drawn = [widths[batch].view(len(batch), -1) for batch in batches]
    places = sum(len(sizes) * int(sizes.amax(0).clamp(min=1).sum()) for sizes in drawn)
    return 1 - sum(int(sizes.sum()) for sizes in drawn) / places


def by_length(widths: Tensor, order: Tensor, size: int) -> Sequence[Tensor]:
    """Samples in any order as batches of like lengths, the longest first, of which little is padding.

    The longest come first because all fit where they do.
    """
    lengths = widths.view(len(widths), -1).amax(1) if len(widths) else widths
    order = order[lengths[order].argsort(descending=True, stable=True)]
    found = in_pieces(widths, order, size, least=1)
    if found is None:
        return Batches(order, size)
    return sorted(chain(*found), key=lambda batch: int(lengths[batch].max()), reverse=True)


def in_pieces(
    widths: Tensor, order: Tensor, size: int, least: int = LEAST
) -> list[tuple[Tensor, ...]] | None:
    """The batches of an order, each as the pieces in which it is computed; None where all stay whole.

    Where some samples are far longer than the rest, or batches are few, much of them is padding. They are cut
    where that saves most, one cut after the other, until less than `PADDING` of all is. A piece has at least
    `least` samples. `widths` is (samples,), or (samples, sequences) where each has several.
    """
    sizes = widths[order].long().clamp(min=1).view(len(order), -1)
    symbols, rest = int(sizes.sum()), len(sizes) % size
    places = size * int(sizes[: len(sizes) - rest].view(-1, size, sizes.shape[1]).amax(1).sum())
    places += rest * int(sizes[len(sizes) - rest :].amax(0).sum()) if rest else 0
    if _little(symbols, places):
        return None
    batches, number = torch.split(order, size), count()

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


def _little(symbols: int, places: int) -> bool:
    return places - symbols < PADDING * places or not places


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
