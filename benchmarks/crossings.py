"""How often commands go from one module of the core to another: a count, the same on every machine.

    python benchmarks/crossings.py

For `check` and `train` of three steps of configs/quickstart.yaml: modules of the core that are touched,
functions that are called, calls, and switches, which are calls of another module than that of the call before
them. Functions with a name count: what Python makes of a comprehension or a dataclass is no place that a
reader goes to. Imports do not count either: each command is made once before.
"""

from __future__ import annotations

import contextlib
import io
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
CONFIG = str(ROOT / "configs" / "quickstart.yaml")


def crossings(command: Callable[[], object]) -> dict[str, int]:
    """What a command calls in the core."""
    functions, modules, calls, switches, last = set[Any](), set[str](), 0, 0, ""

    def seen(frame: FrameType, event: str, _: object) -> None:
        nonlocal calls, switches, last
        code, name = frame.f_code, str(frame.f_globals.get("__name__", ""))
        made = code.co_filename.startswith("<") or code.co_name.startswith("<")
        if event != "call" or made or not name.startswith("pegboard."):
            return
        functions.add(frame.f_code)
        modules.add(name)
        calls += 1
        switches += name != last
        last = name

    sys.setprofile(seen)
    try:
        command()
    finally:
        sys.setprofile(None)
    return {"modules": len(modules), "functions": len(functions), "calls": calls, "switches": switches}


def main() -> None:
    from pegboard.cli import main as command

    with tempfile.TemporaryDirectory() as folder:
        words = {
            "check": ["check", CONFIG],
            "train": ["train", CONFIG, "trainer.steps=3", "--quiet", "--root", folder],
        }
        for name, given in words.items():
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                command(given)
                found = crossings(lambda given=given: command(given))
            print(f"{name:6}", ", ".join(f"{count:,} {what}" for what, count in found.items()))


if __name__ == "__main__":
    main()
