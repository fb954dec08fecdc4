"""One loop in a process of its own: `python worker.py PEER WORKLOAD` reads a line of JSON for each turn
from standard input and answers with one.

Frameworks change torch, Python and each other's globals, so none shares a process with another. While
one has its turn the others wait in a read and take no time.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import statistics
import sys
import tempfile
import traceback
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, TextIO

import torch
from clock import CLOCK
from peers import PEERS, Trained
from workloads import WORKLOADS, Workload

FALLEN = 0.7  # of the untrained network's loss is what a turn must end below


def turn(name: str, work: Workload, *, threads: int, defaults: bool, count: bool) -> dict[str, Any]:
    """Train once, make sure that it was training, and say how many microseconds a step took."""
    peer = PEERS[name]
    train = getattr(importlib.import_module(f"peers.{peer.module}"), peer.function)
    torch.set_num_threads(threads)
    CLOCK.reset(work.steps_per_epoch, count)
    gc.collect()
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        trained = train(work, defaults, Path(folder))
    if len(CLOCK.epochs) != work.epochs:
        raise RuntimeError(f"{len(CLOCK.epochs)} epochs began, expected {work.epochs}")
    first, *timed = (b - a for a, b in pairwise(CLOCK.epochs))  # the last epoch is not timed
    typical = statistics.median(timed)
    a_step = 1e6 / work.steps_per_epoch
    return {
        "epoch": typical * a_step,
        "cpu": (CLOCK.cpu[-1] - CLOCK.cpu[1]) / len(timed) * a_step,
        "calls": CLOCK.calls / work.steps_per_epoch,
        "first": first - typical,  # what the first epoch had to do besides
        "note": trained.note,
        **judge(trained, work),
    }


def judge(trained: Trained, work: Workload) -> dict[str, Any]:
    """The loss of what was trained; an error where the optimizer or the loss stood still."""
    if trained.updates != work.steps or CLOCK.steps not in (0, work.steps):
        raise RuntimeError(
            f"the optimizer made {trained.updates} updates and {CLOCK.steps} steps began, "
            f"expected {work.steps}"
        )
    before, after = work.loss(work.network().eval()), work.loss(trained.model.eval())
    if not after < FALLEN * before:
        raise RuntimeError(f"the loss was {before:.3f} untrained and is {after:.3f}: it did not train")
    return {"loss": after}


def own_output() -> TextIO:
    """The pipe to the parent; what the framework shows goes to the terminal that was made for it."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    terminal = os.open(os.environ.get("BENCH_TERMINAL", os.devnull), os.O_WRONLY | os.O_NOCTTY)
    os.dup2(terminal, 1)
    os.dup2(terminal, 2)
    return answers


def main() -> None:
    name, workload = sys.argv[1:]
    answers = own_output()
    for line in sys.stdin:
        try:
            answer = turn(name, WORKLOADS[workload], **json.loads(line))
        except Exception as error:
            sys.setprofile(None)
            told = str(error).strip().splitlines() or [""]
            answer = {"error": f"{type(error).__name__}: {told[0]}", "trace": traceback.format_exc()}
        with suppress(BrokenPipeError):
            print(json.dumps(answer), file=answers)


if __name__ == "__main__":
    main()
