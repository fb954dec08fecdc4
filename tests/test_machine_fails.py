"""The machine turns on a run: each time one clear message, and a run folder that goes on exactly."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pegboard
import pytest
import torch
import yaml
from pegboard.cli import main
from pegboard.engine import checkpoint
from pegboard.run import MetricsFile

CONFIG: dict[str, Any] = {
    "name": "machine",
    "data": {"name": "iris", "batch_size": 16},
    "model": {"name": "mlp", "hidden": [16]},
    "optimizer": {"name": "adamw", "lr": 0.01},
    "regularizers": {"dropout": {"p": 0.2}},
    "trainer": {"epochs": 4, "device": "cpu", "log_every": 3, "save_every": 5},
}
Files = dict[str, Any]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    torch.set_num_threads(1)
    return tmp_path


def outcome(run: Path) -> Files:
    """What must be equal: weights, state, rows, figures."""
    place = checkpoint.find(run, "last")
    summary = json.loads((run / "summary.json").read_text())
    return {
        "status": summary["status"],
        "figures": summary.get("figures"),
        "rows": MetricsFile.read(run / "metrics.jsonl"),
        "weights": checkpoint.read_weights(place / checkpoint.WEIGHTS),
        "state": checkpoint.read_state(place),
    }


def same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """The run that nothing happened to."""
    torch.set_num_threads(1)
    return outcome(pegboard.train(CONFIG, root=tmp_path_factory.mktemp("whole"), quiet=True).folder)


def goes_on(root: Path, reference: Files) -> None:
    """The one run below `root` resumes and ends as the reference."""
    (run,) = (p for p in (root / "machine").iterdir() if not p.is_symlink() and not p.name.startswith("."))
    assert main(["resume", str(run), "--quiet"]) == 0
    assert same(outcome(run), reference)


def fails(capsys: pytest.CaptureFixture[str], root: Path, config: dict[str, Any] = CONFIG) -> str:
    """Train a config that must fail; gives the message."""
    Path("cfg.yaml").write_text(yaml.safe_dump(config))
    capsys.readouterr()
    assert main(["train", "cfg.yaml", "--quiet", "--root", str(root)]) == 2
    text = capsys.readouterr().err
    assert "Traceback" not in text and text.strip()
    return text


def nth(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, count: int, first: Callable[[], Any]) -> None:
    """Let something happen just before the call of this number; then things are as before."""
    before, calls = getattr(owner, name), 0

    def replaced(*args: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == count:
            first()
        return before(*args, **options)

    monkeypatch.setattr(owner, name, replaced)


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


@pytest.mark.parametrize("leave", [0, 4096, 12_288, 20_480])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_disk_full_while_a_checkpoint_is_saved(
    disk: Disk,
    reference: Files,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    count: int,
    leave: int,
) -> None:
    with monkeypatch.context() as patch:
        nth(patch, checkpoint, "save", count, lambda: disk.fill(leave))
        text = fails(capsys, disk.root)
    assert "cannot save step" in text or "No space left" in text
    assert "pegboard resume" in text
    disk.free()
    goes_on(disk.root, reference)


@pytest.mark.parametrize("count", [1, 3, 9])
def test_a_disk_full_while_a_row_is_written(
    disk: Disk,
    reference: Files,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    count: int,
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
        text = fails(capsys, disk.root)
    assert "No space left on device" in text and "pegboard resume" in text
    disk.free()
    goes_on(disk.root, reference)


@pytest.mark.parametrize("name", ["draw_curves", "_tables", "write_json"])
def test_a_disk_full_at_the_very_end(
    disk: Disk,
    reference: Files,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    from pegboard import training

    with monkeypatch.context() as patch:
        nth(patch, training, name, 1, disk.fill)
        if name == "write_json":  # the summary alone is missing: the run is whole
            Path("cfg.yaml").write_text(yaml.safe_dump(CONFIG))
            main(["train", "cfg.yaml", "--quiet", "--root", str(disk.root)])
        else:
            assert "No space left on device" in fails(capsys, disk.root)
    disk.free()
    goes_on(disk.root, reference)


def test_a_disk_full_before_the_run_has_begun(disk: Disk, capsys: pytest.CaptureFixture[str]) -> None:
    (disk.root / "machine").mkdir()
    disk.fill()
    assert "cannot make the run folder" in fails(capsys, disk.root)
    assert list((disk.root / "machine").iterdir()) == []


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("size", [0, 600, 3000])
def test_a_file_that_may_not_grow(
    here: Path,
    reference: Files,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    size: int,
) -> None:
    before, calls = checkpoint.save, 0

    def save(*args: Any) -> Path:
        nonlocal calls
        calls += 1
        with largest_file(size if calls == 3 else resource.RLIM_INFINITY):
            return before(*args)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save", save)
        text = fails(capsys, here / "runs")
    assert "cannot save step" in text and "pegboard resume" in text
    goes_on(here / "runs", reference)


# The run folder.
def test_a_run_folder_that_can_no_longer_be_written(
    here: Path,
    reference: Files,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    root = here / "runs"

    def close() -> None:
        for path in (root / "machine").glob("*/checkpoints"):
            path.chmod(0o555)
        if os.geteuid() == 0:  # to whom permissions mean nothing
            os.seteuid(65534)

    try:
        with monkeypatch.context() as patch:
            nth(patch, checkpoint, "save", 3, close)
            text = fails(capsys, root)
    finally:
        if os.getuid() == 0:
            os.seteuid(0)
    assert "Permission denied" in text and "pegboard resume" in text
    for path in (root / "machine").glob("*/checkpoints"):
        path.chmod(0o755)
    goes_on(root, reference)


def test_a_run_folder_that_was_deleted_does_not_come_back_half(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = here / "runs"
    nth(monkeypatch, checkpoint, "save", 3, lambda: [shutil.rmtree(p) for p in (root / "machine").glob("2*")])
    assert "No such file" in fails(capsys, root)
    assert [p for p in (root / "machine").iterdir() if not p.is_symlink()] == []


def test_checkpoints_that_were_deleted_are_begun_anew(
    here: Path, reference: Files, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def delete() -> None:
        for path in (here / "runs" / "machine").glob("2*/checkpoints"):
            shutil.rmtree(path)

    with monkeypatch.context() as patch:
        nth(patch, checkpoint, "point", 4, delete)
        text = fails(capsys, here / "runs")
    assert "cannot save" in text
    goes_on(here / "runs", reference)


def test_a_root_that_cannot_be_written_is_said_before_anything_is_read(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "file").write_text("")
    assert "cannot make a run folder" in fails(capsys, here / "file")
    assert "cannot make a run folder" in fails(capsys, Path("/proc/nowhere"))


def test_a_latest_that_is_a_folder_of_somebody_is_left_alone(here: Path, reference: Files) -> None:
    (here / "runs/machine/latest").mkdir(parents=True)
    (here / "runs/machine/latest/thing").write_text("mine")
    run = pegboard.train(CONFIG, root="runs", quiet=True)
    assert same(outcome(run.folder), reference)
    assert (here / "runs/machine/latest/thing").read_text() == "mine"
    assert not list((here / "runs/machine").glob(".*"))


def test_a_clock_that_jumps_changes_nothing(
    here: Path, reference: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments = iter([4e9, 0.0, 2e9, 1.0] * 10_000)
    monkeypatch.setattr(time, "time", lambda: next(moments))
    assert same(outcome(pegboard.train(CONFIG, root="runs", quiet=True).folder), reference)


# Memory.
FILLED = "DefaultCPUAllocator: can't allocate memory: you tried to allocate 99 bytes."


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError(f"[enforce fail at alloc_cpu.cpp] {FILLED}"),
        MemoryError(),
        torch.OutOfMemoryError("CUDA"),
    ],
)
def test_memory_that_runs_out_in_a_step(
    here: Path,
    reference: Files,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
) -> None:
    def fail() -> None:
        raise error

    with monkeypatch.context() as patch:
        nth(patch, torch.nn.functional, "cross_entropy", 17, fail)
        text = fails(capsys, here / "runs")
    assert "out of memory" in text and "data.batch_size" in text and "pegboard resume" in text
    goes_on(here / "runs", reference)


def test_a_model_that_no_memory_holds(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    giant = CONFIG | {"model": {"name": "mlp", "hidden": [4_000_000, 4_000_000]}}  # 64 TB
    assert "out of memory" in fails(capsys, here / "runs", giant)
    assert not list((here / "runs").glob("*/2*"))


def test_data_that_no_memory_holds(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise MemoryError

    from pegboard import planning

    nth(monkeypatch, planning, "read_data", 1, fail)
    assert "out of memory" in fails(capsys, here / "runs")


# Data files.
@pytest.fixture
def table(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", here / "cache")
    datasets.disable_progress_bars()
    path = here / "rows.csv"
    path.write_text("a,b,c\n" + "".join(f"{i % 7},{i % 2},{i / 3:.3f}\n" for i in range(90)))
    return path


def tabled(path: Path) -> dict[str, Any]:
    data = {"name": "hub", "path": str(path), "inputs": ["a", "c"], "batch_size": 16}
    return CONFIG | {"data": data | {"target": {"column": "b", "kind": "classes"}}}


def test_a_data_file_that_is_missing_or_cut_off_before_the_run(
    here: Path, table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = table.read_bytes()
    table.write_bytes(whole[: len(whole) // 2])
    assert "rows.csv" in (text := fails(capsys, here / "runs", tabled(table))) or "row" in text
    table.unlink()
    assert "there is no file or folder" in fails(capsys, here / "runs", tabled(table))
    for data in (b"PAR1" + bytes(50), b""):
        (here / "rows.parquet").write_bytes(data)
        assert "could not be loaded" in fails(capsys, here / "runs", tabled(here / "rows.parquet"))
    assert not list((here / "runs").glob("*/2*"))


def test_a_picture_that_is_cut_off(here: Path, table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from PIL import Image

    for i in range(20):
        Image.effect_noise((24, 24), 50).save(here / f"{i}.png")
    data = (here / "7.png").read_bytes()
    (here / "7.png").write_bytes(data[: len(data) // 2])
    table.write_text("a,b\n" + "".join(f"{i}.png,{i % 2}\n" for i in range(20)))
    config = tabled(table)
    config["data"] = config["data"] | {"inputs": {"a": {"kind": "image"}}}
    assert "row 7" in fails(capsys, here / "runs", config)
    (here / "7.png").unlink()
    assert "there is no file" in fails(capsys, here / "runs", config)


def test_a_data_file_that_vanishes_between_training_and_measuring(
    here: Path, table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = pegboard.train(tabled(table), root="runs", quiet=True).folder
    moved = table.rename(here / "elsewhere.csv")
    for command in ("eval", "resume"):
        capsys.readouterr()
        assert main([command, str(run)]) == 2
        assert "there is no file or folder" in capsys.readouterr().err
    moved.rename(table)
    assert main(["eval", str(run)]) == 0


# Trackers and streams.
HANGING = """
    import time
    from dataclasses import dataclass
    from pathlib import Path
    from pegboard import Tracker, TrackerPart, hookimpl

    @dataclass(frozen=True)
    class Hanging:
        '''Never comes back.'''
        where: str = "finish"  # method that hangs

    class Hangs(Tracker):
        def __init__(self, config):
            self.config = config

        def __getattribute__(self, name):
            if name == object.__getattribute__(self, "config").where:
                time.sleep(3600)
            return object.__getattribute__(self, name)

    @hookimpl
    def pegboard_trackers():
        return [TrackerPart("hanging", Hanging, lambda config, context: Hangs(config))]
