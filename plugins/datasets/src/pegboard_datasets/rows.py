"""Rows of a Hugging Face data set, read column by column."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any, Literal

import numpy
import pyarrow  # type: ignore[import-untyped]
import pyarrow.compute  # type: ignore[import-untyped]
import torch
from torch import Tensor

from .mapped import Mapped
from .mistakes import mistake, nearest, unknown

PIECE = 2**16  # rows whose Python values are in memory at a time
BLOCK = 64  # places in mapped files that rows are copied out of at a time
ColumnType = Literal["image", "classes", "bool", "integer", "float", "string", "list", "other"]


class Table:
    """The columns of a data set, mapped from its files."""

    def __init__(self, data: Any) -> None:
        self._data, self.mapped = data, Mapped(data)
        self.features = data.features  # a copy, which takes a while to make
        self._columns = {name: _plain_chunks(data.data.column(name)) for name in self.features}
        counts = [len(chunk) for chunk in next(iter(self._columns.values()), ())]
        self._starts = numpy.cumsum([0, *counts])
        self._batches: dict[tuple[str, ...], list[pyarrow.RecordBatch]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return Table, (self._data,)  # another process maps the files itself

    def take(self, names: tuple[str, ...], index: Tensor | None) -> dict[str, pyarrow.Array]:
        """Some rows of these columns, or all, copied out of the files in one go; only they are read."""
        if names not in self._batches:
            chunks = zip(*(self._columns[name] for name in names), strict=True)
            self._batches[names] = [pyarrow.RecordBatch.from_arrays([*c], [*names]) for c in chunks]
        batches = self._batches[names]
        if index is None or not len(index):
            return _joined(batches if index is None else [batches[0][:0]])
        if len(index) <= BLOCK:
            return self._read(batches, index.numpy())
        # Many rows are read in the order of the file, so that its pages are needed once.
        index, places = index.sort()
        back = pyarrow.array(places.argsort().numpy())
        return {name: column.take(back) for name, column in self._read(batches, index.numpy()).items()}

    def _read(self, batches: list[pyarrow.RecordBatch], rows: Any) -> dict[str, pyarrow.Array]:
        found, runs = [], self._runs(rows)
        while part := list(itertools.islice(runs, BLOCK)):
            # Slices are views, copied out once: a chunked column's own `take` copies all of it first.
            found.append(_joined([batches[c].slice(row, count) for c, row, count in part]))
            self.mapped.touched(len(part))
        if len(found) == 1:
            return found[0]
        return {name: pyarrow.concat_arrays([part[name] for part in found]) for name in found[0]}

    def _runs(self, rows: Any) -> Iterator[tuple[int, int, int]]:
        """Chunk, first row in it and number of rows, for rows that follow each other in one chunk."""
        chunk = numpy.searchsorted(self._starts, rows, "right") - 1
        jumps = (rows[1:] != rows[:-1] + 1) | (chunk[1:] != chunk[:-1])
        first = numpy.concatenate([[0], numpy.flatnonzero(jumps) + 1])
        counts = numpy.concatenate([first[1:], [len(rows)]]) - first
        chunk, rows = chunk[first], rows[first]
        return zip(chunk.tolist(), (rows - self._starts[chunk]).tolist(), counts.tolist(), strict=True)


def _joined(batches: list[pyarrow.RecordBatch]) -> dict[str, pyarrow.Array]:
    table = pyarrow.Table.from_batches(batches)
    return {name: table.column(name).combine_chunks() for name in table.column_names}


def _plain_chunks(column: Any) -> list[pyarrow.Array]:
    chunks = column.chunks or [pyarrow.array([], column.type)]
    return [c.storage if isinstance(c, pyarrow.ExtensionArray) else c for c in chunks]


class Rows:
    """Some rows of one split; only what is asked for is read."""

    def __init__(
        self, data: Any, split: str, index: Tensor | None = None, table: Table | None = None
    ) -> None:
        self.data, self.split, self.index = data, split, index
        self._table = Table(data) if table is None else table
        self._read: dict[str, pyarrow.Array] = {}
        self.files = self._table.mapped.files
        self.listed = "rows"  # what was made of one: a row, or a list of `steps` or of a file

    def __len__(self) -> int:
        return len(self.data) if self.index is None else len(self.index)

    def take(self, index: Tensor) -> Rows:
        """The rows with these numbers."""
        found = Rows(self.data, self.split, index if self.index is None else self.index[index], self._table)
        found.listed = self.listed
        return found

    def read(self, names: tuple[str, ...]) -> Rows:
        """These rows, with some columns read at once instead of each when it is asked for."""
        self._read = self._table.take(names, self.index)
        return self

    def pieces(self, size: int) -> Iterator[Rows]:
        """All rows in their order, at most `size` at a time."""
        if len(self) <= size:
            yield self
            return
        for at in range(0, len(self), size):
            yield self.take(torch.arange(at, min(at + size, len(self))))

    def need(self, columns: Iterable[str]) -> None:
        """Raise where columns are not there, with all of them."""
        there = list(self._table.features)
        if absent := [name for name in dict.fromkeys(columns) if name not in there]:
            hint = "splits: {val: cut} or {test: cut} takes a share of train instead of a split without it"
            where = f" in split {self.split!r}"
            also = "".join(f"\n  nor {name!r}{nearest(name, there)}" for name in absent[1:])
            raise unknown("column", absent[0], there, where, "" if self.split == "train" else hint, also)

    def type(self, name: str) -> ColumnType:
        """What the column says that it holds."""
        return _type(self._table.features[name])

    def shown_type(self, name: str) -> str:
        """The column's type, for people."""
        return str(self._table.features[name])

    def class_names(self, name: str) -> list[str] | None:
        """Names of the classes of a column of labels, or of lists of them."""
        feature = self._table.features[name]
        inner = getattr(feature, "feature", None)
        names = getattr(feature, "names", None) or getattr(inner, "names", None)
        return None if names is None else [str(n) for n in names]

    def where(self, row: int) -> str:
        """How a person finds a row of these."""
        row = row if self.index is None else int(self.index[row])
        return f"split {self.split!r}, row {row} (0 is the first)"

    def arrow(self, name: str) -> pyarrow.Array:
        """The column as it is stored."""
        return self._read[name] if name in self._read else self._table.take((name,), self.index)[name]

    def values(self, name: str) -> list[Any]:
        """The column as Python values; an empty place is an error."""
        column = self.arrow(name)
        self._full(column, name)
        return list(column.to_pylist())

    def numbers(self, name: str) -> Tensor:
        """A column of numbers, or of lists of as many, as a double tensor (rows, width)."""
        column = self.arrow(name)
        rows, width = len(column), 1
        self._full(column, name)
        while _is_list(column.type):
            lengths = pyarrow.compute.list_value_length(column).to_numpy(zero_copy_only=False)
            odd = numpy.flatnonzero(lengths != lengths[0]) if len(lengths) else lengths
            if len(odd):
                # Rows of the outer list: an inner one is counted in its own row.
                row = int(odd[0]) // max(width, 1)
                raise mistake(
                    f"column {name!r}, {self.where(row)}: {lengths[odd[0]]} numbers",
                    f"{lengths[0]} in every row",
                )
            width *= int(lengths[0]) if len(lengths) else 1
            column = column.flatten()
        plain = column.type
        if not (pyarrow.types.is_integer(plain) or pyarrow.types.is_floating(plain) or _is_bool(plain)):
            raise mistake(f"column {name!r} of split {self.split!r} holds {plain}", "numbers")
        flat = column.to_numpy(zero_copy_only=False)
        array = numpy.array(flat, dtype=numpy.float64).reshape(rows, width)
        bad = numpy.flatnonzero(~numpy.isfinite(array).all(1))
        if len(bad):
            found = array[bad[0]][~numpy.isfinite(array[bad[0]])][0]
            raise mistake(f"column {name!r}, {self.where(int(bad[0]))}: {found}", "a finite number")
        return torch.from_numpy(array)

    def _full(self, column: pyarrow.Array, name: str) -> None:
        if column.null_count:
            row = int(numpy.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
            raise mistake(f"column {name!r}, {self.where(row)}: nothing", "a value in every row")


def _type(feature: Any) -> ColumnType:
    kind = type(feature).__name__
    if kind == "Image":
        return "image"
    if kind == "ClassLabel":
        return "classes"
    if kind in ("Sequence", "List", "LargeList") or kind.startswith("Array") or isinstance(feature, list):
        return "list"
    dtype = str(getattr(feature, "dtype", ""))
    if kind != "Value":
        return "other"
    if dtype in ("string", "large_string"):
        return "string"
    if dtype == "bool":
        return "bool"
    if dtype.startswith(("int", "uint")):
        return "integer"
    return "float" if dtype.startswith("float") else "other"


def _is_list(kind: pyarrow.DataType) -> bool:
    types = pyarrow.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _is_bool(kind: pyarrow.DataType) -> bool:
    return bool(pyarrow.types.is_boolean(kind))
