"""A local plugin of the tests: small languages of twenty words, one for each head of bert."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from pegboard import Classes, Context, Dataset, DataSpec, Resident, Splits, Tokens, hookimpl
from pegboard_datasets.masking import mask_tokens, pair_sentences
from pegboard_transformer import Masked, Span
from torch import Tensor

PADDING, BEGIN, END, MASK, FIRST, VOCAB = 0, 1, 2, 3, 4, 24  # words are 4 to 23
LENGTH = 12
TEXT, SIDES = Tokens(VOCAB, LENGTH, PADDING, BEGIN, END), Tokens(2, LENGTH)
TARGETS = {
    "pairs": Masked(VOCAB, LENGTH),
    "hidden": Masked(VOCAB, LENGTH),
    "sentiment": Classes(2),
    "tags": Tokens(3, LENGTH),
    "answers": Span(LENGTH),
}
Task = Literal["pairs", "hidden", "sentiment", "tags", "answers"]


@dataclass(frozen=True)
class Toy:
    """Texts in which a word is followed by the next one, or by any."""

    task: Task = "hidden"  # what is asked of them
    samples: int = 3200  # for training; a quarter as many again for testing


def joined(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """Begin, the words of `first`, end, those of `second`, end, padding; and the sentence of each place."""
    rows, one, two = len(first), first.shape[1], second.shape[1]
    mark = torch.full((rows, 1), END)
    text = torch.cat((torch.full((rows, 1), BEGIN), first, mark, second, mark), 1)
    text = torch.nn.functional.pad(text, (0, LENGTH - text.shape[1]), value=PADDING)
    places = torch.arange(LENGTH)
    side = ((places >= one + 2) & (places < one + two + 3)).long().expand(rows, -1)
    return text, side.contiguous()


def successors(count: int, words: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Pairs of sentences of so many words, in which each word follows the one before; and whether they do."""
    start = torch.arange(count + 1) * words % 20
    first, second, follows = pair_sentences(torch.zeros_like(start), generator, start)
    sentence = FIRST + (start.unsqueeze(1) + torch.arange(words)) % 20
    return sentence[first], sentence[second], follows


def made(task: Task, count: int, generator: torch.Generator) -> tuple[list[Tensor], Tensor]:
    if task in ("pairs", "hidden"):
        *sentences, follows = successors(count, 1 if task == "pairs" else 3, generator)
        text, side = joined(*sentences)
        hidden = torch.full_like(text, -100)
        if task == "hidden":
            text, hidden = mask_tokens(text, (PADDING, BEGIN, END), MASK, VOCAB, generator)
        return [text, side], torch.cat((follows.unsqueeze(1), hidden), 1)
    if task == "answers":  # the question is a word, the answer the stretch of it in a text of others
        question = torch.randint(FIRST, VOCAB, (count, 1), generator=generator)
        start = torch.randint(0, 5, (count, 1), generator=generator)
        places = torch.arange(7)
        inside = (places >= start) & (places <= start + torch.randint(0, 3, (count, 1), generator=generator))
        other = question + torch.randint(1, 20, (count, 7), generator=generator)
        text, side = joined(question, torch.where(inside, question, FIRST + (other - FIRST) % 20))
        first = inside.long().argmax(1)
        return [text, side], torch.stack((first, first + inside.sum(1) - 1), 1) + 3
    words = torch.randint(FIRST, VOCAB, (count, 9), generator=generator)
    text, side = joined(words, words[:, :0])
    if task == "sentiment":  # whether most words are of the second half
        return [text, side], ((words >= FIRST + 10).sum(1) > 4).long()
    tags = torch.full_like(text, -100)  # of a word and the one before it
    tags[:, 1:10] = (text[:, 1:10] + (text[:, :9] >= FIRST + 10)) % 3
    return [text, side], tags


def build(config: Toy, context: Context) -> Splits:
    generator = torch.Generator().manual_seed(context.seed)
    train, test = (Resident(*made(config.task, n, generator)) for n in (config.samples, config.samples // 4))
    return Splits(spec=DataSpec((TEXT, SIDES), TARGETS[config.task]), train=train, test=test)


@hookimpl
def pegboard_datasets() -> list[Dataset[Toy]]:
    spec = {task: DataSpec((TEXT, SIDES), target) for task, target in TARGETS.items()}
    return [Dataset("toy", Toy, build, spec=lambda config: spec[config.task])]
