"""Splits of marked texts: classes of sentences and of pairs of them, tags of words, answers in a text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import torch
from pegboard import DataSpec, Sequences, Spec, Splits, Tokens
from torch import Tensor

from .assembly import Samples, make_splits
from .categories import by_number, strings
from .encoders import Texts
from .hub_options import (
    CLASS,
    PAD,
    SEPARATOR,
    Hub,
    columns_of,
    special_symbols,
    target_columns,
    target_of,
)
from .loading import Loaded
from .marked import MarkedForm, WordTexts, marks_of, word_lists, word_pieces
from .masking import UNASKED
from .mistakes import mistake
from .rows import PIECE, Rows
from .saved import given_vocabulary
from .spans import answers, token_span
from .targets import TargetEncoder
from .text import Vocabulary, fit_vocabulary

NONE = (0, 0)  # the answer that a text does not have: its first mark


def sentence_splits(
    config: Hub, loaded: Loaded, chosen: Mapping[str, Rows | None], target: TargetEncoder | None = None
) -> Splits:
    """Splits of one or two columns of text as one input; without a `target`, of tags or answers in it."""
    kind, samples = target_of(config).kind, dict[str, Samples | None]()
    there = {split: rows for split, rows in chosen.items() if rows is not None}
    vocabulary = _vocabulary(config, there["train"], words=kind == "tags")
    warnings: tuple[str, ...] = ()
    if kind == "tags":
        tags = tag_names(list(there.values()), target_columns(target_of(config))[0])
        read = {split: _tagged(config, rows, vocabulary, tags) for split, rows in there.items()}
        form = _form(config, vocabulary, [read["train"][0]], words=True, tags=tags)
        samples = {split: _tag_samples(form, *found) for split, found in read.items()}
        spec: Spec = Tokens(len(tags), form.length)
        extra: dict[str, Any] = {"tags": list(tags)}
        warnings = _unseen(tags, {split: found[1] for split, found in read.items()})
    else:
        texts = {split: _texts(config, rows, vocabulary) for split, rows in there.items()}
        form = _form(config, vocabulary, texts["train"])
        if target is None:
            samples, extra = _span_samples(config, form, there, texts)
            from pegboard_transformer import Span

            spec = Span(form.length)
        else:
            samples = {s: Samples(form.inputs(*texts[s]), target.rows(rows)) for s, rows in there.items()}
            spec, extra = target.spec, {"target": target.notes()}
    names = ("+".join(form.columns), "segments")[: len(form.specs)]
    return make_splits(
        DataSpec(form.specs, spec, names),
        samples,
        **form.fields(),
        warnings=warnings,
        notes={
            "source": loaded.source,
            "licence": loaded.licence,
            "statistics": {**form.notes(), **extra},
        },
    )


def _vocabulary(config: Hub, train: Rows, words: bool) -> Vocabulary:
    columns = columns_of(config)
    options = next(iter(columns.values()))
    needed = (PAD, CLASS, SEPARATOR) if config.marked else (PAD,)
    texts = WordTexts(train, *columns) if words else Texts(train, *columns)
    return given_vocabulary(config, *needed) or fit_vocabulary(
        texts, options.tokens, options.vocab,
        lowercase=options.lowercase, special=special_symbols(config, options),
    )  # fmt: skip


def _form(
    config: Hub, vocabulary: Vocabulary, train: Sequence[Sequence[Sequence[int]]], **more: Any
) -> MarkedForm:
    """The form whose lengths are those of the config, or of the longest training texts."""
    lengths = []
    for place, (options, rows) in enumerate(zip(columns_of(config).values(), train, strict=True)):
        marks = marks_of(place) if config.marked else 0
        lengths.append(options.length or max([1, *map(len, rows)]) + marks)
    columns = list(columns_of(config))
    return MarkedForm(columns, vocabulary, lengths, marked=config.marked, segments=len(columns) == 2, **more)


def _texts(config: Hub, rows: Rows, vocabulary: Vocabulary) -> list[list[list[int]]]:
    return [vocabulary.encode(strings(rows, name)) for name in columns_of(config)]


def tag_names(splits: Sequence[Rows], name: str) -> tuple[str, ...]:
    """The classes of a column of lists of them, as its type names them or sorted as numbers or texts."""
    named = splits[0].class_names(name)
    if named is not None:
        return tuple(named)
    pieces = chain.from_iterable(rows.pieces(PIECE) for rows in splits)
    found = {tag for piece in pieces for row in word_lists(piece, name) for tag in row}
    return tuple(sorted(found, key=by_number))


def _tagged(
    config: Hub, rows: Rows, vocabulary: Vocabulary, tags: tuple[str, ...]
) -> tuple[list[list[int]], list[list[int]]]:
    """The symbols of the words of each row, and a label for each: that of the word at its first symbol."""
    [words], [name] = columns_of(config), target_columns(target_of(config))
    numbers = _tag_numbers(rows, name, tags)
    lists = word_lists(rows, words)
    for row, (spoken, labels) in enumerate(zip(lists, numbers, strict=True)):
        if len(spoken) != len(labels):
            raise mistake(
                f"{rows.where(row)}: {len(spoken)} words in {words!r} and {len(labels)} tags in {name!r}",
                "a tag for every word",
            )
    symbols, labels_of = [], []
    for pieces, labels in zip(word_pieces(vocabulary, lists), numbers, strict=True):
        symbols.append(list(chain.from_iterable(pieces)))
        marks = ([label, *[UNASKED] * (len(p) - 1)] for p, label in zip(pieces, labels, strict=True) if p)
        labels_of.append(list(chain.from_iterable(marks)))
    return symbols, labels_of


def _tag_numbers(rows: Rows, name: str, tags: tuple[str, ...]) -> list[list[int]]:
    if rows.class_names(name) is not None:
        return rows.values(name)
    number = {tag: i for i, tag in enumerate(tags)}
    return [[number[tag] for tag in row] for row in word_lists(rows, name)]


def _unseen(tags: tuple[str, ...], labels: Mapping[str, list[list[int]]]) -> tuple[str, ...]:
    """What to say of tags that words of val or test have and none of training."""
    counts = {split: Counter(chain.from_iterable(rows)) for split, rows in labels.items()}
    others = [split for split in counts if split != "train"]
    found = [
        f"{tag!r} ({', '.join(f'{counts[split][n]} of {split}' for split in others if counts[split][n])})"
        for n, tag in enumerate(tags)
        if n not in counts["train"] and any(counts[split][n] for split in others)
    ]
    if not found:
        return ()
    many = f"{len(found)} tags" if len(found) > 1 else "1 tag"
    more = f" and {len(found) - 10} more" if len(found) > 10 else ""
    return (f"{many} of no training word, which no model can learn: {', '.join(found[:10])}{more}",)


def _tag_samples(form: MarkedForm, symbols: list[list[int]], labels: list[list[int]]) -> Samples:
    edge = [UNASKED] if form.marked else []
    cut = [[*edge, *row[: form.room(0)], *edge] for row in labels]
    return Samples(form.inputs(symbols), Sequences.join(cut, UNASKED))


def _span_samples(
    config: Hub,
    form: MarkedForm,
    there: Mapping[str, Rows],
    texts: Mapping[str, list[list[list[int]]]],
) -> tuple[dict[str, Samples | None], dict[str, Any]]:
    """Samples whose target is where an answer stands in the last text, and how many answers were cut off."""
    samples: dict[str, Samples | None] = {}
    lost = {}
    for split, rows in there.items():
        spans = _spans(config, form, rows, texts[split])
        kept = torch.tensor([span is not None for span in spans], dtype=torch.bool)
        dropped = split == "train" and target_of(config).overlong == "drop"
        lost[split] = {"dropped" if dropped else "cut": int((~kept).sum())}
        found = [NONE if span is None else span for span in spans]
        columns = texts[split]
        if dropped:
            chosen = kept.nonzero()[:, 0].tolist()
            if not chosen:
                raise mistake("every training answer is cut off", "longer texts", "take a larger length")
            found, columns = [found[i] for i in chosen], [[c[i] for i in chosen] for c in columns]
        samples[split] = Samples(form.inputs(*columns), _pairs(found))
    return samples, {"answers": lost}


def _pairs(found: Sequence[tuple[int, int]]) -> Tensor:
    return torch.tensor(found, dtype=torch.int64).reshape(len(found), 2)


def _spans(
    config: Hub, form: MarkedForm, rows: Rows, texts: Sequence[Sequence[Sequence[int]]]
) -> list[tuple[int, int] | None]:
    """For each row the first and last place of its answer, None where it was cut off."""
    name, last = form.columns[-1], len(form.columns) - 1
    contexts = strings(rows, name)
    spans: list[tuple[int, int] | None] = []
    asked = answers(rows, target_columns(target_of(config)), contexts, name)
    for row, (answer, places) in enumerate(zip(asked, form.vocabulary.places(contexts), strict=True)):
        if answer is None:
            spans.append(NONE)
            continue
        found = token_span(places, answer)
        if found is None:
            raise mistake(f"{rows.where(row)}: the answer has no symbol in {name!r}", "a stretch of the text")
        begin = 1 if last == 0 else min(len(texts[0][row]), form.room(0)) + marks_of(0)
        first, final = found
        spans.append(None if final >= form.room(last) else (begin + first, begin + final))
    return spans
