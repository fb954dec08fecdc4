"""What is trained: a row of `WORKLOADS` is a network, its data, batch size and number of epochs.

A new workload is a function for the data, one for the network and a row.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

import cora
import networks
import torch
from torch import Tensor, nn
from torch.nn import functional

LENGTH = 32  # of a piece of text
WORDS = "the a small old quiet red cat dog bird river house sees hears finds keeps leaves near and".split()
LETTERS = sorted({*" .", *"".join(WORDS)})


@dataclass(frozen=True)
class Workload:
    """One row: everything a framework is given."""

    title: str
    data: Callable[[], tuple[Tensor, Tensor]]  # inputs and classes, in memory
    network: Callable[[], nn.Module]
    rows: int  # samples, a multiple of the batch, so that no framework meets a smaller one
    batch: int
    epochs: int  # of one turn; the first and the last are not timed
    classes: int = 10
    lr: float = 1e-3  # of Adam
    criterion: Callable[[Tensor, Tensor], Tensor] = functional.cross_entropy
    # The model of Pegboard's config; {} gives it the network itself, from a local plugin.
    model: Mapping[str, Any] = field(default_factory=dict)

    @property
    def steps_per_epoch(self) -> int:
        return self.rows // self.batch

    @property
    def steps(self) -> int:
        """Updates of one turn."""
        return self.steps_per_epoch * self.epochs

    def loss(self, model: nn.Module, rows: int = 512) -> float:
        """The loss on some of the training data, to see that a framework really trained."""
        x, y = self.data()
        with torch.no_grad():
            return self.criterion(model(x[:rows]), y[:rows]).item()


def per_token(output: Tensor, target: Tensor) -> Tensor:
    """The mean over all places: output (batch, length, vocab), target (batch, length)."""
    return functional.cross_entropy(output.flatten(0, 1), target.flatten())


@lru_cache
def digits() -> tuple[Tensor, Tensor]:
    """Pictures of digits, 8x8, flat: (rows, 64)."""
    from sklearn.datasets import load_digits  # type: ignore[import-untyped]

    bunch = load_digits()
    order = torch.randperm(len(bunch.target), generator=torch.Generator().manual_seed(0))[:1408]
    return torch.from_numpy(bunch.data).float()[order] / 16, torch.from_numpy(bunch.target).long()[order]


@lru_cache
def large_digits() -> tuple[Tensor, Tensor]:
    """The same digits, enlarged: (rows, 1, 28, 28)."""
    x, y = digits()
    return functional.interpolate(x.view(-1, 1, 8, 8), (28, 28), mode="bilinear"), y


@lru_cache
def lines_of_digits() -> tuple[Tensor, Tensor]:
    """The enlarged digits, read line by line: (rows, 28, 28)."""
    x, y = large_digits()
    return x.squeeze(1), y


@lru_cache
def letters() -> tuple[Tensor, Tensor]:
    """Pieces of made-up sentences, and for each place the letter that follows: (rows, LENGTH) twice."""
    draw = random.Random(0)
    text = ""
    while len(text) <= 704 * LENGTH:
        text += " ".join(draw.choices(WORDS, k=draw.randint(4, 9))) + ". "
    codes = torch.tensor([LETTERS.index(letter) for letter in text])
    return codes[: 704 * LENGTH].view(-1, LENGTH), codes[1 : 704 * LENGTH + 1].view(-1, LENGTH)


WORKLOADS = {
    "mlp": Workload(
        "MLP 64-128-10 on 8x8 digits, batch 32, Adam",
        *(digits, networks.mlp, 1408, 32, 12),
        model={"name": "mlp", "hidden": [128]},
    ),
    "cnn": Workload("two-layer CNN on 28x28 digits, batch 64, Adam", large_digits, networks.cnn, 1408, 64, 4),
    "transformer": Workload(
        "character transformer, 2 layers of 64, context 32, batch 16, Adam",
        *(letters, partial(networks.transformer, len(LETTERS), LENGTH), 704, 16, 5),
        classes=len(LETTERS),
        criterion=per_token,
    ),
    "lstm": Workload(
        "LSTM of 64 over the lines of 28x28 digits, batch 32, Adam",
        *(lines_of_digits, networks.lstm, 1408, 32, 5),
    ),
    "gcn": Workload(
        "two-layer GCN of 16 on Cora, full batch of 140 nodes, Adam",
        *(cora.papers, cora.gcn, cora.UPDATES, 1, 8),
        classes=cora.CLASSES,
        lr=1e-2,
        criterion=per_token,
    ),
}
