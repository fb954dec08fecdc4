"""Configs for every part of the registry, runs cut at chosen instants, and exact comparison of runs."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pegboard
import torch
from pegboard import training
from pegboard.engine import checkpoint
from pegboard.engine.loop import Interrupted, Loop
from pegboard.registry import Entry, Registry
from plain_parts import INPUTS, TARGETS
from safetensors.torch import load_file

HERE = Path(__file__).parent
LOCAL = [str(HERE / "plain_parts.py"), str(HERE / "proof_parts.py")]
Config = dict[str, Any]

# Three updates an epoch, the last of two batches; rows, saves and evaluations at different steps.
TRAINER = {"epochs": 3, "accumulate": 3, "log_every": 2, "save_every": 4, "device": "cpu"}


def plain(**nodes: Any) -> Config:
    """A config of plain parts; keyword arguments replace its nodes."""
    base: Config = {
        "seed": 5,
        "data": {"name": "toy", "batch_size": 4},
        "model": {"name": "mlp", "hidden": [6]},
        "optimizer": {"name": "adam", "lr": 0.01},
        "trainer": dict(TRAINER),
        "plugins": {"local": LOCAL},
    }
    return base | nodes


def teacher(shelf: Path) -> Config:
    """A trained network of the same data, made once for each target."""
    return {"teacher": str(taught(shelf, "classes"))}


@functools.cache
def taught(shelf: Path, target: str) -> Path:
    given = plain(data={"name": "toy", "target": target}, trainer={"steps": 2}, name=f"teacher-{target}")
    return pegboard.train(given, root=shelf, quiet=True).folder.resolve()


def table(shelf: Path) -> Config:
    """A small csv file of two numbers and the class that follows from them."""
    path = shelf / "table.csv"
    if not path.exists():
        rows = (
            f"{a},{b},{'up' if (a * b) % 3 else 'down'}" for a, b in itertools.product(range(8), repeat=2)
        )
        path.write_text("\n".join(("one,two,side", *rows)) + "\n")
    return {"path": str(path), "inputs": ["one", "two"], "target": "side"}


# What a part cannot be tried without, besides the defaults of its fields; made in a folder that tests share.
NEEDS: dict[str, Callable[[Path], Config]] = {
    "regularizer distillation": teacher,
    "dataset hub": table,
}


def fields(entry: Entry, shelf: Path) -> Config:
    """The fields with which a part is tried."""
    key = f"{entry.part.kind} {entry.part.name}"
    missing = dataclasses.MISSING
    required = [
        field.name
        for field in dataclasses.fields(entry.part.config)
        if field.default is missing and field.default_factory is missing
    ]
    given = NEEDS[key](shelf) if key in NEEDS else {}
    if lacking := [name for name in required if name not in given]:
        raise AssertionError(f"{key} needs {', '.join(lacking)}: add an entry to NEEDS in {__file__}")
    return given


def entries(kind: str) -> list[Entry]:
    """The parts of a kind in the registry of the workspace."""
    return sorted(Registry.discover().entries(kind), key=lambda entry: entry.qualified)


def name_of(entry: Entry) -> str:
    return f"{entry.part.kind}-{entry.part.name}"


def fitting(what: str, configs: Iterable[Config]) -> Config:
    """The first config that the planner accepts; where it accepts none, a failure with its last words."""
    wrong = "nothing to try"
    for config in configs:
        try:
            pegboard.plan(config)
        except pegboard.PegboardError as error:
            wrong = str(error)
        else:
            return config
    raise AssertionError(
        f"{what} cannot be tried with plain partners: add an entry to NEEDS in {__file__}, or data that it "
        f"reads to plain_parts.py. The planner said last:\n{wrong}"
    )


def toy_data() -> Iterator[Config]:
    for inputs, target in itertools.product(INPUTS, TARGETS):
        yield {"name": "toy", "inputs": inputs, "target": target, "batch_size": 4}


def tried(entry: Entry, shelf: Path) -> Config:
    """A config that trains with one part, beside plain ones."""
    part, given = entry.part, fields(entry, shelf)
    node = {"name": entry.qualified, **given}
    match part.kind:
        case "model":
            configs: Iterable[Config] = (plain(model=node, data=data) for data in toy_data())
        case "optimizer":
            configs = [plain(optimizer=node)]
        case "schedule":
            configs = [plain(optimizer={"name": "adam", "lr": 0.01, "schedule": node})]
        case "objective":
            configs = (plain(objective=node, data=data) for data in toy_data())
        case "regularizer":
            configs = (plain(regularizers={part.name: node}, data=data) for data in toy_data())
        case "dataset":
            node |= {"batch_size": 8}
            node |= {"limit": 48} if any(f.name == "limit" for f in dataclasses.fields(part.config)) else {}
            models = [{"name": model.qualified, **fields(model, shelf)} for model in entries("model")]
            trainer = {**TRAINER, "epochs": None, "steps": 7}
            configs = (plain(data=node, model=model, trainer=trainer) for model in models)
        case kind:
            raise ValueError(f"no place for a {kind}")
    return fitting(name_of(entry), configs)


def all_tricks(shelf: Path) -> Config:
    """As many tricks of the registry at once as stand beside each other."""
    chosen: dict[str, Any] = {}
    for entry in entries("regularizer"):
        more = {**chosen, entry.part.name: {"name": entry.qualified, **fields(entry, shelf)}}
        try:
            pegboard.plan(plain(regularizers=more))
        except pegboard.PegboardError:
            continue
        chosen = more
    return plain(regularizers=chosen)


class Tapped:
    """A source that says when it is read."""

    def __init__(self, source: Any, tell: Callable[[], None]) -> None:
        self.source, self.tell = source, tell

    def __len__(self) -> int:
        return len(self.source)

    def gather(self, index: torch.Tensor) -> Any:
        self.tell()
        return self.source.gather(index)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.source, name)


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
                    os.kill(os.getpid(), signal.SIGTERM)

        def run(self) -> str | None:
            self.training = True
            try:
                return super().run()
            finally:
                self.training = False

        def state_dict(self) -> dict[str, Any]:
            self.tell("save")
            return super().state_dict()

    training.Loop, before = Watched, training.Loop  # type: ignore[misc]
    try:
        yield events
    finally:
        training.Loop = before  # type: ignore[misc]


def whole(config: Config, root: Path) -> tuple[Path, list[str]]:
    """A run that nothing interrupts, and its events."""
    with watched() as events:
        return pegboard.train(config, root=root, quiet=True).folder, events


def cut_and_resumed(config: Config, root: Path, cut: int) -> Path:
    """The run folder of a run that was interrupted at one of its events and resumed."""
    with watched(cut):
        try:
            return pegboard.train(config, root=root, quiet=True).folder  # a last save cannot be interrupted
        except Interrupted as stopped:
            folder = next(path for path in root.glob("*/2*") if str(path) in str(stopped))
    with watched():  # data that is watched goes into graphs by another way, which may round otherwise
        return pegboard.resume(folder, quiet=True, local=config.get("plugins", {}).get("local", ())).folder


def points(events: Sequence[str], count: int, turn: int = 0) -> list[int]:
    """Some events to interrupt: first those of different character, beginning at `turn`, then others."""
    train = [i for i, what in enumerate(events) if what == "train"]
    val = [i for i, what in enumerate(events) if what == "val"]
    saves = [i for i, what in enumerate(events) if what == "save"]
    named = [
        train[1],  # the second batch of the first update
        *val[:1],  # the first evaluation
        saves[len(saves) // 2],  # a save in the middle
        max((i for i in train if val and i < val[0]), default=train[-1]),  # the last batch of an epoch
        train[len(train) // 2],
        *val[-1:],  # the last evaluation
        train[-1],  # the last update
        train[0],
        saves[0],
        saves[-1],
    ]
    named = list(dict.fromkeys(named))
    turned = [named[(turn + i) % len(named)] for i in range(len(named))]
    step = max(len(events) // max(count, 1), 1)
    return list(dict.fromkeys((*turned, *range(0, len(events), step), *range(len(events)))))[:count]


def differences(one: Path, two: Path) -> list[str]:
    """What differs between two runs that should have ended alike, in words; nothing where nothing does."""
    found = []
    for which in ("last", "best"):
        places = [path / "checkpoints" / which for path in (one, two)]
        weights = [load_file(place / checkpoint.WEIGHTS) for place in places]
        states = [torch.load(place / checkpoint.STATE, weights_only=True) for place in places]
        for state in states:
            state["compiled"] = state["compiled"]["level"]  # graphs are made anew after a resume
        manifests = [json.loads((place / checkpoint.MANIFEST).read_text()) for place in places]
        figures = [{k: m[k] for k in ("step", "epoch", "figures", "parts")} for m in manifests]
        found += [f"{which} weights{path}" for path in unequal(*weights)]
        found += [f"{which} state{path}" for path in unequal(*states)]
        found += [f"{which} manifest{path}" for path in unequal(*figures)]
    found += [f"history{path}" for path in unequal(pegboard.Run(one).history, pegboard.Run(two).history)]
    endings = [{k: pegboard.Run(p).summary.get(k) for k in ("status", "why", "figures")} for p in (one, two)]
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
