"""What recurrent networks learn: to remember, to count and to forecast; and a start from weights of torch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pegboard
import pytest
import torch
from pegboard.testing import runs
from pegboard_datasets.remembering import recalled
from sweeps import first_of_each_row
from torch import nn

LOCAL = str(Path(__file__).with_name("sequences_plugin.py"))


@pytest.fixture(autouse=True)
def lean() -> Iterator[None]:
    """Without what a run repeats: to look for plugins, to explain its plan, to draw."""
    with runs.lean():
        yield


def train(data: dict[str, Any], model: dict[str, Any], root: Path, **nodes: Any) -> pegboard.Run:
    base: dict[str, Any] = {
        "data": {"batch_size": 32, **data},
        "model": {"name": "rnn", **model},
        "optimizer": {"name": "adam", "lr": 0.01},
        "plugins": {"local": [LOCAL]},
    }
    return pegboard.train({**base, **nodes}, root=root, quiet=True)


# A bit at the first of so many steps, hidden 24, Adam 1e-2, 200 steps of 32.
RECALL: dict[str, tuple[dict[str, Any], int]] = {
    "elman": ({"cell": "elman"}, 20),
    "lstm": ({"cell": "lstm", "gate_bias": 3.0}, 20),
    "gru": ({"cell": "gru"}, 20),
    "mingru": ({"cell": "mingru", "gate_bias": 5.0}, 100),
    "lru": ({"cell": "lru", "phase": 0.3, "block": False}, 100),
}


@pytest.mark.catalogue("S4-076", "S4-083", "S4-084", "S4-085", "S4-089")
@pytest.mark.parametrize(("name", "seed"), first_of_each_row([(name, 0) for name in RECALL] + [("lstm", 1)]))
def test_a_bit_is_recalled_after_many_steps(name: str, seed: int, tmp_path: Path) -> None:
    model, length = RECALL[name]
    data = {"name": "recall", "samples": 1600, "length": length, "val": 0, "test": 0}
    run = train(data, {"hidden": 24, **model}, tmp_path, seed=seed, trainer={"steps": 200})
    points = recalled(200, length, generator=torch.Generator().manual_seed(7))
    with torch.no_grad():
        found = run.model.eval()(points.x).argmax(1)
    assert (found == points.y).float().mean() >= 0.95


def test_a_label_for_every_step_is_learned_on_texts_of_different_lengths(tmp_path: Path) -> None:
    run = train({"name": "parities"}, {"cell": "gru", "hidden": 16}, tmp_path, trainer={"epochs": 15})
    assert run.summary["figures"]["test/accuracy"] >= 0.99


def test_a_forecast_is_learned_on_series_of_different_lengths(tmp_path: Path) -> None:
    run = train({"name": "waves"}, {"cell": "lru", "hidden": 16}, tmp_path, trainer={"epochs": 20})
    assert run.summary["figures"]["test/loss"] <= 0.02  # of waves whose variance is 0.5


@pytest.mark.parametrize(("cell", "kind"), [("elman", nn.RNN), ("lstm", nn.LSTM), ("gru", nn.GRU)])
def test_a_run_starts_from_weights_of_torch(cell: str, kind: type[nn.RNNBase], tmp_path: Path) -> None:
    theirs = kind(2, 6, 2, bidirectional=True, batch_first=True)  # type: ignore[call-arg]
    torch.save(theirs.state_dict(), tmp_path / "theirs.pt")
    run = train(
        {"name": "adding", "samples": 60, "shortest": 10, "val": 0, "test": 0},
        {
            "cell": cell, "hidden": 6, "layers": 2, "bidirectional": True,
            "weights": str(tmp_path / "theirs.pt"),
        },
        tmp_path,
        optimizer={"name": "sgd", "lr": 1e-20},
        trainer={"steps": 1},
    )  # fmt: skip
    x = torch.randn(3, 20, 2)
    torch.testing.assert_close(run.model.states(x)[0], theirs(x)[0], atol=1e-6, rtol=0)  # type: ignore[operator]
