"""A process killed at any instant leaves a run that resumes exactly."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import kills
import pegboard
import pytest
import yaml
from proofs import differences
from sessions import ended, journal_reaches, started


def make_kills(folder: Path, count: int, seed: int) -> dict[str, int]:
    command = [sys.executable, kills.__file__, str(folder), str(count), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    counts: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return counts


def test_runs_killed_at_random_instants_end_as_if_nobody_had_touched_them(tmp_path: Path) -> None:
    assert make_kills(tmp_path / "kills", 4, 7)["kills"] == 4


@pytest.mark.prove
def test_a_command_that_was_killed_is_resumed_by_a_command(tmp_path: Path) -> None:
    slow = {**kills.CONFIG["regularizers"], "journal": {"pause": 0.02}}
    given = {**kills.CONFIG, "regularizers": slow, "plugins": {"local": kills.LOCAL}}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(given))
    process = started(["train", "config.yaml", "--quiet"], tmp_path)
    journal_reaches(tmp_path, 20)
    process.send_signal(signal.SIGKILL)
    process.wait()
    run = kills.run_folder(tmp_path)
    assert run is not None
    step, made = kills.newest(run), kills.journal(tmp_path)
    assert ended(started(kills.resume(run), tmp_path))[0] == 0
    first = kills.journal(tmp_path)[len(made)][1]
    assert first in (step + 1, step + 1 + kills.SAVE_EVERY)  # the save that was cut may have been complete
    assert made[-1][1] - step <= kills.SAVE_EVERY
    journal = f"regularizers.journal={{path: {tmp_path}/whole.txt}}"
    whole = pegboard.train(tmp_path / "config.yaml", journal, root=tmp_path / "whole", quiet=True)
    assert differences(whole.folder, run) == []


@pytest.mark.prove
def test_a_hundred_kills(tmp_path: Path, show: Callable[[str], None]) -> None:
    counts = make_kills(tmp_path / "kills", 100, 20)
    assert counts["kills"] == 100
    said = ", ".join(f"{count} {what}" for what, count in counts.items() if what not in ("kills", "trials"))
    show(f"{counts['kills']} kills by SIGKILL in {counts['trials']} runs, all of which ended equal: {said}")
