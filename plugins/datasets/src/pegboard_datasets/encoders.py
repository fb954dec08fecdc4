"""Columns -> inputs of the model. An encoder learns from the training rows, then treats all alike."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import torch
from pegboard import Image, Sequences, Spec, Tokens
from torch import Tensor

from . import scaling
from .categories import category_text, strings
from .hub_options import PAD, PADDING, UNKNOWN, Input
from .images import read_pixels
from .options import Normalize
from .reading import Columns, column, number_table
from .rows import Rows
from .saved import Find, Keep
from .text import Vocabulary, fit_vocabulary, join, pad

SHOWN = 1000  # symbols that the notes hold at most
PICTURES = 100_000  # training pictures whose statistics normalise all
DECODED = 4096  # pictures whose values are counted at a time
TEXTS = 4096  # texts whose symbols are counted at a time


class Encoder(Protocol):
    """One input of the model."""

    train: Tensor | Sequences | None  # the input for the training rows, where it was made on the way

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

    def state(self, keep: Keep) -> dict[str, Any]:
        """All that `table` needs, as JSON holds it."""
        ...


class ImageEncoder:
    """A column of pictures; the training rows are kept, decoded once, where they are to be held."""

    def __init__(self, name: str, channels: Any, size: tuple[int, int], scaler: scaling.Scaler) -> None:
        self.name, self.channels, self.size, self.scaler = name, channels, size, scaler
        self.folder, self.resize = Path(), True
        self.train: Tensor | Sequences | None = None

    @classmethod
    def fit(
        cls, train: Rows, name: str, options: Input, normalize: Normalize, folder: Path, hold: bool = True
    ) -> ImageEncoder:
        """One that has learned from the training rows."""
        looked = train if hold else train.take(torch.arange(1))
        first = read_pixels(
            looked.values(name), name, options.channels, options.size, folder,
            options.size is not None, looked.where,
        )  # fmt: skip
        blank = scaling.fit(torch.zeros(1, 1), "none")
        encoder = cls(name, first.shape[1], (first.shape[2], first.shape[3]), blank)
        encoder.folder, encoder.resize = folder, options.size is not None
        seen = train.take(torch.arange(min(len(train), PICTURES)))
        parts = (encoder._pixels(part) for part in seen.pieces(DECODED))
        encoder.scaler = scaling.fit_pixels(
            torch.split(first[:PICTURES], DECODED) if hold else parts, normalize
        )
        encoder.train = scaling.scale_pixels(first, encoder.scaler) if hold else None
        return encoder

    def _pixels(self, rows: Rows) -> Tensor:
        return read_pixels(
            rows.values(self.name), self.name, self.channels, self.size, self.folder,
            self.resize, rows.where,
        )  # fmt: skip

    @property
    def spec(self) -> Spec:
        return Image(self.channels, *self.size)

    def rows(self, rows: Rows) -> Tensor:
        return scaling.scale_pixels(self._pixels(rows), self.scaler)

    batch = rows

    def table(self, table: Columns) -> Tensor:
        shape = (self.channels, *self.size)
        flat = [f"{self.name}_{i}" for i in range(shape[0] * shape[1] * shape[2])]
        if self.name not in table and flat[0] in table:
            pixels = number_table(table, flat).reshape(-1, *shape).round().clamp(0, 255).byte()
        else:
            pixels = read_pixels(column(table, self.name), self.name, self.channels, self.size)
        return scaling.scale_pixels(pixels, self.scaler)

    def invert(self, x: Tensor) -> Tensor:
        """The pictures, between 0 and 1, that became these inputs."""
        return self.scaler.inverse(x)

    def notes(self) -> dict[str, Any]:
        return self.scaler.notes()

    def state(self, keep: Keep) -> dict[str, Any]:
        return {
            "kind": "image",
            "name": self.name,
            "channels": self.channels,
            "size": list(self.size),
            "scaler": self.scaler.state(),
        }

    @classmethod
    def load(cls, state: Mapping[str, Any], find: Find) -> ImageEncoder:
        """One that `state` described."""
        height, width = state["size"]
        return cls(state["name"], state["channels"], (height, width), scaling.Scaler.load(state["scaler"]))


class TextEncoder:
    """A column of texts, cut where they are too long; those of a person's table are filled up as well."""

    def __init__(self, name: str, vocabulary: Vocabulary, length: int) -> None:
        self.name, self.vocabulary, self.length = name, vocabulary, length
        self.train: Tensor | Sequences | None = None

    @classmethod
    def fit(
        cls, train: Rows, name: str, options: Input, hold: bool = True, given: Vocabulary | None = None
    ) -> TextEncoder:
        """One that has learned from the training rows, or takes symbols that are given."""
        texts = Texts(train, name)
        special = (PAD, UNKNOWN) if options.unknown else (PAD,)
        vocabulary = given or fit_vocabulary(
            texts, options.tokens, options.vocab, lowercase=options.lowercase, special=special
        )
        if hold:
            encoded = vocabulary.encode(list(texts))
            encoder = cls(name, vocabulary, options.length or max([1, *map(len, encoded)]))
            encoder.train = join(encoded, encoder.length)
            return encoder
        pieces = (vocabulary.encode(piece) for piece in texts.pieces())
        return cls(name, vocabulary, options.length or max(1, *(max(map(len, piece)) for piece in pieces)))

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
        return pad(self.vocabulary.encode(written_texts(table, self.name)), self.length)

    def notes(self) -> dict[str, Any]:
        return {"length": self.length, **vocabulary_notes(self.vocabulary)}

    def state(self, keep: Keep) -> dict[str, Any]:
        return {
            "kind": "text",
            "name": self.name,
            "length": self.length,
            "vocabulary": keep(self.vocabulary),
        }

    @classmethod
    def load(cls, state: Mapping[str, Any], find: Find) -> TextEncoder:
        """One that `state` described."""
        return cls(state["name"], find(state["vocabulary"]), int(state["length"]))


class Texts:
    """Columns of texts, of which a piece is in memory whenever all are gone through."""

    def __init__(self, rows: Rows, *names: str) -> None:
        self._rows, self._names = rows, names

    def pieces(self) -> Iterator[list[str]]:
        for name in self._names:
            for piece in self._rows.pieces(TEXTS):
                yield strings(piece, name)

    def __iter__(self) -> Iterator[str]:
        return (text for piece in self.pieces() for text in piece)


def written_texts(table: Columns, name: str) -> list[str]:
    """A column of texts that a person wrote."""
    return [category_text(v) for v in column(table, name)]


def vocabulary_notes(vocabulary: Vocabulary) -> dict[str, Any]:
    """What a vocabulary holds; all its symbols where they are few."""
    symbols = vocabulary.symbols
    digest = hashlib.sha256("\x1f".join(symbols).encode()).hexdigest()
    few = {"symbols": list(symbols)} if len(symbols) <= SHOWN else {}
    return {"tokens": vocabulary.tokens, "vocab": len(symbols), "vocabulary": digest, **few}
