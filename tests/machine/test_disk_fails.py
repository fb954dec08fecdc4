"""The disk turns on a run: each time one clear message, and a run folder that goes on exactly."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pegboard
import pytest
import yaml
from machine import CONFIG, Fails, goes_on, nth, unharmed
from pegboard.cli import main
from pegboard.run import finish, training
from pegboard.store import checkpoint
from pegboard.store.run_folder import MetricsFile
from sweeps import first_of_each


# Disk full.
class Disk:
    """A small file system of its own."""

    def __init__(self, root: Path) -> None:
        self.root, self.filler = root, root / "filler"

    def fill(self, leave: int = 0) -> None:
        """Take all the room but some bytes."""
        with self.filler.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError as error:
                assert error.errno == errno.ENOSPC
        os.truncate(self.filler, max(self.filler.stat().st_size - leave, 0))

    def free(self) -> None:
        self.filler.unlink(missing_ok=True)


@pytest.fixture
def disk(here: Path) -> Iterator[Disk]:
    root = here / "disk"
    root.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(root)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("only root may mount a small disk; a limit on files stands in for it below")
    yield Disk(root)
    subprocess.run(["umount", "-l", str(root)], check=True)


@pytest.mark.parametrize("leave", first_of_each([0, 4096, 12_288, 20_480]))
@pytest.mark.parametrize("count", first_of_each([1, 2, 4]))
def test_a_disk_full_while_a_checkpoint_is_saved(
    disk: Disk, reference: Path, fails: Fails, count: int, leave: int
) -> None:
    with nth(checkpoint, "write", count, lambda: disk.fill(leave)):
        text = fails(disk.root)
    assert "cannot save step" in text or "No space left" in text
    assert "pegboard resume" in text
    disk.free()
    goes_on(disk.root, reference)


@pytest.mark.parametrize("count", first_of_each([1, 3, 9]))
def test_a_disk_full_while_a_row_is_written(
    disk: Disk, reference: Path, fails: Fails, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    padding = {"padding": "x" * 5000}  # rows are short, and the last page of a file has room
    before, calls = MetricsFile.write, 0

    def write(self: MetricsFile, row: dict[str, Any]) -> None:
        nonlocal calls
        calls += 1
        if calls == count:
            disk.fill()
            before(self, {**row, **padding})
        before(self, row)

    with monkeypatch.context() as patch:
        patch.setattr(MetricsFile, "write", write)
        text = fails(disk.root)
    assert "No space left on device" in text and "pegboard resume" in text
    disk.free()
    goes_on(disk.root, reference)


@pytest.mark.parametrize("name", first_of_each(["draw_curves", "_tables", "write_json"]))
def test_a_disk_full_at_the_very_end(disk: Disk, reference: Path, fails: Fails, name: str) -> None:
    with nth(training if name == "write_json" else finish, name, 1, disk.fill):
        if name == "write_json":  # the summary alone is missing: the run is whole
            Path("cfg.yaml").write_text(yaml.safe_dump(CONFIG))
            main(["train", "cfg.yaml", "--quiet", "--root", str(disk.root)])
        else:
            assert "No space left on device" in fails(disk.root)
    disk.free()
    goes_on(disk.root, reference)


def test_a_disk_full_before_the_run_has_begun(disk: Disk, fails: Fails) -> None:
    (disk.root / "machine").mkdir()
    disk.fill()
    assert "cannot make the run folder" in fails(disk.root)
    assert list((disk.root / "machine").iterdir()) == []


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("size", first_of_each([0, 600, 3000]))
def test_a_file_that_may_not_grow(
    here: Path, reference: Path, fails: Fails, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    before, calls = checkpoint.write, 0

    def save(*args: Any) -> Path:
        nonlocal calls
        calls += 1
        with largest_file(size if calls == 3 else resource.RLIM_INFINITY):
            return before(*args)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "write", save)
        text = fails(here / "runs")
    assert "cannot save step" in text and "pegboard resume" in text
    goes_on(here / "runs", reference)


# The run folder.
def test_a_run_folder_that_can_no_longer_be_written(here: Path, reference: Path, fails: Fails) -> None:
    root = here / "runs"

    def close() -> None:
        for path in (root / "machine").glob("*/checkpoints"):
            path.chmod(0o555)
        if os.geteuid() == 0:  # to whom permissions mean nothing
            os.seteuid(65534)

    try:
        with nth(checkpoint, "write", 3, close):
            text = fails(root)
    finally:
        if os.getuid() == 0:
            os.seteuid(0)
    assert "Permission denied" in text and "pegboard resume" in text
    for path in (root / "machine").glob("*/checkpoints"):
        path.chmod(0o755)
    goes_on(root, reference)


def test_a_run_folder_that_was_deleted_does_not_come_back_half(here: Path, fails: Fails) -> None:
    root = here / "runs"
    with nth(checkpoint, "write", 3, lambda: [shutil.rmtree(p) for p in (root / "machine").glob("2*")]):
        assert "No such file" in fails(root)
    assert [p for p in (root / "machine").iterdir() if not p.is_symlink()] == []


def test_checkpoints_that_were_deleted_are_begun_anew(here: Path, reference: Path, fails: Fails) -> None:
    def delete() -> None:
        for path in (here / "runs" / "machine").glob("2*/checkpoints"):
            shutil.rmtree(path)

    with nth(checkpoint, "point", 4, delete):
        text = fails(here / "runs")
    assert "cannot save" in text
    goes_on(here / "runs", reference)


def test_a_root_that_cannot_be_written_is_said_before_anything_is_read(here: Path, fails: Fails) -> None:
    (here / "file").write_text("")
    assert "cannot make a run folder" in fails(here / "file")
    assert "cannot make a run folder" in fails(Path("/proc/nowhere"))


def test_a_latest_that_is_a_folder_of_somebody_is_left_alone(here: Path, reference: Path) -> None:
    (here / "runs/machine/latest").mkdir(parents=True)
    (here / "runs/machine/latest/thing").write_text("mine")
    run = pegboard.train(CONFIG, root="runs", quiet=True)
    unharmed(run.folder, reference)
    assert (here / "runs/machine/latest/thing").read_text() == "mine"
    assert not list((here / "runs/machine").glob(".*"))
