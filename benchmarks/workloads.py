"""What is trained: a row of `WORKLOADS` is a network, its data, batch size and number of epochs.

A new workload is a function for the data, one for the network and a row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import torch
from clock import CLOCK
from torch import Tensor, nn
from torch.nn import functional

ROWS = 1408  # 44 batches of 32, so that no framework meets a smaller one


class Network(nn.Module):
    """The same layers in every framework; a forward pass in training begins a step."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            CLOCK.tick()
        return self.layers(x)


@dataclass(frozen=True)
class Workload:
    """One row: everything a framework is given."""

    title: str
    data: Callable[[], tuple[Tensor, Tensor]]  # inputs and classes, in memory
    network: Callable[[], nn.Module]
    batch: int
    epochs: int  # of one turn; the first and the last are not timed
    lr: float = 1e-3  # of Adam
    classes: int = 10
    # The model of Pegboard's config; {} gives it the network itself, from a local plugin.
    model: Mapping[str, Any] = field(default_factory=dict)

    @property
    def steps_per_epoch(self) -> int:
        return ROWS // self.batch

    @property
    def steps(self) -> int:
        """Updates of one turn."""
        return self.steps_per_epoch * self.epochs

    def loss(self, model: nn.Module, rows: int = 512) -> float:
        """The loss on some of the training data, to see that a framework really trained."""
        x, y = self.data()
        with torch.no_grad():
            return functional.cross_entropy(model(x[:rows]), y[:rows]).item()


@lru_cache
def digits() -> tuple[Tensor, Tensor]:
    """Pictures of digits, 8x8, flat: (rows, 64)."""
    from sklearn.datasets import load_digits  # type: ignore[import-untyped]

    bunch = load_digits()
    order = torch.randperm(len(bunch.target), generator=torch.Generator().manual_seed(0))[:ROWS]
    return torch.from_numpy(bunch.data).float()[order] / 16, torch.from_numpy(bunch.target).long()[order]


@lru_cache
def large_digits() -> tuple[Tensor, Tensor]:
    """The same digits, enlarged: (rows, 1, 28, 28)."""
    x, y = digits()
    return functional.interpolate(x.view(-1, 1, 8, 8), (28, 28), mode="bilinear"), y


def mlp() -> nn.Module:
    return Network(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))


def cnn() -> nn.Module:
    return Network(
        *(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(1600, 10)),
    )


WORKLOADS = {
    "mlp": Workload(
        "MLP 64-128-10 on digits, batch 32, Adam", digits, mlp, 32, 6, model={"name": "mlp", "hidden": [128]}
    ),
    "cnn": Workload("two-layer CNN on 28x28 digits, batch 64, Adam", large_digits, cnn, 64, 4),
}
