"""When each training step of a turn began, and how many Python calls one takes."""

from __future__ import annotations

import sys
import time


class Clock:
    """Ticks once a training step, wherever the step begins: in the model's forward or at the gather."""

    def __init__(self) -> None:
        self.stamps: list[float] = []
        self.cpu: list[float] = []  # the same in seconds of this process, which others cannot lengthen
        self.window = range(0)  # steps whose Python calls are counted; counting slows them
        self.calls = 0

    def reset(self, window: range = range(0)) -> None:
        self.stamps, self.cpu, self.window, self.calls = [], [], window, 0

    def tick(self) -> None:
        self.stamps.append(time.perf_counter())
        self.cpu.append(time.process_time())
        if self.window:
            self._count(len(self.stamps) - 1)

    def _count(self, step: int) -> None:
        if step == self.window.start:
            sys.setprofile(self._profile)
        elif step == self.window.stop:
            sys.setprofile(None)

    def _profile(self, frame: object, event: str, arg: object) -> None:
        self.calls += event == "call"


CLOCK = Clock()  # one for each process, and a process runs one framework
