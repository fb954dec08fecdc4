"""Steps per second of Pegboard's loop beside hand-written ones, in one process, and what a step is made of.

    python benchmarks/steps.py [--threads 1] [--repeats 15] [--steps 300] [--json out.json]

The same network (64-128-10), data (digits, in memory), batch size (32), Adam and number of updates in each.
Repeats are interleaved, so that whatever else the machine does falls on all alike, and the median is shown,
as a ratio to the plain loop over a DataLoader. Python calls (`sys.setprofile`) and operations that torch
dispatches (its profiler; those that an operation makes of its own are not counted) do not depend on the
machine. A compiled step is made before anything is timed, and `compile s` says how long that took.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pegboard
import torch
from pegboard.config.check import check
from pegboard.engine.loop import Loop
from pegboard.engine.precision import choose_precision
from pegboard.planning.channels_last import lay_out
from pegboard.planning.plan import assemble, make_plan
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "support" / "measure"))
from calls import count_calls

BATCH, RATE = 32, 1e-3
CONFIG: dict[str, Any] = {
    "data": {"name": "digits", "batch_size": BATCH, "drop_last": True},
    "model": {"name": "mlp", "hidden": [128]},
    "optimizer": {"name": "adam", "lr": RATE},
    "trainer": {"device": "cpu"},
}
FOUR: dict[str, Any] = {
    "batchnorm": {},
    "dropout": {"p": 0.2},
    "weight_decay": {},
    "label_smoothing": {},
}
Run = Callable[[int], None]  # makes that many updates


class Nobody:
    """A watcher that looks away."""

    def working(self, total: int, unit: str) -> Any:
        return nullcontext(lambda done: None)

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args: None


def ours(together: int = 0, **nodes: Any) -> tuple[Loop, Run]:
    """The engine's hot loop; `together` updates are one call of a graph, 0 compiles nothing."""
    trainer = {**CONFIG["trainer"], "compile": "step", "steps_per_call": together} if together else None
    plan = make_plan(check({**CONFIG, **({"trainer": trainer} if trainer else {}), **nodes}), read=True)
    assert plan.splits is not None
    watcher: Any = Nobody()
    assembly = assemble(plan, "cpu")
    if assembly.channels_last:
        lay_out(plan.splits)
    loop = Loop(assembly, plan.splits, choose_precision("fp32", "cpu"), watcher, Path("."))
    loop.assembly.model.train()
    loop.stepper.begin()

    def run(steps: int) -> None:
        progress = loop.progress
        with loop.stepper.around():
            while steps > 0:
                groups = loop.groups(progress.epoch)
                progress.position, last = 0, min(steps, len(groups))
                loop.span(groups, last, last)
                steps -= progress.position
                progress.epoch += 1
        loop.losses = [[] for _ in loop.losses]

    return loop, run


def five(folder: str) -> dict[str, Any]:
    """All five tricks, with a teacher that is trained for it in the folder."""
    small = {**CONFIG, "model": {"name": "mlp", "hidden": [32]}, "trainer": {"device": "cpu", "epochs": 1}}
    teacher = pegboard.train(small, root=folder, quiet=True)
    return {**FOUR, "distillation": {"teacher": str(teacher.folder)}}


def network() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))


