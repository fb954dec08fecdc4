"""Where the wall time of a whole run went, from the start of its process to its exit.

A run announces its phases; a hook, which is there as long as the ledger is open, sees imports. Each second
belongs to one row: to the innermost phase or import that was running, or to *elsewhere*.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from importlib.machinery import ExtensionFileLoader, ModuleSpec, SourceFileLoader, SourcelessFileLoader
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.files import write_json
from ..store.names import PROFILE

if TYPE_CHECKING:
    from ..engine.loop import Loop
    from ..report.console import Console
    from .profile import Profile

ELSEWHERE, IMPORTS, STANDARD = "elsewhere", "imports", "standard library"
INTERPRETER, EXIT, PROFILER = "interpreter and command line", "exit", "profiler"
SHOWN = 12  # packages with a row of their own in the table; the file has all
Key = tuple[str, str]  # the phase of a part, and its name


class Stopwatch:
    """Seconds in the parts of a thread, each without those of the parts inside it.

    A part belongs to a phase: one that it names, or that of the part around it.
    """

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self.now = now
        self.spent: dict[Key, float] = {}  # in the order in which they first began
        self.calls: dict[Key, int] = {}
        self.begun: dict[str, int] = {}  # how often a part named this phase
        self._thread = threading.get_ident()
        self._open: list[tuple[Key, float, list[float]]] = []  # begin, and seconds in parts inside

    @contextmanager
    def part(self, name: str, phase: str | None = None, count: int = 1) -> Iterator[None]:
        if threading.get_ident() != self._thread:  # its time is not one that somebody waits for
            yield
            return
        key = (phase or (self._open[-1][0][0] if self._open else ELSEWHERE), name)
        self.spent.setdefault(key, 0.0)
        if phase is not None:
            self.begun[phase] = self.begun.get(phase, 0) + count
        begun, inner = self.now(), [0.0]
        self._open.append((key, begun, inner))
        try:
            yield
        finally:
            whole = self.now() - begun
            self._open.pop()
            self.add(key, whole - inner[0], count)
            if self._open:
                self._open[-1][2][0] += whole

    def add(self, key: Key, seconds: float, count: int = 1) -> None:
        self.spent[key] = self.spent.get(key, 0.0) + seconds
        self.calls[key] = self.calls.get(key, 0) + count

    def phases(self) -> dict[str, tuple[int, float]]:
        """How often each phase was begun, and its seconds."""
        seconds: dict[str, float] = {}
        for (phase, _), part in self.spent.items():
            seconds[phase] = seconds.get(phase, 0.0) + part
        return {phase: (self.begun.get(phase, 0), spent) for phase, spent in seconds.items()}


class ImportTimes:
    """A finder before all others that asks these, and times what finds and loads a module."""

    def __init__(self, watch: Stopwatch) -> None:
        self.watch = watch

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: Any = None
    ) -> ModuleSpec | None:
        package = name.partition(".")[0]
        row = STANDARD if package in sys.stdlib_module_names else package
        with self.watch.part(row, IMPORTS, count=0):
            spec = self._ask_others(name, path, target)
        # Of these loaders each module has its own; the time of others is that of who imports.
        if spec is not None and type(spec.loader) in (
            SourceFileLoader,
            SourcelessFileLoader,
            ExtensionFileLoader,
        ):
            self._time_once(spec.loader, "create_module", row, 0)
            self._time_once(spec.loader, "exec_module", row, 1)
        return spec

    def _ask_others(self, name: str, path: Sequence[str] | None, target: Any) -> ModuleSpec | None:
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            if finder is not self and find is not None and (spec := find(name, path, target)) is not None:
                return spec  # type: ignore[no-any-return]
        return None

    def _time_once(self, loader: Any, method: str, row: str, count: int) -> None:
        call = getattr(loader, method)

        def timed(given: Any) -> Any:
            vars(loader).pop(method, None)  # the loader is again as it was
            with self.watch.part(row, IMPORTS, count):
                return call(given)

        setattr(loader, method, timed)


class Ledger:
    """What `Manner.profile` is with `--profile`: open from the beginning of a run to its end.

    `process` is for a command that is a process of its own: what it took before is the interpreter's, and
    the table is shown at its exit. Otherwise it is shown when the ledger closes.
    """

    def __init__(self, process: bool = False, stopwatch: Stopwatch | None = None) -> None:
        self.stopwatch = stopwatch or Stopwatch()
        self.process = process
        self.console: Console | None = None  # where the table is shown
        self.folder: Path | None = None  # of the run
        self.clock: Profile | None = None  # of the steps
        self._hook = ImportTimes(self.stopwatch)
        self.begun, self.seconds, self._ended = self.stopwatch.now(), 0.0, 0.0
        if process:
            age = process_age()
            self.begun -= age
            self.stopwatch.add((INTERPRETER, INTERPRETER), age)
            atexit.register(self._at_exit)  # called after those that libraries register

    def __enter__(self) -> Ledger:
        sys.meta_path.insert(0, self._hook)
        return self

    def __exit__(self, *error: object) -> None:
        with suppress(ValueError):
            sys.meta_path.remove(self._hook)
        self._ended = self.stopwatch.now()
        self.seconds = self._ended - self.begun
        self._write()
        if error[0] is not None:
            self.console = None  # what went wrong is the last word
        if not self.process:
            self.show()

    def phase(self, name: str) -> AbstractContextManager[None]:
        return self.stopwatch.part(name, name)

    def steps(self, loop: Loop) -> AbstractContextManager[Any]:
        """A clock for `loop.run`; in a cross-validation of the parts of the first loop alone."""
        if self.clock is not None:
            return self.phase("steps")
        from .profile import Profile

        self.folder = loop.folder
        self.clock = Profile(loop, self.stopwatch)
        return self.clock

    def _at_exit(self) -> None:
        now = self.stopwatch.now()
        self.stopwatch.add((EXIT, EXIT), now - self._ended)
        self.seconds = now - self.begun
        self._write()
        self.show()

    def rows(self) -> list[tuple[str, str, int, float, float]]:
        """Phase, part, calls, seconds and share; together all of the time. Each package has a row."""
        rows = [
            (phase, phase, *found)
            for phase, found in self.stopwatch.phases().items()
            if phase not in (IMPORTS, ELSEWHERE)
        ]
        packages = [
            (IMPORTS, name, self.stopwatch.calls.get((phase, name), 0), seconds)
            for (phase, name), seconds in self.stopwatch.spent.items()
            if phase == IMPORTS
        ]
        packages.sort(key=lambda row: -row[3])
        at = 1 if rows and rows[0][0] == INTERPRETER else 0
        rows[at:at] = packages
        rows.append((ELSEWHERE, ELSEWHERE, 0, self.seconds - sum(row[3] for row in rows)))
        whole = max(self.seconds, 1e-9)
        return [(*row, row[3] / whole) for row in rows]

    def _write(self) -> None:
        if self.folder is None:
            return
        names = ("phase", "part", "calls", "seconds", "share")
        rows = [dict(zip(names, row, strict=True)) for row in self.rows()]
        with suppress(OSError):  # the profile of the steps has said so
            write_json(self.folder / PROFILE / "run.json", {"seconds": self.seconds, "parts": rows})

    def show(self) -> None:
        """The table of the run, that of its steps, and where the trace is."""
        if self.console is None or self.clock is None:
            return
        rows = self.rows()
        packages = [row for row in rows if row[0] == IMPORTS]
        lines: list[tuple[str, int, float]] = []
        for phase, part, calls, seconds, _ in rows:
            if phase != IMPORTS:
                lines.append((part, calls, seconds))
            elif (phase, part) == packages[0][:2]:
                lines.append((IMPORTS, sum(p[2] for p in packages), sum(p[3] for p in packages)))
                lines += [(f"  {p[1]}", p[2], p[3]) for p in packages[:SHOWN]]
                if rest := packages[SHOWN:]:
                    lines.append((f"  {len(rest)} others", sum(p[2] for p in rest), sum(p[3] for p in rest)))
        cells = [[n, c or "", f"{s:.3f}", f"{s / max(self.seconds, 1e-9):.1%}"] for n, c, s in lines]
        title = f"where the time of the run went: {self.seconds:.2f} s"
        self.console.table(title, ["part", "calls", "seconds", "share"], cells)
        self.clock.show(self.console)


def process_age() -> float:
    """Seconds since this process was started; those its processor worked where the system does not tell."""
    with suppress(OSError, ValueError, IndexError, AttributeError):  # the last: Windows has no sysconf
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        started = int(fields[19]) / os.sysconf("SC_CLK_TCK")
        return max(time.clock_gettime(time.CLOCK_BOOTTIME) - started, time.process_time())
    return time.process_time()
