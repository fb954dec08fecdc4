"""Columns that a person wrote -> tensors."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from .mistakes import mistake, unknown

Columns = Mapping[str, Sequence[Any]]


def column(table: Columns, name: str) -> Sequence[Any]:
    """The values of a column that must be there."""
    if name not in table:
        hint = "the table needs the columns that the model was trained on"
        raise unknown("column", name, table, hint=hint)
    return table[name]


def number_table(table: Columns, names: Sequence[str]) -> Tensor:
    """The columns as numbers: a double tensor (rows, names)."""
    return torch.stack([to_numbers(column(table, n), n, 1)[:, 0] for n in names], 1)


def to_numbers(values: Sequence[Any], name: str, width: int | None = None) -> Tensor:
    """Numbers, texts of numbers, or lists of `width` of them -> a double tensor (rows, width)."""
    rows = [_row(value, name, row) for row, value in enumerate(values)]
    width = width if width is not None else (len(rows[0]) if rows else 1)
    for row, numbers in enumerate(rows):
        if len(numbers) != width:
            raise mistake(f"column {name!r}, row {row}: {len(numbers)} numbers", f"{width} in every row")
    return torch.tensor(rows, dtype=torch.float64).reshape(len(rows), width)


def _row(value: Any, name: str, row: int) -> list[float]:
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise _no_number(value, name, row) from None
    if isinstance(value, list | tuple):
        try:
            return [_number(v, name, row) for v in _flat(value)]
        except RecursionError:
            raise _no_number("lists nested too deep", name, row) from None
    return [_number(value, name, row)]


def _flat(values: Sequence[Any]) -> list[Any]:
    flat: list[Any] = []
    for v in values:
        flat.extend(_flat(v) if isinstance(v, list | tuple) else [v])
    return flat


def _number(value: Any, name: str, row: int) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise _no_number(value, name, row) from None
    if not math.isfinite(number):
        raise _no_number(value, name, row)
    return number


def _no_number(value: Any, name: str, row: int) -> Exception:
    found = "nothing" if value is None or value == "" else repr(value)
    return mistake(f"column {name!r}, row {row} (0 is the first): {found}", "a finite number")
