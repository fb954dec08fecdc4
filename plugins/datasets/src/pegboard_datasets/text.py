"""Text -> numbers of symbols: characters, words, or pieces found by a trained tokenizer."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Protocol

import numpy
import torch
from pegboard import Sequences
from torch import Tensor

from .hub_options import BEGIN, CLASS, END, PAD, PADDING, SEPARATOR, UNKNOWN, Symbols
from .mistakes import mistake

TRAINED_VOCAB = 8192
MARKS = frozenset({PAD, BEGIN, END, CLASS, SEPARATOR})  # symbols that are no text
WORD = re.compile(r"\w+|[^\w\s]")

SPLIT: dict[str, Callable[[str], Iterable[str]]] = {
    "words": WORD.findall,
    "whitespace": str.split,
    "characters": list,
}
PIECE = {"words": WORD, "whitespace": re.compile(r"\S+"), "characters": re.compile(r".", re.DOTALL)}

Places = list[tuple[int, int]]  # of each symbol, its first character in a text and the one after its last


class Vocabulary(Protocol):
    """Symbols, each with a number, and the way from text to numbers and back."""

    tokens: str  # what a symbol is
    lowercase: bool

    @property
    def symbols(self) -> tuple[str, ...]:
        """The symbols in the order of their numbers."""
        ...

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The numbers of the symbols of each text."""
        ...

    def decode(self, numbers: Sequence[int]) -> str:
        """The text of these numbers, as far as the symbols keep it."""
        ...

    def places(self, texts: Sequence[str]) -> list[Places]:
        """Where the symbols of each text stand in it."""
        ...


class _Numbers(dict[str, int]):
    """The number of each symbol; that of the unknown one, where there is one, for any other."""

    def __missing__(self, symbol: str) -> int:
        if UNKNOWN not in self:
            raise KeyError(symbol)
        return self[UNKNOWN]


class SplitVocabulary:
    """Symbols found by a rule: characters or words."""

    def __init__(self, symbols: Sequence[str], tokens: str, lowercase: bool = False) -> None:
        self.symbols, self.tokens, self.lowercase = tuple(symbols), tokens, lowercase
        self._numbers = _Numbers((symbol, number) for number, symbol in enumerate(self.symbols))

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        split, number = SPLIT[self.tokens], self._numbers.__getitem__
        encoded = []
        for text in texts:
            symbols = split(text.lower() if self.lowercase else text)
            try:
                encoded.append(list(map(number, symbols)))
            except KeyError as error:
                raise mistake(
                    f"the symbol {error.args[0]!r} is not in the vocabulary",
                    f"one of the {len(self.symbols)} symbols of the training text",
                    "give the column unknown: true",
                ) from None
        return encoded

    def decode(self, numbers: Sequence[int]) -> str:
        return ("" if self.tokens == "characters" else " ").join(
            self.symbols[n] for n in numbers if self.symbols[n] not in MARKS
        )

    def places(self, texts: Sequence[str]) -> list[Places]:
        read = [t.lower() for t in texts] if self.lowercase else texts
        pieces = ([found.span() for found in PIECE[self.tokens].finditer(text)] for text in read)
        return [_unlowered(*row) for row in zip(texts, pieces, read, strict=True)]


class TrainedVocabulary:
    """Pieces of words found by a tokenizer that was trained on the text, given in its own JSON."""

    def __init__(self, text: str, tokens: str, lowercase: bool = False) -> None:
        from tokenizers import Tokenizer

        self.text, self.tokens, self.lowercase = text, tokens, lowercase
        self.tokenizer = Tokenizer.from_str(text)  # not the one that was trained, so that all read alike
        known = self.tokenizer.get_vocab(with_added_tokens=True)
        self.symbols = tuple(sorted(known, key=known.__getitem__))

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        texts = [t.lower() for t in texts] if self.lowercase else list(texts)
        return [e.ids for e in self.tokenizer.encode_batch(texts, add_special_tokens=False)]

    def decode(self, numbers: Sequence[int]) -> str:
        return str(self.tokenizer.decode(list(numbers), skip_special_tokens=True))

    def places(self, texts: Sequence[str]) -> list[Places]:
        read = [t.lower() for t in texts] if self.lowercase else list(texts)
        found = self.tokenizer.encode_batch(read, add_special_tokens=False)
        pieces = ([_trimmed(text, *at) for at in e.offsets] for text, e in zip(read, found, strict=True))
        return [_unlowered(*row) for row in zip(texts, pieces, read, strict=True)]


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    """Without the blank before a word, which some tokenizers take for a part of it."""
    while start < end - 1 and text[start].isspace():
        start += 1
    return start, end


def _unlowered(text: str, places: Places, read: str) -> Places:
    """The same places in the text as it was before it was put in lower case."""
    if len(read) == len(text):
        return places
    # A few capitals become two characters.
    ends = list(accumulate(len(character.lower()) for character in text))
    back = [i for i, end in enumerate(ends) for _ in range(end - (ends[i - 1] if i else 0))]
    return [(back[start], back[end - 1] + 1) for start, end in places]


class _Lower:
    """Texts in lower case, as often as they are gone through."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = texts

    def __iter__(self) -> Iterator[str]:
        return map(str.lower, self._texts)


def fit_vocabulary(
    texts: Iterable[str],
    tokens: Symbols = "words",
    vocab: int | None = None,
    *,
    lowercase: bool = False,
    special: Sequence[str] = (PAD, UNKNOWN),
) -> Vocabulary:
    """A vocabulary of these texts: special symbols first, then characters in order of their code
    point, or words from the most frequent on; with `vocab` only so many in all. The texts may be
    gone through twice, and are never all held."""
    if tokens not in SPLIT:
        from .tokenizing import train_tokenizer

        lowered = _Lower(texts) if lowercase else texts
        tokenizer = train_tokenizer(lowered, tokens, vocab or TRAINED_VOCAB, special)
        return TrainedVocabulary(tokenizer.to_str(pretty=True), tokens, lowercase)
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(SPLIT[tokens](text.lower() if lowercase else text))
    room = None if vocab is None else max(vocab - len(special), 0)
    ranked = sorted(counts.keys() - set(special), key=lambda s: (-counts[s], s))[:room]
    return SplitVocabulary(
        [*special, *(sorted(ranked) if tokens == "characters" else ranked)], tokens, lowercase
    )


def written(symbols: Tensor, vocabulary: Vocabulary, end: int = -1) -> list[str]:
    """The text of each row of numbers (rows, length), up to its end."""
    rows = [row[: row.index(end)] if end in row else row for row in symbols.tolist()]
    return [vocabulary.decode(row) for row in rows]


def pad(encoded: Sequence[Sequence[int]], length: int) -> Tensor:
    """The first `length` numbers of each text, filled up with the padding: int64 (texts, length)."""
    padded = numpy.full((len(encoded), length), PADDING, dtype=numpy.int64)
    for row, symbols in zip(padded, encoded, strict=True):
        kept = symbols[:length]
        row[: len(kept)] = kept
    return torch.from_numpy(padded)


def join(encoded: Sequence[Sequence[int]], length: int) -> Sequences:
    """The first `length` numbers of each text."""
    return Sequences.join([row[:length] for row in encoded], PADDING)


def chunks(stream: Sequence[int], length: int) -> tuple[Tensor, Tensor]:
    """Neighbouring pieces of a stream, and the same shifted by one: two int64 tensors (n, length)."""
    numbers = torch.tensor(stream, dtype=torch.int64)
    count = max(len(numbers) - 1, 0) // length
    end = count * length
    return numbers[:end].reshape(count, length), numbers[1 : end + 1].reshape(count, length)
