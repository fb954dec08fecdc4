"""Curved data, and short ways to train a module."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pegboard
import pytest
import torch
from torch import Tensor, nn

Fit = Callable[..., float]


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "runs"


@pytest.fixture
def fit() -> Fit:
    """Trains a module on tensors in full batches by the loss of an objective; returns the last loss."""

    def train(model: nn.Module, objective: Any, x: Tensor, steps: int, rate: float = 0.01) -> float:
        players = objective.players(model)
        optimizers = [torch.optim.Adam([p for _, p in player.parameters], rate) for player in players]
        model.train()
        loss = torch.zeros(())
        for _ in range(steps):
            for player, optimizer in zip(players, optimizers, strict=True):
                loss, _ = player.loss(model, pegboard.Batch((x,)))
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
        model.eval()
        return float(loss.detach())

    return train


@pytest.fixture(scope="session")
def curve() -> Callable[..., Tensor]:
    """Points of a closed curve in 20 dimensions."""
    return _curve


@pytest.fixture
def away() -> Callable[[Tensor], Tensor]:
    """How far points are from the curve: (count,)."""
    fine = _curve(4000, seed=99)
    return lambda x: torch.cdist(x, fine).amin(1)


def _curve(count: int, seed: int = 0) -> Tensor:
    t = torch.rand(count, generator=torch.Generator().manual_seed(seed)) * 2 * torch.pi
    waves = torch.stack([f(k * t) for k in (1, 2, 3) for f in (torch.sin, torch.cos)], 1)
    axes = torch.linalg.qr(torch.randn(20, 6, generator=torch.Generator().manual_seed(7)))[0]
    return (waves * torch.tensor([3.0, 3.0, 2.0, 2.0, 1.0, 1.0])) @ axes.T
