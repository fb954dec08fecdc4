"""Pairs of texts of which one is the other, in order or reversed."""

from __future__ import annotations

from dataclasses import replace
from string import ascii_lowercase

import torch
from pegboard import Codec, Context, Splits
from torch import Generator, Tensor

from .assembly import Samples, cut_samples, make_splits
from .copying_options import BEGIN, END, MARKS, PADDING, Copying, copying_spec
from .made_splits import MADE, sample_stream
from .mistakes import mistake
from .reading import Columns, column


def copies(
    samples: int, symbols: int, length: int, shortest: int, reverse: bool = False, *, generator: Generator
) -> tuple[Tensor, Tensor]:
    """Texts (samples, length) of 3 to 2 + `symbols`, padded with 0, and their copies (samples, 1 + length).

    Every length from `shortest` on is as likely as any other, and every text of it. A copy has the symbol
    that ends it, 2, behind its last.
    """
    source = torch.randint(MARKS, MARKS + symbols, (samples, length), generator=generator)
    sizes = torch.randint(shortest, length + 1, (samples, 1), generator=generator)
    place = torch.arange(length + 1)
    source = source.masked_fill(place[:length] >= sizes, PADDING)
    read = (sizes - 1 - place if reverse else place.expand(samples, -1)).clamp(0, length - 1)
    copy = source.gather(1, read).masked_fill(place > sizes, PADDING)
    return source, copy.masked_fill(place == sizes, END)


def build(config: Copying, context: Context) -> Splits:
    """The pairs as splits; what is read second is the copy a step later, behind the symbol that begins."""
    shortest = config.length if config.shortest is None else config.shortest
    stream = sample_stream(config, context, "copying")
    source, copy = copies(
        config.samples, config.symbols, config.length, shortest, config.reverse, generator=stream
    )
    shifted = copy.roll(1, 1).masked_fill(copy.roll(1, 1) == END, PADDING)
    shifted[:, 0] = BEGIN
    spec, known = copying_spec(config), codec(config)
    decode = known.decode
    assert decode is not None
    parts = cut_samples(copy, spec, config, context.fold)

    def samples(index: Tensor | None) -> Samples | None:
        return None if index is None else Samples((source[index], shifted[index]), copy[index])

    splits = make_splits(
        spec,
        {"train": samples(parts.train), "val": samples(parts.val), "test": samples(parts.test)},
        encode=known.encode,
        columns=known.columns,
        notes=MADE._asdict(),
        decode=decode,
    )
    return replace(splits, decode_input=lambda number, symbols: decode(symbols))


def words(symbols: int) -> list[str]:
    """A word for every symbol that is not a mark: letters where they suffice, else numbers."""
    return list(ascii_lowercase[:symbols]) if symbols <= 26 else [str(n) for n in range(1, symbols + 1)]


def codec(config: Copying) -> Codec:
    """Texts as words with blanks between them."""
    known = words(config.symbols)
    number = {word: MARKS + place for place, word in enumerate(known)}

    def encode(table: Columns) -> tuple[Tensor, ...]:
        rows = [str(text).split() for text in column(table, "source")]
        for place, row in enumerate(rows):
            if wrong := [word for word in row if word not in number]:
                raise mistake(
                    f"column 'source', row {place} (0 is the first): {wrong[0]!r}",
                    f"words of {known[0]} to {known[-1]}, with blanks between them",
                )
            if not 0 < len(row) <= config.length:
                raise mistake(
                    f"column 'source', row {place} (0 is the first): {len(row)} words",
                    f"1 to {config.length}",
                )
        filled = [[number[w] for w in row] + [PADDING] * (config.length - len(row)) for row in rows]
        source = torch.tensor(filled, dtype=torch.int64).reshape(len(rows), config.length)
        return source, torch.full((len(rows), 1), BEGIN)

    def decode(symbols: Tensor) -> list[str]:
        texts = []
        for row in symbols.tolist():
            ended = row[: row.index(END)] if END in row else row
            texts.append(" ".join(known[s - MARKS] for s in ended if s >= MARKS))
        return texts

    return Codec(encode, ("source",), decode)
