"""Trackers, each fed from one queue by a thread, so that none can slow or stop a run."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from ..contract.results import Tracker

GRACE = 60.0  # seconds that trackers may take after the run has ended
SHORT_GRACE = 10.0  # the same when a signal asked it to end
LOOK = 0.2  # seconds between two looks at whether one did


class Dispatch:
    """Hands every event to every tracker, in order, in a thread of its own."""

    def __init__(self, trackers: Mapping[str, Tracker], warn: Callable[[str], None]) -> None:
        self._trackers, self._warn = dict(trackers), warn
        self._events: queue.SimpleQueue[tuple[str, tuple[Any, ...]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="pegboard-trackers", daemon=True)
        if self._trackers:
            self._thread.start()

    def send(self, event: str, *args: Any) -> None:
        """Call this method of every tracker, soon."""
        if self._trackers:
            self._events.put((event, args))

    def close(self, grace: float | None = None, hurried: Callable[[], bool] = bool) -> None:
        """Wait until all is handed on, not for ever; `hurried` says that a signal asks for less time."""
        grace = GRACE if grace is None else grace
        if not self._thread.is_alive():
            return
        self._events.put(None)
        began, short = time.monotonic(), False
        while self._thread.is_alive() and (left := began + grace - time.monotonic()) > 0:
            self._thread.join(min(left, LOOK))
            if not short and hurried():
                short, grace = True, min(grace, time.monotonic() - began + SHORT_GRACE)
        if self._thread.is_alive():
            self._warn(
                f"trackers {', '.join(self._trackers)} did not finish in {grace:.0f} s and were left behind"
            )

    def _work(self) -> None:
        while (item := self._events.get()) is not None:
            event, args = item
            for name, tracker in list(self._trackers.items()):
                try:
                    getattr(tracker, event)(*args)
                except Exception as error:
                    del self._trackers[name]
                    cause = f"{type(error).__name__}: {error}".split("\n")[0]
                    self._warn(f"tracker {name} failed and is switched off for this run: {cause}")
