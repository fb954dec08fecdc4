"""Overfitting is local: one model may underfit where its target bends and overfit where it is flat."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fitted_parts as fitted
import pegboard
import pytest
import torch
from pegboard.testing.runs import lean
from torch import Tensor


def by_region(error: Tensor, quantity: Tensor, bounds: list[float]) -> list[float]:
    """The mean of errors in each bin of a quantity, between bounds that grow."""
    which = torch.bucketize(quantity, torch.tensor(bounds))
    return [float(error[which == number].mean()) for number in range(len(bounds) + 1)]


@pytest.mark.sweep
@pytest.mark.catalogue("S3-114")
def test_a_narrow_net_errs_where_the_target_bends_and_a_wide_one_where_it_is_flat(tmp_path: Path) -> None:
    x = torch.linspace(-1, 1, 401)[:, None]
    truth, bend = fitted.bend(x), fitted.curvature(x)

    def errors(width: int, steps: int, seed: int) -> list[float]:
        given: dict[str, Any] = {
            "seed": seed,
            "data": {"name": "bent", "batch_size": 60},
            "model": {"name": "mlp", "hidden": [width], "activation": "tanh"},
            "optimizer": {"name": "lbfgs", "history_size": 20, "line_search_fn": "strong_wolfe"},
            "objective": {"name": "mse"},
            "trainer": {"steps": steps, "device": "cpu", "threads": 1, "monitor": "train/loss"},
            "plugins": {"local": [str(fitted.__file__)]},
        }
        run = pegboard.train(given, root=tmp_path, quiet=True)
        with torch.no_grad():
            return by_region((run.model(x) - truth).square()[:, 0], bend[:, 0], [1.0])

    with lean():
        narrow = torch.tensor([errors(2, 5, seed) for seed in range(3)]).mean(0)
        wide = torch.tensor([errors(40, 12, seed) for seed in range(3)]).mean(0)
    flat, bent = 0, 1
    assert narrow[bent] > 3 * narrow[flat]
    assert wide[flat] > 3 * wide[bent]
    assert wide[bent] < narrow[bent] / 10 and wide[flat] > narrow[flat]
