"""A type checker sees when a build function does not fit its config or its kind, before anything runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from sandbox import ROOT

TYPED = ROOT / "tests" / "typed"


@pytest.mark.sweep
def test_mypy_reports_every_mistake_and_nothing_else() -> None:
    files = ("acme_sound.py", "acme_wrong.py")
    # From the root, with the settings and the cache of `make lint`: torch takes a minute to be read anew.
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--no-error-summary",
        *(f"tests/typed/{f}" for f in files),
    ]
    env = {**os.environ, "MYPYPATH": str(TYPED)}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    reported = re.findall(r"^tests/typed/(\w+\.py):(\d+): error", done.stdout, re.M)
    lines = (TYPED / "acme_wrong.py").read_text().splitlines()
    wrong = [
        ("acme_wrong.py", str(number)) for number, line in enumerate(lines, 1) if line.endswith("# wrong")
    ]
    assert len(wrong) == 11
    assert sorted(set(reported)) == sorted(wrong), done.stdout + done.stderr
    for said in ("Wide", "str", "DataSpec", "Tracker", "Regularizer", "hnag", "dorp", "acme:prune", "hiden"):
        assert said in done.stdout
