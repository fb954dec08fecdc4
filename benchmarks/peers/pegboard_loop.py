"""Pegboard: `pegboard.train` on a config. Its defaults: a line or a bar on the console, metrics.jsonl, a
checkpoint every epoch. Off is what cannot be switched off: a row of metrics.jsonl an epoch, a checkpoint
before the first and after the last step. The hot loop alone is the engine's, with nobody told of anything."""

from pathlib import Path
from typing import Any

import pegboard
from pegboard.config.check import check
from pegboard.engine.loop import Loop
from pegboard.engine.precision import choose_precision
from pegboard.planning import assemble, make_plan
from workloads import WORKLOADS, Workload

from . import Trained, updates

PARTS = Path(__file__).with_name("pegboard_parts.py")
NEVER = 10**9
OFF = {"eval_every": NEVER, "log_every": NEVER, "save_minutes": NEVER}
TRICKS = {"batchnorm": {}, "dropout": {"p": 0.2}, "weight_decay": {}, "label_smoothing": {}}


def config(work: Workload, defaults: bool, **nodes: Any) -> dict[str, Any]:
    key = next(key for key, row in WORKLOADS.items() if row is work)
    return {
        "data": {"name": "bench_data", "workload": key, "batch_size": work.batch},
        "model": dict(work.model) or {"name": "bench_model", "workload": key},
        "optimizer": {"name": "adam", "lr": work.lr},
        "trainer": {"device": "cpu", "epochs": work.epochs, **({} if defaults else OFF)},
        "plugins": {"local": [str(PARTS)]},
        **nodes,
    }


def train(work: Workload, defaults: bool, folder: Path, **nodes: Any) -> Trained:
    run = pegboard.train(config(work, defaults, **nodes), root=folder, quiet=not defaults)
    return Trained(run.model, int(run.summary["steps"]))


def train_tricks(work: Workload, defaults: bool, folder: Path) -> Trained:
    return train(work, defaults, folder, regularizers=TRICKS)


class Nobody:
    """A watcher that looks away."""

    def __getattr__(self, name: str) -> Any:
        return lambda *args: None


def train_steady(work: Workload, defaults: bool, folder: Path) -> Trained:
    plan = make_plan(check(config(work, False)), read=True)
    watcher: Any = Nobody()
    assembly = assemble(plan, "cpu")
    assert plan.splits is not None
    loop = Loop(assembly, plan.splits, choose_precision("fp32", "cpu"), watcher, folder)
    assembly.model.train()
    for epoch in range(work.epochs):
        groups = loop.groups(epoch)
        loop.progress.epoch, loop.progress.position = epoch, 0
        while loop.progress.position < len(groups):
            loop.span(groups, len(groups))
    return Trained(assembly.model, updates(assembly.kits[0].optimizer))