def drawn(x: Tensor, y: Tensor, steps: int, size: int = BATCH) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches of tensors in memory, one gather each."""
    while True:
        for index in torch.randperm(len(x))[: len(x) // size * size].split(size):
            if steps == 0:
                return
            steps -= 1
            yield x.index_select(0, index), y.index_select(0, index)


def by_hand(x: Tensor, y: Tensor) -> Run:
    """Resident tensors, one gather a batch, fused Adam: the loop a good engineer writes."""
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), RATE, fused=True)

    def run(steps: int) -> None:
        for inputs, targets in drawn(x, y, steps):
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(inputs), targets)
            loss.backward()
            optimizer.step()

    return run


def by_hand_lean(x: Tensor, y: Tensor) -> Run:
    """The same past `backward` and `Optimizer.step`: gradients as a list, handed to the kernel."""
    model = network()
    params = list(model.parameters())
    weights = [p.detach() for p in params]
    means, squares = ([torch.zeros_like(p) for p in weights] for _ in range(2))
    counts, one = torch.zeros(len(params)), torch.ones(())
    each = list(counts.unbind())

    def run(steps: int) -> None:
        for inputs, targets in drawn(x, y, steps):
            loss = functional.cross_entropy(model(inputs), targets)
            grads = torch.autograd.grad(loss, params)
            counts.add_(one)
            torch._fused_adam_(
                weights, list(grads), means, squares, [], each, lr=RATE, beta1=0.9, beta2=0.999, eps=1e-8,
                weight_decay=0.0, amsgrad=False, maximize=False,
            )  # fmt: skip

    return run


def by_loader(x: Tensor, y: Tensor) -> Run:
    """The plain loop of the tutorials: a DataLoader and Adam."""
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), RATE)
    loader = DataLoader(TensorDataset(x, y), BATCH, shuffle=True, drop_last=True)

    def run(steps: int) -> None:
        while steps > 0:
            for inputs, targets in loader:
                optimizer.zero_grad()
                loss = functional.cross_entropy(model(inputs), targets)
                loss.backward()
                optimizer.step()
                steps -= 1
                if steps == 0:
                    return

    return run


def loops(folder: str | None = None) -> dict[str, Run]:
    """Every row; without a folder for a teacher, only those that need no teacher and no compiler."""
    loop, eager = ours()
    source: Any = loop.splits.train
    x, y = source.inputs[0], source.target
    rows = {
        "plain DataLoader loop": by_loader(x, y),
        "best hand-written loop": by_hand(x, y),
        "  past Optimizer.step": by_hand_lean(x, y),
        "pegboard": eager,
    }
    if folder is not None:
        tricks = five(folder)
        rows |= {
            "pegboard, five tricks": ours(regularizers=tricks)[1],
            "pegboard, compiled step": ours(1)[1],
            "  32 steps a call": ours(32)[1],
            "  32 a call, five tricks": ours(32, regularizers=tricks)[1],
        }
    return rows


def a_step(run: Run, count: Callable[[Callable[[], None]], int]) -> float:
    """What `count` finds in one step, the fixed cost of a run taken off."""
    return (count(lambda: run(39)) - count(lambda: run(7))) / 32


def operations(run: Callable[[], None]) -> int:
    """Operations that torch dispatched, without those that they are made of."""
    with torch.autograd.profiler.profile(use_kineto=False) as seen:
        run()
    found = [event for event in seen.function_events if event.name.startswith("aten::")]
    return sum(not (e.cpu_parent is not None and e.cpu_parent.name.startswith("aten::")) for e in found)


def measure(rows: dict[str, Run], repeats: int, steps: int) -> dict[str, dict[str, float]]:
    """Times and counts of every row."""
    times: dict[str, list[float]] = {name: [] for name in rows}
    first = {}
    for name, run in rows.items():
        started = time.perf_counter()
        run(50)
        first[name] = time.perf_counter() - started
    for _ in range(repeats):
        for name, run in rows.items():
            started = time.perf_counter()
            run(steps)
            times[name].append((time.perf_counter() - started) / steps)
    base = times["plain DataLoader loop"]
    return {
        name: {
            "us": statistics.median(times[name]) * 1e6,
            "ratio": statistics.median(a / b for a, b in zip(times[name], base, strict=True)),
            "calls": a_step(run, count_calls),
            "operations": a_step(run, operations),
            "first": max(first[name] - 50 * statistics.median(times[name]), 0.0),
        }
        for name, run in rows.items()
    }


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
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler's notes on standard error
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(loops(folder), args.repeats, args.steps)
    print(f"{'loop':26}{'us a step':>10}{'ratio':>8}{'calls':>8}{'operations':>12}{'compile s':>11}")
    for name, row in rows.items():
        made = f"{row['first']:.1f}" if "call" in name or "compiled" in name else ""
        print(
            f"{name:26}{row['us']:>10.0f}{row['ratio']:>8.2f}{row['calls']:>8.0f}{row['operations']:>12.0f}"
            f"{made:>11}".rstrip()
        )
    if args.json:
        args.json.write_text(
            json.dumps({"torch": torch.__version__, "threads": args.threads, "loops": rows}, indent=1)
        )


if __name__ == "__main__":
    main()
