"""The same training in every framework, side by side: see docs/performance.md.

    .venv-bench/bin/python benchmarks/side_by_side.py [mlp cnn] [--peers plain hand pegboard ...]

Each framework lives in a process of its own; they train in turns, one after the other, in an order that
changes every round. A turn trains a new model for some epochs, of which the first and the last are not
timed, so that neither starting up nor ending counts. Two times are taken: `step`, the median from the
beginning of a step to that of the next, and `epoch`, the median time of an epoch over its steps, which
has in it what a framework does between epochs. A third, `cpu`, is the time that the process itself
computed, for a machine on which others compute too.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import report
from machine import left_out, machine, versions
from peers import PEERS
from workloads import WORKLOADS

Times = dict[tuple[int, bool], dict[str, list[dict[str, float]]]]
Calls = dict[bool, dict[str, float]]
HERE = Path(__file__).resolve().parent


class Worker:
    """A process that runs one loop, a turn at a time."""

    def __init__(self, name: str, workload: str) -> None:
        self.name = name
        environ = {**os.environ, **dict(PEERS[name].environ), "WANDB_MODE": "disabled"}
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "worker.py"), name, workload],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environ,
        )

    def turn(self, **options: Any) -> dict[str, Any]:
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps(options) + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        return json.loads(answer) if answer else {"error": f"its process ended ({self.process.wait()})"}

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def start(names: list[str], workload: str, wrong: dict[str, str], calls: Calls) -> dict[str, Worker]:
    """The workers whose loops train; why others do not goes to `wrong`.

    The first turns warm up and count Python calls, which slows them; they are not timed.
    """
    workers = {}
    for name in names:
        worker = Worker(name, workload)
        for defaults in (False, True):
            answer = worker.turn(threads=1, defaults=defaults, count=True)
            if "error" in answer:
                wrong[name] = answer["error"]
                print(answer.get("trace", ""), file=sys.stderr)
                worker.close()
                break
            calls[defaults][name] = answer["calls"]
        else:
            workers[name] = worker
            print(f"{PEERS[name].title}: trains, loss {answer['loss']:.3f}", file=sys.stderr)
    return workers


def one_round(workers: dict[str, Worker], at: int, threads: list[int], times: Times, wrong: Any) -> None:
    """A turn for every loop, number of threads and mode; answers go to times[threads, defaults][name]."""
    names = list(workers)
    names = names[at % len(names) :] + names[: at % len(names)]
    for number, defaults, name in product(threads, (False, True), names):
        if name not in workers:
            continue
        answer = workers[name].turn(threads=number, defaults=defaults, count=False)
        if "error" in answer:
            wrong[name] = answer["error"]
            workers.pop(name).close()
        else:
            times[number, defaults][name].append(answer)


def summarize(times: dict[str, list[dict[str, float]]], calls: dict[str, float]) -> dict[str, Any]:
    """Medians over the rounds, also as ratios to the plain loop; `from` and `to` hold half the rounds."""
    rows: dict[str, Any] = {}
    for name, answers in times.items():
        rows[name] = {"calls": round(calls[name], 1)}
        for kind in ("step", "epoch", "cpu"):
            base = statistics.median(answer[kind] for answer in times["plain"])
            mine = sorted(answer[kind] for answer in answers)
            quarter = len(mine) // 4
            rows[name][kind] = {
                "us": round(statistics.median(mine), 1),
                "ratio": round(statistics.median(mine) / base, 3),
                "from": round(mine[quarter] / base, 3),
                "to": round(mine[-1 - quarter] / base, 3),
            }
    return rows


def run(workload: str, names: list[str], threads: list[int], rounds: int) -> Iterator[dict[str, Any]]:
    """The results of one workload after each round."""
    wrong = left_out(names)
    calls: Calls = {False: {}, True: {}}
    workers = start([name for name in names if name not in wrong], workload, wrong, calls)
    if "plain" not in workers:
        raise SystemExit(f"the plain loop, which all are measured by, does not run: {wrong.get('plain')}")
    work = WORKLOADS[workload]
    times: Times = defaultdict(lambda: defaultdict(list))
    facts = {
        "workload": workload,
        "title": work.title,
        "steps": f"{work.steps} updates a turn, {work.steps - 2 * work.steps_per_epoch} timed",
        "machine": machine(),
        "versions": versions(workers),
        "left_out": wrong,
    }
    for at in range(rounds):
        one_round(workers, at, threads, times, wrong)
        print(f"round {at + 1} of {rounds}", file=sys.stderr)
        modes = {"off": False, "defaults": True}
        yield facts | {
            "rounds": at + 1,
            "times": {
                str(t): {mode: summarize(times[t, on], calls[on]) for mode, on in modes.items()}
                for t in threads
            },
        }
    for worker in workers.values():
        worker.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("workloads", nargs="*", default=["mlp"], help=", ".join(WORKLOADS))
    parser.add_argument("--peers", nargs="+", default=list(PEERS), choices=list(PEERS), metavar="PEER")
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--results", type=Path, default=HERE / "results")
    parser.add_argument("--images", type=Path, default=HERE.parent / "docs" / "images")
    args = parser.parse_args()
    if unknown := set(args.workloads) - set(WORKLOADS):
        parser.error(f"no workload {', '.join(unknown)}; there are {', '.join(WORKLOADS)}")
    for workload in args.workloads:
        names = list(dict.fromkeys(["plain", *args.peers]))
        args.results.mkdir(parents=True, exist_ok=True)
        path = args.results / f"{workload}.json"
        for results in run(workload, names, args.threads, args.rounds):
            path.write_text(json.dumps(results, indent=1) + "\n")  # what is done stays, if it is stopped
        print(report.table(results))
        print(f"\nwritten: {path}, {report.chart(results, args.images / f'bench-{workload}.png')}")


if __name__ == "__main__":
    main()
