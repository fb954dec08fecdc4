"""A step of every family beside the same module in the best hand-written loop, in one process.

    python benchmarks/families.py [cnn lstm ...] [--repeats 9] [--seconds 0.5] [--docs docs/performance.md]

Each row is a config that needs no download. Its module is trained by Pegboard's loop, and a copy by hand,
with the same tensors in memory, batch size and fused Adam: a gather, the module, its loss, `backward` and
`step`. A model of samples has the loss of its objective in both, a graph that is one batch stays one, and
many graphs are put together by the same function. Both loops have the heap that a run keeps. Turns are
interleaved and of about `--seconds` each. What is shown is how many times as fast Pegboard's step is, the
median over the turns with its quartiles: by the clock, and by the time that the processor computed, which
other work on the machine changes less.
"""

from __future__ import annotations

import argparse
import copy
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import steps
import torch
from pegboard import Batch, Resident
from pegboard.run.malloc import kept_heap
from report import put
from torch import nn
from torch.nn import functional

PAIRS = {"name": "copying", "samples": 2000, "length": 10, "batch_size": 32}
PICTURES = {"name": "objects", "scene": "stacked", "samples": 1000, "size": 28, "batch_size": 32}
SOLIDS = {"name": "solids", "samples": 300, "size": 12, "batch_size": 16}
NODES = {"name": "block_model", "nodes": 600, "batch_size": "all"}
CLOUDS = {"name": "clouds", "batch_size": 32}
SMALLER = {"second": [64, 128], "head": [64], "transform": [32, 64], "transform_head": [32]}
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

    def generating(name: str, **fields: Any) -> Nodes:
        return {"data": {"name": "digits", "batch_size": 64}, "model": {"name": name, **fields}}

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
        **{name: {"data": NODES, "model": {"name": name}} for name in ("gcn", "gat", "cheb")},
        "gin on graphs": {"data": {"name": "cycles", "batch_size": 32}, "model": {"name": "gin"}},
        "deepsets": {"data": CLOUDS, "model": {"name": "deepsets"}},
        "pointnet": {"data": CLOUDS, "model": {"name": "pointnet", **SMALLER}},
        "vae": generating("vae", hidden=[256], latent=16),
        "vae, convolutional": generating("vae", form="convolutional", channels=[16, 32]),
        "gan": generating("gan", hidden=[128, 128]),
        "flow": generating("flow", layers=4),
        "diffusion": generating("diffusion", width=16),
    }


def drawn(source: Any, size: int | str) -> Iterator[Batch]:
    """Batches without end: gathered from tensors in memory, the whole where it is one, or graphs joined."""
    if size == "all":
        whole = source.gather(torch.arange(len(source)))
        while True:
            yield whole
    held = (*source.inputs, source.target) if isinstance(source, Resident) else ()
    while True:
        for index in torch.randperm(len(source))[: len(source) // size * size].split(size):
            if held:
                *inputs, target = (x.index_select(0, index) for x in held)
                yield Batch(tuple(inputs), target)
            else:
                yield source.gather(index)


def by_hand(model: nn.Module, batches: Iterator[Batch], padding: int) -> steps.Run:
    """The loop a good engineer writes around a module that predicts classes."""
    optimizer = torch.optim.Adam(model.parameters(), steps.RATE, fused=True)
    model.train()

    def run(count: int) -> None:
        for batch in islice(batches, count):
            optimizer.zero_grad()
            output, asked = model(*batch.inputs), batch.target
            assert asked is not None
            if asked.dim() > 1:
                loss = functional.cross_entropy(output.flatten(0, 1), asked.flatten(), ignore_index=padding)
            else:
                loss = functional.cross_entropy(output, asked)
            loss.backward()
            optimizer.step()

    return run


def played_by_hand(loop: Any, batches: Iterator[Batch]) -> steps.Run:
    """The same for models of samples: the losses of their objective, for each player in turn."""
    model = loop.assembly.model
    players = loop.assembly.objective.players(model)
    own = [[p for _, p in player.parameters] for player in players]
    optimizers = [torch.optim.Adam(params, steps.RATE, fused=True) for params in own]
    alone = len(players) == 1

    def run(count: int) -> None:
        for batch in islice(batches, count):
            for player, params, optimizer in zip(players, own, optimizers, strict=True):
                seen = batch if player.target is None else Batch(batch.inputs, player.target(batch))
                optimizer.zero_grad()
                loss, _ = player.loss(model, seen)
                loss.backward(inputs=None if alone else params)
                optimizer.step()

    return run


def pair(nodes: Nodes) -> tuple[steps.Run, steps.Run]:
    """Pegboard's loop and the hand-written one."""
    size = nodes["data"]["batch_size"]
    if size != "all":
        nodes = {**nodes, "data": {"drop_last": True, **nodes["data"]}}
    loop, ours = steps.ours(**nodes)
    batches = drawn(loop.splits.train, size)
    if loop.settings.model.entry.part.samples:
        return ours, played_by_hand(steps.ours(**nodes)[0], batches)
    padding = getattr(loop.plan.spec.target, "padding", -100)
    return ours, by_hand(copy.deepcopy(loop.assembly.model), batches, padding)


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
    lines = [f"{'model':20}{'us a step':>10}{'by the clock':>19}{'processor':>19}{'calls':>8}{'by hand':>9}"]
    for name, row in rows.items():
        mine, theirs = row["calls"]
        lines.append(
            f"{name:20}{row['us']:>10.0f}{shown(row['clock']):>19}{shown(row['processor']):>19}"
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
