"""How long a person waits: from the command to the exit of its process, for the same work.

    python benchmarks/wait.py [TASK ...] [--who pegboard,plain,lightning,transformers] [--rounds 5]

`pegboard train` beside a plain script, Lightning and HF Trainer (waits/), each in a process of its own, timed
from outside. All read the same data, make as many updates, evaluate each epoch, keep the newest and the best
checkpoint, measure the best on test and draw the curves; what they left is looked at. A cold run has no
caches at all, no bytecode either; the warm one is the next in the same folders. (What the system keeps of
files stays.) Rounds are interleaved and medians shown. Run it with .venv-bench/bin/python: what is not
installed is left out with a word, and so are tasks whose data is not below PEGBOARD_DATA.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
WHO = {
    "pegboard": ("pegboard",),
    "plain": ("torch",),
    "lightning": ("lightning",),
    "transformers": ("transformers", "accelerate"),  # which its Trainer cannot do without
}  # and what must be installed
MODULES = {"plain": "plain", "lightning": "lightning_run", "transformers": "transformers_run"}
TASKS = ("quickstart", "mnist", "cora", "shakespeare")


def child(who: str, name: str, kept: str, folder: str) -> None:
    """What a process does that is not Pegboard."""
    import torch

    torch.set_num_threads(1)
    from waits.tasks import TASKS

    importlib.import_module(f"waits.{MODULES[who]}").train(TASKS[name], Path(kept), Path(folder))


def one_run(who: str, name: str, task: Any, caches: Path) -> float:
    """Seconds of a whole process, once it is seen that it did its work."""
    with tempfile.TemporaryDirectory(dir=caches.parent) as made:
        folder = Path(made)
        env = {k: v for k, v in os.environ.items() if k not in ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH")}
        env |= {
            "PYTHONPYCACHEPREFIX": str(caches / "bytecode"),
            "XDG_CACHE_HOME": str(caches / "cache"),
            "HF_HOME": str(caches / "hf"),
            "MPLCONFIGDIR": str(caches / "matplotlib"),
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
        }
        if who == "pegboard":
            words = ["-m", "pegboard", "train", str(ROOT / task.config), *task.words, "--root", made]
        else:
            words = [str(HERE / "wait.py"), "--child", who, name, str(caches / "kept"), made]
        begun = time.perf_counter()
        done = subprocess.run([sys.executable, *words], env=env, cwd=folder, capture_output=True, text=True)
        seconds = time.perf_counter() - begun
        if done.returncode:
            last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-12:]
            raise SystemExit(f"{who} on {name} failed with {done.returncode}:\n" + "\n".join(last))
        look(who, name, task, folder)
    return seconds


def look(who: str, name: str, task: Any, folder: Path) -> None:
    """A run that did less than the others is no measurement."""
    if who == "pegboard":
        (summary,) = folder.glob("*/latest/summary.json")
        found = json.loads(summary.read_text())
        steps, accuracy = found["steps"], found["figures"]["test/accuracy"]
        left = [summary.parent / "checkpoints" / "best", summary.parent / "figures" / "curves.png"]
    else:
        found = json.loads((folder / "result.json").read_text())
        steps, accuracy = found["steps"], found["test"]["accuracy"]
        saved = folder / "best.pt" if who == "plain" else folder / "checkpoints"
        left = [saved, folder / "curves.png"]
    missing = [path.name for path in left if not path.exists()]
    expected = STEPS.setdefault(name, steps)  # of who ran first
    if missing or steps != expected or accuracy < task.reach:
        raise SystemExit(
            f"{who} on {name} made {steps} updates (expected {expected}), reached an accuracy of "
            f"{accuracy:.3f} (expected {task.reach}), and did not leave {missing or 'nothing'}"
        )


STEPS: dict[str, int] = {}


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:])
        return
    from machine import machine
    from waits import tasks

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tasks", nargs="*", default=TASKS, choices=[*TASKS, []], metavar="TASK")
    parser.add_argument("--who", default=",".join(WHO), help="those to compare, with commas between them")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--warm", action="store_true", help="leave the cold runs out of the figures")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    asked = args.who.split(",")
    for who in asked:
        if who not in WHO:
            parser.error(f"unknown {who!r}: {', '.join(WHO)}")
    missing = {who: [name for name in WHO[who] if find_spec(name) is None] for who in asked}
    for who, names in missing.items():
        if names:
            print(f"{who} is left out: {', '.join(names)} not installed here; make bench installs it")
    there = [who for who in asked if not missing[who]]
    found: dict[str, Any] = {"machine": machine(), "rounds": args.rounds, "tasks": {}}
    for name in args.tasks:
        task = tasks.TASKS[name]
        shelf = os.environ.get("PEGBOARD_DATA")
        if task.needs and not (shelf and Path(shelf, task.needs).is_dir()):
            print(f"{name} is left out: PEGBOARD_DATA has no {task.needs}")
            continue
        taken: dict[str, dict[str, list[float]]] = {who: {"cold": [], "warm": []} for who in there}
        with tempfile.TemporaryDirectory(prefix="wait-") as place:
            for turn in range(args.rounds):
                for who in there:
                    for kind in ("cold", "warm"):
                        caches = Path(place) / f"{who}-{0 if args.warm else turn}"
                        if args.warm and (kind, turn > 0) == ("cold", True):
                            continue
                        caches.mkdir(exist_ok=True)
                        taken[who][kind].append(one_run(who, name, task, caches))
        found["tasks"][name] = show(name, taken, args.warm)
    if args.json:
        args.json.write_text(json.dumps(found, indent=1) + "\n")


def show(name: str, taken: dict[str, dict[str, list[float]]], warm: bool) -> dict[str, Any]:
    """A table of medians, and how many times as long as Pegboard each took."""
    kinds = ("warm",) if warm else ("cold", "warm")
    rows = {who: {kind: statistics.median(times[kind]) for kind in kinds} for who, times in taken.items()}
    base = rows.get("pegboard")
    print(f"\n{name}: seconds from the command to the exit, {STEPS[name]} updates; times Pegboard's")
    for who, row in rows.items():
        cells = [f"{kind} {s:7.2f}" + (f" {s / base[kind]:5.2f}x" if base else "") for kind, s in row.items()]
        print(f"  {who:13}", "   ".join(cells), flush=True)
    return {who: {**row, "all": taken[who]} for who, row in rows.items()}


if __name__ == "__main__":
    main()
