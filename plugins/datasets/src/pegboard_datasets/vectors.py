"""Columns of numbers and categories -> one vector."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from pegboard import Sequences, Spec, Vector
from torch import Tensor

from . import scaling
from .categories import category_names, category_text, category_values
from .mistakes import mistake
from .options import Normalize
from .reading import Columns, column, number_table, to_numbers
from .rows import Rows
from .saved import Find, Keep

NUMBERS = 2**20  # numbers of a column that are in memory at a time


class VectorEncoder:
    """Columns of numbers, scaled, and of categories, one place for each, joined to one vector."""

    def __init__(self) -> None:
        self._names: dict[str, tuple[str, ...]] = {}
        self._widths: dict[str, int] = {}
        self._scalers: dict[str, scaling.Scaler] = {}
        self.train: Tensor | Sequences | None = None

    @classmethod
    def fit(
        cls, train: Rows, kinds: dict[str, str], normalize: Normalize, hold: bool = True
    ) -> VectorEncoder:
        """One that has learned from the training rows."""
        encoder = cls()
        for name, kind in kinds.items():
            if kind == "category":
                encoder._names[name] = category_names(train, name)
                encoder._widths[name] = len(encoder._names[name])
            else:
                width = encoder._widths[name] = train.take(torch.arange(1)).numbers(name).shape[1]
                parts = (encoder._numbers(part, name) for part in train.pieces(piece_of(width)))
                encoder._scalers[name] = scaling.fit_parts(parts, normalize)
        encoder.train = encoder.rows(train) if hold else None
        return encoder

    @property
    def spec(self) -> Spec:
        return Vector(sum(self._widths.values()))

    def rows(self, rows: Rows) -> Tensor:
        parts = []
        for name in self._widths:
            if name in self._names:
                parts.append(self._one_hot(name, category_values(rows, name)))
            else:
                parts.append(self._scalers[name](self._numbers(rows, name)))
        return torch.cat(parts, 1)

    batch = rows

    def _numbers(self, rows: Rows, name: str) -> Tensor:
        numbers, width = rows.numbers(name), self._widths[name]
        if numbers.shape[1] != width:
            found = f"column {name!r} of split {rows.split!r} has lists of {numbers.shape[1]} numbers"
            raise mistake(found, f"{width} as in the first training row")
        return numbers

    def table(self, table: Columns) -> Tensor:
        parts = []
        for name, width in self._widths.items():
            flat = [f"{name}_{i}" for i in range(width)]
            if name in self._names:
                parts.append(self._one_hot(name, [category_text(v) for v in column(table, name)]))
            elif name not in table and flat[0] in table:
                parts.append(self._scalers[name](number_table(table, flat)))
            else:
                parts.append(self._scalers[name](to_numbers(column(table, name), name, width)))
        return torch.cat(parts, 1)

    def invert(self, x: Tensor) -> Tensor:
        """The numbers that became these vectors; places of categories stay as they are."""
        parts = zip(self._widths, torch.split(x, [*self._widths.values()], 1), strict=True)
        scalers = self._scalers
        return torch.cat([scalers[n].inverse(part) if n in scalers else part for n, part in parts], 1)

    def notes(self) -> dict[str, Any]:
        scaled = {name: scaler.notes() for name, scaler in self._scalers.items()}
        return {**scaled, **{name: {"categories": list(names)} for name, names in self._names.items()}}

    def state(self, keep: Keep) -> dict[str, Any]:
        places: list[dict[str, Any]] = []
        for name, width in self._widths.items():
            known = (
                {"categories": list(self._names[name])}
                if name in self._names
                else {"scaler": self._scalers[name].state()}
            )
            places.append({"name": name, "width": width, **known})
        return {"kind": "vector", "columns": places}

    @classmethod
    def load(cls, state: Mapping[str, Any], find: Find) -> VectorEncoder:
        """One that `state` described."""
        encoder = cls()
        for entry in state["columns"]:
            encoder._widths[entry["name"]] = int(entry["width"])
            if "categories" in entry:
                encoder._names[entry["name"]] = tuple(entry["categories"])
            else:
                encoder._scalers[entry["name"]] = scaling.Scaler.load(entry["scaler"])
        return encoder

    def _one_hot(self, name: str, values: Sequence[str]) -> Tensor:
        number = {value: i for i, value in enumerate(self._names[name])}
        # A category that training never showed has no place of its own: all zeros.
        extra = len(number)
        index = torch.tensor([number.get(v, extra) for v in values], dtype=torch.int64)
        return torch.nn.functional.one_hot(index, extra + 1)[:, :extra].float()


def piece_of(width: int) -> int:
    """Rows of so many numbers that are in memory at a time."""
    return max(NUMBERS // max(width, 1), 1)
