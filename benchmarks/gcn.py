"""GCN on Cora: steps per second of Pegboard beside those of PyTorch Geometric's example of the same model.

    python benchmarks/gcn.py [--threads 1] [--rounds 7] [--steps 20] [--json out.json]

The same network (two layers, hidden 16, dropout 0.5 on features and hidden units), features divided by their
number, Adam 0.01 with a weight decay of 5e-4 on the first layer, and the 140 nodes of the public split in
every step. The other loop is what the example `gcn.py` writes: `GCNConv(cached=True)`, masks, `F.dropout`;
one goes without `cached`, and one has Pegboard's module in a loop by hand. Rounds are interleaved, so that
whatever else the machine does falls on all alike; time of the processor is shown beside that of the clock,
and ratios are medians over rounds. At the end all have learned the same: accuracies are shown. Data:
PEGBOARD_DATA/planetoid/Cora, else it is downloaded.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from pegboard.config.check import check
from pegboard.engine.loop import Loop
from pegboard.engine.precision import choose_precision
from pegboard.planning.plan import assemble, make_plan
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

CONFIG: dict[str, Any] = {
    "data": {"name": "planetoid", "dataset": "Cora", "batch_size": "all"},
    "model": {"name": "gcn", "hidden": [16]},
    "optimizer": {"name": "adam", "lr": 0.01},
    "regularizers": {
        "dropout": {"p": 0.5, "sites": ["input", "hidden"]},
        "weight_decay": {"value": 5e-4, "mode": "l2", "bias": True, "norm": True, "only": ["blocks.0.*"]},
    },
    "trainer": {"device": "cpu"},
}
Steps = Callable[[int], None]  # makes that many updates


class Nobody:
    """A watcher that looks away."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args: None


class Example(nn.Module):
    """The network of the example."""

    def __init__(self, inputs: int, hidden: int, outputs: int, cached: bool) -> None:
        super().__init__()
        self.conv1 = GCNConv(inputs, hidden, cached=cached)
        self.conv2 = GCNConv(hidden, outputs, cached=cached)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        x = F.dropout(x, p=0.5, training=self.training)
        x = self.conv1(x, edges).relu()
        x = F.dropout(x, p=0.5, training=self.training)
        out: Tensor = self.conv2(x, edges)
        return out


def ours() -> tuple[Steps, Callable[[], float], Any]:
    """Pegboard's loop, its accuracy on the test, and the splits."""
    plan = make_plan(check(CONFIG), read=True)
    assert plan.splits is not None
    assembly = assemble(plan, "cpu")
    watcher: Any = Nobody()
    folder = Path(tempfile.mkdtemp())
    loop = Loop(assembly, plan.splits, choose_precision("fp32", "cpu"), watcher, folder)
    assembly.model.train()

    def run(count: int) -> None:
        for _ in range(count):
            groups = loop.groups(loop.progress.epoch)
            loop.progress.position = 0
            loop.span(groups, 1)
            loop.progress.epoch += 1

    return run, lambda: loop.evaluate("test")["accuracy"], plan.splits


def theirs(splits: Any, cached: bool) -> tuple[Steps, Callable[[], float]]:
    """The loop of the example, and its accuracy on the test."""
    graph, nodes = splits.train.graph, len(splits.train.graph.x)
    y, masks = torch.zeros(nodes, dtype=torch.int64), []
    for source in (splits.train, splits.test):
        y[source.nodes] = source.target
        masks.append(torch.zeros(nodes, dtype=torch.bool).index_fill(0, source.nodes, True))
    data = Data(x=graph.x, edge_index=graph.edges, y=y, train_mask=masks[0], test_mask=masks[1])
    torch.manual_seed(0)
    model = Example(graph.x.shape[1], 16, int(y.max()) + 1, cached)
    groups = [
        {"params": model.conv1.parameters(), "weight_decay": 5e-4},
        {"params": model.conv2.parameters(), "weight_decay": 0},
    ]
    optimizer = torch.optim.Adam(groups, lr=0.01)

    def run(count: int) -> None:
        for _ in range(count):
            model.train()
            optimizer.zero_grad()
            out = model(data.x, data.edge_index)
            loss = F.cross_entropy(out[data.train_mask], data.y[data.train_mask])
            loss.backward()
            optimizer.step()
            float(loss.detach())

    @torch.no_grad()
    def accuracy() -> float:
        found = model.eval()(data.x, data.edge_index).argmax(-1)
        return float((found == data.y)[data.test_mask].float().mean())

    return run, accuracy


def by_hand(splits: Any) -> tuple[Steps, Callable[[], float]]:
    """Pegboard's module in the loop that a person writes around it."""
    model = assemble(make_plan(check(CONFIG), read=True), "cpu").model
    first = [p for name, p in model.named_parameters() if name.startswith("blocks.0.")]
    rest = [p for name, p in model.named_parameters() if not name.startswith("blocks.0.")]
    groups = [{"params": first, "weight_decay": 5e-4}, {"params": rest}]
    optimizer = torch.optim.Adam(groups, lr=0.01, fused=True)
    x, edges = splits.train.graph.x, splits.train.graph.edges

    def run(count: int) -> None:
        model.train()
        for _ in range(count):
            optimizer.zero_grad()
            out = model(x, edges, splits.train.nodes)
            loss = F.cross_entropy(out, splits.train.target)
            loss.backward()
            optimizer.step()

    @torch.no_grad()
    def accuracy() -> float:
        found = model.eval()(x, edges, splits.test.nodes).argmax(-1)
        return float((found == splits.test.target).float().mean())

    return run, accuracy


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=20, help="updates of each in a round")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    own, own_accuracy, splits = ours()
    loops: dict[str, tuple[Steps, Callable[[], float]]] = {
        "pegboard": (own, own_accuracy),
        "its module alone": by_hand(splits),
        "example, cached": theirs(splits, True),
        "example": theirs(splits, False),
    }
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in loops}
    for run, _ in loops.values():
        run(3)
    for _ in range(args.rounds):
        for name, (run, _) in loops.items():
            begun, used = time.perf_counter(), time.process_time()
            run(args.steps)
            times[name].append((time.perf_counter() - begun, time.process_time() - used))
    rows = {}
    for name, (_, accuracy) in loops.items():
        pairs = list(zip(times[name], times["pegboard"], strict=True))
        rows[name] = {
            "steps_per_second": args.steps / statistics.median(t for t, _ in times[name]),
            "processor_ms": 1e3 * statistics.median(t for _, t in times[name]) / args.steps,
            "slower_by_clock": statistics.median(a[0] / b[0] for a, b in pairs),
            "slower_by_processor": statistics.median(a[1] / b[1] for a, b in pairs),
            "test_accuracy": accuracy(),
        }
        shown = "  ".join(f"{key} {value:.3g}" for key, value in rows[name].items())
        print(f"{name:16} {shown}")
    if args.json:
        args.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
