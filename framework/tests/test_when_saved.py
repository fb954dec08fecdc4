"""When a checkpoint is written, and that it is on the disk before it has its name."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pegboard
import pytest
from pegboard.engine import checkpoint
from pegboard.engine.loop import Loop
from torch import nn

Config = Callable[..., dict[str, Any]]


def test_a_checkpoint_is_due_some_minutes_after_the_one_before(
    config: Config, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds, saved = 0.0, []
    span, write = Loop.span, checkpoint.write

    def slow(self: Loop, *args: Any) -> None:
        nonlocal seconds
        before = self.progress.step
        span(self, *args)
        seconds += 60 * (self.progress.step - before)

    def noted(folder: Path, model: nn.Module, state: Any, manifest: Any) -> Path:
        saved.append(manifest["step"])
        return write(folder, model, state, manifest)

    monkeypatch.setattr(Loop, "span", slow)
    monkeypatch.setattr("pegboard.engine.loop.time", SimpleNamespace(monotonic=lambda: seconds))
    monkeypatch.setattr(checkpoint, "write", noted)
    data = {"name": "points", "count": 160, "batch_size": 16}
    given = config(data=data, trainer={"epochs": 1, "log_every": 1, "save_minutes": 2.5, "device": "cpu"})
    pegboard.train(given, root=root, quiet=True)
    assert saved == [0, 3, 6, 9, 10]


def test_files_are_synced_before_their_folder_gets_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    before: list[int] = []
    rename = Path.rename

    def noted(path: Path, target: Path) -> Path:
        before.extend(synced)
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(os.fstat(handle).st_ino))
    monkeypatch.setattr(Path, "rename", noted)
    place = checkpoint.save(tmp_path, nn.Linear(2, 2), {}, {"step": 1})
    files = [place, *place.iterdir()]
    assert len(files) == 4 and {path.stat().st_ino for path in files} <= set(before)
    assert synced[-1] == tmp_path.stat().st_ino  # and the name itself after it
