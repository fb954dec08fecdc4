"""Where the time of a run goes: a clock around all that it calls, and a trace of some steps for a viewer.

The clock runs through the whole run and costs little. The torch profiler, which costs more, records a few
steps, after the first ones, which are not like the others.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile, record_function

from ..base.files import write_json
from ..contract.results import Batch, Source
from ..data import Wrapped
from ..engine.loop import Loop
from ..engine.step import make_step
from ..store.names import PROFILE
from .ledger import ELSEWHERE, IMPORTS, PROFILER, Key, Stopwatch

if TYPE_CHECKING:
    from ..report.console import Console

WARM, TRACED = 10, 20  # steps before the trace begins, and steps in it
PREFIX = "pegboard::"  # of our names in a trace
STEPS, FIRST = "steps", "first step"


class Profile:
    """A context for `loop.run()`; afterwards `profile/` in the run folder holds the trace and the times.

    The parts of a step are part of the phase *steps*, those of the first one of *first step*.
    """

    def __init__(self, loop: Loop, stopwatch: Stopwatch) -> None:
        self.loop, self.seconds, self._stopwatch = loop, 0.0, stopwatch
        self.spent: dict[str, float] = {}  # seconds in a part, without those in parts inside it
        self.calls: dict[str, int] = {}
        self._on, self._accelerator = False, loop.assembly.device != "cpu"
        self._first = min(WARM, (loop.plan.steps or 0) // 2)
        self._trace: profile | None = None
        self._tracing = False
        self._stepped = False

    def watch(self, name: str, call: Callable[..., Any], phase: str | None = None) -> Callable[..., Any]:
        """What does the same and is timed under a name."""

        def timed(*args: Any, **options: Any) -> Any:
            with self._part(name, phase):
                return call(*args, **options)

        return timed

    @property
    def _whole(self) -> bool:
        """Whether updates are calls whose parts have no times, as far as is known by now."""
        return self.loop.stepper.hides == "step"

    def _inside(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """Part of a step, timed where it is called by itself."""
        timed = self.watch(name, call)

        def either(*args: Any, **options: Any) -> Any:
            if torch.compiler.is_compiling() or self._whole:  # in this order: no graph is to depend on us
                return call(*args, **options)
            return timed(*args, **options)

        return either

    def _outside(self, name: str, update: Callable[..., Any]) -> Callable[..., Any]:
        """A step that is made as ever, timed where others are not."""
        timed = self.watch(name, update)
        return lambda *args: (timed if self._whole else update)(*args)

    @contextmanager
    def _part(self, name: str, phase: str | None = None) -> Iterator[None]:
        if not self._on:
            yield
            return
        mark = record_function(PREFIX + name) if self._tracing else None
        if mark is not None:
            mark.__enter__()  # type: ignore[no-untyped-call]
        try:
            with self._stopwatch.part(name, phase):
                yield
        finally:
            if mark is not None:
                mark.__exit__(None, None, None)

    def _now(self) -> float:
        # What a device still has to do belongs to the part that gave it to it; a trace shows it as it is.
        if self._accelerator and not self._tracing:
            torch.accelerator.synchronize()
        return time.perf_counter()

    def __enter__(self) -> Profile:
        self._attach()
        watch = self._stopwatch
        self._usual, self._before = watch.now, (dict(watch.spent), dict(watch.calls))
        watch.now = self._now
        self._whole_loop = watch.part(STEPS, STEPS)
        self._whole_loop.__enter__()
        self._on = True
        return self

    def __exit__(self, *error: object) -> None:
        self._stop()
        self._whole_loop.__exit__(None, None, None)
        self._on, self._stopwatch.now = False, self._usual
        self._take()
        folder = self.loop.folder / PROFILE
        try:
            folder.mkdir(exist_ok=True)
            if self._trace is not None:
                with self._stopwatch.part(PROFILER, PROFILER):
                    self._trace.export_chrome_trace(str(folder / "trace.json"))
            names = ("part", "calls", "seconds", "share")
            times = {"steps": self.loop.progress.step, "seconds": self.seconds}
            rows = [dict(zip(names, row, strict=True)) for row in self.rows()]
            write_json(folder / "times.json", times | {"parts": rows})
        except OSError as wrong:
            self.loop.watcher.note(f"profile: cannot write {folder}: {wrong.strerror or wrong}")

    def _take(self) -> None:
        """The times of the parts since the loop began; what the trace took is not the run's."""
        spent, calls = self._before
        for (phase, name), seconds in self._stopwatch.spent.items():
            key: Key = (phase, name)
            seconds -= spent.get(key, 0.0)
            count = self._stopwatch.calls.get(key, 0) - calls.get(key, 0)
            if phase == PROFILER or not count:
                continue
            self.seconds += seconds
            if name in (STEPS, FIRST):
                continue  # between their parts, which is elsewhere
            row = IMPORTS if phase == IMPORTS else name
            self.spent[row] = self.spent.get(row, 0.0) + seconds
            self.calls[row] = self.calls.get(row, 0) + count

    def _attach(self) -> None:
        """Put the clock around the parts of the loop; around whole steps, as long as these have no parts."""
        loop = self.loop
        kits = loop.assembly.kits
        loop.linked = [make_step(loop.assembly, kit, loop.precision, self._inside) for kit in kits]
        if loop.stepper.hides != "forward":
            self._watch_hung()
        updates = [step.update for step in loop.linked]
        if loop.stepper.hides == "step":
            updates = [self._outside("step, not compiled", update) for update in updates]
        counted = [self._counted(update) for update in updates]
        for step, update in zip(loop.linked, counted, strict=True):
            step.update = update  # type: ignore[method-assign]
        # What is in memory is part of a step, and a call that makes whole ones gathers it by itself.
        loop.train = _Timed(loop.train, self.watch if loop.train.resident is None else self._inside)
        watched = [
            (loop, "evaluate", "evaluation"),
            (loop, "save", "checkpoint"),
            (loop, "_row", "rows and trackers"),
        ]
        for thing, method, name in watched:
            setattr(thing, method, self.watch(name, getattr(thing, method), phase=name))
        loop.stepper.timed(lambda name, call, steps: self._counted(self.watch(name, call), steps))

    def _watch_hung(self) -> None:
        """Modules that hang on pegs act inside the forward pass."""
        for _, peg, keys in self.loop.assembly.hung:
            for key in keys:
                module = peg.get_submodule(key)
                module.forward = self._in_training(module, self._inside(f"hang {key}", module.forward))

    def _in_training(self, module: nn.Module, timed: Callable[..., Any]) -> Callable[..., Any]:
        """What is timed in the forward pass of a step, and not in an evaluation."""
        forward = module.forward
        return lambda *args: (timed if module.training else forward)(*args)

    def _counted(
        self, update: Callable[..., Any], steps: Callable[[Any], int] = lambda batches: 1
    ) -> Callable[..., Any]:
        """An update, or a call of so many, before which the trace begins or ends, where it is time for that.

        A call with the last steps of a run is traced, if nothing was yet.
        """

        def counted(*args: Any) -> Any:
            step = self.loop.progress.step
            last = step + steps(args[0]) >= (self.loop.plan.steps or 0)
            if self._tracing and step >= self._first + TRACED:
                self._stop()
            elif self._trace is None and (step >= self._first or last):
                self._start()
            if self._stepped:
                return update(*args)
            self._stepped = True
            with self._stopwatch.part(FIRST, FIRST):
                return update(*args)

        return counted

    def _start(self) -> None:
        with self._stopwatch.part(PROFILER, PROFILER):
            os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # it says when it starts and stops, to everybody
            activities = [ProfilerActivity.CPU]
            if self.loop.assembly.device.startswith("cuda"):
                activities.append(ProfilerActivity.CUDA)
            self._trace = profile(activities=activities)
            self._trace.start()
            self._tracing = True

    def _stop(self) -> None:
        if self._tracing and self._trace is not None:
            with self._stopwatch.part(PROFILER, PROFILER):
                self._trace.stop()
                self._tracing = False

    def rows(self) -> list[tuple[str, int, float, float]]:
        """Name, calls, seconds and share of every part, the longest first; together all of the time."""
        spent, calls = dict(self.spent), dict(self.calls)
        for name, (inside, seconds, count) in self.loop.stepper.set_up().items():
            if inside in spent:
                spent[name], calls[name] = min(seconds, spent[inside]), count
                spent[inside] -= spent[name]
        spent = dict(sorted(spent.items(), key=lambda item: -item[1]))
        spent[ELSEWHERE] = self.seconds - sum(spent.values())
        whole = max(self.seconds, 1e-9)
        return [(name, calls.get(name, 0), time, time / whole) for name, time in spent.items()]

    def show(self, console: Console) -> None:
        """A table for people, and where the trace is."""
        steps = max(self.loop.progress.step, 1)
        rows = [
            [name, calls or "", f"{seconds / steps * 1e3:.3f}", f"{share:.1%}"]
            for name, calls, seconds, share in self.rows()
        ]
        title = f"where the time of training went: {self.seconds:.2f} s, {steps} steps"
        console.table(title, ["part", "calls", "ms per step", "share"], rows)
        for note in self._notes():
            console.say(note)
        if self._trace is not None:  # a run that was stopped may not have come so far
            console.say(
                f"trace       {self.loop.folder / PROFILE / 'trace.json'}, for https://ui.perfetto.dev"
            )

    def _notes(self) -> Iterator[str]:
        if notes := list(self.loop.stepper.profile_notes()):
            yield from notes
        elif any(name.startswith("hang ") for name in self.spent):
            yield "what hangs on pegs is timed in the forward pass; its gradients are part of backward"
        if self._accelerator:
            yield "every part waited for the device, so that its time is its own; without --profile none does"


class _Timed(Wrapped):
    """The training samples, timed when they are drawn."""

    def __init__(self, source: Source, timed: Callable[..., Callable[..., Batch]]) -> None:
        super().__init__(source)
        self._draw = timed("data", source.gather)

    def gather(self, index: Tensor) -> Batch:
        return self._draw(index)
