"""Time and memory of a training step against batch size, width and depth of an MLP.

    python benchmarks/growth.py [--repeats 9] [--small] [--compiled]

Pegboard's loop and the best loop written by hand (resident tensors, one gather a batch, fused Adam), in one
process and one thread. One of the three sizes grows while the others stay at batch 64, width 128 and depth 2.
Turns are interleaved, and a time is the median over turns of the time that the process computed, a step: with
one thread and nothing to wait for that is what a clock shows on a quiet machine, and it does not grow when
others use it. Memory is the most that a step holds at once beyond what it found: activations, gradients and
temporaries, but not weights, optimizer state and data. It is summed from allocations that torch's profiler
records, so it does not depend on the machine. `--small` takes every other size; `--compiled` adds Pegboard
with whole steps compiled, eight in a call, which takes minutes to compile for so many sizes. Writes
benchmarks/results/growth.json and docs/images/growth.png.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from machine import machine
from pegboard.config.check import check
from pegboard.engine.loop import Loop
from pegboard.engine.precision import choose_precision
from pegboard.planning.plan import assemble, make_plan
from torch import Tensor, nn
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile

ROOT = Path(__file__).resolve().parents[1]
INPUTS, CLASSES, SAMPLES = 64, 10, 8192
LONGEST = 400  # steps of a turn
TURN = 0.08  # seconds that a turn should take
Run = Callable[[int], None]  # makes so many steps


@dataclass(frozen=True)
class Size:
    """What is trained."""

    batch: int = 64
    width: int = 128
    depth: int = 2


SWEEPS = {
    "batch": [8, 16, 32, 64, 128, 256, 512, 1024, 2048],
    "width": [16, 32, 64, 128, 256, 512, 1024],
    "depth": [1, 2, 4, 8, 16],
}
TITLES = {
    "batch": "batch size (width 128, depth 2)",
    "width": "width (batch 64, depth 2)",
    "depth": "hidden layers (batch 64, width 128)",
}
COLOURS = {"hand-written": "#c3c9ce", "pegboard": "#1f6f8b", "pegboard, compiled": "#d1793b"}


def pegboard(size: Size, compiled: bool, inside: ExitStack) -> tuple[Run, Callable[[], None], Loop]:
    config = {
        "data": {
            "name": "blobs", "samples": SAMPLES, "features": INPUTS, "classes": CLASSES, "val": 0, "test": 0,
            "batch_size": size.batch, "drop_last": True,
        },
        "model": {"name": "mlp", "hidden": [size.width] * size.depth},
        "optimizer": {"name": "adam", "lr": 1e-3},
        "trainer": {"device": "cpu", **({"compile": "step", "steps_per_call": 8} if compiled else {})},
    }  # fmt: skip

    class Nobody:
        """A watcher that looks away."""

        def __getattr__(self, name: str) -> Callable[..., None]:
            return lambda *args: None

    plan = make_plan(check(config), read=True)
    assert plan.splits is not None
    watcher: Any = Nobody()
    loop = Loop(assemble(plan, "cpu"), plan.splits, choose_precision("fp32", "cpu"), watcher, Path("."))
    loop.assembly.model.train()
    inside.enter_context(loop.stepper.around())
    loop.stepper.begin()
    groups = loop.groups(0)
    groups = (groups * (LONGEST // len(groups) + 1))[:LONGEST]

    def run(steps: int) -> None:
        loop.progress.position = 0
        while loop.progress.position < steps:
            loop.span(groups, steps, steps)

    def tidy() -> None:
        loop.losses = [[] for _ in loop.losses]

    return run, tidy, loop


def by_hand(size: Size, x: Tensor, y: Tensor) -> tuple[Run, Callable[[], None]]:
    """Resident tensors, one gather a batch, fused Adam."""
    widths = [INPUTS] + [size.width] * size.depth
    layers = [m for a, b in pairwise(widths) for m in (nn.Linear(a, b), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(size.width, CLASSES))
    optimizer = torch.optim.Adam(model.parameters(), 1e-3, fused=True)
    indices = torch.randperm(len(x))[: len(x) // size.batch * size.batch].split(size.batch)
    indices = (indices * (LONGEST // len(indices) + 1))[:LONGEST]

    def run(steps: int) -> None:
        for index in indices[:steps]:
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(x.index_select(0, index)), y.index_select(0, index))
            loss.backward()
            optimizer.step()

    return run, optimizer.zero_grad


def peak(run: Run, tidy: Callable[[], None]) -> int:
    """The most bytes that one step holds at once, beyond what was there before it."""
    tidy()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        run(1)
    held = most = 0
    results: Any = profiler.profiler.kineto_results  # type: ignore[union-attr]
    changes = [
        (event.start_time_ns, event.extra_fields.alloc_size)
        for event in every(results.experimental_event_tree())
        if event.tag.name == "Allocation"
    ]
    for _, change in sorted(changes, key=lambda change: change[0]):
        held += change
        most = max(most, held)
    return most


def every(events: Any) -> Iterator[Any]:
    for event in events:
        yield event
        yield from every(event.children)


def measure(size: Size, repeats: int, compiled: bool) -> dict[str, dict[str, float]]:
    """Microseconds and bytes of a step in each loop."""
    with ExitStack() as inside:
        run, tidy, loop = pegboard(size, False, inside)
        source: Any = loop.splits.train
        loops = {"hand-written": by_hand(size, source.inputs[0], source.target), "pegboard": (run, tidy)}
        if compiled:
            run, tidy, loop = pegboard(size, True, inside)
            loops["pegboard, compiled"] = (run, tidy)
        for run, _ in loops.values():
            run(17)
        if compiled and (made := loop.stepper.summary()["compiled"])["level"] != "step":
            raise SystemExit(f"the step was not compiled: {made['why']}")
        count = steps_of_a_turn(loops["hand-written"][0])
        times: dict[str, list[float]] = {name: [] for name in loops}
        for _ in range(repeats):
            for name, (run, _) in loops.items():
                started = time.process_time()
                run(count)
                times[name].append((time.process_time() - started) / count)
        found = {
            name: {"us": statistics.median(times[name]) * 1e6, "bytes": peak(run, tidy)}
            for name, (run, tidy) in loops.items()
        }
    if compiled:
        torch._dynamo.reset()
    return found


def steps_of_a_turn(run: Run) -> int:
    started = time.process_time()
    run(10)
    return max(5, min(LONGEST, round(10 * TURN / (time.process_time() - started))))


def table(sweep: str, rows: dict[str, dict[str, dict[str, float]]]) -> str:
    names = list(next(iter(rows.values())))
    head = "".join(f"{name:>26}" for name in names)
    lines = [f"{TITLES[sweep]:36}{head}", f"{'':36}" + f"{'us':>14}{'KiB':>12}" * len(names)]
    for at, row in rows.items():
        cells = "".join(f"{row[name]['us']:>14.0f}{row[name]['bytes'] / 1024:>12.0f}" for name in names)
        lines.append(f"{at:36}{cells}")
    return "\n".join(lines)


def chart(sweeps: dict[str, Any], path: Path) -> None:
    """Small multiples: time above, memory below, a column for each size that grows."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, StrMethodFormatter

    figure = Figure(figsize=(10, 5.6), layout="constrained")
    FigureCanvasAgg(figure)
    panels: Any = figure.subplots(2, len(sweeps), sharex="col", sharey="row")
    for column, (sweep, rows) in enumerate(sweeps.items()):
        sizes = [int(at) for at in rows]
        for line, (kind, scale) in enumerate((("us", 1.0), ("bytes", 2.0**20))):
            axes = panels[line][column]
            for name, colour in COLOURS.items():
                if name in next(iter(rows.values())):
                    values = [row[name][kind] / scale for row in rows.values()]
                    width = 4.5 if name == "hand-written" else 1.4  # so that both are seen where they agree
                    axes.plot(sizes, values, lw=width, marker="o", ms=width + 2, color=colour, label=name)
            axes.set_xscale("log", base=2)
            axes.set_yscale("log")
            axes.set_xticks(sizes, [str(size) for size in sizes], fontsize=7)
            axes.tick_params(axis="y", labelsize=8)
            axes.minorticks_off()
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
            axes.grid(alpha=0.25)
            axes.spines[["top", "right"]].set_visible(False)
        panels[1][column].set_xlabel(TITLES[sweep], fontsize=9)
    panels[0][0].set_ylabel("processor time of a step, microseconds", fontsize=9)
    panels[1][0].set_ylabel("memory of a step beyond weights\nand optimizer state, MiB", fontsize=9)
    panels[0][0].legend(fontsize=8, frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, metadata={"Software": None})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--small", action="store_true", help="every other size")
    parser.add_argument("--compiled", action="store_true", help="measure compiled steps too")
    parser.add_argument("--json", type=Path, default=ROOT / "benchmarks" / "results" / "growth.json")
    parser.add_argument("--chart", type=Path, default=ROOT / "docs" / "images" / "growth.png")
    args = parser.parse_args()
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler tells of every time it begins and ends
    torch.set_num_threads(1)
    found: dict[str, Any] = {}
    for sweep, sizes in SWEEPS.items():
        found[sweep] = {
            str(at): measure(replace(Size(), **{sweep: at}), args.repeats, args.compiled)
            for at in sizes[:: 2 if args.small else 1]
        }
        print(table(sweep, found[sweep]) + "\n", flush=True)
    args.json.parent.mkdir(parents=True, exist_ok=True)
    args.json.write_text(
        json.dumps({"machine": machine(), "repeats": args.repeats, "sweeps": found}, indent=1) + "\n"
    )
    chart(found, args.chart)


if __name__ == "__main__":
    main()
