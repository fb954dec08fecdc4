"""More parameters than samples: what every regularizer does to the gap that runs report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import points
import pytest
import torch
from torch import Tensor

SEEDS = range(3)


def measured(root: Path, tricks: dict[str, Any]) -> Tensor:
    """Means over seeds of the loss in training, validation and test, and of the gap."""
    found = []
    for seed in SEEDS:
        data = {"name": "linear_teacher", "features": 20, "noise": 1.0, "batch_size": 20}
        config = {
            "seed": seed,
            "data": data | {"samples": 1060, "limit": 60, "val": 0.3, "test": 0.5},
            "model": {"name": "mlp", "hidden": [64]},  # 1409 parameters for 60 samples
            "optimizer": {"name": "adam", "lr": 3e-3},
            "regularizers": tricks,
            "trainer": {"epochs": 150, "eval_every": 150, "device": "cpu", "threads": 1},
        }
        done = points.run(config, root)
        losses = [done.figures[f"{split}/loss"] for split in ("train", "val", "test")]
        assert done.diagnosis["gap"] == losses[2] - losses[0]
        found.append([*losses, done.diagnosis["gap"]])
    return torch.tensor(found).mean(0)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Tensor:
    return measured(tmp_path_factory.mktemp("plain"), {})


@pytest.mark.sweep
@pytest.mark.catalogue("S3-040")
@pytest.mark.parametrize(
    "strengths",
    [
        [{"weight_decay": {"value": value, "mode": "l2"}} for value in (0.01, 0.1, 0.3)],
        [{"dropout": {"p": p}} for p in (0.2, 0.5)],
        [{"dropconnect": {"p": 0.3}}],
        [{"batchnorm": {}}],
    ],
    ids=lambda strengths: next(iter(strengths[0])),
)
def test_a_regularizer_shrinks_the_gap_and_not_the_training_loss(
    strengths: list[dict[str, Any]], plain: Tensor, tmp_path: Path
) -> None:
    """Its strength is the one with the least loss in validation, for some strengths do harm."""
    chosen = min((measured(tmp_path, tricks) for tricks in strengths), key=lambda means: float(means[1]))
    train, _, test, gap = range(4)
    assert plain[train] < 1e-3 < plain[gap]  # without one the samples are learned by heart
    assert chosen[train] > plain[train]
    assert chosen[gap] < plain[gap] and chosen[test] < plain[test]
