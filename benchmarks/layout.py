"""How much faster a step is where pictures lie in memory with their channels last, for convolutions.

    python benchmarks/layout.py [--threads 1] [--repeats 9] [--seconds 0.3] [--docs docs/performance.md]

The engine's hot loop with `trainer.channels_last` off and on, in one process and in turns; the median over
the turns with its quartiles, by the time that the processor computed.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any

import steps
import torch
from families import PICTURES, configs, shown, timed
from pegboard.run.malloc import kept_heap
from report import put

ALREADY = ("cnn", "lenet", "resnet-8", "densenet", "multiview", "vit", "vae, convolutional", "diffusion")
LARGER = {**PICTURES, "batch_size": 64}


def rows(folder: Path) -> dict[str, dict[str, Any]]:
    """Those of `families.py` that have convolutions, and some more."""
    known = configs(folder)
    return {
        **{name: known[name] for name in ALREADY},
        "cnn, batches of 4": {"data": {**PICTURES, "batch_size": 4}, "model": {"name": "cnn"}},
        "cnn, in groups": {
            "data": LARGER,
            "model": {"name": "cnn", "channels": [32, 32], "groups": [1, 32]},
        },
        "resnet-20": {"data": LARGER, "model": {"name": "resnet", "depth": 20}},
        "densenet-16": {"data": LARGER, "model": {"name": "densenet", "depth": 16, "growth": 12}},
        "gan, convolutional": {"data": LARGER, "model": {"name": "gan", "form": "convolutional"}},
    }


def measure(nodes: dict[str, Any], repeats: int, seconds: float) -> tuple[float, list[float]]:
    """Microseconds of a step as usual, and for each turn its time over that with channels last."""
    nodes = {**nodes, "data": {"drop_last": True, **nodes["data"]}}
    usual, last = (
        steps.ours(**nodes, trainer={"device": "cpu", "channels_last": on})[1] for on in (False, True)
    )
    for run in (usual, last):
        run(3)
    count = max(3, int(seconds / timed(usual, 3)[0]))
    found = []
    for turn in range(repeats):
        order = (usual, last) if turn % 2 else (last, usual)
        times = {run: timed(run, count)[1] for run in order}
        found.append((times[usual], times[last]))
    return statistics.median(a for a, _ in found) * 1e6, [a / b for a, b in found]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.3, help="of a turn")
    parser.add_argument("--docs", type=Path, help="a page whose section `layout` gets the table")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    lines = [f"{'model':20}{'us a step':>10}{'times as fast':>19}"]
    print(lines[0])
    with tempfile.TemporaryDirectory() as folder, kept_heap("cpu"):
        for name, nodes in rows(Path(folder)).items():
            took, ratios = measure(nodes, args.repeats, args.seconds)
            lines.append(f"{name:20}{took:>10.0f}{shown(ratios):>19}")
            print(lines[-1], flush=True)
    if args.docs:
        args.docs.write_text(put(args.docs.read_text("utf-8"), "layout", "\n".join(lines)), "utf-8")


if __name__ == "__main__":
    main()
