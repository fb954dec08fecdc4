"""How far a reader has to jump: modules, functions and switches between modules that a command takes.

    python benchmarks/crossings.py

A switch is a call of a function of the core from another module of the core. Calls are counted
(`sys.setprofile`), not timed, so a table is the same on every machine. The config is that of the
quickstart; training makes three steps, and the resumed run has one more to make.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
CONFIG = ROOT / "configs" / "quickstart.yaml"


@dataclass
class Walk:
    """What a command went through."""

    core: str
    modules: set[str] = field(default_factory=set)
    functions: set[tuple[str, str]] = field(default_factory=set)
    switches: int = 0

    def event(self, frame: FrameType, event: str, arg: Any) -> None:
        if event != "call" or not (file := frame.f_code.co_filename).startswith(self.core):
            return
        if frame.f_code.co_name == "<module>":
            return
        self.modules.add(file)
        self.functions.add((file, frame.f_code.co_qualname))
        caller = frame.f_back
        if caller is not None:
            before = caller.f_code.co_filename
            self.switches += before != file and before.startswith(self.core)


def walked(command: Callable[[], Any], core: str) -> Walk:
    walk = Walk(core)
    sys.setprofile(walk.event)
    try:
        command()
    finally:
        sys.setprofile(None)
    return walk


def commands(root: Path) -> dict[str, Callable[[], Any]]:
    """What is walked through, in the order in which it can be run."""
    import pegboard
    from pegboard.config.check import check

    runs: list[Any] = []

    def train() -> None:
        runs.append(pegboard.train(CONFIG, "trainer.epochs=null", "trainer.steps=3", root=root, quiet=True))

    def resume() -> None:
        pegboard.resume(runs[-1], quiet=True)

    return {"check": lambda: check(CONFIG), "train": train, "resume": resume}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.parse_args()
    import pegboard

    core = str(Path(pegboard.__file__).parent)
    print(f"{'':8}{'modules':>9}{'functions':>11}{'switches':>10}")
    with tempfile.TemporaryDirectory() as folder:
        for name, command in commands(Path(folder)).items():
            walk = walked(command, core)
            print(f"{name:8}{len(walk.modules):>9}{len(walk.functions):>11}{walk.switches:>10}", flush=True)


if __name__ == "__main__":
    main()
