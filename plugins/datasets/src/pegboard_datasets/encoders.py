"""Columns -> inputs of the model. An encoder learns from the training rows, then treats all alike."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from pegboard import Image, Sequences, Spec, Tokens, Vector
from torch import Tensor

from . import scaling
from .hub_options import PADDING, Input
from .images import read_pixels
from .mistakes import mistake
from .options import Normalize
from .reading import Columns, column, number_table, to_numbers
from .rows import PIECE, Rows
from .text import Vocabulary, fit_vocabulary, join, pad

SHOWN = 1000  # symbols that the notes hold at most
NUMBERS = 2**20  # numbers of a column that are in memory at a time
PICTURES = 100_000  # training pictures whose statistics normalise all
DECODED = 4096  # pictures whose values are counted at a time
TEXTS = 4096  # texts whose symbols are counted at a time


class Encoder(Protocol):
    """One input of the model."""

    @property
    def spec(self) -> Spec:
        """What it gives."""
        ...

    def rows(self, rows: Rows) -> Tensor | Sequences:
        """The input for rows of the source."""
        ...

    def batch(self, rows: Rows) -> Tensor:
        """The same for rows that share a batch."""
        ...

    def table(self, table: Columns) -> Tensor:
        """The input for rows that a person wrote."""
        ...

    def notes(self) -> dict[str, Any]:
        """What it learned."""
        ...


class ImageEncoder:
    """A column of pictures; the training rows are kept, decoded once, where they are to be held."""

    def __init__(
        self, train: Rows, name: str, options: Input, normalize: Normalize, folder: Path, hold: bool = True
    ) -> None:
        self.name, self.folder = name, folder
        self._resize = options.size is not None
        self._channels: Any = options.channels
        self._size = options.size
        first = self._pixels(train if hold else train.take(torch.arange(1)))
        self._channels = first.shape[1]
        self._size = (first.shape[2], first.shape[3])
        seen = train.take(torch.arange(min(len(train), PICTURES)))
        parts = (self._pixels(part) for part in seen.pieces(DECODED))
        self._scaler = scaling.fit_pixels(
            torch.split(first[:PICTURES], DECODED) if hold else parts, normalize
        )
        self.train = scaling.scale_pixels(first, self._scaler) if hold else None

    def _pixels(self, rows: Rows) -> Tensor:
        return read_pixels(
            rows.values(self.name), self.name, self._channels, self._size, self.folder,
            self._resize, rows.where,
        )  # fmt: skip

    @property
    def spec(self) -> Spec:
        assert self._size is not None
        return Image(self._channels, *self._size)

    def rows(self, rows: Rows) -> Tensor:
        return scaling.scale_pixels(self._pixels(rows), self._scaler)

    batch = rows

    def table(self, table: Columns) -> Tensor:
        assert self._size is not None
        shape = (self._channels, *self._size)
        flat = [f"{self.name}_{i}" for i in range(shape[0] * shape[1] * shape[2])]
        if self.name not in table and flat[0] in table:
            pixels = number_table(table, flat).reshape(-1, *shape).round().clamp(0, 255).byte()
        else:
            pixels = read_pixels(column(table, self.name), self.name, self._channels, self._size)
        return scaling.scale_pixels(pixels, self._scaler)

    def notes(self) -> dict[str, Any]:
        return self._scaler.notes()


class TextEncoder:
    """A column of texts, cut where they are too long; those of a person's table are filled up as well."""

    def __init__(self, train: Rows, name: str, options: Input, hold: bool = True) -> None:
        self.name, self.tokens = name, options.tokens
        texts = Texts(train, name)
        self.vocabulary = fit_vocabulary(
            texts, options.tokens, options.vocab, lowercase=options.lowercase, unknown=options.unknown
        )
        if hold:
            encoded = self.vocabulary.encode(list(texts))
            self.length = options.length or max([1, *map(len, encoded)])
            self.train: Sequences | None = join(encoded, self.length)
        else:
            pieces = (self.vocabulary.encode(piece) for piece in texts.pieces())
            self.length = options.length or max(1, *(max(map(len, piece)) for piece in pieces))
            self.train = None

    @property
    def spec(self) -> Spec:
        return Tokens(len(self.vocabulary.symbols), self.length, PADDING)

    def rows(self, rows: Rows) -> Sequences:
        return join(self._symbols(rows), self.length)

    def batch(self, rows: Rows) -> Tensor:
        """As one tensor, filled up to the longest of these rows."""
        encoded = self._symbols(rows)
        return pad(encoded, min(self.length, max([1, *map(len, encoded)])))

    def lengths(self, rows: Rows) -> Tensor:
        """How many symbols each row has: int32, a piece of the rows in memory at a time."""
        pieces = (map(len, self._symbols(piece)) for piece in rows.pieces(TEXTS))
        counted = [torch.tensor(list(piece), dtype=torch.int32) for piece in pieces]
        return torch.cat(counted).clamp(max=self.length)

    def _symbols(self, rows: Rows) -> list[list[int]]:
        return self.vocabulary.encode(strings(rows, self.name))

    def table(self, table: Columns) -> Tensor:
        texts = [category_text(v) for v in column(table, self.name)]
        return pad(self.vocabulary.encode(texts), self.length)

    def notes(self) -> dict[str, Any]:
        return {"length": self.length, **vocabulary_notes(self.tokens, self.vocabulary)}


