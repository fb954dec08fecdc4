"""Columns of lists, or of a wide table -> one series for each row, scaled by the training rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy
import torch
from pegboard import Sequences, Series, Spec
from torch import Tensor

from . import scaling
from .hub_options import Input
from .mistakes import mistake
from .options import Normalize
from .reading import Columns, column
from .rows import Rows
from .saved import Find, Keep
from .series_filling import fill
from .series_reading import (
    Steps,
    joined,
    list_steps,
    numbers_of,
    place,
    wide_columns,
    wide_steps,
    written_steps,
)

PIECE = 4096  # series whose steps are in memory at a time while statistics are made
FILLS = "series: {missing: forward}, linear, zero or mask fills it"


class SeriesEncoder:
    """One or several columns as the channels of a series; shorter series end in steps that are nan."""

    def __init__(self, channels: Mapping[str, tuple[str, ...]], widths: Sequence[int], missing: str) -> None:
        self.channels = dict(channels)  # name -> the columns of a wide table; () is a column of lists
        self.widths, self.missing = tuple(widths), missing
        self.limit: int | None = None
        self.length, self.padded = 0, False
        self.scaler = scaling.fit(torch.zeros(1, 1), "none")
        self.train: Tensor | Sequences | None = None

    @classmethod
    def fit(
        cls,
        train: Rows,
        others: Sequence[Rows],
        options: Mapping[str, Input],
        normalize: Normalize,
        missing: str,
        hold: bool = True,
    ) -> SeriesEncoder:
        """One that has learned from the training rows, and knows the longest row of all splits."""
        names = train.data.features
        channels = {n: wide_columns(o.columns, names) if o.columns else () for n, o in options.items()}
        first = train.take(torch.arange(1))
        widths = [wide_steps(first, n, of).values.shape[1] if of else list_steps(first, n).values.shape[1]
                  for n, of in channels.items()]  # fmt: skip
        encoder = cls(channels, widths, missing)
        encoder.limit = min((o.length for o in options.values() if o.length), default=None)
        lengths = [encoder._read(part).lengths for rows in (train, *others) for part in rows.pieces(PIECE)]
        found = numpy.concatenate(lengths)
        encoder.length, encoder.padded = int(found.max()), bool(found.min() < found.max())
        encoder.scaler = encoder._statistics(train, normalize)
        encoder.train = encoder.rows(train) if hold else None
        return encoder

    def _statistics(self, train: Rows, normalize: Normalize) -> scaling.Scaler:
        if normalize == "none":
            return self.scaler
        shift, scale = [], []
        for channel in range(sum(self.widths)):
            parts = self._known(train, channel)
            try:
                one = scaling.fit_parts(parts, normalize)
            except IndexError:
                name = next(iter(self.channels))
                raise mistake(
                    f"channel {channel} of {name!r} has no value in training", "one at least"
                ) from None
            shift.append(one.shift.flatten()[0])
            scale.append(one.scale.flatten()[0])
        return scaling.Scaler(normalize, torch.stack(shift), torch.stack(scale))

    def _known(self, train: Rows, channel: int) -> Iterator[Tensor]:
        for part in train.pieces(PIECE):
            values = self._read(part).values[:, channel]
            if len(known := values[~numpy.isnan(values)]):
                yield torch.from_numpy(known)[:, None]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it reads."""
        return tuple(name for key, wide in self.channels.items() for name in (wide or (key,)))

    @property
    def spec(self) -> Spec:
        features = sum(self.widths) * (2 if self.missing == "mask" else 1)
        return Series(self.length, features, self.padded)

    def _read(self, rows: Rows) -> Steps:
        parts = []
        for (name, wide), width in zip(self.channels.items(), self.widths, strict=True):
            part = wide_steps(rows, name, wide) if wide else list_steps(rows, name)
            if part.values.shape[1] != width and len(part.values):
                found = f"column {name!r}, {rows.where(0)}: {part.values.shape[1]} numbers in a step"
                raise mistake(found, f"{width} as in the first training row")
            parts.append(self._cut(part))
        steps = joined(parts, [*self.channels], rows.where)
        if len(steps.lengths) and not steps.lengths.min():
            raise mistake(
                f"{rows.where(int(steps.lengths.argmin()))}: a series without a step", "one at least"
            )
        if self.missing == "error":
            self._insist(steps, rows.where)
        return steps

    def _cut(self, steps: Steps) -> Steps:
        if self.limit is None or not (steps.lengths > self.limit).any():
            return steps
        number = numpy.arange(len(steps.values)) - numpy.repeat(steps.starts, steps.lengths)
        return Steps(steps.values[number < self.limit], numpy.minimum(steps.lengths, self.limit))

    def _insist(self, steps: Steps, where: Any) -> None:
        """Every step has a value."""
        empty = numpy.flatnonzero(numpy.isnan(steps.values).any(1))
        if len(empty):
            row, step = place(steps.lengths, int(empty[0]))
            channel = int(numpy.isnan(steps.values[empty[0]]).argmax())
            names = [
                name for name, width in zip(self.channels, self.widths, strict=True) for _ in range(width)
            ]
            found = f"column {names[channel]!r}, {where(row)}, step {step}: nothing"
            more = f", and {len(empty) - 1} steps more" if len(empty) > 1 else ""
            raise mistake(found + more, "a number in every step", FILLS)

    def _encode(self, steps: Steps) -> Tensor:
        known = ~numpy.isnan(steps.values)
        filled = torch.from_numpy(fill(steps.values, steps.starts, self.missing))
        scaled = self.scaler(filled)
        scaled = scaled.nan_to_num(0.0)
        if self.missing == "mask":
            scaled = torch.cat([scaled, torch.from_numpy(known).float()], 1)
        found = torch.full((len(steps.lengths), self.length, scaled.shape[1]), torch.nan)
        inside = torch.arange(self.length) < torch.from_numpy(steps.lengths)[:, None]
        found[inside] = scaled
        return found

    def rows(self, rows: Rows) -> Tensor:
        return torch.cat([self._encode(self._read(part)) for part in rows.pieces(PIECE)])

    batch = rows

    def table(self, table: Columns) -> Tensor:
        def where(row: int) -> str:
            return f"row {row} (0 is the first)"

        parts = []
        for (name, wide), width in zip(self.channels.items(), self.widths, strict=True):
            written = _written_wide(table, wide) if wide else written_steps(column(table, name), name, width)
            parts.append(self._cut(written))
        steps = joined(parts, [*self.channels], where)
        odd = steps.lengths > self.length if self.padded else steps.lengths != self.length
        if odd.any():
            row = int(odd.argmax())
            most = "at most " if self.padded else ""
            raise mistake(
                f"{where(row)}: a series of {steps.lengths[row]} steps", f"{most}{self.length} steps"
            )
        if self.missing == "error":
            self._insist(steps, where)
        return self._encode(steps)

    def invert(self, x: Tensor) -> Tensor:
        """The numbers that became these series, without those that say which are known."""
        return self.scaler.inverse(x[..., : sum(self.widths)])

    def notes(self) -> dict[str, Any]:
        return {"length": self.length, "missing": self.missing, **self.scaler.notes()}

    def state(self, keep: Keep) -> dict[str, Any]:
        return {
            "kind": "series",
            "channels": {name: list(wide) for name, wide in self.channels.items()},
            "widths": list(self.widths),
            "missing": self.missing,
            "limit": self.limit,
            "length": self.length,
            "padded": self.padded,
            "scaler": self.scaler.state(),
        }

    @classmethod
    def load(cls, state: Mapping[str, Any], find: Find) -> SeriesEncoder:
        """One that `state` described."""
        channels = {name: tuple(wide) for name, wide in state["channels"].items()}
        encoder = cls(channels, state["widths"], state["missing"])
        encoder.limit, encoder.length, encoder.padded = state["limit"], state["length"], state["padded"]
        encoder.scaler = scaling.Scaler.load(state["scaler"])
        return encoder


