"""Page faults and CPU time of a step, with the heap that a run keeps and without it.

    python benchmarks/heap.py

Each turn is a process of its own, and the least of the turns counts: that is what the others do not add to.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any

TURNS, ADDING = 4, {"name": "adding", "samples": 128, "val": 0, "test": 0, "batch_size": 16}
DIGITS = {"name": "digits", "batch_size": 64}
MODELS: dict[str, tuple[int, dict[str, Any]]] = {  # steps that are measured, and what is trained
    "mlp, digits": (4000, {"data": DIGITS, "model": {"name": "mlp", "hidden": [256, 256]}}),
    "cnn, digits": (300, {"data": DIGITS, "model": {"name": "cnn"}}),
    "lstm, length 128": (60, {"data": {**ADDING, "length": 128}, "model": {"name": "rnn", "hidden": 64}}),
    "lru, length 1024": (
        20,
        {"data": {**ADDING, "length": 1024}, "model": {"name": "rnn", "cell": "lru", "hidden": 64}},
    ),
}


def measure(name: str, kept: bool) -> dict[str, float]:
    """Page faults of a step and its milliseconds in user and system mode, on one thread."""
    import torch
    from pegboard.config.check import check
    from pegboard.engine.loop import Loop
    from pegboard.engine.precision import choose_precision
    from pegboard.planning.plan import assemble, make_plan
    from pegboard.run.malloc import kept_heap

    class Nobody:
        """A watcher that looks away."""

        def working(self, total: int, unit: str) -> Any:
            return nullcontext(lambda done: None)

        def __getattr__(self, name: str) -> Any:
            return lambda *args: None

    torch.set_num_threads(1)
    steps, nodes = MODELS[name]
    trainer = {"device": "cpu", "steps": 10**6}
    plan = make_plan(check({"optimizer": {"name": "adam"}, "trainer": trainer, **nodes}), read=True)
    assert plan.splits is not None
    watcher: Any = Nobody()
    with kept_heap("cpu") if kept else nullcontext(), tempfile.TemporaryDirectory() as folder:
        assembly = assemble(plan, "cpu")
        loop = Loop(assembly, plan.splits, choose_precision("fp32", "cpu"), watcher, Path(folder))
        assembly.model.train()
        groups = loop.groups(0)

        def run(count: int) -> None:
            for at in range(count):
                loop.progress.position = at % len(groups)
                loop.span(groups, loop.progress.position + 1)

        run(max(steps // 5, 5))
        before = resource.getrusage(resource.RUSAGE_SELF)
        run(steps)
        after = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "faults": (after.ru_minflt - before.ru_minflt) / steps,
        "user": (after.ru_utime - before.ru_utime) / steps * 1e3,
        "system": (after.ru_stime - before.ru_stime) / steps * 1e3,
    }


def main() -> None:
    print(f"{'a step of':20}{'heap':>10}{'page faults':>14}{'user ms':>10}{'system ms':>11}")
    for name in MODELS:
        turns: dict[str, list[dict[str, float]]] = {"given back": [], "kept": []}
        for _ in range(TURNS):
            for how, found in turns.items():
                words = [sys.executable, __file__, name, how]
                done = subprocess.run(words, capture_output=True, text=True, check=True)
                found.append(json.loads(done.stdout.splitlines()[-1]))
        for how, found in turns.items():
            least = {key: min(turn[key] for turn in found) for key in found[0]}
            figures = f"{least['faults']:14.1f}{least['user']:10.3f}{least['system']:11.3f}"
            print(f"{name:20}{how:>10}{figures}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        print(json.dumps(measure(sys.argv[1], sys.argv[2] == "kept")))
    else:
        main()
