"""Short runs for the checks: cut at chosen instants, and compared exactly."""

from __future__ import annotations

import dataclasses
import json
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from safetensors.torch import load_file

from ..base.files import follow
from ..contract.results import Batch, Source
from ..data import Wrapped
from ..engine.loop import Interrupted, Loop
from ..preview.explain import Preview
from ..run import finish, provenance, training
from ..store.names import CHECKPOINTS, MANIFEST, STATE, WEIGHTS
from ..tools.api import Run, resume, train
from .discovery import plugins_once

Config = dict[str, Any]


@contextmanager
def lean() -> Iterator[None]:
    """Leave out what a run repeats: to look for plugins, ask git, explain its plan, draw pictures."""
    with (
        plugins_once(),
        patch.object(provenance, "git_state", lambda: ({}, "")),
        patch.object(training, "preview", lambda plan, strict=False: Preview("a plan\n")),
        patch.object(finish, "draw_curves", lambda rows, path, *_: path),
        patch.object(finish, "picture_samples", lambda *given: None),
        patch.object(training, "report", lambda *given: None),
    ):
        yield


class Tapped(Wrapped):
    """A source that says when it is read."""

    def __init__(self, source: Source, tell: Callable[[], None]) -> None:
        super().__init__(source)
        self.tell = tell

    def gather(self, index: torch.Tensor) -> Batch:
        self.tell()
        return self.source.gather(index)

    def gathered(self, index: torch.Tensor) -> None:
        self.tell()
        super().gathered(index)


@contextmanager
def watched(cut: int | None = None) -> Iterator[list[str]]:
    """Note what runs do (`train` and `val` for a batch read, `save`), and send SIGTERM at event `cut`."""
    events: list[str] = []

    class Watched(Loop):
        training = False

        def __init__(self, assembly: Any, splits: Any, *more: Any) -> None:
            taps = {"train": Tapped(splits.train, lambda: self.tell("train"))}
            if splits.val is not None:
                taps["val"] = Tapped(splits.val, lambda: self.tell("val"))
            super().__init__(assembly, dataclasses.replace(splits, **taps), *more)

        def tell(self, what: str) -> None:
            if self.training:  # afterwards nobody waits for signals
                events.append(what)
                if len(events) - 1 == cut:
                    signal.raise_signal(signal.SIGTERM)  # Windows ends what os.kill is told

        def run(self) -> str | None:
            self.training = True
            try:
                return super().run()
            finally:
                self.training = False

        def state_dict(self) -> dict[str, Any]:
            self.tell("save")
            return super().state_dict()

    with patch.object(training, "Loop", Watched):
        yield events


def whole(config: Config, root: Path) -> tuple[Path, list[str]]:
    """A run that nothing interrupts, and its events."""
    with watched() as events:
        return train(config, root=root, quiet=True).folder, events


def cut_and_resumed(config: Config, root: Path, cut: int) -> Path:
    """The run folder of a run that was interrupted at one of its events and resumed."""
    with watched(cut):
        try:
            return train(config, root=root, quiet=True).folder  # a last save cannot be interrupted
        except Interrupted as stopped:
            folder = next(path for path in root.glob("*/2*") if str(path) in str(stopped))
    return resume(folder, quiet=True, local=config.get("plugins", {}).get("local", ())).folder


def points(events: Sequence[str], count: int, turn: int = 0) -> list[int]:
    """Some events to interrupt: first those of different character, beginning at `turn`, then others."""
    train = [i for i, what in enumerate(events) if what == "train"]
    val = [i for i, what in enumerate(events) if what == "val"]
    saves = [i for i, what in enumerate(events) if what == "save"]
    named = [
        *train[1:2],  # the second batch of the first update
        *val[:1],  # the first evaluation
        *saves[len(saves) // 2 :][:1],  # a save in the middle
        *[i for i in train if val and i < val[0]][-1:],  # the last batch of an epoch
        *train[len(train) // 2 :][:1],
        *val[-1:],  # the last evaluation
        *train[-1:],  # the last update
        *train[:1],
        *saves[:1],
        *saves[-1:],
    ]
    named = list(dict.fromkeys(named))
    turned = [named[(turn + i) % len(named)] for i in range(len(named))]
    step = max(len(events) // max(count, 1), 1)
    return list(dict.fromkeys((*turned, *range(0, len(events), step), *range(len(events)))))[:count]


def differences(one: Path, two: Path) -> list[str]:
    """What differs between two runs that should have ended alike, in words; nothing where nothing does."""
    found = []
    for which in ("last", "best"):
        places = [follow(path / CHECKPOINTS / which) for path in (one, two)]
        weights = [load_file(place / WEIGHTS) for place in places]
        states = [torch.load(place / STATE, weights_only=True) for place in places]
        for state in states:
            state["stepper"].pop("spent", None)  # what a stepper took to get ready
        manifests = [json.loads((place / MANIFEST).read_text()) for place in places]
        figures = [{k: m[k] for k in ("step", "epoch", "figures", "parts")} for m in manifests]
        found += [f"{which} weights{path}" for path in unequal(*weights)]
        found += [f"{which} state{path}" for path in unequal(*states)]
        found += [f"{which} manifest{path}" for path in unequal(*figures)]
    found += [f"history{path}" for path in unequal(Run(one).history, Run(two).history)]
    endings = [{k: Run(p).summary.get(k) for k in ("status", "why", "figures")} for p in (one, two)]
    return found + [f"summary{path}" for path in unequal(*endings)]


def unequal(a: Any, b: Any) -> Iterator[str]:
    """The paths at which two values differ by a bit."""
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        same = a.dtype == b.dtype and a.shape == b.shape
        if not same or not torch.equal(a.nan_to_num(), b.nan_to_num()):
            yield ""
    elif isinstance(a, dict) and isinstance(b, dict):
        for key in {**a, **b}:
            if key not in a or key not in b:
                yield f".{key}"
            else:
                yield from (f".{key}{path}" for path in unequal(a[key], b[key]))
    elif isinstance(a, list | tuple) and isinstance(b, list | tuple):
        if len(a) != len(b):
            yield f" of {len(a)} and {len(b)}"
        for i, (x, y) in enumerate(zip(a, b, strict=False)):
            yield from (f"[{i}]{path}" for path in unequal(x, y))
    elif a != b and not (a != a and b != b):
        yield f" {a!r} and {b!r}"
