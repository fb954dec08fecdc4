"""How much of the batches of sequences is padding, and how some are cut so that it is little."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from itertools import chain, count

import torch
from torch import Tensor

from .batches import Batches

PADDING = 0.1  # the share of padding from which on batches are cut
LEAST = 2  # samples in a piece of training: of one alone a batch norm has nothing to compute


def padding_share(lengths: Tensor, batches: Sequence[Tensor]) -> float:
    """The share of padding in batches, each as long as its longest sample."""
    drawn = [lengths[batch] for batch in batches]
    places = sum(len(sizes) * max(int(sizes.max()), 1) for sizes in drawn)
    return 1 - sum(int(sizes.sum()) for sizes in drawn) / places


def by_length(lengths: Tensor, order: Tensor, size: int) -> Sequence[Tensor]:
    """Samples in any order as batches of like lengths, the longest first, of which little is padding.

    The longest come first because all fit where they do.
    """
    order = order[lengths[order].argsort(descending=True, stable=True)]
    found = in_pieces(lengths, order, size, least=1)
    if found is None:
        return Batches(order, size)
    return sorted(chain(*found), key=lambda batch: int(lengths[batch].max()), reverse=True)


def in_pieces(
    lengths: Tensor, order: Tensor, size: int, least: int = LEAST
) -> list[tuple[Tensor, ...]] | None:
    """The batches of an order, each as the pieces in which it is computed; None where all stay whole.

    Where some samples are far longer than the rest, or batches are few, much of them is padding. They are cut
    where that saves most, one cut after the other, until less than `PADDING` of all is. A piece has at least
    `least` samples.
    """
    sizes = lengths[order].long().clamp(min=1)
    symbols, rest = int(sizes.sum()), len(sizes) % size
    places = size * int(sizes[: len(sizes) - rest].view(-1, size).amax(1).sum())
    places += rest * int(sizes[len(sizes) - rest :].max()) if rest else 0
    if _little(symbols, places):
        return None
    batches, number = torch.split(order, size), count()

    def piece(at: int, rows: Tensor, sizes: Tensor) -> tuple[int, int, int, int, Tensor, Tensor]:
        saved, cut = _best_cut(sizes, least)
        return -saved, next(number), cut, at, rows, sizes

    heap = []  # the pieces; first the one whose cut saves most
    for at, batch in enumerate(batches):
        sorted_sizes, by = lengths[batch].long().clamp(min=1).sort(stable=True)
        heap.append(piece(at, batch[by], sorted_sizes))
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


def _best_cut(sizes: Tensor, least: int) -> tuple[int, int]:
    """How much padding of samples, the shortest first, one cut saves at most, and before which it is."""
    if len(sizes) < 2 * least:
        return 0, 0
    at = torch.arange(least, len(sizes) - least + 1)
    saved = at * (sizes[-1] - sizes[at - 1])
    best = int(saved.argmax())
    return int(saved[best]), int(at[best])
