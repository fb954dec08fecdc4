"""Sequences of different lengths in memory: a batch is as long as the longest of its own samples."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain

import torch
from torch import Tensor

from ..contract.results import Batch, Source, Splits
from ..contract.specs import DataSpec, Spec
from .resident import Resident


class Sequences:
    """The symbols of many samples, one after the other in one tensor, and how many each sample has.

    Lengths stay on the CPU, wherever the symbols are, so that nobody waits for a device to know them.
    """

    def __init__(self, symbols: Tensor, lengths: Tensor, padding: int) -> None:
        self.lengths, self.padding = lengths.cpu().long(), padding
        total = int(self.lengths.sum())
        if symbols.dim() != 1 or total != len(symbols):
            raise ValueError(
                f"lengths of {total} symbols in all, for symbols of shape {tuple(symbols.shape)}"
            )
        flat = symbols.new_full((total + len(self),), padding)
        flat[self._places()] = symbols
        # After its last symbol every sample has one padding, which all places behind it read.
        ends = self.lengths.cumsum(0) + torch.arange(len(self))
        self._set(flat, torch.stack([ends - self.lengths, ends], 1).to(symbols.device))

    def _set(self, flat: Tensor, bounds: Tensor) -> None:
        self._flat, self._bounds = flat, bounds  # bounds: (samples, 2), the first symbol and the padding
        self._steps = torch.arange(self.longest(self.lengths), device=flat.device)

    def _places(self) -> Tensor:
        """Where the symbols are among the paddings."""
        numbers = torch.repeat_interleave(torch.arange(len(self)), self.lengths)
        return numbers + torch.arange(len(numbers))

    @classmethod
    def join(cls, rows: Sequence[Sequence[int]], padding: int) -> Sequences:
        """The sequences that these lists hold."""
        flat = array("q", chain.from_iterable(rows))  # five times as fast as a tensor from a list
        symbols = torch.frombuffer(flat, dtype=torch.int64) if flat else torch.zeros(0, dtype=torch.int64)
        return cls(symbols, torch.tensor(list(map(len, rows)), dtype=torch.int64), padding)

    def __len__(self) -> int:
        return len(self.lengths)

    @staticmethod
    def longest(lengths: Tensor) -> int:
        """The largest of these lengths, at least 1: a sample without symbols is padding alone."""
        return max(int(lengths.max()), 1) if len(lengths) else 1

    def take(self, rows: Tensor, width: int) -> Tensor:
        """Samples whose numbers are on the device of the symbols: (rows, width), padded at their ends."""
        bounds = self._bounds.index_select(0, rows)
        return self._flat.take(torch.minimum(bounds[:, :1] + self._steps[:width], bounds[:, 1:]))

    def padded(self, width: int | None = None) -> Tensor:
        """All samples (samples, width), as long as the longest where no width is given."""
        longest = self.longest(self.lengths)
        width = longest if width is None else max(width, longest)
        found = self._flat.new_full((len(self), width), self.padding)
        there = torch.arange(width) < self.lengths.unsqueeze(1)
        found[there.to(found.device)] = self.symbols
        return found

    def to(self, device: str) -> Sequences:
        moved = Sequences.__new__(Sequences)
        moved.lengths, moved.padding = self.lengths, self.padding
        moved._set(self._flat.to(device), self._bounds.to(device))
        return moved

    @property
    def symbols(self) -> Tensor:
        """The symbols of all samples."""
        return self._flat[self._places().to(self._flat.device)]

    @property
    def nbytes(self) -> int:
        """On the device."""
        return sum(t.numel() * t.element_size() for t in (self._flat, self._bounds, self._steps))


class Ragged(Source):
    """Samples in memory of which some inputs, or a target for every step, are `Sequences`.

    `gather` takes its numbers on the CPU: there it sees how long the batch has to be.
    """

    def __init__(
        self,
        inputs: Sequence[Tensor | Sequences],
        target: Tensor | Sequences | None = None,
        weight: Tensor | None = None,
        device: str = "cpu",
    ) -> None:
        self.inputs, self.target, self.weight, self.device = tuple(inputs), target, weight, device
        sizes = {len(t) for t in self._parts()}
        if len(sizes) != 1:
            raise ValueError(f"the tensors of a split differ in their number of samples: {sorted(sizes)}")
        self._size = sizes.pop()
        found = [t.lengths for t in self._parts() if isinstance(t, Sequences)]
        if not found:
            raise ValueError("no input and no target has sequences: Resident holds samples of one shape")
        self.lengths = torch.stack(found).amax(0)  # (samples,) on the CPU, the longest sequence of each
        # (samples, sequences): those of the inputs, on whose places a model computes
        read = [x.lengths for x in self.inputs if isinstance(x, Sequences)]
        self.widths = torch.stack(read or found, 1)

    def _parts(self) -> Iterable[Tensor | Sequences]:
        return (t for t in (*self.inputs, self.target, self.weight) if t is not None)

    def __len__(self) -> int:
        return self._size

    def gather(self, index: Tensor) -> Batch:
        numbers = index.cpu()
        rows = numbers.to(self.device, non_blocking=True)

        def take(t: Tensor | Sequences) -> Tensor:
            if not isinstance(t, Sequences):
                return t[rows]
            return t.take(rows, t.longest(t.lengths.index_select(0, numbers)))

        target = None if self.target is None else take(self.target)
        weight = None if self.weight is None else self.weight[rows]
        return Batch(tuple([take(x) for x in self.inputs]), target, weight, rows)

    def to(self, device: str) -> Ragged:
        target = None if self.target is None else self.target.to(device)
        weight = None if self.weight is None else self.weight.to(device)
        return Ragged([x.to(device) for x in self.inputs], target, weight, device)

    def padded(self, spec: DataSpec) -> Resident:
        """The same samples, all as long as the spec says."""

        def fill(t: Tensor | Sequences, of: Spec | None) -> Tensor:
            return t.padded(getattr(of, "length", None)) if isinstance(t, Sequences) else t

        inputs = [fill(x, of) for x, of in zip(self.inputs, spec.inputs, strict=True)]
        target = None if self.target is None else fill(self.target, spec.target)
        return Resident(inputs, target, self.weight)

    def targets(self) -> Tensor | None:
        return self.target if isinstance(self.target, Tensor) else None

    @property
    def tensors(self) -> tuple[Tensor | None, ...]:
        """All that it holds: of sequences the symbols and the lengths."""
        nested = [
            (t.symbols, t.lengths) if isinstance(t, Sequences) else (t,)
            for t in (*self.inputs, self.target, self.weight)
        ]
        return tuple(chain.from_iterable(nested))

    @property
    def nbytes(self) -> int:
        return sum(
            t.nbytes if isinstance(t, Sequences) else t.numel() * t.element_size() for t in self._parts()
        )


def padded_splits(splits: Splits) -> Splits:
    """Splits whose batches are all as long as the spec says, whatever is in them."""

    def fill(source: Source | None) -> Source | None:
        return None if source is None else source.padded(splits.spec)

    train = splits.train.padded(splits.spec)
    return replace(splits, train=train, val=fill(splits.val), test=fill(splits.test))
