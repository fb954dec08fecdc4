"""Fixtures for tests of the core alone: configs of the toy plugin in `toy.py`, and runs of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pegboard
import pytest
import torch
import yaml

TOY = Path(__file__).with_name("toy.py")
Config = Callable[..., dict[str, Any]]


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
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


@pytest.fixture(scope="session")
def write(config: Config) -> Callable[[Path], None]:
    """Writes `cfg.yaml`, and `base.yaml` that it extends, into a folder."""

    def both(folder: Path) -> None:
        given = config(trainer={"epochs": 3, "device": "cpu", "log_every": 1, "threads": 1})
        base = {key: given.pop(key) for key in ("seed", "data", "optimizer", "trainer")}
        for name, node in (("base", base), ("cfg", {"extends": "base.yaml", **given})):
            (folder / f"{name}.yaml").write_text(yaml.safe_dump(node, sort_keys=False))

    return both


@pytest.fixture(scope="session")
def first(tmp_path_factory: pytest.TempPathFactory, write: Callable[[Path], None]) -> Path:
    """A run of those files that others are compared with."""
    folder = tmp_path_factory.mktemp("first")
    write(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return pegboard.train("cfg.yaml", root=folder / "runs", quiet=True).folder


@pytest.fixture
def train(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[[Path], None]
) -> Callable[..., Path]:
    """Trains those files with other words, in a folder where they may be changed first."""
    write(tmp_path)
    monkeypatch.chdir(tmp_path)
    return lambda *words: pegboard.train("cfg.yaml", *words, root="runs", quiet=True).folder
