"""Text whose every symbol is predicted from those before it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pegboard import DataSpec, Splits, Tokens, cut_fold
from torch import Tensor

from .assembly import Samples, make_splits
from .encoders import category_text, strings, vocabulary_notes
from .hub_options import Hub, columns_of
from .loading import Loaded
from .mistakes import mistake
from .reading import Columns, column
from .rows import Rows
from .text import END, Vocabulary, chunks, fit_vocabulary


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
    texts = _cut_texts(
        strings(train, name),
        None if val is None else strings(val, name),
        None if test is None else strings(test, name),
        config,
        fold,
    )
    if options.tokens == "characters":
        texts = {split: [join_lines(rows)] if rows else [] for split, rows in texts.items()}
    vocabulary = fit_vocabulary(
        texts["train"],
        options.tokens,
        options.vocab,
        lowercase=options.lowercase,
        pad=False,
        unknown=options.unknown,
        end=options.tokens != "characters",
    )
    samples = {}
    for split, rows in texts.items():
        limit = config.limit if split == "train" else config.eval_limit
        samples[split] = _samples(rows, vocabulary, length, limit, split) if rows else None

    def encode(table: Columns) -> tuple[Tensor, ...]:
        return (_prompts([category_text(v) for v in column(table, name)], vocabulary, length),)

    tokens = Tokens(len(vocabulary.symbols), length, -1)
    return make_splits(
        DataSpec((tokens,), tokens, (name,)),
        samples,
        encode=encode,
        columns=(name,),
        notes={
            "source": loaded.source,
            "licence": loaded.licence,
            "statistics": {name: {"length": length, **vocabulary_notes(options.tokens, vocabulary)}},
        },
    )


def _cut_texts(
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


def _prompts(texts: Sequence[str], vocabulary: Vocabulary, length: int) -> Tensor:
    encoded = [row[-length:] for row in vocabulary.encode(texts)]
    sizes = sorted({len(row) for row in encoded})
    if len(sizes) > 1 or sizes == [0]:
        raise mistake(
            f"texts of {', '.join(map(str, sizes))} symbols",
            f"texts of one length, or all of at least {length} symbols, of which the last are read",
        )
    return torch.tensor(encoded, dtype=torch.int64)
