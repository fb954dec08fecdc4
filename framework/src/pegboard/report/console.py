"""The console: a progress bar and tables in a terminal, plain lines elsewhere."""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import IO, Any, cast

from rich.console import Console as RichConsole
from rich.console import RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

LINE_EVERY = 5.0  # seconds between plain lines, besides the first and the last
FIGURES = 40  # of a list that are shown
DRAW_EVERY = 0.25  # seconds between two pictures of a bar, each of which takes milliseconds


class Lasting:
    """A text stream that a run outlives: whose reader may leave, as `head` does, or whose terminal goes away.

    What the encoding of the stream has no letters for is written as escapes.
    """

    def __init__(self, stream: IO[str]) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        try:
            return self._safely(lambda: self.stream.write(text))
        except UnicodeEncodeError:
            encoding = getattr(self.stream, "encoding", None) or "ascii"
            plain = text.encode(encoding, "backslashreplace").decode(encoding)
            return self._safely(lambda: self.stream.write(plain))

    def flush(self) -> None:
        self._safely(self.stream.flush)

    def _safely(self, act: Callable[[], int | None]) -> int:
        try:
            return act() or 0
        except OSError as error:
            if error.errno not in (errno.EPIPE, errno.EIO, errno.ENXIO, errno.EBADF):
                raise
            mute(self.stream)
            return 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def mute(stream: IO[str]) -> None:
    """Let what is still written to a stream go nowhere."""
    with suppress(OSError, ValueError):  # a stream that is no file
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


class _Bar(Progress):
    """A bar with the newest figures below it, on as many lines as the terminal needs for them."""

    figures = ""

    def get_renderables(self) -> Iterator[RenderableType]:
        yield from super().get_renderables()
        if self.figures:
            yield Text(self.figures, overflow="fold", no_wrap=False)  # the console itself never wraps


class Console:
    """Shows a run, or other work that counts a `unit`, to a person. `quiet` shows nothing but warnings."""

    def __init__(self, quiet: bool = False, stream: IO[str] | None = None, unit: str = "step") -> None:
        self.quiet, self.unit = quiet, unit
        self.rich = RichConsole(
            file=cast(IO[str], Lasting(stream or sys.stdout)), highlight=False, soft_wrap=True
        )
        self.live = self.rich.is_terminal and not quiet
        self._bar: _Bar | None = None
        self._started, self._first, self._shown = time.monotonic(), 0, 0.0
        self._figures = ""
        self._total: int | None = None
        self._step = 0

    def say(self, text: str) -> None:
        if not self.quiet:
            self.rich.print(text, markup=False)

    def warn(self, text: str) -> None:
        """A line on standard error, where it cannot get into a pipe."""
        if self._bar is not None:
            self._bar.console.print(f"warning: {text}", markup=False, style="yellow")
        else:
            print(f"warning: {text}", file=Lasting(sys.stderr))

    def start(self, total: int, done: int = 0) -> None:
        """Begin to show progress through `total` steps."""
        self._started, self._first, self._total, self._step = time.monotonic(), done, total, done
        if self.live:
            columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}", markup=False))
            self._bar = _Bar(*columns, console=self.rich, auto_refresh=False)
            self._bar.add_task("", total=total, completed=done)
            self._bar.start()
            self._shown = time.monotonic()

    def advanced(self, step: int) -> None:
        now, every = time.monotonic(), LINE_EVERY if self._bar is None else DRAW_EVERY
        self._step = step
        if now - self._shown > every or step == self._total:
            self._shown = now
            self._show()

    def _show(self) -> None:
        """How far it is, as a bar or a line."""
        step, seconds = self._step, max(time.monotonic() - self._started, 1e-9)
        rate = (step - self._first) / seconds
        text = speed(rate, self.unit)
        if self._total is not None and rate:
            text += f", {_duration((self._total - step) / rate)} left"
        if self._bar is not None:
            self._bar.figures = self._figures
            self._bar.update(self._bar.task_ids[0], completed=step, description=text)
            self._bar.refresh()
        else:
            self.say(f"{self.unit} {step}/{self._total}  {text}  {self._figures}".rstrip())

    def row(self, row: Mapping[str, Any]) -> None:
        """Remember the newest figures, which are shown beside the bar."""
        shown = {k: v for k, v in row.items() if k not in ("step", "lr")}
        self._figures = "  ".join(f"{k} {number(v)}" for k, v in shown.items())

    def stop(self) -> None:
        if self._bar is not None:
            self._show()
            self._bar.stop()
            self._bar = None

    def table(self, title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """A table of results, with columns that line up in a pipe too."""
        if self.quiet:
            return
        if self.rich.is_terminal:
            table = Table(*columns, title=title, title_justify="left")
            for cells in rows:
                table.add_row(*(Text(number(cell)) for cell in cells))  # no markup: a name may be [so]
            self.rich.print(table)
        else:
            self.say(plain_table(title, columns, rows))


def bar_alone(unit: str = "step") -> Console:
    """Shows a progress bar on standard error where a person looks at it, warnings, and nothing else."""
    console = Console(stream=sys.stderr, unit=unit)
    console.quiet = True
    return console


@contextmanager
def working(total: int, unit: str) -> Iterator[Callable[[int], None]]:
    """A progress bar alone; takes how much is done."""
    console = bar_alone(unit)
    console.start(total)
    try:
        yield console.advanced
    finally:
        console.stop()


def speed(rate: float, unit: str) -> str:
    """Units a second, or seconds a unit where one takes longer than that."""
    if rate <= 0:
        return f"no {unit} yet"
    return f"{rate:.{0 if rate >= 10 else 1}f} {unit}s/s" if rate >= 1 else f"{1 / rate:.1f} s/{unit}"


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else str(timedelta(seconds=round(seconds)))


def number(value: Any) -> str:
    """A figure as a person reads it."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def numbers(values: Iterable[Any]) -> list[str]:
    """Figures as a person reads them, and lists of figures, the first of many."""
    return [
        ", ".join(map(number, value[:FIGURES])) if isinstance(value, list) else number(value)
        for value in values
    ]


def split_place(figure: str) -> tuple[int, str]:
    """Where a figure, or its split, stands among others: those of train, val and test, then the rest."""
    split, known = figure.partition("/")[0], ("train", "val", "test")
    return known.index(split) if split in known else len(known), split


def plain_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table in plain text."""
    cells = [list(map(str, columns)), *map(numbers, rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in cells]
    return "\n".join([title, *lines] if title else lines)
