"""Two players in one loop: compiled steps, and exact resume at many points."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pegboard
import pytest
from pegboard.testing.runs import cut_and_resumed, differences, lean, points, whole

TRICKS = {"clip": {"bound": 1.0}, "ema": {"decay": 0.9}}


def game(regularizers: dict[str, Any] | None = None, **trainer: Any) -> dict[str, Any]:
    return {
        "seed": 1,
        "data": {"name": "ring", "samples": 160, "noise": 0.1, "batch_size": 16, "drop_last": True},
        "model": {"name": "gan", "latent": 2, "hidden": [16]},
        "objective": {"name": "adversarial", "steps": 2},
        "optimizer": {"name": "adam", "lr": 1e-3, "players": {"generator": {"lr": 5e-4}}},
        "regularizers": regularizers or {},
        "trainer": {"epochs": 3, "device": "cpu", "threads": 1, "log_every": 1, **trainer},
    }


@pytest.mark.prove
@pytest.mark.usefixtures("compiler")
def test_compiled_steps_of_a_game_learn_what_ordinary_ones_do(
    tmp_path: Path, show: Callable[[str], None]
) -> None:
    runs = [pegboard.train(game(TRICKS, compile=c), root=tmp_path, quiet=True) for c in ("off", "step")]
    plain, compiled = (
        [[r[k] for k in sorted(r) if k.startswith("train/")] for r in run.history] for run in runs
    )
    assert runs[1].summary["compiled"]["level"] == "step"
    assert compiled[0] == pytest.approx(plain[0], rel=0.2)
    assert len(compiled) == len(plain)
    show("a game of two players in compiled steps")


@pytest.mark.prove
@pytest.mark.parametrize("variant", ["non_saturating", "wasserstein", "hinge"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_game_resumes_exactly_at_15_points(
    variant: str, precision: str, tmp_path: Path, show: Callable[[str], None]
) -> None:
    given = game(TRICKS, accumulate=2, save_every=2, precision=precision)
    given["objective"]["variant"] = variant
    with lean():
        reference, events = whole(given, tmp_path / "whole")
        cuts = points(events, 15)
        for cut in cuts:
            assert not differences(reference, cut_and_resumed(given, tmp_path / str(cut), cut))
    show(f"exact resume at {len(cuts)} points, a game of two players, {variant} in {precision}")
