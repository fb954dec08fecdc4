"""What the proofs share: one thread, no pictures, and a record of what was shown."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from pegboard.testing import runs

BEGIN, END = "<!-- last result -->", "<!-- end of last result -->"
Show = Callable[[str], None]


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes longer than all the rest of a small run."""
    monkeypatch.setattr("pegboard.run.finish.draw_curves", lambda rows, path, *_: path)


@pytest.fixture
def lean() -> Iterator[None]:
    """Leave out what a run repeats in every process: to look for plugins, and to explain its plan."""
    with runs.lean():
        yield


@pytest.fixture
def only_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps are traced whole and linked as graphs, and left uncompiled: a second instead of ten."""
    torch._dynamo.reset()  # a graph of a network may be that of another test
    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx", lambda graph, inputs, **options: graph)


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The compiler itself, with a place of its own for what it keeps."""
    torch._dynamo.reset()
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "compiled"))


@pytest.fixture(scope="session")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what parts cannot be tried without."""
    return tmp_path_factory.mktemp("shelf").resolve()


@pytest.fixture
def show(record_property: Callable[[str, object], None]) -> Show:
    """Record a figure for the summary."""
    return lambda text: record_property("proof", text)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print what the proofs recorded; with PEGBOARD_PROOFS, also write it into that page."""
    reports = [r for kind in ("passed", "failed") for r in terminalreporter.stats.get(kind, ())]
    lines: dict[str, int] = {}
    for report in reports:
        for name, text in report.user_properties:
            if name == "proof" and report.when == "call":
                lines[text] = lines.get(text, 0) + 1
    failed = len(terminalreporter.stats.get("failed", ()))
    if not lines:
        return
    shown = [
        f"- {text}" + (f" ({count} times)" if count > 1 else "") for text, count in sorted(lines.items())
    ]
    terminalreporter.section("proofs")
    terminalreporter.line("\n".join(shown))
    if page := os.environ.get("PEGBOARD_PROOFS"):
        path = Path(page)
        before, _, rest = path.read_text("utf-8").partition(BEGIN)
        when = f"{time.strftime('%Y-%m-%d', time.gmtime())}, torch {torch.__version__}, CPU"
        passed = len({r.nodeid for r in reports if r.when == "call" and r.passed})
        head = f"`make prove`, {when}: {passed} proofs passed, {failed} failed."
        text = "\n".join((BEGIN, head, "", *shown, END))
        path.write_text(before + text + rest.partition(END)[2], "utf-8")
