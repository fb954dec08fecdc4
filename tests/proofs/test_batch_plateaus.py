"""What the size of a batch does to gradient descent, on 8192 samples of 64 polynomials."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import fitted_parts
import pegboard
import pytest

SAMPLES, TARGET = 8192, 0.04
# As many epochs as a size takes to settle, and some more: small batches make many updates in each of them.
EPOCHS = {1: 3, 2: 4, 4: 6, 8: 8, 16: 16, 32: 24, 64: 40, 128: 60, 256: 100, 512: 150, 1024: 200, 2048: 200}


def relative_losses(size: int, folder: Path) -> list[float]:
    """How far the loss on all samples is above the least one, as a share of it, after every epoch."""
    config: dict[str, Any] = {
        "data": {"name": "cubics", "batch_size": size, "eval_batch_size": SAMPLES},
        "model": {"name": "polynomial", "degree": 3},
        "objective": {"name": "mse", "features": "sum", "metrics": []},
        "optimizer": {"name": "sgd", "lr": 0.1},
        "reference": {"name": "least_squares", "features": "sum"},
        "trainer": {"epochs": EPOCHS[size], "device": "cpu", "threads": 1, "diagnose": False},
        "plugins": {"local": [str(fitted_parts.__file__)]},
    }
    run = pegboard.train(config, root=folder, quiet=True)
    assert sum(p.numel() for p in run.model.parameters()) == 256
    found = [row["val/loss"] / run.reference["optimum"] - 1 for row in run.history if "val/loss" in row]
    assert len(found) == EPOCHS[size]
    return found


@pytest.mark.prove
@pytest.mark.catalogue("T079")
def test_larger_batches_settle_lower_and_later_and_the_best_size_is_between(
    tmp_path: Path, lean: None, show: Callable[[str], None]
) -> None:
    losses = {size: relative_losses(size, tmp_path) for size in EPOCHS}
    plateau = {
        size: sum(found[len(found) // 2 :]) / (len(found) - len(found) // 2) for size, found in losses.items()
    }
    settled = [plateau[2**k] for k in range(10)]  # 1 to 512; larger ones are still on their way
    assert all(a > b > 0 for a, b in pairwise(settled))
    assert min(losses[1]) > min(losses[2]) > TARGET
    reached = {
        size: next(epoch for epoch, loss in enumerate(found, 1) if loss <= TARGET)
        for size, found in losses.items()
        if min(found) <= TARGET
    }
    late = [reached[2**k] for k in range(5, 12)]  # 32 to 2048
    assert late == sorted(late) and late[-1] > 10 * late[0]
    # An update of b samples takes as long as b samples and an overhead do: whatever the overhead, within
    # reason, neither the smallest nor the largest batches are the first at the target.
    for overhead in (2, 10, 50, 250, 1000):
        cost = {b: epochs * SAMPLES / b * (overhead + b) for b, epochs in reached.items()}
        assert 8 <= min(cost, key=lambda b: cost[b]) <= 128, overhead
    for size in (1, 32, 512):
        show(
            f"batches of {size}: loss {plateau[size]:.2%} above the least one, {SAMPLES} samples of 64 cubics"
        )
    show(f"epochs to a loss {TARGET:.0%} above the least one, by the size of a batch: {reached}")
