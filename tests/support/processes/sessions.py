"""Commands in processes of their own, to be sent signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


def started(
    words: list[str], folder: Path, hangup: signal.Handlers = signal.SIG_DFL, **streams: Any
) -> subprocess.Popen[str]:
    """The command line in a process of its own, which takes SIGHUP as it is told to."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "pegboard", *words],
        cwd=folder,
        env=environment,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, hangup),
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams},
    )


def ended(process: subprocess.Popen[str], seconds: float = 900) -> tuple[int, str]:
    """Its exit code and what it said on standard error."""
    _, said = process.communicate(timeout=seconds)
    return process.returncode, said


def journal_reaches(folder: Path, step: int, seconds: float = 900) -> None:
    """Wait until a process has made so many updates."""
    end, path = time.monotonic() + seconds, folder / "journal.txt"
    while not path.exists() or len(path.read_text().splitlines()) < step:
        if time.monotonic() > end:
            raise TimeoutError(f"no {step} updates in {folder} after {seconds} s")
        time.sleep(0.01)
