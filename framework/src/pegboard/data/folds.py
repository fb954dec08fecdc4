"""One fold of a cross-validation: who trains and who validates, cut by the core where a data set does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from ..base.errors import PegboardError
from ..base.random_keys import key_seed
from ..contract.results import Batch, Source, Splits
from ..contract.specs import DataSpec, Spec, Tokens
from .missing_classes import known_target
from .padding import widths_of
from .ragged import Ragged, Sequences
from .resident import Resident
from .stream import Stream


def cut_fold(order: Tensor, fold: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Those of an order that train and those that validate, in the fold with this number of so many.

    The folds are stretches of the order whose sizes differ by at most one.
    """
    number, count = fold
    if count > len(order):
        raise PegboardError(
            f"trainer.folds is {count}, but there are {len(order)} samples besides the test\n"
            f"  expected: from 2 folds to {len(order)}, each with a sample at least"
        )
    start, stop = len(order) * number // count, len(order) * (number + 1) // count
    return torch.cat([order[:start], order[stop:]]), order[start:stop]


def say_fold(fold: tuple[int, int], own: bool) -> str:
    """What validates, and who cut it off."""
    cut = "" if own else "; cut by the core from samples that the data set scaled all together"
    return f"fold {fold[0]} of {fold[1]}, counted from 0, validates{cut}"


def cut_splits(splits: Splits, fold: tuple[int, int]) -> Splits:
    """Splits in which one fold of all samples but the test validates; the order is the same in every run."""
    parts = [source for source in (splits.train, splits.val) if source is not None]
    generator = torch.Generator().manual_seed(key_seed(0, "folds"))
    order = torch.randperm(sum(map(len, parts)), generator=generator)
    train, val = (take(parts, index, splits.spec) for index in cut_fold(order, fold))
    notes = {k: v for k, v in splits.notes.items() if k != "fingerprint"}  # which was of other splits
    return replace(splits, train=train, val=val, notes=notes)


def take(parts: Sequence[Source], index: Tensor, spec: DataSpec) -> Source:
    """The samples with these numbers, counted through all parts."""
    kind = type(parts[0])
    alike = all(isinstance(part, kind) for part in parts)
    if alike and (chosen := kind.picked(parts, index)) is not None:
        return chosen
    if any(part.varied for part in parts):
        raise PegboardError(
            "the samples of this data set cannot be cut into folds: they are neighbourhoods in one graph\n"
            "  expected: a data set that holds its graph whole, or no trainer.folds"
        )
    if all(isinstance(part, Resident) for part in parts):
        return Resident(*_columns(parts, index))
    if all(isinstance(part, Ragged) for part in parts):
        return Ragged(*_columns(parts, index))
    widths = [n for part in parts if (n := widths_of(part)) is not None]
    if len({n.shape[1:] for n in widths}) > 1:  # some tell but the longest sequence
        widths = [n.view(len(n), -1).amax(1) for n in widths]
    known = torch.cat(widths)[index] if len(widths) == len(parts) else None
    seeds = [part.seed for part in parts if isinstance(part, Stream) and part.seed is not None]
    read = Picked(tuple(parts), index, spec)
    return Stream(read, len(index), seed=seeds[0] if seeds else None, lengths=known)


def _columns(parts: Sequence[Any], index: Tensor) -> tuple[list[Any], Any, Tensor | None]:
    """Inputs, target and weights of some samples that are held in memory."""
    inputs = [_picked(xs, index) for xs in zip(*(part.inputs for part in parts), strict=True)]
    target = None if parts[0].target is None else _picked([part.target for part in parts], index)
    weight = _weights(parts)
    return inputs, target, None if weight is None else weight[index]


def _picked(columns: Sequence[Tensor | Sequences], index: Tensor) -> Tensor | Sequences:
    """Some samples of a column that goes through several sources."""
    plain = [column for column in columns if isinstance(column, Tensor)]
    if plain:
        return torch.cat(plain)[index]
    ragged = [column for column in columns if isinstance(column, Sequences)]
    pieces = [piece for s in ragged for piece in torch.split(s.symbols, s.lengths.tolist())]
    chosen = [pieces[i] for i in index.tolist()]
    lengths = torch.tensor([len(piece) for piece in chosen], dtype=torch.int64)
    return Sequences(torch.cat(chosen), lengths, ragged[0].padding)


def _count(part: Any) -> int:
    return part.samples if isinstance(part, Batch) else len(part)


def _weights(parts: Sequence[Any]) -> Tensor | None:
    """The weights of all samples, 1 where a part has none; None where no part has any."""
    if all(part.weight is None for part in parts):
        return None
    return torch.cat([torch.ones(_count(p)) if p.weight is None else p.weight for p in parts])


@dataclass(frozen=True)
class Picked:
    """Reads some samples of several sources, numbered through all of them."""

    parts: tuple[Source, ...]
    index: Tensor
    spec: DataSpec

    def __call__(self, rows: list[int], *key: int) -> Batch:
        wanted = self.index[torch.tensor(rows, dtype=torch.int64)]
        found, places = [], []
        for part, end in zip(self.parts, accumulate(map(len, self.parts)), strict=True):
            here = torch.nonzero((wanted >= end - len(part)) & (wanted < end))[:, 0]
            if len(here):
                found.append(_read(part, wanted[here] - (end - len(part)), key))
                places.append(here)
        return found[0] if len(found) == 1 else _joined(found, torch.argsort(torch.cat(places)), self.spec)

    def targets(self) -> Tensor | None:
        """The target of all samples, where every part knows its own."""
        found = [target for part in self.parts if (target := known_target(part)[0]) is not None]
        return torch.cat(found)[self.index] if len(found) == len(self.parts) else None


def _read(part: Source, rows: Tensor, key: tuple[int, ...]) -> Batch:
    if isinstance(part, Stream):
        return part.read(rows.tolist(), *(key if part.seed is not None else ()))
    return part.gather(rows)


def _joined(batches: Sequence[Batch], back: Tensor, spec: DataSpec) -> Batch:
    """Batches as one, its samples in the order `back`; symbols as long as the longest of them."""
    columns = zip(*(batch.inputs for batch in batches), strict=True)
    inputs = [_cat(xs, of)[back] for xs, of in zip(columns, spec.inputs, strict=True)]
    targets = [batch.target for batch in batches if batch.target is not None]
    weight = _weights(batches)
    return Batch(
        tuple(inputs),
        _cat(targets, spec.target)[back] if targets else None,
        None if weight is None else weight[back],
    )


def _cat(tensors: Sequence[Tensor], spec: Spec | None) -> Tensor:
    if isinstance(spec, Tokens):
        longest = max(t.shape[1] for t in tensors)
        pad = torch.nn.functional.pad
        tensors = [pad(t, (0, longest - t.shape[1]), value=spec.padding) for t in tensors]
    return torch.cat(list(tensors))
