"""Steps per second of Pegboard's loop beside hand-written ones, in one process.

    python benchmarks/steps.py [--threads 1] [--repeats 15] [--steps 300] [--json out.json]

The same network (64-128-10), data (digits, in memory), batch size (32), optimizer (fused Adam) and
number of updates in each. Repeats are interleaved, so that whatever else the machine does falls on
all alike, and the median is shown, as a ratio to the plain loop over a DataLoader. Python calls are
counted with `sys.setprofile`; they do not depend on the machine.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from pegboard.config.check import check
from pegboard.engine.loop import Loop
from pegboard.engine.precision import choose_precision
from pegboard.planning import assemble, make_plan
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

BATCH = 32
CONFIG = {
    "data": {"name": "digits", "batch_size": BATCH, "drop_last": True},
    "model": {"name": "mlp", "hidden": [128]},
    "optimizer": {"name": "adam", "lr": 1e-3},
    "trainer": {"device": "cpu"},
}
TRICKS = {"batchnorm": {}, "dropout": {"p": 0.2}, "weight_decay": {}, "label_smoothing": {}}


class Nobody:
    """A watcher that looks away."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args: None


def pegboard_loop(**nodes: Any) -> tuple[Loop, Callable[[int], None]]:
    plan = make_plan(check({**CONFIG, **nodes}), read=True)
    assert plan.splits is not None
    watcher: Any = Nobody()
    loop = Loop(assemble(plan, "cpu"), plan.splits, choose_precision("fp32", "cpu"), watcher, Path("."))
    loop.assembly.model.train()

    def run(steps: int) -> None:
        while steps > 0:
            groups = loop.groups(loop.progress.epoch)
            loop.progress.position = 0
            loop.span(groups, min(steps, len(groups)))
            steps -= loop.progress.position
            loop.progress.epoch += 1
        loop.losses = [[] for _ in loop.losses]

    return loop, run


def network() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))


def by_hand(x: torch.Tensor, y: torch.Tensor) -> Callable[[int], None]:
    """Resident tensors, one gather a batch, fused Adam: the loop a good engineer writes."""
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3, fused=True)

    def run(steps: int) -> None:
        done = 0
        while done < steps:
            order = torch.randperm(len(x))
            for index in order[: len(x) // BATCH * BATCH].split(BATCH):
                optimizer.zero_grad()
                loss = functional.cross_entropy(model(x[index]), y[index])
                loss.backward()
                optimizer.step()
                done += 1
                if done == steps:
                    return

    return run


def by_loader(x: torch.Tensor, y: torch.Tensor) -> Callable[[int], None]:
    """The plain loop of the tutorials: a DataLoader and Adam."""
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    loader = DataLoader(TensorDataset(x, y), BATCH, shuffle=True, drop_last=True)

    def run(steps: int) -> None:
        done = 0
        while done < steps:
            for inputs, targets in loader:
                optimizer.zero_grad()
                loss = functional.cross_entropy(model(inputs), targets)
                loss.backward()
                optimizer.step()
                done += 1
                if done == steps:
                    return

    return run


def calls(run: Callable[[int], None]) -> float:
    """Python calls of one step, the fixed cost of a run taken off."""

    def count(steps: int) -> int:
        total = 0

        def profile(frame: object, event: str, arg: object) -> None:
            nonlocal total
            total += event == "call"

        sys.setprofile(profile)
        try:
            run(steps)
        finally:
            sys.setprofile(None)
        return total

    return (count(21) - count(11)) / 10


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)

    loop, ours = pegboard_loop()
    source: Any = loop.splits.train
    x, y = source.inputs[0], source.target
    loops = {
        "plain DataLoader loop": by_loader(x, y),
        "best hand-written loop": by_hand(x, y),
        "pegboard": ours,
        "pegboard, four tricks": pegboard_loop(regularizers=TRICKS)[1],
    }
    times: dict[str, list[float]] = {name: [] for name in loops}
    for run in loops.values():
        run(50)
    for _ in range(args.repeats):
        for name, run in loops.items():
            started = time.perf_counter()
            run(args.steps)
            times[name].append((time.perf_counter() - started) / args.steps)
    base = statistics.median(times["plain DataLoader loop"])
    rows = {
        name: {
            "us": statistics.median(t) * 1e6,
            "ratio": statistics.median(t) / base,
            "calls": calls(loops[name]),
        }
        for name, t in times.items()
    }
    print(f"{'loop':26}{'us a step':>10}{'ratio':>8}{'calls':>8}")
    for name, row in rows.items():
        print(f"{name:26}{row['us']:>10.0f}{row['ratio']:>8.2f}{row['calls']:>8.0f}")
    if args.json:
        args.json.write_text(
            json.dumps({"torch": torch.__version__, "threads": args.threads, "loops": rows}, indent=1)
        )


if __name__ == "__main__":
    main()
