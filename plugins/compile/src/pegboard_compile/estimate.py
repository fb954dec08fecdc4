"""Whether compiling pays within a run: an estimate from a few timed updates."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from pegboard.engine import torch_private

WARM, TIMED = 3, 20  # updates before an estimate, and those that it is made from
SAVED = 0.75  # of an update is the most that a graph is taken to save
OVERHEAD = 5.0  # what Python, dispatch and autograd cost in an operation, over the smallest operation
PAYS = 1.5  # times the seconds that a graph takes to make is what it must save


class Estimate:
    """Whether compiling pays within a run, from the time of a few ordinary updates and what is in one."""

    def __init__(self, device: str, parameters: int) -> None:
        self.device, self.parameters = device, parameters
        self.times: list[float] = []
        self.operations = 0

    def watch(self, update: Callable[[], None]) -> bool:
        """Make an update that says something about those to come; whether now enough is known."""
        if len(self.times) == WARM:
            with torch_private.entered(counter := _Counter()):
                update()
            self.operations = counter.count
        started = self._clock()
        if len(self.times) != WARM:
            update()
        self.times.append(self._clock() - started)
        return len(self.times) > WARM + TIMED

    def _clock(self) -> float:
        if self.device.startswith("cuda"):
            torch.cuda.synchronize()
        return time.perf_counter()

    def decide(self, left: int) -> tuple[bool, str]:
        """Whether it pays with so many updates left, and the figures that say so."""
        step = statistics.median(self.times[WARM + 1 :])
        saved = min(SAVED * step, self.operations * OVERHEAD * smallest_operation(self.device))
        making = seconds_to_make(self.operations, self.parameters)
        figures = (
            f"{left} updates of {step * 1e3:.2g} ms are left, in each of which a graph would save about "
            f"{saved * 1e3:.2g} ms, and to make it takes about {making:.0f} s"
        )
        return left * saved > PAYS * making, figures

    def slower(self, seconds: float) -> str:
        """Why compiled updates that took so long each are no gain after all, or ""."""
        step = statistics.median(self.times[WARM + 1 :])
        if seconds <= 1.05 * step:
            return ""
        return f"an update took {step * 1e3:.3g} ms without a graph and {seconds * 1e3:.3g} ms with one"


class _Counter(torch_private.DispatchMode):  # type: ignore[misc]
    """Counts operations on tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


def seconds_to_make(operations: int, parameters: int) -> float:
    """Roughly what compiling an update takes: a line through what was measured on small networks."""
    return 4 + 0.15 * operations + 0.3 * parameters


def smallest_operation(device: str, repeats: int = 200) -> float:
    """Seconds that an operation on a single number takes on this machine."""
    x = torch.zeros(1, device=device)
    times = []
    for _ in range(5):
        started = time.perf_counter()
        for _ in range(repeats):
            x + x
        times.append((time.perf_counter() - started) / repeats)
    return min(times)
