"""A step of every family beside the same module in the best hand-written loop, in one process.

    python benchmarks/families.py [cnn lstm ...] [--repeats 9] [--seconds 0.5] [--docs docs/performance.md]

Each row is a config that needs no download. Its module is built once and copied: one copy is trained by
Pegboard's loop, the other by hand, with the same tensors in memory, batch size and fused Adam: a gather, the
module, cross entropy, `backward` and `step`. Both have the heap that a run keeps. Turns are interleaved and
of about `--seconds` each. What is shown is how many times as fast Pegboard's step is, the median over the
turns with its quartiles: by the clock, and by the time that the processor computed, which other work on the
machine changes less.
"""

from __future__ import annotations

import argparse
import copy
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import steps
import torch
from pegboard.engine.heap import kept_heap
from report import put
from torch import Tensor, nn
from torch.nn import functional

PAIRS = {"name": "copying", "samples": 2000, "length": 10, "batch_size": 32}
PICTURES = {"name": "objects", "scene": "stacked", "samples": 1000, "size": 28, "batch_size": 32}
SOLIDS = {"name": "solids", "samples": 300, "size": 12, "batch_size": 16}
SMALL = {"layers": 2, "width": 64, "heads": 4}
Nodes = dict[str, Any]


def made_text(folder: Path) -> dict[str, str]:
    """Sentences in a file for a language model, and with a class in one for a classifier."""
    words = "the a small old quiet red cat dog bird river house sees hears finds keeps leaves".split()
    draw = torch.Generator().manual_seed(0)
    lines = [" ".join(words[i] for i in torch.randint(len(words), (12,), generator=draw)) for _ in range(800)]
    (folder / "lines.txt").write_text("\n".join(lines) + "\n")
    table = ["text,kind", *(f"{line},{'cat' in line}" for line in lines)]
    (folder / "table.csv").write_text("\n".join(table) + "\n")
    return {"lines": str(folder / "lines.txt"), "table": str(folder / "table.csv")}


def configs(folder: Path) -> dict[str, Nodes]:
    """The nodes of each row that differ from the usual config."""
    files = made_text(folder)
    next_letter = {
        "name": "hub",
        "path": files["lines"],
        "inputs": {"text": {"kind": "text", "tokens": "characters", "length": 32}},
        "target": {"kind": "next"},
        "batch_size": 16,
    }
    questions = {
        "name": "hub",
        "path": files["table"],
        "inputs": {"text": {"kind": "text"}},
        "target": "kind",
        "batch_size": 16,
        "lengths": "pad",
    }

    def recurrent(cell: str) -> Nodes:
        return {"data": PICTURES, "model": {"name": "rnn", "cell": cell, "hidden": 64}}

    return {
        "cnn": {"data": PICTURES, "model": {"name": "cnn"}},
        "cnn on solids": {"data": SOLIDS, "model": {"name": "cnn", "channels": [8, 16]}},
        "lenet": {"data": {**PICTURES, "size": 32}, "model": {"name": "lenet"}},
        "resnet-8": {"data": {"name": "digits", "batch_size": 32}, "model": {"name": "resnet", "depth": 8}},
        "densenet": {
            "data": {"name": "digits", "batch_size": 32},
            "model": {"name": "densenet", "depth": 10, "growth": 8},
        },
        "multiview": {"data": {**SOLIDS, "form": "views"}, "model": {"name": "multiview"}},
        **{cell: recurrent(cell) for cell in ("elman", "lstm", "gru", "mingru", "lru")},
        "seq2seq": {"data": PAIRS, "model": {"name": "seq2seq", "hidden": 64}},
        "encoder": {"data": questions, "model": {"name": "encoder", **SMALL}},
        "decoder": {"data": next_letter, "model": {"name": "decoder", **SMALL}},
        "translation": {"data": PAIRS, "model": {"name": "translation", **SMALL}},
        "vit": {"data": PICTURES, "model": {"name": "vit", "patch": 7, **SMALL}},
        "bert": {"data": {**questions, "marked": True}, "model": {"name": "bert", **SMALL}},
    }


