"""What a model of text is pretrained on: symbols hidden in it, and pairs of sentences that follow or do not.

Pure functions of their arguments: the same state of the generator gives the same answer.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

UNASKED = -100  # where no symbol is hidden; torch's losses leave it out
MASKED, REPLACED = 0.8, 0.1  # of the places that are asked; the rest stay as they are


def mask_tokens(
    tokens: Tensor,
    special: Sequence[int],
    mask: int,
    vocab: int,
    generator: torch.Generator,
    share: float = 0.15,
) -> tuple[Tensor, Tensor]:
    """Hide a share of the symbols: (inputs, hidden), both int64 and shaped as `tokens`.

    Every place whose symbol is not `special` (padding, begin, end and the like) is asked with chance `share`.
    There `hidden` has its symbol, and -100 elsewhere; of these places 8 in 10 show `mask`, 1 in 10 any symbol
    of the `vocab` that is not special, and 1 in 10 the symbol itself.
    """
    apart = torch.zeros(vocab, dtype=torch.bool)
    apart[[*special, mask]] = True
    ordinary = (~apart).nonzero().squeeze(1)
    if not len(ordinary):
        raise ValueError(f"all {vocab} symbols are special: found none that could be hidden")
    # One draw decides whether a place is asked, and what it shows.
    draw = torch.rand(tokens.shape, generator=generator, device=generator.device).to(tokens.device)
    other = torch.randint(len(ordinary), tokens.shape, generator=generator, device=generator.device)
    other = ordinary.to(tokens.device)[other.to(tokens.device)]
    asked = (draw < share) & ~apart.to(tokens.device)[tokens]
    shown = torch.where(draw < share * (MASKED + REPLACED), other, tokens)
    shown = torch.where(draw < share * MASKED, mask, shown)
    return torch.where(asked, shown, tokens), torch.where(asked, tokens, UNASKED)


def pair_sentences(
    documents: Tensor, generator: torch.Generator, contents: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Pairs of sentences by their numbers: (first, second, follows), each int64 (pairs,), by `first`.

    `documents` (sentences,) has the number of the document that each sentence is of, in the order in which
    they are read. Every sentence that another one follows in its document is the first of one pair. Half the
    pairs, drawn at random, have the sentence that follows (1); the others (0) any sentence that does not read
    as that one. `contents` (sentences,) has one number for all sentences that read alike; None: all differ.
    """
    sentences = len(documents)
    first = (documents[:-1] == documents[1:]).nonzero().squeeze(1)
    pairs = len(first)
    follows = (torch.randperm(pairs, generator=generator) < (pairs + 1) // 2).long()
    alike = torch.arange(sentences) if contents is None else contents
    ordered, order = alike.sort()
    successor = alike[first + 1].contiguous()
    begin, end = torch.searchsorted(ordered, successor), torch.searchsorted(ordered, successor, right=True)
    others = sentences - (end - begin)
    if bool(((others == 0) & (follows == 0)).any()):
        raise ValueError("all sentences read alike: found none that could stand for one that does not follow")
    # Among the sentences in order of their contents, those that read as the successor are skipped.
    draw = (torch.rand(pairs, generator=generator, dtype=torch.float64) * others).long()
    other = order[(draw + torch.where(draw < begin, 0, end - begin)).clamp(max=max(sentences - 1, 0))]
    return first, torch.where(follows == 1, first + 1, other), follows
