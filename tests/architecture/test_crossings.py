"""How often a command goes from one module of the core to another stays what it is."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MOST = {"check": 400, "train": 1600}  # 716 and 3,126 before the core had rooms; a tenth to spare for plugins


@pytest.fixture(scope="module")
def switches() -> dict[str, int]:
    command = [sys.executable, str(ROOT / "benchmarks" / "crossings.py")]
    told = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    found = re.findall(r"^(\w+).*?([\d,]+) switches$", told, re.MULTILINE)
    return {name: int(count.replace(",", "")) for name, count in found}


@pytest.mark.parametrize("command", MOST)
def test_a_command_seldom_goes_from_one_module_to_another(command: str, switches: dict[str, int]) -> None:
    assert 0 < switches[command] <= MOST[command]
