"""A run for the tests of hostile files to tamper with, and a folder where no payload may leave a mark."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pegboard
import pytest
import torch
from hostile import CONFIG, Said
from pegboard.cli import main


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return pegboard.train(CONFIG, root=tmp_path_factory.mktemp("trained"), quiet=True).folder


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder to work in, in which no payload may leave its mark."""
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    assert not list(tmp_path.rglob("EXECUTED"))


@pytest.fixture
def run(trained: Path, here: Path) -> Path:
    """A stranger's run folder."""
    return Path(shutil.copytree(trained, here / "stranger", symlinks=True))


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Said:
    """Run a command that must be refused; gives what it said."""

    def ask(*words: str | Path) -> str:
        capsys.readouterr()
        assert main([str(word) for word in words]) == 2
        text = capsys.readouterr().err
        assert text.strip() and "Traceback" not in text
        return text

    return ask
