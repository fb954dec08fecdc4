"""A text and another that answers it: a sentence and its translation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from pegboard import DataSpec, Splits, Tokens
from torch import Tensor

from .assembly import Samples, make_splits
from .categories import strings
from .encoders import Texts, vocabulary_notes, written_texts
from .hub_options import (
    BEGIN,
    END,
    PAD,
    PADDING,
    Hub,
    Input,
    columns_of,
    special_symbols,
    target_columns,
    target_input,
    target_of,
)
from .loading import Loaded
from .mistakes import mistake
from .reading import Columns
from .rows import Rows
from .saved import Find, Form, Keep, given_vocabulary
from .text import Vocabulary, fit_vocabulary, join, pad, written


class Pairs(NamedTuple):
    """The symbols of texts and of their answers, without marks."""

    sources: list[list[int]]
    answers: list[list[int]]

    def fitting(self, most: tuple[int, int]) -> list[bool]:
        """Which of them have room for an end."""
        rows = zip(self.sources, self.answers, strict=True)
        return [len(source) < most[0] and len(answer) < most[1] for source, answer in rows]

    def kept(self, which: Iterable[bool]) -> Pairs:
        """Some of them."""
        rows = [row for row, keep in zip(zip(*self, strict=True), which, strict=True) if keep]
        return Pairs([row[0] for row in rows], [row[1] for row in rows])


class TranslationForm(Form):
    """Texts that a model answers with a text."""

    name, writes = "text", True

    def __init__(self, column: str, vocabularies: tuple[Vocabulary, Vocabulary], length: int) -> None:
        self.columns, self.length = (column,), length
        self.vocabulary, self.target = vocabularies
        self.texts = dict(enumerate(vocabularies))
        self.ends = tuple(v.symbols.index(END) for v in vocabularies)
        self.begin = self.target.symbols.index(BEGIN)

    def encode(self, table: Columns) -> tuple[Tensor, ...]:
        """The texts, and beside each the symbol that its answer begins with."""
        sources = self.vocabulary.encode(written_texts(table, self.columns[0]))
        return pad(self.ended(sources), self.length), torch.full((len(sources), 1), self.begin)

    def decode(self, symbols: Tensor) -> list[str]:
        return written(symbols, self.target, self.ends[1])

    def ended(self, sources: Sequence[Sequence[int]]) -> list[list[int]]:
        """Texts with an end, cut where they are too long."""
        return [[*row[: self.length - 1], self.ends[0]] for row in sources]

    def samples(self, pairs: Pairs, length: int) -> Samples:
        """What a model reads: a text, and its answer as far as it is written; and what it predicts."""
        answers = [row[: length - 1] for row in pairs.answers]
        sources = join(self.ended(pairs.sources), self.length)
        shifted = join([[self.begin, *row] for row in answers], length)
        return Samples((sources, shifted), join([[*row, self.ends[1]] for row in answers], length))

    def state(self, keep: Keep) -> dict[str, Any]:
        return {
            "column": self.columns[0],
            "length": self.length,
            "vocabulary": keep(self.vocabulary),
            "target": keep(self.target),
        }

    @classmethod
    def load(cls, state: Mapping[str, Any], find: Find) -> TranslationForm:
        """One that `state` described."""
        vocabularies = find(state["vocabulary"]), find(state["target"])
        return cls(state["column"], vocabularies, int(state["length"]))


def translation_splits(config: Hub, loaded: Loaded, chosen: Mapping[str, Rows | None]) -> Splits:
    """Pairs of texts: inputs are the first and the second as far as it is written, the target is the second.

    The target ends in an end symbol, and its input begins with a begin symbol instead.
    """
    [(name, options)] = columns_of(config).items()
    target = target_of(config)
    [answer] = target_columns(target)
    train = chosen["train"]
    assert train is not None
    vocabularies = _vocabularies(config, train, (name, options), (answer, target_input(config)))
    pairs = {
        split: Pairs(*(v.encode(strings(rows, n)) for v, n in zip(vocabularies, (name, answer), strict=True)))
        for split, rows in chosen.items()
        if rows is not None
    }
    longest = [max([1, *map(len, rows)]) + 1 for rows in pairs["train"]]
    most = (options.length or longest[0], target.length or longest[1])
    overlong = {}
    for split, found in pairs.items():
        fits = found.fitting(most)
        dropped = split == "train" and target.overlong == "drop"
        overlong[split] = {"dropped" if dropped else "cut": len(fits) - sum(fits)}
        if dropped:
            pairs[split] = _kept(found, fits, most)
    form = TranslationForm(name, vocabularies, most[0])
    read = Tokens(len(form.vocabulary.symbols), most[0], PADDING, -1, form.ends[0])
    said = Tokens(len(form.target.symbols), most[1], PADDING, form.begin, form.ends[1])
    lengths = zip((name, answer), most, vocabularies, strict=True)
    return make_splits(
        DataSpec((read, said), said, (name, answer)),
        {split: form.samples(found, most[1]) for split, found in pairs.items()},
        **form.fields(),
        notes={
            "source": loaded.source,
            "licence": loaded.licence,
            "overlong": overlong,
            "statistics": {n: {"length": length, **vocabulary_notes(v)} for n, length, v in lengths},
        },
    )


def _kept(pairs: Pairs, fits: Sequence[bool], most: tuple[int, int]) -> Pairs:
    if not any(fits):
        raise mistake(
            f"none of the {len(fits)} training pairs has room for its symbols and an end",
            f"texts of fewer than {most[0]} symbols and answers of fewer than {most[1]}",
            "take a larger length, or overlong: cut",
        )
    return pairs.kept(fits)


def _vocabularies(
    config: Hub, train: Rows, source: tuple[str, Input], answer: tuple[str, Input]
) -> tuple[Vocabulary, Vocabulary]:
    needed = (PAD, BEGIN, END)
    given = given_vocabulary(config, *needed), given_vocabulary(config, *needed, role="target")
    if given[0] is not None and given[1] is not None:
        return given[0], given[1]

    def fit(texts: Iterable[str], options: Input) -> Vocabulary:
        special = special_symbols(config, options)
        return fit_vocabulary(
            texts, options.tokens, options.vocab, lowercase=options.lowercase, special=special
        )

    if target_of(config).shared:
        both = fit(Texts(train, source[0], answer[0]), source[1])
        return both, both
    return fit(Texts(train, source[0]), source[1]), fit(Texts(train, answer[0]), answer[1])
