"""Texts with a class symbol in front and separators after them, one or two to a sample."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from pegboard import Sequences, Tokens
from torch import Tensor

from .categories import category_text
from .encoders import TEXTS, vocabulary_notes, written_texts
from .hub_options import CLASS, PADDING, SEPARATOR
from .mistakes import mistake
from .reading import Columns, column
from .rows import Rows
from .saved import Find, Form, Keep
from .text import Vocabulary, join, pad


class MarkedForm(Form):
    """One or two texts as <cls> a <sep> b <sep>, each cut at a length that counts its marks.

    `segments` asks for a second input that says which text every symbol is of. The text may be given as
    `words`, and unless it is `marked` it stands alone. Where `tags` name the classes of the places, they are
    what symbols of the target become.
    """

    name = "marked"

    def __init__(
        self,
        columns: Sequence[str],
        vocabulary: Vocabulary,
        lengths: Sequence[int],
        *,
        marked: bool = True,
        segments: bool = False,
        words: bool = False,
        tags: Sequence[str] = (),
    ) -> None:
        self.columns, self.vocabulary, self.lengths = tuple(columns), vocabulary, tuple(lengths)
        self.marked, self.segments, self.words, self.tags = marked, segments, words, tuple(tags)
        self.writes, self.asks, self.texts = bool(tags), bool(tags), {0: vocabulary}
        self.marks = mark_numbers(vocabulary) if marked else (-1, -1)

    @property
    def length(self) -> int:
        """Most symbols of a sample."""
        return sum(self.lengths)

    @property
    def specs(self) -> tuple[Tokens, ...]:
        """What the inputs are."""
        text = Tokens(len(self.vocabulary.symbols), self.length, PADDING, *self.marks)
        return (text, Tokens(2, self.length)) if self.segments else (text,)

    def room(self, place: int) -> int:
        """How many symbols of its own a text can have, the first or the second."""
        return self.lengths[place] - (marks_of(place) if self.marked else 0)

    def joined(self, *texts: Sequence[int]) -> list[int]:
        """The symbols of a sample."""
        kept = [list(text[: self.room(place)]) for place, text in enumerate(texts)]
        if not self.marked:
            return kept[0]
        begin, end = self.marks
        return [begin, *chain.from_iterable([*text, end] for text in kept)]

    def sides(self, *texts: Sequence[int]) -> list[int]:
        """Which text every symbol of a sample is of."""
        counts = [min(len(t), self.room(place)) + marks_of(place) for place, t in enumerate(texts)]
        return [place for place, count in enumerate(counts) for _ in range(count)]

    def inputs(self, *texts: Sequence[Sequence[int]]) -> tuple[Sequences, ...]:
        """The inputs for the symbols of a column, or of two."""
        rows = list(zip(*texts, strict=True))
        found = [join([self.joined(*row) for row in rows], self.length)]
        if self.segments:
            found.append(Sequences.join([self.sides(*row) for row in rows], 0))
        return tuple(found)

    def encode(self, table: Columns) -> tuple[Tensor, ...]:
        if self.words:
            lists = [_words(value) for value in column(table, self.columns[0])]
            texts = [[list(chain.from_iterable(row)) for row in word_pieces(self.vocabulary, lists)]]
        else:
            texts = [self.vocabulary.encode(written_texts(table, name)) for name in self.columns]
        rows = list(zip(*texts, strict=True))
        symbols = pad([self.joined(*row) for row in rows], self.length)
        if not self.segments:
            return (symbols,)
        return symbols, pad([self.sides(*row) for row in rows], self.length)

    def asked(self, table: Columns) -> Tensor:
        """The first symbol of each word."""
        edge = [0] if self.marked else []
        rows = []
        for pieces in word_pieces(self.vocabulary, [_words(v) for v in column(table, self.columns[0])]):
            first = [int(place == 0) for word in pieces for place in range(len(word))]
            rows.append([*edge, *first[: self.room(0)], *edge])
        return pad(rows, self.length) == 1

    def decode(self, symbols: Tensor) -> list[str]:
        known = range(len(self.tags))
        return [" ".join(self.tags[n] for n in row if n in known) for row in symbols.tolist()]

    def notes(self) -> dict[str, Any]:
        """What it learned, under the names of its columns."""
        learned = vocabulary_notes(self.vocabulary)
        named = zip(self.columns, self.lengths, strict=True)
        return {name: {"length": length, **learned} for name, length in named}

    def state(self, keep: Keep) -> dict[str, Any]:
        return {
            "columns": list(self.columns),
            "lengths": list(self.lengths),
            "vocabulary": keep(self.vocabulary),
            "marked": self.marked,
            "segments": self.segments,
            "words": self.words,
            "tags": list(self.tags),
        }

    @classmethod
    def load(cls, state: Mapping[str, Any], find: Find) -> MarkedForm:
        """One that `state` described."""
        options = {key: state[key] for key in ("marked", "segments", "words", "tags")}
        return cls(state["columns"], find(state["vocabulary"]), state["lengths"], **options)


def marks_of(place: int) -> int:
    """How many marks the first or the second text of a sample has."""
    return 2 if place == 0 else 1


def mark_numbers(vocabulary: Vocabulary) -> tuple[int, int]:
    """The numbers of the symbols that begin a sample and end its texts."""
    return vocabulary.symbols.index(CLASS), vocabulary.symbols.index(SEPARATOR)


def word_pieces(vocabulary: Vocabulary, rows: Sequence[Sequence[str]]) -> list[list[list[int]]]:
    """For each row the symbols of each of its words, cut as in a running text."""
    # Bytes know a word inside a text by the blank before it.
    blank = " " if vocabulary.tokens == "bpe" else ""
    flat = [blank + word if place else word for row in rows for place, word in enumerate(row)]
    pieces = iter(vocabulary.encode(flat))
    return [[next(pieces) for _ in row] for row in rows]


def word_lists(rows: Rows, name: str) -> list[list[str]]:
    """A column of lists of words, or of texts whose words stand between blanks."""
    if rows.type(name) == "string":
        return [text.split() for text in rows.values(name)]
    if rows.type(name) != "list":
        found = f"column {name!r} of split {rows.split!r} holds {rows.shown_type(name)}"
        raise mistake(found, "a list of words in every row, or a text")
    return [[category_text(word) for word in row] for row in rows.values(name)]


def _words(value: Any) -> list[str]:
    """Words that a person wrote, as a list or with blanks between them."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return str(value).split()
    if isinstance(value, list | tuple):
        return [category_text(word) for word in value]
    return category_text(value).split()


class WordTexts:
    """A column of words as texts, as often as they are gone through."""

    def __init__(self, rows: Rows, name: str) -> None:
        self._rows, self._name = rows, name

    def __iter__(self) -> Iterator[str]:
        for piece in self._rows.pieces(TEXTS):
            yield from (" ".join(row) for row in word_lists(piece, self._name))
