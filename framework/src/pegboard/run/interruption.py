"""What the signals that ask a run to end do: it finishes its step, saves, and says how to go on."""

from __future__ import annotations

import atexit
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..engine.loop import Loop

HANGUP = getattr(signal, "SIGHUP", None)  # a system may have none


class Ended(KeyboardInterrupt):
    """A signal came where a command can end at once, between two runs: as Ctrl-C, with its own exit code."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.signal = number


def ending_signals() -> list[signal.Signals]:
    """The signals that ask a run to end: those of Ctrl-C, of `kill`, and of a terminal that goes away.

    The last one is left alone where it is ignored, as under nohup, and where the system has none.
    """
    hangup = getattr(signal, "SIGHUP", None)
    kept = hangup is None or signal.getsignal(hangup) is signal.SIG_IGN
    return [signal.SIGINT, signal.SIGTERM, *(() if kept else (hangup,))]


class Handler:
    """What a signal does: the first one lets the loop finish its step and save, a second one leaves at once.

    Leaving at once loses nothing: checkpoints are complete or not there. A terminal that goes away may say so
    more than once, before and after another signal, so that SIGHUP neither is a second one nor makes one.
    """

    def __init__(self) -> None:
        self.loop: Loop | None = None
        self.asked = 0  # number of the signal of which the exit code tells
        self.before: dict[int, Any] = {}

    def __call__(self, number: int, frame: Any) -> None:
        if self.asked and number == HANGUP:
            return
        if self.asked not in (0, HANGUP):
            with suppress(OSError):  # there may be no terminal any more
                shown = b"\x1b[?25h" if os.isatty(2) else b""  # the cursor, which a progress bar hides
                os.write(2, shown + b"\nleft at once; the last checkpoint is whole\n")
            os._exit(128 + number)
        if self.loop is not None:
            self.loop.halt = number
        elif not self.asked:
            before = self.before.get(number)
            if callable(before):  # Python's own for Ctrl-C, which raises
                before(number, frame)
            elif before is not signal.SIG_IGN:
                raise Ended(number)
            return
        self.asked = number

    def install(self, which: Sequence[signal.Signals]) -> None:
        """Take these signals, where it does not have them yet."""
        for number in which:
            if signal.getsignal(number) is not self:
                self.before[number] = signal.getsignal(number)
                signal.signal(number, self)

    def remove(self) -> None:
        """Give all signals back to who had them."""
        for number, handler in self.before.items():
            signal.signal(number, handler)
        self.before = {}

    def close(self) -> None:
        """The last word of a process: its exit code is chosen, and no signal may change it any more.

        Python gives every signal its default action back before it takes its modules apart, which takes
        a while with torch; ignored ones it leaves alone.
        """
        if self.asked:
            for number in self.before:
                signal.signal(number, signal.SIG_IGN)


@contextmanager
def until_exit() -> Iterator[None]:
    """For a process that is one command: a run in it that a signal ended keeps the signals until its exit."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may say what signals do
        return
    handler = Handler()
    handler.install([signal.SIGINT])  # until a run begins, as it was
    atexit.register(handler.close)  # the first one registered is called last
    try:
        yield
    finally:
        if not handler.asked:
            handler.remove()


@contextmanager
def signals(loop: Loop) -> Iterator[None]:
    """Signals ask this loop to end; afterwards they do what they did, but where `until_exit` keeps them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    found = signal.getsignal(signal.SIGINT)
    handler = found if isinstance(found, Handler) else Handler()
    handler.install(ending_signals())
    handler.loop, handler.asked = loop, 0  # who goes on to another run has dealt with the end of the last
    try:
        yield
    finally:
        handler.loop = None
        if handler is not found:
            handler.remove()
