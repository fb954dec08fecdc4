"""Recurrent networks at tasks that take longer: copies through one state, and whole steps as a graph."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pegboard
import pytest
import torch
from pegboard import Decoding
from pegboard_datasets.copying import copies
from torch.nn import functional

pytestmark = [pytest.mark.prove, pytest.mark.usefixtures("lean")]


def copied(length: int, root: Path, **model: Any) -> float:
    """The share of symbols that a model of width 64 copies after 500 steps, by greedy search."""
    given = {
        "data": {
            "name": "copying", "samples": 32_000, "symbols": 8, "length": length, "val": 0, "test": 0,
            "batch_size": 64,
        },
        "model": {"name": "seq2seq", "hidden": 64, **model},
        "optimizer": {"name": "adam", "lr": 0.01, "schedule": "linear"},
        "trainer": {"steps": 500, "device": "cpu"},
    }  # fmt: skip
    run = pegboard.train(given, root=root, quiet=True)
    source, copy = copies(500, 8, length, length, generator=torch.Generator().manual_seed(9))
    made = run.model.eval().generate(source, how=Decoding(length=length, temperature=0))  # type: ignore[operator]
    made = functional.pad(made, (0, length - made.shape[1]))
    return (made == copy[:, :length]).float().mean().item()


@pytest.mark.catalogue("S4-092")
def test_one_state_holds_five_symbols_and_loses_some_of_twelve(
    tmp_path: Path, show: Callable[[str], None]
) -> None:
    short, long = (copied(length, tmp_path, attention="none", bidirectional=False) for length in (5, 12))
    looking = copied(12, tmp_path)
    show(f"seq2seq copies {short:.3f} of 5 symbols, {long:.3f} of 12, with attention {looking:.3f} of 12")
    assert short >= 0.9
    assert long < short - 0.05
    assert looking >= 0.95


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize(
    "model",
    [
        {"cell": "mingru", "layers": 2},
        {"cell": "lru"},
        {"cell": "gru", "reset": "before"},
        {"cell": "elman", "transition": 2, "bidirectional": True},
    ],
    ids=lambda model: "-".join(map(str, model.values())),
)
def test_a_whole_step_without_torchs_kernels_is_one_graph_with_the_same_result(
    model: dict[str, Any], tmp_path: Path
) -> None:
    found = []
    for compiled in (False, True):
        given = {
            "data": {"name": "recall", "samples": 64, "length": 9, "shortest": 4, "val": 0, "batch_size": 16},
            "model": {"name": "rnn", "hidden": 8, **model},
            "optimizer": {"name": "adam", "lr": 0.01},
            "trainer": {"steps": 8, "device": "cpu", **({"compile": "step"} if compiled else {})},
        }  # fmt: skip
        run = pegboard.train(given, root=tmp_path, quiet=True)
        if compiled:
            assert run.summary["compiled"]["level"] == "step", run.summary["compiled"]
        found.append(run.model.state_dict())
    torch.testing.assert_close(found[0], found[1], atol=1e-4, rtol=1e-4)
