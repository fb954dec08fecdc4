"""Fixtures for tests of the core alone: configs of the toy plugin in `toy.py`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

TOY = Path(__file__).with_name("toy.py")
Config = Callable[..., dict[str, Any]]


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def config() -> Config:
    """A config of toy parts; keyword arguments replace its nodes."""

    def make(**nodes: Any) -> dict[str, Any]:
        base: dict[str, Any] = {
            "seed": 3,
            "data": {"name": "points", "batch_size": 16},
            "model": {"name": "net"},
            "optimizer": {"name": "plain", "lr": 0.1},
            "objective": {"name": "guess"},
            "trainer": {"epochs": 3, "device": "cpu"},
            "plugins": {"local": [str(TOY)]},
        }
        return base | nodes

    return make


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "runs"
