"""The machine turns on a run: each time one clear message, and a run folder that goes on exactly."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pegboard
import pytest
import torch
import yaml
from machine import CONFIG, Fails, goes_on, nth, unharmed
from pegboard.cli import main
from pegboard.planning import plan as planning
from pegboard.run import training
from pegboard_objectives import functional as losses
from sweeps import first_of_each


def test_a_clock_that_jumps_changes_nothing(
    here: Path, reference: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments = iter([4e9, 0.0, 2e9, 1.0] * 10_000)
    monkeypatch.setattr(time, "time", lambda: next(moments))
    unharmed(pegboard.train(CONFIG, root="runs", quiet=True).folder, reference)


# Memory.
FILLED = "DefaultCPUAllocator: can't allocate memory: you tried to allocate 99 bytes."


@pytest.mark.parametrize(
    "error",
    first_of_each(
        [
            RuntimeError(f"[enforce fail at alloc_cpu.cpp] {FILLED}"),
            MemoryError(),
            torch.OutOfMemoryError("CUDA"),
        ]
    ),
)
def test_memory_that_runs_out_in_a_step(here: Path, reference: Path, fails: Fails, error: Exception) -> None:
    def fail() -> None:
        raise error

    with nth(losses, "plain_cross_entropy", 17, fail):
        text = fails(here / "runs")
    assert "out of memory" in text and "data.batch_size" in text and "pegboard resume" in text
    goes_on(here / "runs", reference)


def test_a_model_that_no_memory_holds(here: Path, fails: Fails) -> None:
    giant = CONFIG | {"model": {"name": "mlp", "hidden": [4_000_000, 4_000_000]}}  # 64 TB
    assert "out of memory" in fails(here / "runs", giant)
    assert not list((here / "runs").glob("*/2*"))


def test_data_that_no_memory_holds(here: Path, fails: Fails) -> None:
    def fail() -> None:
        raise MemoryError

    with nth(planning, "read_data", 1, fail):
        assert "out of memory" in fails(here / "runs")


# Data files.
@pytest.fixture
def table(here: Path, monkeypatch: pytest.MonkeyPatch, no_bars: None) -> Path:
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", here / "cache")
    path = here / "rows.csv"
    path.write_text("a,b,c\n" + "".join(f"{i % 7},{i % 2},{i / 3:.3f}\n" for i in range(90)))
    return path


def tabled(path: Path) -> dict[str, Any]:
    data = {"name": "hub", "path": str(path), "inputs": ["a", "c"], "batch_size": 16}
    return CONFIG | {"data": data | {"target": {"column": "b", "kind": "classes"}}}


def test_a_data_file_that_is_missing_or_cut_off_before_the_run(here: Path, table: Path, fails: Fails) -> None:
    whole = table.read_bytes()
    table.write_bytes(whole[: len(whole) // 2])
    assert "row 46 (0 is the first): nothing" in fails(here / "runs", tabled(table))
    table.unlink()
    assert "there is no file or folder" in fails(here / "runs", tabled(table))
    for data in (b"PAR1" + bytes(50), b""):
        (here / "rows.parquet").write_bytes(data)
        assert "could not be loaded" in fails(here / "runs", tabled(here / "rows.parquet"))
    assert not list((here / "runs").glob("*/2*"))


def test_a_picture_that_is_cut_off(here: Path, table: Path, fails: Fails) -> None:
    from PIL import Image

    for i in range(20):
        Image.effect_noise((24, 24), 50).save(here / f"{i}.png")
    data = (here / "7.png").read_bytes()
    (here / "7.png").write_bytes(data[: len(data) // 2])
    table.write_text("a,b\n" + "".join(f"{i}.png,{i % 2}\n" for i in range(20)))
    config = tabled(table)
    config["data"] = config["data"] | {"inputs": {"a": {"kind": "image"}}}
    assert "row 7" in fails(here / "runs", config)
    (here / "7.png").unlink()
    assert "there is no file" in fails(here / "runs", config)


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
    reference: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    where: str,
) -> None:
    (here / "hanging.py").write_text(textwrap.dedent(HANGING))
    monkeypatch.setattr(training, "GRACE", 0.3)
    given = CONFIG | {"plugins": {"local": ["hanging.py"]}, "trackers": {"hanging": {"where": where}}}
    run = pegboard.train(given, root="runs", quiet=True)
    assert "did not finish in 0 s and were left behind" in capsys.readouterr().err
    unharmed(run.folder, reference)


def pegboard_command(*words: str, **options: Any) -> subprocess.Popen[str]:
    pipe = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([sys.executable, "-m", "pegboard", *words], text=True, **(pipe | options))


@pytest.mark.sweep
def test_a_reader_that_leaves_does_not_end_the_run(here: Path, reference: Path) -> None:
    Path("cfg.yaml").write_text(yaml.safe_dump(CONFIG))
    process = pegboard_command("train", "cfg.yaml")
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    said = process.stderr.read()
    process.stderr.close()
    assert (process.wait(600), said) == (0, "")
    unharmed(here / "runs/machine/latest", reference)


@pytest.mark.sweep
def test_standard_streams_that_are_closed_do_not_end_the_run(here: Path, reference: Path) -> None:
    Path("cfg.yaml").write_text(yaml.safe_dump(CONFIG))
    command = f"exec {sys.executable} -m pegboard train cfg.yaml >&- 2>&- <&-"
    assert subprocess.run(["sh", "-c", command], timeout=600, check=False).returncode == 0
    unharmed(here / "runs/machine/latest", reference)


@pytest.mark.sweep
def test_a_server_that_cannot_be_reached_costs_no_row(here: Path, reference: Path) -> None:
    given = CONFIG | {"trackers": {"wandb": {"mode": "online"}}}
    Path("cfg.yaml").write_text(yaml.safe_dump(given))
    surroundings = {"WANDB_BASE_URL": "http://127.0.0.1:9", "WANDB_API_KEY": "k" * 40}
    process = pegboard_command("train", "cfg.yaml", env=os.environ | surroundings)
    _, said = process.communicate(timeout=1200)
    assert process.returncode == 0 and "Traceback" not in said, said
    assert "cannot be reached" in said and "wandb sync" in said
    run = here / "runs/machine/latest"
    unharmed(run, reference)
    (record,) = run.rglob("*.wandb")
    assert record.read_bytes().count(b"train/loss") >= len(pegboard.Run(reference).history) - 1