def _written_wide(table: Columns, columns: Sequence[str]) -> Steps:
    """Columns of a wide table that a person wrote; a series ends where nothing follows in its row."""
    found = []
    for name in columns:
        found.append(
            numbers_of(
                column(table, name), lambda row, name=name: f"column {name!r}, row {row} (0 is the first)"
            )
        )
    numbers = numpy.stack(found, 1)
    there = ~numpy.isnan(numbers)
    lengths = numpy.where(there.any(1), numbers.shape[1] - there[:, ::-1].argmax(1), 0)
    return Steps(numbers[numpy.arange(numbers.shape[1]) < lengths[:, None]][:, None], lengths)


def nested(rows: Rows, name: str) -> bool:
    """Whether a column holds lists of lists that differ in length: of as many they may be a matrix."""
    import pyarrow  # type: ignore[import-untyped]

    types, kind = pyarrow.types, rows.take(torch.arange(1)).arrow(name).type
    return bool(types.is_list(kind) and types.is_list(kind.value_type)) and varies(rows, name)


def varies(rows: Rows, name: str, looked: int = 1000) -> bool:
    """Whether lists of the first rows differ in length."""
    import pyarrow.compute  # type: ignore[import-untyped]

    lists = rows.take(torch.arange(min(len(rows), looked))).arrow(name)
    lengths = pyarrow.compute.list_value_length(lists)
    return len(pyarrow.compute.unique(lengths)) > 1