def by_hand(
    model: nn.Module, inputs: tuple[Tensor, ...], target: Tensor, batch: int, padding: int
) -> steps.Run:
    """The loop a good engineer writes around this module."""
    optimizer = torch.optim.Adam(model.parameters(), steps.RATE, fused=True)
    model.train()

    def batches() -> Iterator[Tensor]:
        while True:
            yield from torch.randperm(len(target))[: len(target) // batch * batch].split(batch)

    order = batches()

    def run(count: int) -> None:
        for _ in range(count):
            index = next(order)
            optimizer.zero_grad()
            output, asked = model(*[x[index] for x in inputs]), target[index]
            if asked.dim() > 1:
                loss = functional.cross_entropy(output.flatten(0, 1), asked.flatten(), ignore_index=padding)
            else:
                loss = functional.cross_entropy(output, asked)
            loss.backward()
            optimizer.step()

    return run


def pair(nodes: Nodes) -> tuple[steps.Run, steps.Run]:
    """Pegboard's loop and the hand-written one, from the same weights."""
    nodes = {**nodes, "data": {"drop_last": True, **nodes["data"]}}
    loop, ours = steps.ours(**nodes)
    source: Any = loop.splits.train
    padding = getattr(loop.plan.spec.target, "padding", -100)
    twin = copy.deepcopy(loop.assembly.model)
    hand = by_hand(twin, source.inputs, source.target, nodes["data"]["batch_size"], padding)
    return ours, hand


def timed(run: steps.Run, count: int) -> tuple[float, float]:
    """Seconds of a step by the clock, and of the processor."""
    clock, processor = time.perf_counter(), time.process_time()
    run(count)
    return (time.perf_counter() - clock) / count, (time.process_time() - processor) / count


def measure(nodes: Nodes, repeats: int, seconds: float) -> dict[str, Any]:
    """Ratios of the hand-written step to ours, one for every turn, and the calls of both."""
    ours, hand = pair(nodes)
    for run in (ours, hand):
        run(10)
    count = max(8, int(seconds / timed(hand, 8)[0]))
    found: list[tuple[tuple[float, float], tuple[float, float]]] = []
    for turn in range(repeats):
        first = turn % 2
        order = (hand, ours) if first else (ours, hand)
        times = [timed(run, count) for run in order]
        found.append((times[1], times[0]) if first else (times[0], times[1]))
    return {
        "us": statistics.median(mine[0] for mine, _ in found) * 1e6,
        "clock": [theirs[0] / mine[0] for mine, theirs in found],
        "processor": [theirs[1] / mine[1] for mine, theirs in found],
        "calls": (steps.a_step(ours, steps.count_calls), steps.a_step(hand, steps.count_calls)),
    }


def shown(ratios: list[float]) -> str:
    """The median, and the quartiles."""
    low, middle, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    return f"{middle:.2f} ({low:.2f}-{high:.2f})"


def table(rows: dict[str, dict[str, Any]]) -> str:
    """A line for each row."""
    lines = [f"{'model':16}{'us a step':>10}{'by the clock':>19}{'processor':>19}{'calls':>8}{'by hand':>9}"]
    for name, row in rows.items():
        mine, theirs = row["calls"]
        lines.append(
            f"{name:16}{row['us']:>10.0f}{shown(row['clock']):>19}{shown(row['processor']):>19}"
            f"{mine:>8.0f}{theirs:>9.0f}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", help="rows to measure (default: all)")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.5, help="of a turn")
    parser.add_argument("--docs", type=Path, help="a page whose section `families` gets the table")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    with tempfile.TemporaryDirectory() as folder, kept_heap("cpu"):
        known = configs(Path(folder))
        if unknown := set(args.models) - set(known):
            parser.error(f"no row {', '.join(sorted(unknown))}; there are {', '.join(known)}")
        rows = {}
        for name in args.models or known:
            rows[name] = measure(known[name], args.repeats, args.seconds)
            print(table({name: rows[name]}).splitlines()[-1], flush=True)
    print("\n" + table(rows))
    if args.docs:
        args.docs.write_text(put(args.docs.read_text("utf-8"), "families", table(rows)), "utf-8")


if __name__ == "__main__":
    main()
