"""What importing a plugin does, seen from outside: in a process of its own it cannot harm this one."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LIMIT = 20.0  # seconds that a plugin may take, hooks included
START = 60.0  # seconds more that its process may take to start, on a machine that does other things too
SHOWN = 20_000  # bytes of what it printed that are kept


@dataclass(frozen=True)
class Imported:
    """What became of a plugin and of the process around it."""

    milliseconds: float = 0.0  # of the processor, for its own import, after that of the core
    error: str = ""
    phase: str = ""  # where that happened: import, register, hook, collect, record, schema, health
    where: str = ""  # file and line of that
    signal: str = ""  # that ended the process: SIGSEGV
    hung: bool = False
    heavy: tuple[str, ...] = ()  # large libraries that it imported
    printed: str = ""
    drew: bool = False  # random numbers, from Python's own stream
    network: tuple[str, ...] = ()  # hosts and addresses that it asked for
    changed: tuple[str, ...] = ()  # what differs in the process afterwards
    warnings: tuple[str, ...] = ()  # deprecations, with file and line
    remarks: tuple[str, ...] = ()  # what is amiss in its records, though they can be used
    health: tuple[str, ...] = ()  # what its own hook `pegboard_health` found
    parts: tuple[str, ...] = ()  # kind and name of each


def import_alone(target: str, limit: float = LIMIT) -> Imported:
    """Import a plugin, "module", "module:attribute" or the path of a Python file, in a process of its own."""
    ((_, found),) = import_each([target], limit)
    return found


def import_each(
    targets: Sequence[str], limit: float = LIMIT, at_once: int | None = None
) -> Iterator[tuple[int, Imported]]:
    """Import plugins, each in its own process and several at once; gives index and outcome as they end."""
    waiting, running = list(enumerate(targets)), dict[int, _Process]()
    try:
        while waiting or running:
            while waiting and len(running) < (at_once or os.cpu_count() or 1):
                index, target = waiting.pop(0)
                running[index] = _Process(target, limit)
            time.sleep(0.005)
            for index, process in list(running.items()):
                if (found := process.outcome()) is not None:
                    running.pop(index).end()
                    yield index, found
    finally:  # whoever asked may have left
        for process in running.values():
            process.end()


class _Process:
    """A plugin that is being imported."""

    def __init__(self, target: str, limit: float) -> None:
        self.limit, self.latest = limit, time.monotonic() + limit + START
        self.place = tempfile.TemporaryDirectory(prefix="pegboard-")
        self.folder = Path(self.place.name)
        words = [sys.executable, "-P", "-X", "faulthandler", "-m", "pegboard.tools.import_child"]
        with (self.folder / "printed").open("wb") as printed:  # no pipe: what it starts may keep one open
            self.process = subprocess.Popen(
                [*words, target, str(self.folder), str(limit)],
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.STDOUT,
                env=os.environ | {"PYTHONPATH": _path()},
                start_new_session=True,
            )

    def outcome(self) -> Imported | None:
        """What became of it; None while it is under way."""
        code = self.process.poll()
        if code is None and time.monotonic() < self.latest:
            return None
        said, stack = self._read("printed"), _text(self._read("stack"))
        if code is None or stack:
            error = f"it did not end within {self.limit:g} s"
            return Imported(hung=True, error=error, phase="import", where=_where(stack), printed=_text(said))
        if not (self.folder / "report.json").is_file():
            return _ended(code, _text(said))
        seen = json.loads((self.folder / "report.json").read_text("utf-8"))
        end = seen.pop("said")  # what comes after that was said by its health check
        kept: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in seen.items()
        }
        return Imported(**kept, printed=_text(said[:end]))

    def end(self) -> None:
        """End it and whatever it started."""
        with suppress(OSError):
            if hasattr(os, "killpg"):
                os.killpg(self.process.pid, signal.SIGKILL)
            else:
                self.process.kill()
        self.process.wait()
        self.place.cleanup()

    def _read(self, name: str) -> bytes:
        try:
            with (self.folder / name).open("rb") as file:
                return file.read(SHOWN)
        except OSError:
            return b""


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _path() -> str:
    """The path of this process, for the other to find the same modules."""
    return os.pathsep.join(place or os.getcwd() for place in sys.path if isinstance(place, str))


def _ended(code: int, printed: str) -> Imported:
    """A process that did not get to its report."""
    printed, _, stack = printed.partition("Fatal Python error: ")
    name = ""
    if code < 0:
        with suppress(ValueError):
            name = signal.Signals(-code).name
        name = name or f"signal {-code}"
    last = printed.strip().splitlines()[-1:]
    error = f"its process was ended by {name}" if name else f"it ended the process, with code {code}"
    error += f": {last[0]}" if last and not name else ""
    return Imported(error=error, phase="import", where=_where(stack), signal=name, printed=printed)


def _where(stack: str) -> str:
    """File and line at the top of a printed stack that are not Python's own."""
    threads = re.split(r"^(?=(?:Current thread|Thread) 0x)", stack, flags=re.M)
    told = next((t for t in threads if t.startswith("Current")), threads[-1])  # the first to be made is last
    frames = re.findall(r'^  File "(.+)", line (\d+) in ', told, flags=re.M)
    own = [frame for frame in frames if not _standard(frame[0])]
    return ":".join(own[0]) if own else ""


def _standard(file: str) -> bool:
    """Whether a file is of the standard library."""
    inside = file.startswith(sysconfig.get_path("stdlib") + os.sep) and "-packages" + os.sep not in file
    return inside or file.startswith("<")
