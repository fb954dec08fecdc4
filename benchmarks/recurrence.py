"""Time of a training step of each recurrent cell against the length of the sequences it reads.

    python benchmarks/recurrence.py [--width 64] [--batch 16] [--layers 2] [--lengths 64 256 1024]
                                    [--repeats 9] [--docs]

The network of the plugin `rnn` on the numbers of `adding`, with each of its cells in turn; the rest is the
same for all. Every cell stands in two loops: Pegboard's, and the best written by hand around the same module
(resident tensors, one gather a batch, fused Adam); both in one process, with the heap that a run keeps. One
thread, and turns are interleaved. A time is the median over turns of what the process computed, a step: with
one thread and nothing to wait for that is what a clock shows on a quiet machine, and it does not grow when
others use it. A ratio is the median over rounds of one turn over the other of the same round. Writes
benchmarks/results/recurrence.json; `--docs` puts the table between the markers in docs/performance.md.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from machine import machine
from pegboard import Batch, Resident
from pegboard.config.check import check
from pegboard.engine.loop import Loop
from pegboard.engine.precision import choose_precision
from pegboard.planning.plan import assemble, make_plan
from pegboard.run.malloc import kept_heap
from ratios import ratio
from report import put
from torch.nn import functional

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "benchmarks" / "results" / "recurrence.json"
PAGE = ROOT / "docs" / "performance.md"
CELLS = ("lstm", "gru", "elman", "mingru", "lru")
TURN = 0.25  # seconds that a turn should take
BATCHES = 8  # of the data
LONGEST = 400  # steps of a turn
Run = Callable[[int], None]  # makes so many steps


class Nobody:
    """A watcher that looks away."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args: None


@dataclass(frozen=True)
class Size:
    """What is trained."""

    width: int
    batch: int
    layers: int
    length: int = 0


def loops(cell: str, size: Size) -> dict[str, Run]:
    """Pegboard's loop and one written by hand, around two modules that are alike."""
    config = {
        "data": {
            "name": "adding", "samples": BATCHES * size.batch, "length": size.length, "val": 0, "test": 0,
            "batch_size": size.batch, "drop_last": True,
        },
        "model": {"name": "rnn", "cell": cell, "hidden": size.width, "layers": size.layers},
        "optimizer": {"name": "adam", "lr": 1e-3},
        "trainer": {"device": "cpu"},
    }  # fmt: skip
    plan = make_plan(check(config), read=True)
    assert plan.splits is not None
    watcher: Any = Nobody()
    loop = Loop(assemble(plan, "cpu"), plan.splits, choose_precision("fp32", "cpu"), watcher, Path("."))
    loop.assembly.model.train()
    loop.stepper.begin()

    groups = loop.groups(0)
    groups = [groups[at % len(groups)] for at in range(LONGEST)]

    def ours(steps: int) -> None:
        loop.progress.position = 0
        while loop.progress.position < steps:
            loop.span(groups, steps, steps)
        loop.losses = [[] for _ in loop.losses]

    model = assemble(make_plan(check(config), read=True), "cpu").model
    optimizer = torch.optim.Adam(model.parameters(), 1e-3, fused=True)
    source = plan.splits.train
    assert isinstance(source, Resident)
    whole: Batch = source.gather(torch.arange(len(source)))
    x, y = whole.inputs[0], whole.target
    assert y is not None

    indices = [torch.randperm(len(x))[: size.batch] for _ in range(LONGEST)]

    def by_hand(steps: int) -> None:
        for index in indices[:steps]:
            optimizer.zero_grad()
            loss = functional.mse_loss(model(x.index_select(0, index)), y.index_select(0, index))
            loss.backward()
            optimizer.step()

    return {"pegboard": ours, "hand": by_hand}


def measure(size: Size, repeats: int) -> dict[str, dict[str, list[float]]]:
    """Microseconds of a step in each turn, of each cell in each loop."""
    runs = {cell: loops(cell, size) for cell in CELLS}
    times: dict[str, dict[str, list[float]]] = {cell: {name: [] for name in runs[cell]} for cell in CELLS}
    counts = {}
    for cell, both in runs.items():
        for run in both.values():
            run(2)
        started = time.process_time()
        both["hand"](2)
        counts[cell] = max(2, min(LONGEST, round(2 * TURN / (time.process_time() - started))))
    for at in range(repeats):
        for cell, both in runs.items():
            for name in sorted(both, reverse=bool(at % 2)):  # none is always after the other
                started = time.process_time()
                both[name](counts[cell])
                times[cell][name].append((time.process_time() - started) / counts[cell] * 1e6)
    return times


def table(found: dict[str, Any]) -> str:
    """A row for each length and cell."""
    facts, size = found["machine"], found["size"]
    lines = [
        f"{size['layers']} layers of width {size['width']}, batch {size['batch']}, Adam, 1 thread; "
        f"median (quartiles) of {found['repeats']} rounds",
        f"torch {facts['torch']}, Python {facts['python']}, {facts['cpu']}",
        "",
        f"{'length':>6}  {'cell':8}{'us a step':>10}{'lstm = 1':>18}{'hand-written = 1':>20}",
    ]
    for length, cells in found["lengths"].items():
        for cell, times in cells.items():
            to_lstm = ratio(times["pegboard"], cells["lstm"]["pegboard"])
            to_hand = ratio(times["pegboard"], times["hand"])
            micros = statistics.median(times["pegboard"])
            lines.append(f"{length:>6}  {cell:8}{micros:>10.0f}{to_lstm or '-':>18}{to_hand or '-':>20}")
            length = ""
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--lengths", type=int, nargs="+", default=[64, 256, 1024])
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--json", type=Path, default=RESULT)
    parser.add_argument("--docs", action="store_true", help="put the table into docs/performance.md")
    args = parser.parse_args()
    torch.set_num_threads(1)
    size = Size(args.width, args.batch, args.layers)
    with kept_heap("cpu"):
        lengths = {str(n): measure(replace(size, length=n), args.repeats) for n in sorted(args.lengths)}
    found = {"machine": machine(), "size": asdict(size), "repeats": args.repeats, "lengths": lengths}
    print(table(found))
    args.json.parent.mkdir(parents=True, exist_ok=True)
    args.json.write_text(json.dumps(found, indent=1) + "\n")
    if args.docs:
        PAGE.write_text(put(PAGE.read_text("utf-8"), "recurrence", table(found)), "utf-8")


if __name__ == "__main__":
    main()
