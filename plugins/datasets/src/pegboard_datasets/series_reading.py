"""Columns that hold series -> numbers of all steps, one row after the other, and how many steps each has."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import numpy
import pyarrow  # type: ignore[import-untyped]
import pyarrow.compute  # type: ignore[import-untyped]
import torch
from numpy.typing import NDArray

from .mistakes import mistake, unknown
from .rows import Rows

Array = NDArray[Any]
RANGE = re.compile(r"(.*?)(\d+)\.\.(.*?)(\d+)")


class Steps(NamedTuple):
    """The steps of several series, one series after the other; what is missing is nan."""

    values: Array  # (steps, channels)
    lengths: Array  # (series,)

    @property
    def starts(self) -> Array:
        """Where each series begins."""
        return numpy.cumsum(self.lengths) - self.lengths


def wide_columns(written: str | Sequence[str], known: Iterable[str]) -> tuple[str, ...]:
    """The columns that names, patterns (`t*`) and ranges (`t0..t9`) mean, in the order of steps."""
    known, found = list(known), list[str]()
    for name in (written,) if isinstance(written, str) else written:
        between = RANGE.fullmatch(name)
        if name in known:
            found.append(name)
        elif between and between[1] == between[3]:
            numbers = range(int(between[2]), int(between[4]) + 1)
            digits = len(between[2]) if between[2].startswith("0") and len(between[2]) > 1 else 0
            found += [f"{between[1]}{number:0{digits}}" for number in numbers]
        elif "*" in name:
            matches = [column for column in known if fnmatchcase(column, name)]
            numbered = [re.search(r"(\d+)$", column) for column in matches]
            if all(numbered):
                matches.sort(key=lambda column: int(re.search(r"(\d+)$", column)[1]))  # type: ignore[index]
            if not matches:
                raise unknown("column like", name, known)
            found += matches
        else:
            found.append(name)
    for name in found:
        if name not in known:
            raise unknown("column", name, known, " among the steps of a series")
    return tuple(found)


def list_steps(rows: Rows, name: str) -> Steps:
    """A column of lists of numbers, or of lists of as many numbers for each step."""
    column = rows.arrow(name)
    if column.null_count:
        row = int(numpy.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
        raise mistake(f"column {name!r}, {rows.where(row)}: nothing", "a list of numbers in every row")
    if not _is_list(column.type):
        found = f"column {name!r} of split {rows.split!r} holds {rows.shown_type(name)}"
        raise mistake(
            found, "lists of numbers, a list for each series", "columns: names those of a wide table"
        )
    lengths = pyarrow.compute.list_value_length(column).to_numpy(zero_copy_only=False).astype(numpy.int64)
    inner = column.flatten()
    width = 1
    if _is_list(inner.type):
        widths = pyarrow.compute.list_value_length(inner)
        odd = numpy.flatnonzero(_differ(widths))
        if len(odd):
            row, step = place(lengths, int(odd[0]))
            where = f"column {name!r}, {rows.where(row)}, step {step}"
            count = widths[int(odd[0])].as_py()
            raise mistake(
                f"{where}: {'nothing' if count is None else f'{count} numbers'}", f"{widths[0]} in every step"
            )
        width = int(widths[0].as_py()) if len(widths) else 1
        inner = inner.flatten()
    if not _is_number(inner.type):
        raise mistake(
            f"column {name!r} of split {rows.split!r} holds lists of {inner.type}", "lists of numbers"
        )
    flat = inner.to_numpy(zero_copy_only=False).astype(numpy.float64).reshape(-1, width)
    steps = Steps(flat, lengths)
    for row, step, value in _infinite(steps):
        raise mistake(
            f"column {name!r}, {rows.where(row)}, step {step}: {value}", "a finite number, or nothing"
        )
    return steps


def wide_steps(rows: Rows, name: str, columns: Sequence[str]) -> Steps:
    """Columns of a wide table, a step each; a series ends where nothing follows in its row."""
    table = numpy.stack([number_column(rows, column) for column in columns], 1)
    there = ~numpy.isnan(table)
    lengths = numpy.where(there.any(1), table.shape[1] - there[:, ::-1].argmax(1), 0)
    if len(lengths) and not lengths.min():
        raise mistake(f"{rows.where(int(lengths.argmin()))}: no step of {name!r} has a value", "one at least")
    inside = numpy.arange(table.shape[1]) < lengths[:, None]
    return Steps(table[inside][:, None], lengths)


def number_column(rows: Rows, name: str) -> Array:
    """A column of numbers as float64 (rows,); an empty place is nan, and a text an error with its row."""
    column = rows.arrow(name)
    if not _is_number(column.type):
        if not (pyarrow.types.is_string(column.type) or pyarrow.types.is_large_string(column.type)):
            raise mistake(f"column {name!r} of split {rows.split!r} holds {rows.shown_type(name)}", "numbers")
        return numbers_of(column.to_pylist(), lambda row: f"column {name!r}, {rows.where(row)}")
    numbers: Array = numpy.array(column.to_numpy(zero_copy_only=False), dtype=numpy.float64)
    bad = numpy.flatnonzero(numpy.isinf(numbers))
    if len(bad):
        where = f"column {name!r}, {rows.where(int(bad[0]))}"
        raise mistake(f"{where}: {numbers[bad[0]]}", "a finite number, or nothing")
    return numbers


def numbers_of(values: Iterable[Any], where: Any) -> Array:
    """Written numbers as float64; what is empty is nan, anything else an error that says where."""
    found = []
    for row, value in enumerate(values):
        try:
            number = float("nan") if value is None or value == "" else float(value)
        except (TypeError, ValueError, OverflowError):
            raise mistake(f"{where(row)}: {value!r}", "a finite number, or nothing") from None
        if number in (float("inf"), float("-inf")):
            raise mistake(f"{where(row)}: {value!r}", "a finite number, or nothing")
        found.append(number)
    return numpy.array(found, dtype=numpy.float64)


def written_steps(values: Sequence[Any], name: str, channels: int) -> Steps:
    """Series that a person wrote: lists, or texts of lists, in each row of a table."""
    parts, lengths = [], []
    for row, value in enumerate(values):
        try:
            value = json.loads(value) if isinstance(value, str) else value
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, list | tuple) or not value:
            raise mistake(
                f"column {name!r}, row {row} (0 is the first): {values[row]!r}", "a list of numbers"
            )
        for step, of in enumerate(value):
            numbers = of if isinstance(of, list | tuple) else [of]
            where = f"column {name!r}, row {row} (0 is the first), step {step}"
            if len(numbers) != channels:
                raise mistake(f"{where}: {len(numbers)} numbers", f"{channels} in every step")
            parts.append(numbers_of(numbers, lambda _, where=where: where))
        lengths.append(len(value))
    return Steps(
        numpy.stack(parts) if parts else numpy.zeros((0, channels)), numpy.array(lengths, numpy.int64)
    )


def joined(parts: Sequence[Steps], names: Sequence[str], where: Any) -> Steps:
    """Channels side by side; each has as many steps in a row as the others."""
    first = parts[0].lengths
    for name, part in zip(names[1:], parts[1:], strict=True):
        odd = numpy.flatnonzero(part.lengths != first)
        if len(odd):
            row = int(odd[0])
            found = f"{where(row)}: {first[row]} steps of {names[0]!r} and {part.lengths[row]} of {name!r}"
            raise mistake(found, "as many of each in a row")
    return Steps(numpy.concatenate([part.values for part in parts], 1), first)


def place(lengths: Array, step: int) -> tuple[int, int]:
    """The series that a step belongs to, and its number there."""
    row = int(numpy.searchsorted(numpy.cumsum(lengths), step, "right"))
    return row, int(step - lengths[:row].sum())


def _infinite(steps: Steps) -> list[tuple[int, int, float]]:
    bad = numpy.flatnonzero(numpy.isinf(steps.values).any(1))
    if not len(bad):
        return []
    found = steps.values[bad[0]]
    return [(*place(steps.lengths, int(bad[0])), float(found[numpy.isinf(found)][0]))]


def _differ(widths: Any) -> Array:
    found: Array = widths.to_numpy(zero_copy_only=False).astype(numpy.float64)
    same: Array = found == (found[0] if len(found) else 0)
    return ~same


def _is_list(kind: Any) -> bool:
    types = pyarrow.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _is_number(kind: Any) -> bool:
    types = pyarrow.types
    return bool(
        types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_null(kind)
    )


def series_size(rows: Rows, name: str, options: Any, looked: int = 1000) -> int:
    """About how many numbers the series of a row has."""
    some = rows.take(torch.arange(min(len(rows), looked)))
    if options.columns:
        return len(wide_columns(options.columns, rows.data.features))
    steps = list_steps(some, name)
    return int(steps.lengths.max(initial=1)) * int(steps.values.shape[1])
