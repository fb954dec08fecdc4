"""The ledger of a run: each second of it in one row, by a clock that the test sets."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pegboard.tools import ledger
from pegboard.tools.ledger import ImportTimes, Ledger, Stopwatch, process_age


class Clock:
    """Goes on only when it is told to."""

    def __init__(self) -> None:
        self.at = 100.0

    def __call__(self) -> float:
        return self.at

    def work(self, seconds: float) -> None:
        self.at += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock) -> Iterator[Path]:
    """A folder of modules that take a known time to import, by `ticking`."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("builtins.ticking", clock.work, raising=False)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_a_part_is_without_those_inside_it_and_of_the_phase_around_it(clock: Clock) -> None:
    watch = Stopwatch(clock)
    with watch.part("steps", "steps"):
        clock.work(1)
        for _ in range(2):
            with watch.part("backward"):
                clock.work(4)
                with watch.part("evaluation", "evaluations"):
                    clock.work(16)
    assert watch.spent == {
        ("steps", "steps"): 1,
        ("steps", "backward"): 8,
        ("evaluations", "evaluation"): 32,
    }
    assert watch.phases() == {"steps": (1, 9), "evaluations": (2, 32)}


def test_another_thread_has_no_time_of_the_run(clock: Clock) -> None:
    watch = Stopwatch(clock)

    def work() -> None:
        with watch.part("there", "there"):
            clock.work(5)

    with watch.part("here", "here"):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert watch.spent == {("here", "here"): 5}


def test_an_import_is_booked_to_its_package_and_not_to_who_needs_it(clock: Clock, shelf: Path) -> None:
    (shelf / "outer_h").mkdir()
    (shelf / "outer_h" / "__init__.py").write_text(
        "ticking(1)\nimport inner_h\nfrom . import more\nticking(2)\n"
    )
    (shelf / "outer_h" / "more.py").write_text("ticking(4)\n")
    (shelf / "inner_h.py").write_text("ticking(8)\n")
    with Ledger(stopwatch=Stopwatch(clock)) as found, found.phase("evaluations"):
        clock.work(32)
        import outer_h  # type: ignore[import-not-found]

        clock.work(64)
    rows = {part: (phase, calls, seconds) for phase, part, calls, seconds, _ in found.rows()}
    assert rows["outer_h"] == ("imports", 2, 7) and rows["inner_h"] == ("imports", 1, 8)
    assert rows["evaluations"] == ("evaluations", 1, 96) and rows["elsewhere"][2] == 0
    assert found.seconds == 111
    assert inspect.getsource(outer_h).startswith("ticking") and "exec_module" not in vars(outer_h.__loader__)


def test_a_module_that_fails_to_import_fails_as_ever(clock: Clock, shelf: Path) -> None:
    (shelf / "broken_h.py").write_text("ticking(1)\nraise ImportError('no such thing')\n")
    with Ledger(stopwatch=Stopwatch(clock)) as found:
        with pytest.raises(ImportError, match="no such thing"):
            importlib.import_module("broken_h")
        with pytest.raises(ModuleNotFoundError, match="nowhere_h"):
            importlib.import_module("nowhere_h")
        assert importlib.util.find_spec("json") is not None
        clock.work(3)
    rows = {part: seconds for _, part, _, seconds, _ in found.rows()}
    assert rows["broken_h"] == 1 and rows["elsewhere"] == 3
    assert not any(isinstance(finder, ImportTimes) for finder in sys.meta_path)


def test_a_process_is_told_from_its_start(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(ledger, "process_age", lambda: 2.0)
    monkeypatch.setattr("atexit.register", asked.append)
    with Ledger(process=True, stopwatch=Stopwatch(clock)) as found:
        with found.phase("check"):
            clock.work(1)
        clock.work(5)
    clock.work(0.5)
    (at_exit,) = asked
    at_exit()
    rows = {part: seconds for _, part, _, seconds, _ in found.rows()}
    assert rows == {"interpreter and command line": 2.0, "check": 1.0, "exit": 0.5, "elsewhere": 5.0}
    assert found.seconds == 8.5


def test_the_age_of_a_process_without_proc_is_its_processor_time(monkeypatch: pytest.MonkeyPatch) -> None:
    assert process_age() >= 0
    monkeypatch.setattr(Path, "read_text", lambda path: "no such system")
    monkeypatch.setattr("time.process_time", lambda: 3.25)
    assert process_age() == 3.25
