"""Tokenizers of the `tokenizers` library, trained on a text: the same pieces on every run.

The library's trainers go through the words in the order of a hash map that differs from process to
process. BPE over bytes is safe from it, WordPiece is made so here, and unigram has its own trainer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from .hub_options import UNKNOWN
from .mistakes import mistake
from .unigram import train_unigram

PREFIX = "##"  # of a WordPiece piece that continues a word


def train_tokenizer(texts: Iterable[str], tokens: str, vocab: int, special: Sequence[str]) -> Tokenizer:
    """A tokenizer of at most `vocab` symbols, the special ones first."""
    train = {"bpe": _bpe, "wordpiece": _wordpiece, "unigram": _unigram}[tokens]
    tokenizer = train(texts, vocab, list(special))
    size = tokenizer.get_vocab_size()
    if size > vocab:
        raise mistake(
            f"vocab {vocab} cannot hold the characters of the text", f"at least {size} for {tokens}"
        )
    return tokenizer


def _bpe(texts: Iterable[str], vocab: int, special: list[str]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=[s for s in special if s != UNKNOWN],  # every byte is known
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def _wordpiece(texts: Iterable[str], vocab: int, special: list[str]) -> Tokenizer:
    split = pre_tokenizers.BertPreTokenizer()
    inside = sorted({letter for word in _words(texts, split) for letter in word[1:]})
    learner = Tokenizer(models.WordPiece(unk_token=UNKNOWN))
    learner.pre_tokenizer = split
    # Numbered as if they were special, letters inside words get the same numbers on every run,
    # and with them all that is decided by numbers among pieces equally frequent.
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab,
        special_tokens=special + [PREFIX + letter for letter in inside],
        continuing_subword_prefix=PREFIX,
        show_progress=False,
    )
    learner.train_from_iterator(texts, trainer)
    # A fresh one, in which only the special symbols are special.
    tokenizer = Tokenizer(models.WordPiece(vocab=learner.get_vocab(), unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = split
    tokenizer.decoder = decoders.WordPiece(prefix=PREFIX)
    tokenizer.add_special_tokens(special)
    return tokenizer


def _unigram(texts: Iterable[str], vocab: int, special: list[str]) -> Tokenizer:
    split = pre_tokenizers.Metaspace()
    pieces = train_unigram(_words(texts, split), vocab - len(special))
    scored = [(symbol, 0.0) for symbol in special] + pieces
    tokenizer = Tokenizer(models.Unigram(scored, unk_id=special.index(UNKNOWN)))
    tokenizer.pre_tokenizer = split
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens(special)
    return tokenizer


def _words(texts: Iterable[str], split: pre_tokenizers.PreTokenizer) -> Counter[str]:
    words: Counter[str] = Counter()
    for text in texts:
        words.update(word for word, _ in split.pre_tokenize_str(text))
    return words
