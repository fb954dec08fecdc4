"""What the tests of the data sets share."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from pegboard import Context, Dataset, Splits
from pegboard_datasets import pegboard_datasets

PARTS: dict[str, Dataset[Any]] = {part.name: part for part in pegboard_datasets()}


@pytest.fixture(scope="session")
def parts() -> dict[str, Dataset[Any]]:
    return PARTS


@pytest.fixture
def build() -> Callable[..., Splits]:
    """build("moons", seed=3, noise=0.2): the splits of a part with these fields, for a run's seed."""

    def made(name: str, run_seed: int = 0, **fields: Any) -> Splits:
        part = PARTS[name]
        return part.build(part.config(**fields), Context(seed=run_seed, key="data"))

    return made


@pytest.fixture
def hub(rows_cache: Path, build: Callable[..., Splits]) -> Callable[..., Splits]:
    """hub(path=..., inputs=..., target=...): the splits of the `hub` part."""
    return lambda **fields: build("hub", **fields)


@pytest.fixture
def mirror() -> Path:
    """The folder with real data sets."""
    return Path(os.environ["PEGBOARD_DATA"])


@pytest.fixture
def quiet_rngs() -> Iterator[None]:
    """The global random streams must not move inside the test."""
    import numpy

    before = (torch.get_rng_state(), numpy.random.get_state()[1].tolist(), random.getstate())
    yield
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1] == numpy.random.get_state()[1].tolist()
    assert before[2] == random.getstate()
