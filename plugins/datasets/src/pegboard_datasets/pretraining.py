"""Pairs of sentences with hidden symbols: hidden anew in every epoch of training, always alike elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pegboard import Batch, Context, DataSpec, Ragged, Resident, Sequences, Source, Splits
from pegboard_transformer import Masked
from torch import Tensor

from .assembly import fingerprint, join_splits
from .categories import strings
from .hub_options import (
    CLASS,
    MASK,
    PAD,
    PADDING,
    SEPARATOR,
    UNKNOWN,
    Hub,
    columns_of,
    special_symbols,
)
from .language import cut_texts
from .loading import Loaded
from .marked import MarkedForm
from .masking import UNASKED, mask_tokens, pair_sentences
from .mistakes import mistake
from .rows import Rows
from .saved import given_vocabulary
from .text import Vocabulary, fit_vocabulary

MARKS = 3  # of a pair: one in front, and one after each sentence


class Hidden(Source):
    """Samples of which a share of the symbols is hidden: `held` has texts, segments, and who follows whom.

    What is hidden is decided by the seed, the epoch and the sample, on whatever device and in whatever
    batch: at the beginning of an epoch all samples get theirs at once. Without `anew` every epoch is the
    first.
    """

    def __init__(
        self,
        held: Ragged,
        spec: DataSpec,
        marks: Sequence[int],
        seed: int,
        *,
        anew: bool,
        filled: bool = False,
    ) -> None:
        self.held, self.spec, self.marks, self.seed = held, spec, tuple(marks), seed
        self.anew, self.filled, self.device = anew, filled, held.device
        self.lengths = None if filled else held.lengths
        self._epoch = -1
        self._now: Ragged | Resident

    def __len__(self) -> int:
        return len(self.held)

    def begin(self, order: Sequence[Tensor], workers: int, epoch: int = 0) -> None:
        """Hide symbols for an epoch; whatever was hidden before is seen again."""
        epoch = epoch if self.anew else 0
        if epoch == self._epoch:
            return
        texts, segments = self.held.inputs
        assert isinstance(texts, Sequences) and isinstance(self.spec.target, Masked)
        assert self.spec.target.vocab is not None
        generator = Context(seed=self.seed, key="datasets").generator(f"hidden {epoch}", "cpu")
        *special, mask = self.marks
        shown, hidden = mask_tokens(texts.symbols, special, mask, self.spec.target.vocab, generator)
        found = Ragged(
            [Sequences(shown, texts.lengths, PADDING), segments],
            Sequences(hidden, texts.lengths, UNASKED),
            device=self.device,
        )
        self._now, self._epoch = found.padded(self.spec) if self.filled else found, epoch

    def gather(self, index: Tensor) -> Batch:
        if self._epoch < 0:
            self.begin((), 0)
        batch = self._now.gather(index.to(self.device) if self.filled else index)
        follows = self.held.target
        assert isinstance(follows, Tensor) and batch.rows is not None and batch.target is not None
        target = torch.cat([follows[batch.rows].unsqueeze(1), batch.target], 1)
        return batch._replace(target=target)

    def to(self, device: str) -> Hidden:
        return Hidden(
            self.held.to(device), self.spec, self.marks, self.seed, anew=self.anew, filled=self.filled
        )

    def padded(self, spec: DataSpec) -> Hidden:
        """The same samples, all as long as the spec says."""
        return Hidden(self.held, spec, self.marks, self.seed, anew=self.anew, filled=True)


def pretraining_splits(
    config: Hub,
    loaded: Loaded,
    rows: tuple[Rows, Rows | None, Rows | None],
    seed: int,
    fold: tuple[int, int] | None = None,
) -> Splits:
    """Pairs of sentences of which half follow each other, with hidden symbols.

    A row is a sentence, and a document ends where a row is empty; or a row is a list of sentences, and a
    document. A sentence with more symbols than half a sample has room for is cut into several.
    """
    [(name, options)] = columns_of(config).items()
    if options.length is None:
        raise mistake(f"inputs.{name} says no length", "symbols in a sample")
    train, val, test = (None if part is None else _sentences(part, name) for part in rows)
    assert train is not None
    texts = cut_texts(train, val, test, config, fold)
    vocabulary = given_vocabulary(config, PAD, CLASS, SEPARATOR, MASK) or fit_vocabulary(
        texts["train"],
        options.tokens,
        options.vocab,
        lowercase=options.lowercase,
        special=special_symbols(config, options),
    )
    symbols, length = vocabulary.symbols, options.length
    form = MarkedForm([name], vocabulary, [length], segments=True)
    spec = DataSpec(form.specs, Masked(len(symbols), length), (name, "segments"))
    held = {
        split: _pairs(found, vocabulary, length, split, config) for split, found in texts.items() if found
    }
    marks = [symbols.index(s) for s in (PAD, UNKNOWN, CLASS, SEPARATOR, MASK) if s in symbols]
    seeds = {split: seed if split == "train" else config.split_seed for split in held}
    return join_splits(
        spec,
        {s: Hidden(found, spec, marks, seeds[s], anew=s == "train") for s, found in held.items()},
        target=lambda: torch.zeros(0),
        **form.fields(),
        notes={
            "source": loaded.source,
            "licence": loaded.licence,
            "statistics": form.notes(),
            "fingerprint": fingerprint(held),
        },
    )


def _sentences(rows: Rows, name: str) -> list[str]:
    """The sentences of a column in their order, an empty one after every document."""
    if rows.type(name) == "list":
        return [text for row in rows.values(name) for text in (*map(str, row), "")]
    return strings(rows, name)


def _pairs(texts: Sequence[str], vocabulary: Vocabulary, length: int, split: str, config: Hub) -> Ragged:
    """Pairs of sentences with their marks and segments; the target says whether they follow each other."""
    half = (length - MARKS) // 2
    sentences, documents = _cut(vocabulary.encode([text.strip() for text in texts]), half)
    limit = config.limit if split == "train" else config.eval_limit
    followed = (documents[:-1] == documents[1:]).nonzero()[:, 0]
    if limit is not None and len(followed) > limit:
        last = int(followed[limit - 1]) + 2
        sentences, documents = sentences[:last], documents[:last]
    seen: dict[tuple[int, ...], int] = {}
    contents = torch.tensor([seen.setdefault(tuple(s), len(seen)) for s in sentences], dtype=torch.int64)
    if not len(followed) or len(seen) < 2:
        raise mistake(
            f"the {split} text has {len(sentences)} sentences, of which {len(followed)} have another after "
            f"them, and {len(seen)} that differ",
            "rows of sentences that follow each other, an empty row after each document",
            "" if split == "train" else f"take more of it, or {split}: 0",
        )
    generator = Context(seed=config.split_seed, key="datasets").generator(f"pairs {split}", "cpu")
    first, second, follows = pair_sentences(documents, generator, contents)
    # The columns are one here: a pair has room for half a sample of each.
    form = MarkedForm(("", ""), vocabulary, (half + 2, length - half - 2), segments=True)
    return Ragged(form.inputs(*([sentences[i] for i in part.tolist()] for part in (first, second))), follows)


def _cut(encoded: Sequence[Sequence[int]], most: int) -> tuple[list[Sequence[int]], Tensor]:
    """Sentences of at most so many symbols, and the number of the document that each is of."""
    sentences: list[Sequence[int]] = []
    documents: list[int] = []
    document = 0
    for row in encoded:
        document += not row
        pieces = [row[at : at + most] for at in range(0, len(row), most)]
        sentences += pieces
        documents += [document] * len(pieces)
    return sentences, torch.tensor(documents, dtype=torch.int64)
