"""Runs against a server that plays W&B, against none, and against one that goes away."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROWS = [{"step": 10 * number, "train/loss": number / 7} for number in range(8)]
Reader = Callable[[Path], Any]


def play(scenario: str, folder: Path) -> dict[str, Any]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("WANDB_")}
    places = {f"WANDB_{name}_DIR": str(folder / "home") for name in ("DATA", "CACHE", "CONFIG")}
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("online_run.py")), scenario, str(folder)],
        env={**environment, **places, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""  # W&B says nothing on the console
    seen: dict[str, Any] = json.loads(done.stdout)
    assert seen["hooks"]
    return seen


@pytest.mark.sweep
def test_resumed_online_run_has_every_row_once_under_one_id(tmp_path: Path) -> None:
    seen = play("resumed", tmp_path)
    assert seen["warnings"] == []
    assert seen["runs"] == ["abc"]
    assert seen["rows"] == ROWS
    assert seen["steps"] == list(range(8))
    assert {"plan.txt", "environment.json"} <= set(seen["files"])


def test_unreachable_server_ends_offline_with_one_warning_and_all_rows(tmp_path: Path, read: Reader) -> None:
    seen = play("unreachable", tmp_path)
    assert len(seen["warnings"]) == 2  # one for each of the two runs
    for mode, warning in zip(("auto", "online"), seen["warnings"], strict=True):
        (folder,) = (tmp_path / mode / "wandb").glob("offline-run-*")
        assert "127.0.0.1:9 cannot be reached" in warning and f"wandb sync {folder}" in warning
        assert read(folder).rows == ROWS
        assert read(folder).of("run")[0].run_id == "abc"


@pytest.mark.sweep
def test_server_that_refuses_the_run_leaves_an_offline_record(tmp_path: Path, read: Reader) -> None:
    (warning,) = play("refused", tmp_path)["warnings"]
    (folder,) = (tmp_path / "wandb").glob("offline-run-*")
    assert "no such entity" in warning and f"wandb sync --id abc {folder}" in warning
    assert read(folder).rows == ROWS


@pytest.mark.sweep
def test_server_that_goes_away_is_not_waited_for(tmp_path: Path, read: Reader) -> None:
    seen = play("gone", tmp_path)
    (warning,) = seen["warnings"]
    assert "Tables and checkpoints stay" in warning
    (folder,) = (tmp_path / "wandb").glob("run-*")
    assert read(folder).rows == ROWS  # what was not uploaded waits on disk for `wandb sync`
