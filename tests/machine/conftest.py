"""A folder to work in, the run that nothing happened to, and one that must fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pegboard
import pytest
import torch
import yaml
from machine import CONFIG, Fails
from pegboard.cli import main


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    torch.set_num_threads(1)
    return tmp_path


@pytest.fixture(scope="session")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that nothing happened to."""
    torch.set_num_threads(1)
    return pegboard.train(CONFIG, root=tmp_path_factory.mktemp("whole"), quiet=True).folder


@pytest.fixture
def fails(capsys: pytest.CaptureFixture[str]) -> Fails:
    """Train a config below a root; it must fail. Gives the message."""

    def ask(root: Path, config: dict[str, Any] = CONFIG) -> str:
        Path("cfg.yaml").write_text(yaml.safe_dump(config))
        capsys.readouterr()
        assert main(["train", "cfg.yaml", "--quiet", "--root", str(root)]) == 2
        text = capsys.readouterr().err
        assert "Traceback" not in text and text.strip()
        return text

    return ask
