"""Overfitting is local: one model may underfit where its target bends and overfit where it is flat."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fitted_parts as fitted
import pegboard
import pytest
import torch
from pegboard.testing.runs import lean


@pytest.mark.sweep
@pytest.mark.catalogue("S3-114")
def test_a_narrow_net_errs_where_the_target_bends_and_a_wide_one_where_it_is_flat(tmp_path: Path) -> None:
    def errors(width: int, steps: int, seed: int) -> list[float]:
        """Where the target is flat and where it bends, of held-out and of training samples."""
        given: dict[str, Any] = {
            "seed": seed,
            "data": {"name": "bent", "batch_size": 60},
            "model": {"name": "mlp", "hidden": [width], "activation": "tanh"},
            "optimizer": {"name": "lbfgs", "history_size": 20, "line_search_fn": "strong_wolfe"},
            "objective": {"name": "mse"},
            "trainer": {"steps": steps, "device": "cpu", "threads": 1, "monitor": "train/loss"},
            "probes": {"error_by_region": {"by": "curvature", "edges": [7.2]}},  # a tenth of the largest
            "plugins": {"local": [str(fitted.__file__)]},
        }
        figures = pegboard.train(given, root=tmp_path, quiet=True).summary["figures"]
        return [
            figures[f"error_by_region/{n}"] for n in ("error_1", "error_2", "train_error_1", "train_error_2")
        ]

    with lean():
        narrow = torch.tensor([errors(2, 5, seed) for seed in range(3)]).mean(0)
        wide = torch.tensor([errors(40, 12, seed) for seed in range(3)]).mean(0)
    flat, bent, flat_train, bent_train = range(4)
    assert narrow[bent] > 3 * narrow[flat]
    assert wide[flat] > 3 * wide[bent]
    assert wide[bent] < narrow[bent] / 10 and wide[flat] > narrow[flat]
    # The narrow net underfits where the target bends: it errs there in training as well. The wide one
    # overfits where it is flat: there it learns the noise.
    assert narrow[bent_train] > 0.5 * narrow[bent]
    assert wide[flat_train] < narrow[flat_train]