"""


@pytest.mark.parametrize("where", ["start", "log", "finish"])
def test_a_tracker_that_hangs_is_left_behind(
    here: Path,
    reference: Files,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    where: str,
) -> None:
    from pegboard import training

    (here / "hanging.py").write_text(textwrap.dedent(HANGING))
    monkeypatch.setattr(training, "GRACE", 0.3)
    given = CONFIG | {"plugins": {"local": ["hanging.py"]}, "trackers": {"hanging": {"where": where}}}
    run = pegboard.train(given, root="runs", quiet=True)
    assert "did not finish in 0 s and were left behind" in capsys.readouterr().err
    assert same(outcome(run.folder), reference)


def pegboard_command(*words: str, **options: Any) -> subprocess.Popen[str]:
    pipe = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([sys.executable, "-m", "pegboard", *words], text=True, **(pipe | options))


def test_a_reader_that_leaves_does_not_end_the_run(here: Path, reference: Files) -> None:
    Path("cfg.yaml").write_text(yaml.safe_dump(CONFIG))
    process = pegboard_command("train", "cfg.yaml")
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    said = process.stderr.read()
    process.stderr.close()
    assert (process.wait(120), said) == (0, "")
    assert same(outcome(here / "runs/machine/latest"), reference)


def test_standard_streams_that_are_closed_do_not_end_the_run(here: Path, reference: Files) -> None:
    Path("cfg.yaml").write_text(yaml.safe_dump(CONFIG))
    command = f"exec {sys.executable} -m pegboard train cfg.yaml >&- 2>&- <&-"
    assert subprocess.run(["sh", "-c", command], timeout=120, check=False).returncode == 0
    assert same(outcome(here / "runs/machine/latest"), reference)


def test_a_server_that_cannot_be_reached_costs_no_row(here: Path, reference: Files) -> None:
    given = CONFIG | {"trackers": {"wandb": {"mode": "online"}}}
    Path("cfg.yaml").write_text(yaml.safe_dump(given))
    surroundings = {"WANDB_BASE_URL": "http://127.0.0.1:9", "WANDB_API_KEY": "k" * 40}
    process = pegboard_command("train", "cfg.yaml", env=os.environ | surroundings)
    _, said = process.communicate(timeout=240)
    assert process.returncode == 0 and "Traceback" not in said, said
    assert "cannot be reached" in said and "wandb sync" in said
    run = here / "runs/machine/latest"
    assert same(outcome(run), reference)
    (record,) = run.rglob("*.wandb")
    assert record.read_bytes().count(b"train/loss") >= len(reference["rows"]) - 1