class Texts:
    """A column of texts, of which a piece is in memory whenever all are gone through."""

    def __init__(self, rows: Rows, name: str) -> None:
        self._rows, self._name = rows, name

    def pieces(self) -> Iterator[list[str]]:
        for piece in self._rows.pieces(TEXTS):
            yield strings(piece, self._name)

    def __iter__(self) -> Iterator[str]:
        return (text for piece in self.pieces() for text in piece)


class VectorEncoder:
    """Columns of numbers, scaled, and of categories, one place for each, joined to one vector."""

    def __init__(self, train: Rows, kinds: dict[str, str], normalize: Normalize, hold: bool = True) -> None:
        self._names: dict[str, tuple[str, ...]] = {}
        self._widths: dict[str, int] = {}
        self._scalers: dict[str, scaling.Scaler] = {}
        for name, kind in kinds.items():
            if kind == "category":
                self._names[name] = category_names(train, name)
                self._widths[name] = len(self._names[name])
            else:
                width = self._widths[name] = train.take(torch.arange(1)).numbers(name).shape[1]
                parts = (self._numbers(part, name) for part in train.pieces(piece_of(width)))
                self._scalers[name] = scaling.fit_parts(parts, normalize)
        self.train = self.rows(train) if hold else None

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

    def notes(self) -> dict[str, Any]:
        scaled = {name: scaler.notes() for name, scaler in self._scalers.items()}
        return {**scaled, **{name: {"categories": list(names)} for name, names in self._names.items()}}

    def _one_hot(self, name: str, values: Sequence[str]) -> Tensor:
        number = {value: i for i, value in enumerate(self._names[name])}
        # A category that training never showed has no place of its own: all zeros.
        extra = len(number)
        index = torch.tensor([number.get(v, extra) for v in values], dtype=torch.int64)
        return torch.nn.functional.one_hot(index, extra + 1)[:, :extra].float()


def piece_of(width: int) -> int:
    """Rows of so many numbers that are in memory at a time."""
    return max(NUMBERS // max(width, 1), 1)


def strings(rows: Rows, name: str) -> list[str]:
    """A column of texts."""
    if rows.type(name) != "string":
        raise mistake(f"column {name!r} of split {rows.split!r} holds {rows.shown_type(name)}", "text")
    return rows.values(name)


def category_text(value: Any) -> str:
    """A category or a text as a person writes it, also where a reader of tables made it a number."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def category_values(rows: Rows, name: str) -> list[str]:
    """A column of categories or classes, by name."""
    names = rows.class_names(name)
    kind = rows.type(name)
    if kind in ("list", "image", "other"):
        found = f"column {name!r} of split {rows.split!r} holds {rows.shown_type(name)}"
        raise mistake(found, "one category in every row")
    values = rows.values(name)
    if names is None:
        return [category_text(v) for v in values]
    for row, value in enumerate(values):
        if not 0 <= value < len(names):
            raise mistake(
                f"column {name!r}, {rows.where(row)}: {value}, which is no class",
                f"0 to {len(names) - 1}",
                "a split without labels cannot serve; splits: {test: cut} takes a share of train instead",
            )
    return [names[v] for v in values]


def category_names(rows: Rows, name: str, *others: Rows) -> tuple[str, ...]:
    """The categories of a column, as its type lists them or sorted as numbers or texts."""
    named = rows.class_names(name)
    if named is not None:
        return tuple(named)
    pieces = (piece for r in (rows, *others) for piece in r.pieces(PIECE))
    found = {value for piece in pieces for value in category_values(piece, name)}
    return tuple(sorted(found, key=by_number))


def by_number(text: str) -> tuple[bool, float, str]:
    """A key that sorts numbers by value, before texts."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    return (False, number, text) if math.isfinite(number) else (True, 0.0, text)


def vocabulary_notes(tokens: str, vocabulary: Vocabulary) -> dict[str, Any]:
    """What a vocabulary holds; all its symbols where they are few."""
    symbols = vocabulary.symbols
    digest = hashlib.sha256("\x1f".join(symbols).encode()).hexdigest()
    few = {"symbols": list(symbols)} if len(symbols) <= SHOWN else {}
    return {"tokens": tokens, "vocab": len(symbols), "vocabulary": digest, **few}
