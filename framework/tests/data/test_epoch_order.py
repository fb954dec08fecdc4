"""The order of an epoch and the draws of a run are keyed by the seed, each in a stream of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pegboard
import pytest
import torch
from pegboard.data import epoch_order
from pegboard.engine.loop import Loop

SIZE = 100


def test_every_sample_comes_once_in_an_order_of_seed_and_epoch() -> None:
    keys = [(seed, epoch) for seed in (0, 1) for epoch in (0, 1, 2)]
    orders = {key: tuple(epoch_order(SIZE, *key, True).tolist()) for key in keys}
    assert len(set(orders.values())) == len(keys)
    assert all(sorted(order) == list(range(SIZE)) for order in orders.values())
    assert orders == {key: tuple(epoch_order(SIZE, *key, True).tolist()) for key in keys}


def test_the_global_stream_is_neither_read_nor_moved() -> None:
    before, order = torch.get_rng_state(), epoch_order(SIZE, 3, 1, True)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(12345)
    assert torch.equal(epoch_order(SIZE, 3, 1, True), order)


def test_without_shuffling_samples_keep_their_order() -> None:
    assert epoch_order(SIZE, 3, 1, False).tolist() == list(range(SIZE))


def test_a_run_draws_from_a_stream_of_its_seed(
    config: Callable[..., dict[str, Any]], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams: list[int] = []
    run = Loop.run

    def noted(self: Loop) -> str | None:
        streams.append(torch.initial_seed())
        return run(self)

    monkeypatch.setattr(Loop, "run", noted)
    for seed in (3, 4, 3):
        pegboard.train(config(seed=seed, trainer={"steps": 1, "device": "cpu"}), root=root, quiet=True)
    assert streams[0] == streams[2] != streams[1]
