"""Pegboard: `pegboard.train` on a config. Its defaults: a bar on the console, metrics.jsonl, a checkpoint
every epoch. Off is what cannot be switched off: a row of metrics.jsonl an epoch, a checkpoint before the
first and after the last step. The hot loop alone is the engine's, with nobody told of anything."""

from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pegboard
import torch
from clock import CLOCK
from pegboard.config.check import check
from pegboard.engine.loop import Loop
from pegboard.engine.precision import choose_precision
from pegboard.planning.channels_last import lay_out
from pegboard.planning.plan import assemble, make_plan
from workloads import WORKLOADS, Workload

from . import Trained, updates

PARTS = Path(__file__).with_name("pegboard_parts.py")
NEVER = 10**9
OFF = {"eval_every": NEVER, "log_every": NEVER, "save_minutes": NEVER}
_groups = Loop.groups  # called once an epoch, before its first step


def _clocked(self: Loop, epoch: int) -> Any:
    CLOCK.epoch()
    return _groups(self, epoch)


Loop.groups = _clocked  # type: ignore[method-assign]
FOUR = {"batchnorm": {}, "dropout": {"p": 0.2}, "weight_decay": {}, "label_smoothing": {}}


def config(work: Workload, defaults: bool, together: int = 0, **nodes: Any) -> dict[str, Any]:
    """What is trained; `together` updates are one call of a graph, 0 compiles nothing."""
    key = next(key for key, row in WORKLOADS.items() if row is work)
    compiled = {"compile": "step", "steps_per_call": together} if together else {}
    return {
        "data": {"name": "bench_data", "workload": key, "batch_size": work.batch},
        "model": dict(work.model) or {"name": "bench_model", "workload": key},
        "optimizer": {"name": "adam", "lr": work.lr},
        "trainer": {"device": "cpu", "epochs": work.epochs, **({} if defaults else OFF), **compiled},
        "plugins": {"local": [str(PARTS)]},
        **nodes,
    }


def train(work: Workload, defaults: bool, folder: Path, together: int = 0, **nodes: Any) -> Trained:
    run = pegboard.train(config(work, defaults, together, **nodes), root=folder, quiet=not defaults)
    state = torch.load(run.folder / "checkpoints" / "last" / "state.pt", weights_only=True)
    counts = [float(of["step"]) for of in state["optimizers"][0]["state"].values()]  # by the optimizer itself
    return Trained(run.model, int(max(counts)), run.summary.get("compiled", {}).get("why", ""))


def teacher(work: Workload, folder: Path) -> str:
    """A run to distil from, made before each turn and not timed."""
    small = config(work, False, model={"name": "mlp", "hidden": [32]})
    counting, CLOCK.counting = CLOCK.counting, False
    run = pegboard.train(small, root=folder / "teacher", quiet=True)
    CLOCK.reset(CLOCK.every, counting)
    return str(run.folder)


def train_tricks(work: Workload, defaults: bool, folder: Path, together: int = 0) -> Trained:
    tricks = {**FOUR, "distillation": {"teacher": teacher(work, folder)}}
    return train(work, defaults, folder, together, regularizers=tricks)


class Nobody:
    """A watcher that looks away."""

    def working(self, total: int, unit: str) -> Any:
        return nullcontext(lambda done: None)

    def __getattr__(self, name: str) -> Any:
        return lambda *args: None


def train_hot(work: Workload, defaults: bool, folder: Path, together: int = 0) -> Trained:
    plan = make_plan(check(config(work, False, together)), read=True)
    watcher: Any = Nobody()
    assembly = assemble(plan, "cpu")
    assert plan.splits is not None
    if assembly.channels_last:
        lay_out(plan.splits)
    loop = Loop(assembly, plan.splits, choose_precision("fp32", "cpu"), watcher, folder)
    assembly.model.train()
    with loop.stepper.around():
        loop.stepper.begin()
        for epoch in range(work.epochs):
            groups = loop.groups(epoch)
            loop.progress.epoch, loop.progress.position = epoch, 0
            while loop.progress.position < len(groups):
                loop.span(groups, len(groups), len(groups))
    return Trained(
        assembly.model,
        updates(assembly.kits[0].optimizer),
        loop.stepper.summary().get("compiled", {}).get("why", ""),
    )


train_step = partial(train, together=1)
train_steps8 = partial(train, together=8)
train_steps32 = partial(train, together=32)
train_hot32 = partial(train_hot, together=32)
train_tricks32 = partial(train_tricks, together=32)
