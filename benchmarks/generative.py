"""Steps of generative models in Pegboard's loop beside the best hand-written loop of the same module.

    python benchmarks/generative.py [--repeats 9] [--steps 60] [--json out.json]

Digits in memory, batches of 64, fused Adam. The module, the loss of its objective and the number of updates
are the same in both; the hand-written loop gathers its batches in the same way and does nothing else.
Repeats are interleaved, and the median of the ratios of the processor's time is shown, so that whatever else
the machine does falls on both alike.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from pegboard import Batch
from steps import Run, drawn, ours

SIZE, RATE = 64, 1e-3
MODELS: dict[str, dict[str, Any]] = {
    "vae": {"model": {"name": "vae", "hidden": [256], "latent": 16}},
    "vae, convolutional": {"model": {"name": "vae", "form": "convolutional", "channels": [16, 32]}},
    "gan": {"model": {"name": "gan", "hidden": [128, 128]}},
    "flow": {"model": {"name": "flow", "layers": 4}},
    "diffusion": {"model": {"name": "diffusion", "width": 16}},
}


def both(nodes: dict[str, Any]) -> tuple[Run, Run]:
    """The engine's loop and the hand-written one, each with a model of its own."""
    data = {"name": "digits", "batch_size": SIZE, "drop_last": True}
    optimizer = {"name": "adam", "lr": RATE}
    _, engine = ours(data=data, optimizer=optimizer, **nodes)
    loop, _ = ours(data=data, optimizer=optimizer, **nodes)
    model, source = loop.assembly.model, loop.splits.train
    x = source.inputs[0]  # type: ignore[attr-defined]
    players = loop.assembly.objective.players(model)
    params = [[p for _, p in player.parameters] for player in players]
    moves = [torch.optim.Adam(own, RATE, fused=True) for own in params]
    alone = len(players) == 1

    def by_hand(steps: int) -> None:
        for inputs, _ in drawn(x, x, steps, SIZE):
            for player, own, optimizer in zip(players, params, moves, strict=True):
                batch = Batch((inputs,), None if player.target is None else player.target(Batch((inputs,))))
                optimizer.zero_grad()
                loss, _ = player.loss(model, batch)
                loss.backward(inputs=None if alone else own)  # type: ignore[no-untyped-call]
                optimizer.step()

    return engine, by_hand


def measure(name: str, repeats: int, steps: int) -> dict[str, float]:
    """Milliseconds of a step in both loops, and the ratio of the first to the second."""
    rows = both(MODELS[name])
    for run in rows:
        run(steps)
    times: list[list[float]] = [[], []]
    for repeat in range(repeats):
        for place in (0, 1) if repeat % 2 else (1, 0):
            start = time.process_time()
            rows[place](steps)
            times[place].append((time.process_time() - start) * 1000 / steps)
    ratios = [a / b for a, b in zip(*times, strict=True)]
    return {
        "pegboard": statistics.median(times[0]),
        "by hand": statistics.median(times[1]),
        "ratio": statistics.median(ratios),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    found = {}
    for name in MODELS:
        found[name] = measure(name, args.repeats, args.steps)
        shown = "  ".join(f"{key} {value:.3f}" for key, value in found[name].items())
        print(f"{name:20} {shown}", flush=True)
    if args.json:
        args.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
