"""When each epoch of a turn began, and how many Python calls a step takes."""

from __future__ import annotations

import sys
import time


class Clock:
    """Notes the beginning of every epoch, in seconds and in seconds that this process computed.

    A loop that calls the network once a step is counted by `tick`. One that is told when an epoch begins, or
    whose steps Python does not see because they are one compiled graph, calls `epoch` itself.
    """

    def __init__(self) -> None:
        self.reset(1)

    def reset(self, steps_per_epoch: int, count: bool = False) -> None:
        self.every, self.counting = steps_per_epoch, count
        self.steps, self.calls = 0, 0
        self.epochs: list[float] = []
        self.cpu: list[float] = []  # others cannot lengthen it, and waiting for a disk is not in it

    def tick(self) -> None:
        """A step begins."""
        if self.steps % self.every == 0:
            self.epoch()
        self.steps += 1

    def epoch(self) -> None:
        """An epoch begins. Calls are counted in the second, which slows it."""
        if self.counting:
            sys.setprofile(self._profile if len(self.epochs) == 1 else None)
        self.epochs.append(time.perf_counter())
        self.cpu.append(time.process_time())

    def _profile(self, frame: object, event: str, arg: object) -> None:
        self.calls += event == "call"


CLOCK = Clock()  # one for each process, and a process runs one framework
