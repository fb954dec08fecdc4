"""The same training in every framework, side by side: see docs/performance.md.

    .venv-bench/bin/python benchmarks/side_by_side.py [mlp cnn ...] [--peers plain hand pegboard ...]

Each framework lives in a process of its own; they train in turns, one after the other, in an order that
changes every round. A turn trains a new model for some epochs, of which the first and the last are not
timed, so that neither starting up nor compiling nor ending counts. Two times are taken: `epoch`, the median
time of an epoch over its steps, and `cpu`, the time that the process itself computed, for a machine on
which others compute too. What is measured is written as JSON after every round; `report.py` makes tables
and charts of it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import select
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import report
from loops import fingerprint
from machine import left_out, machine, versions
from peers import PEERS
from workloads import WORKLOADS

HERE = Path(__file__).resolve().parent
LONGEST = 900  # seconds after which a turn is given up
Rows = dict[str, dict[str, Any]]


class Worker:
    """A process that runs one loop, a turn at a time, in a terminal and with a compile cache of its own."""

    def __init__(self, name: str, workload: str) -> None:
        self.cache = tempfile.mkdtemp(prefix="bench-cache-")
        self.terminal, self.shown = os.openpty()
        threading.Thread(target=self._read_terminal, daemon=True).start()
        environ = {
            **os.environ,
            **dict(PEERS[name].environ),
            "BENCH_TERMINAL": os.ttyname(self.shown),
            "TERM": "xterm-256color",
            "WANDB_MODE": "disabled",
            "TORCHINDUCTOR_CACHE_DIR": self.cache,
            "TORCHINDUCTOR_COMPILE_THREADS": "1",  # no pool of processes beside each of the workers
        }
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "worker.py"), name, workload],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environ,
        )

    def _read_terminal(self) -> None:
        try:
            while os.read(self.terminal, 65536):
                pass
        except OSError:  # closed
            return

    def turn(self, **options: Any) -> dict[str, Any]:
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps(options) + "\n")
            self.process.stdin.flush()
            if not select.select([self.process.stdout], [], [], LONGEST)[0]:
                self.process.kill()
                return {"error": f"a turn took longer than {LONGEST} s"}
            answer = self.process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        return json.loads(answer) if answer else {"error": f"its process ended ({self.process.wait()})"}

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()
        os.close(self.shown)  # the thread that reads it ends with it
        shutil.rmtree(self.cache, ignore_errors=True)


def start(names: list[str], workload: str, wrong: dict[str, str], rows: Rows) -> dict[str, Worker]:
    """The workers whose loops train; why others do not goes to `wrong`.

    The first turns warm up, compile and count Python calls, which slows them; they are not timed.
    """
    workers, numbers = {}, versions(names)
    for name in names:
        peer, worker = PEERS[name], Worker(name, workload)
        row: dict[str, Any] = {"title": peer.title, "kind": peer.kind, "version": numbers.get(name, "")}
        row["compiled"] = peer.compiled
        for mode in peer.modes:
            answer = worker.turn(threads=1, defaults=mode == "on", count=True)
            if "error" in answer:
                wrong[peer.title.strip()] = answer["error"]
                print(f"{peer.title}: {answer.get('trace', answer['error'])}", file=sys.stderr)
                worker.close()
                break
            if mode == "off":
                row |= {"calls": round(answer["calls"], 1), "note": answer["note"]}
                row["first"] = {"cold": round(answer["first"], 2), "again": []}
        else:
            workers[name], rows[name] = worker, row | {"times": {}}
            print(f"{peer.title.strip()}: trains, loss {answer['loss']:.3f}", file=sys.stderr)
    return workers


def one_round(workers: dict[str, Worker], at: int, threads: list[int], rows: Rows, wrong: Any) -> None:
    """A turn for every loop, number of threads and mode; the answers go to the rows."""
    names = list(workers)
    random.Random(at).shuffle(names)  # so that nobody always follows the same one
    # Both modes of a loop in succession: what is on here may be compared with what is off there.
    turns = [(name, number, mode) for number in threads for name in names for mode in PEERS[name].modes]
    for name, number, mode in turns:
        if name not in workers:
            continue
        answer = workers[name].turn(threads=number, defaults=mode == "on", count=False)
        if "error" in answer:
            wrong[PEERS[name].title.strip()] = f"in round {at + 1}: {answer['error']}"
            workers.pop(name).close()
            rows.pop(name)
            continue
        kept = rows[name]["times"].setdefault(str(number), {}).setdefault(mode, {"epoch": [], "cpu": []})
        for kind in ("epoch", "cpu"):
            kept[kind].append(round(answer[kind], 1))
        if number == 1 and mode == "off":
            rows[name]["first"]["again"].append(round(answer["first"], 2))


def run(workload: str, names: list[str], threads: list[int], rounds: int) -> Iterator[dict[str, Any]]:
    """The results of one workload after each round."""
    names = [name for name in names if workload in (PEERS[name].workloads or [workload])]
    missing = left_out(names)
    wrong = {PEERS[name].title: why for name, why in missing.items()}
    rows: Rows = {}
    workers = start([name for name in names if name not in missing], workload, wrong, rows)
    if "plain" not in workers:
        raise SystemExit(f"the plain loop, which all are measured by, does not run: {wrong}")
    work = WORKLOADS[workload]
    facts = {
        "workload": workload,
        "title": work.title,
        "steps": f"{work.steps} updates a turn, {work.steps - 2 * work.steps_per_epoch} timed",
        "machine": machine(),
        "loops": fingerprint(),
        "left_out": wrong,
    }
    for at in range(rounds):
        started = time.monotonic()
        one_round(workers, at, threads, rows, wrong)
        took = time.monotonic() - started
        print(f"{workload}: round {at + 1} of {rounds} took {took:.0f} s", file=sys.stderr)
        yield facts | {"rounds": at + 1, "rows": rows}
    for worker in workers.values():
        worker.close()


def written(results: dict[str, Any]) -> str:
    """JSON with a line for each series."""
    text = json.dumps(results, indent=1)
    return re.sub(r"\[[\d.,\s-]+\]", lambda found: "".join(found[0].split()), text) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("workloads", nargs="*", default=list(WORKLOADS), help=", ".join(WORKLOADS))
    parser.add_argument("--peers", nargs="+", default=list(PEERS), choices=list(PEERS), metavar="PEER")
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--results", type=Path, default=report.RESULTS)
    args = parser.parse_args()
    if unknown := set(args.workloads) - set(WORKLOADS):
        parser.error(f"no workload {', '.join(unknown)}; there are {', '.join(WORKLOADS)}")
    args.results.mkdir(parents=True, exist_ok=True)
    for workload in args.workloads:
        names = list(dict.fromkeys(["plain", *args.peers]))
        path = args.results / f"{workload}.json"
        for results in run(workload, names, args.threads, args.rounds):
            path.write_text(written(results))  # what is done stays, if it is stopped
        print(f"\n{report.table(results)}\n\nwritten: {path}", flush=True)


if __name__ == "__main__":
    main()
