"""A plugin with texts of different lengths and a model that reads them, for tests of batches of sequences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pegboard import Batch, Classes, Context, Dataset, DataSpec, Model, Splits, Tokens, hookimpl

VOCAB, LONGEST, PADDING = 50, 60, 0


@dataclass(frozen=True)
class Worded:
    """Texts of which half the symbols tell the class."""

    count: int = 500  # training samples
    streamed: bool = False  # whether they are read batch by batch


def texts(count: int, seed: int) -> tuple[list[list[int]], list[int]]:
    """Lists of 1 to LONGEST symbols, mostly short, and their classes."""
    import random

    draw = random.Random(seed)
    rows, classes = [], []
    for _ in range(count):
        kind = draw.randrange(2)
        length = min(1 + int(draw.expovariate(1 / 12)), LONGEST)
        rows.append([draw.choice((draw.randrange(1, VOCAB), 1 + kind)) for _ in range(length)])
        classes.append(kind)
    return rows, classes


class Read:
    """Reads texts, padded to the longest that was asked for."""

    def __init__(self, count: int, seed: int) -> None:
        self.count, self.seed = count, seed

    def __call__(self, rows: list[int]) -> Batch:
        import torch

        found, classes = texts(self.count, self.seed)
        longest = max(len(found[row]) for row in rows)
        padded = [found[row] + [PADDING] * (longest - len(found[row])) for row in rows]
        return Batch((torch.tensor(padded),), torch.tensor([classes[row] for row in rows]))


def build(config: Worded, context: Context) -> Splits:
    import torch
    from pegboard import Ragged, Sequences, Stream

    def split(count: int, seed: int) -> Any:
        rows, classes = texts(count, seed)
        if config.streamed:
            return Stream(Read(count, seed), count, lengths=torch.tensor([len(row) for row in rows]))
        return Ragged([Sequences.join(rows, PADDING)], torch.tensor(classes))

    spec = DataSpec((Tokens(VOCAB, LONGEST, PADDING),), Classes(2, ("left", "right")), ("text",))
    return Splits(spec=spec, train=split(config.count, 1), val=split(70, 2), notes={"source": "made"})


@dataclass(frozen=True)
class Bag:
    """The mean of the embeddings of all symbols that are no padding, then a linear map."""

    width: int = 6  # of an embedding


def build_bag(config: Bag, context: Context) -> Any:
    from torch import Tensor, nn

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(VOCAB, config.width)
            self.head = nn.Linear(config.width, 2)

        def forward(self, tokens: Tensor) -> Tensor:
            there = (tokens != PADDING).unsqueeze(-1)
            total = (self.embedding(tokens) * there).sum(1)
            return self.head(total / there.sum(1).clamp(min=1))  # type: ignore[no-any-return]

    return Network()


@hookimpl
def pegboard_datasets() -> list[Dataset[Any]]:
    return [Dataset("worded", Worded, build)]


@hookimpl
def pegboard_models() -> list[Model[Any]]:
    return [Model("bag", Bag, build_bag, inputs=(Tokens,))]
