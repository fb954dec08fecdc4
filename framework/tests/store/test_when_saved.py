"""When a checkpoint is written, and that it is on the disk before it has its name."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pegboard
import pytest
from pegboard.base.errors import PegboardError
from pegboard.engine.loop import Loop
from pegboard.store import checkpoint
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


BEST, LAST = ("last", "best"), ("last",)


def _save(saver: checkpoint.Saver, step: int, aliases: Sequence[str] = LAST) -> None:
    saver.save(nn.Linear(2, 2), {}, {"step": step}, aliases)


@contextmanager
def busy_thread(saver: checkpoint.Saver) -> Iterator[None]:
    """While others keep the thread that waits for the disk."""
    free = threading.Event()
    saver.writer.submit(free.wait)
    try:
        yield
    finally:
        free.set()


@pytest.mark.parametrize("busy", [False, True], ids=["idle disk", "busy disk"])
@pytest.mark.parametrize(
    ("keep", "saves", "left", "best"),
    [
        (1, (BEST, LAST, LAST), {1, 3}, 1),
        (1, (BEST, BEST, LAST, BEST), {4}, 4),
        (2, (LAST, BEST, LAST, LAST), {2, 3, 4}, 2),
    ],
)
def test_a_busy_disk_ends_with_the_checkpoints_of_an_idle_one(
    tmp_path: Path, busy: bool, keep: int, saves: Sequence[Sequence[str]], left: set[int], best: int
) -> None:
    told: list[str] = []
    saver = checkpoint.Saver(tmp_path, keep, lambda path, aliases: told.append(path.name), "")
    with busy_thread(saver) if busy else nullcontext():
        for step, aliases in enumerate(saves, 1):
            _save(saver, step, aliases)
            if not busy:
                saver.settle()
        assert len([*tmp_path.glob("step-*")]) == (0 if busy else len(left))
    saver.settle()
    names = {f"step-{step:08d}" for step in left}
    assert {path.name for path in tmp_path.iterdir()} == {*names, "best", "last"}
    assert (tmp_path / "best").resolve().name == f"step-{best:08d}"
    assert (tmp_path / "last").resolve().name == f"step-{len(saves):08d}"
    assert set(told) == names if busy else len(told) == len(saves)  # what was passed over has no name to tell


def test_what_waits_for_the_disk_is_recovered_when_the_process_is_killed(tmp_path: Path) -> None:
    saver = checkpoint.Saver(tmp_path, 2, lambda path, aliases: None, "")
    with busy_thread(saver):
        for step in (1, 2, 3):
            _save(saver, step)
        checkpoint.recover(tmp_path)
        assert {path.name for path in tmp_path.iterdir()} == {"step-00000002", "step-00000003"}
    with pytest.raises(PegboardError, match="cannot save step 2"):
        saver.settle()


def test_a_checkpoint_that_the_disk_refuses_is_told_by_the_next_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path) -> None:
        raise OSError(28, "No space left on device")

    saver = checkpoint.Saver(tmp_path, 1, lambda path, aliases: None, "")
    monkeypatch.setattr(checkpoint, "_sync", full)
    _save(saver, 7)
    saver.commits[0].exception()  # wait for it
    with pytest.raises(PegboardError, match="cannot save step 7 .*No space left"):
        _save(saver, 8)
    assert [*tmp_path.iterdir()] == []


def test_the_disk_is_waited_for_once_in_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "SYNC_EVERY", 3600.0)
    saver = checkpoint.Saver(tmp_path, 1, lambda path, aliases: None, "")
    _save(saver, 1)
    saver.commits[0].result()
    for step in (2, 3, 4):
        _save(saver, step)
        (part,) = tmp_path.glob(".step-*")  # those before it are gone
        assert part.name.startswith(f".step-{step:08d}")
        checkpoint.verify(part, checkpoint.read_manifest(part))
    assert (tmp_path / "last").resolve().name == "step-00000001"
    _save(saver, 4, BEST)  # written where the other waits, and so after it
    assert (tmp_path / "last").resolve().name == "step-00000004" and not (tmp_path / "best").exists()
    saver.settle()
    assert {path.name for path in tmp_path.iterdir()} == {"step-00000004", "last", "best"}
