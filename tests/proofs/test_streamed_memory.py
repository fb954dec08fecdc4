"""Ten times the rows on disk take no more memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import resident_set

ROWS = 40_000


def trained(rows: int, folder: Path) -> dict[str, int]:
    folder.mkdir()
    command = [sys.executable, resident_set.__file__, str(rows), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    found: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.prove
@pytest.mark.skipif(
    not Path("/proc/self/smaps_rollup").exists(), reason="the system does not say who has what"
)
def test_ten_times_the_rows_take_the_same_memory(tmp_path: Path, show: Callable[[str], None]) -> None:
    few, many = trained(ROWS, tmp_path / "few"), trained(10 * ROWS, tmp_path / "many")
    assert few["looks"] == many["looks"] > 5
    assert few["processes"] == many["processes"] == 4  # two that read for training, two for an evaluation
    growth = many["most"] / few["most"] - 1
    assert growth < 0.1
    show(f"memory of a run on {10 * ROWS} streamed rows beside {ROWS}: {growth:+.0%}, 2 workers")
