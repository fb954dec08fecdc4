"""Text whose every symbol is predicted from those before it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from pegboard import DataSpec, Splits, Tokens, cut_fold
from torch import Tensor

from .assembly import Samples, make_splits
from .categories import strings
from .encoders import vocabulary_notes, written_texts
from .hub_options import END, Hub, columns_of, number_of, special_symbols
from .loading import Loaded
from .mistakes import mistake
from .reading import Columns
from .rows import Rows
from .saved import Find, Form, Keep, given_vocabulary
from .text import Vocabulary, chunks, fit_vocabulary, written


def language_splits(
    config: Hub,
    loaded: Loaded,
    train: Rows,
    val: Rows | None,
    test: Rows | None,
    fold: tuple[int, int] | None = None,
) -> Splits:
    """Pieces of `length` symbols from the text of each split in its own order, and their successors.

    Characters join rows by line breaks; other symbols put an end symbol after every row.
    """
    [(name, options)] = columns_of(config).items()
    length = options.length
    if length is None:
        raise mistake(f"inputs.{name} says no length", "symbols in a sample")
    texts = cut_texts(
        strings(train, name),
        None if val is None else strings(val, name),
        None if test is None else strings(test, name),
        config,
        fold,
    )
    vocabulary = given_vocabulary(config)
    if (vocabulary or options).tokens == "characters":
        texts = {split: [join_lines(rows)] if rows else [] for split, rows in texts.items()}
    vocabulary = vocabulary or fit_vocabulary(
        texts["train"],
        options.tokens,
        options.vocab,
        lowercase=options.lowercase,
        special=special_symbols(config, options),
    )
    samples = {}
    for split, rows in texts.items():
        limit = config.limit if split == "train" else config.eval_limit
        samples[split] = _samples(rows, vocabulary, length, limit, split) if rows else None
    tokens = Tokens(len(vocabulary.symbols), length, -1, end=number_of(END, vocabulary.symbols))
    return make_splits(
        DataSpec((tokens,), tokens, (name,)),
        samples,
        **LanguageForm(name, vocabulary, length).fields(),
        notes={
            "source": loaded.source,
            "licence": loaded.licence,
            "statistics": {name: {"length": length, **vocabulary_notes(vocabulary)}},
        },
    )


class LanguageForm(Form):
    """Texts that a model continues."""

    name, writes = "next", True

    def __init__(self, column: str, vocabulary: Vocabulary, length: int) -> None:
        self.columns, self.vocabulary, self.length = (column,), vocabulary, length
        self.texts = {0: vocabulary}
        self.end = number_of(END, vocabulary.symbols)

    def encode(self, table: Columns) -> tuple[Tensor, ...]:
        """The last symbols of each text; one without any begins where another text ended."""
        texts = written_texts(table, self.columns[0])
        encoded = [row[-self.length :] for row in self.vocabulary.encode(texts)]
        if self.end >= 0:
            encoded = [row or [self.end] for row in encoded]
        sizes = sorted({len(row) for row in encoded})
        if len(sizes) > 1 or sizes == [0]:
            raise mistake(
                f"texts of {', '.join(map(str, sizes))} symbols",
                f"texts of one length, or all of at least {self.length} symbols, of which the last are read",
            )
        return (torch.tensor(encoded, dtype=torch.int64),)

    def decode(self, symbols: Tensor) -> list[str]:
        return written(symbols, self.vocabulary, self.end)

    def state(self, keep: Keep) -> dict[str, Any]:
        return {"column": self.columns[0], "length": self.length, "vocabulary": keep(self.vocabulary)}

    @classmethod
    def load(cls, state: Mapping[str, Any], find: Find) -> LanguageForm:
        """One that `state` described."""
        return cls(state["column"], find(state["vocabulary"]), int(state["length"]))


def cut_texts(
    train: list[str],
    val: list[str] | None,
    test: list[str] | None,
    config: Hub,
    fold: tuple[int, int] | None = None,
) -> dict[str, list[str]]:
    """Texts stay in their order: a split that is missing is cut off the end of the training text.

    With a `fold` that stretch of all but the test is the validation, and what is around it trains.
    """
    # One long text is cut between its characters, several between rows.
    whole: Sequence[str] = train[0] if len(train) == 1 else train
    vals = round(len(whole) * config.val) if val is None else 0
    tests = round(len(whole) * config.test) if test is None else 0
    kept, last = len(whole) - vals - tests, len(whole) - tests
    after = last
    if fold is not None:
        stretch = cut_fold(torch.arange(last), fold)[1]
        kept, after = int(stretch[0]), int(stretch[-1]) + 1
        vals = after - kept
    pieces = (whole[:kept], whole[kept : kept + vals], whole[last:], whole[after:last])
    cut = [([p] if p else []) if isinstance(p, str) else list(p) for p in pieces]
    return {
        "train": cut[0] + cut[3],
        "val": cut[1] if val is None else val,
        "test": cut[2] if test is None else test,
    }


def join_lines(rows: Sequence[str]) -> str:
    """Rows with a line break between each two."""
    last = len(rows) - 1
    return "".join(r if i == last or r.endswith("\n") else r + "\n" for i, r in enumerate(rows))


def _samples(
    rows: Sequence[str], vocabulary: Vocabulary, length: int, limit: int | None, split: str
) -> Samples:
    stream = symbol_stream(rows, vocabulary)
    if limit is not None:
        stream = stream[: limit * length + 1]
    inputs, target = chunks(stream, length)
    if not len(inputs):
        raise mistake(
            f"the {split} text has {len(stream)} symbols",
            f"more than one sample's length, {length}",
            "take a smaller length" + ("" if split == "train" else f", or {split}: 0"),
        )
    return Samples((inputs,), target)


def symbol_stream(rows: Sequence[str], vocabulary: Vocabulary) -> list[int]:
    """The symbols of all rows, one after the other."""
    end = [vocabulary.symbols.index(END)] if END in vocabulary.symbols else []
    return [number for row in vocabulary.encode(rows) for number in (*row, *end)]
