"""From the command to the first training step, and what installed plugins add to a command.

    python benchmarks/start.py [--repeats 7] [--plugins 500] [--json benchmarks/results/start.json]

`pegboard train configs/quickstart.yaml` beside two scripts that train the same network on the same digits
by hand: one imports the libraries that Pegboard had imported by its first step, the other what most people
take (scikit-learn for the data, torchmetrics). Each is a process of its own, timed by first_step.py from its
start to the beginning of its first step. Then `pegboard check` and `pegboard plugins list` with and without
so many idle plugins. Turns are interleaved and medians shown, of wall-clock time and of the time the
processors worked, which does not grow when others use the machine. Bytecode is cached, as after an
installation; the first turn fills the caches and does not count, but the first `check` after the plugins
were installed is shown too, because it has to import them.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from machine import machine

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tests" / "support" / "foreign"))

from crowd import install_crowd  # noqa: E402

CONFIG = str(ROOT / "configs" / "quickstart.yaml")
Taken = dict[str, Any]


class Bench:
    """Runs commands in a folder and an environment of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {k: v for k, v in os.environ.items() if k not in ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH")}
        self.env |= {
            "PYTHONPYCACHEPREFIX": str(folder / "bytecode"),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "OMP_NUM_THREADS": "1",
        }

    def first_step(self, *words: str) -> Taken:
        """Time until the first step, as the process itself saw it."""
        report = self.folder / "report.json"
        command = [sys.executable, str(ROOT / "benchmarks" / "first_step.py"), str(report), str(time.time())]
        subprocess.run([*command, *words], env=self.env, cwd=self.folder, check=True, capture_output=True)
        taken: Taken = json.loads(report.read_text())
        return taken

    def command(self, *words: str, site: Path | None = None) -> Taken:
        """Time of a whole command."""
        env = self.env | ({"PYTHONPATH": str(site)} if site else {})
        before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "pegboard", *words],
            env=env,
            cwd=self.folder,
            check=True,
            capture_output=True,
        )
        wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
        return {"wall": wall, "cpu": cpu}


def interleaved(rows: dict[str, Callable[[], Taken]], repeats: int) -> dict[str, Taken]:
    """The median of every row; the first turn of each is left out."""
    taken: dict[str, list[Taken]] = {name: [] for name in rows}
    for turn in range(repeats + 1):
        for name, run in rows.items():
            found = run()
            if turn:
                taken[name].append(found)
    return {
        name: {kind: statistics.median(t[kind] for t in found) for kind in ("wall", "cpu")}
        for name, found in taken.items()
    }


def starts(bench: Bench, repeats: int) -> dict[str, Any]:
    ours = ("pegboard", CONFIG, "runs")
    facts = bench.first_step(*ours)
    names = ",".join(facts["libraries"])
    rows = interleaved(
        {
            "pegboard train": lambda: bench.first_step(*ours),
            "script, same libraries": lambda: bench.first_step("same", names),
            "script, usual libraries": lambda: bench.first_step("usual"),
        },
        repeats,
    )
    return {"libraries": facts["libraries"], "compiler": facts["compiler"], "rows": rows}


def crowds(bench: Bench, repeats: int, count: int) -> dict[str, Any]:
    site = install_crowd(bench.folder / "site", count)
    bench.command("check", CONFIG)
    first = bench.command("check", CONFIG, site=site)
    rows = interleaved(
        {
            f"{name}, {many} more plugins": lambda words=words, place=place: bench.command(*words, site=place)
            for name, words in (("check", ("check", CONFIG)), ("plugins list", ("plugins", "list")))
            for many, place in ((0, None), (count, site))
        },
        repeats,
    )
    return {"plugins": count, "rows": {**rows, f"check, {count} more plugins, for the first time": first}}


def table(rows: dict[str, Taken], base: str | None = None) -> str:
    lines = [f"{'':44}{'wall s':>9}{'CPU s':>9}" + (f"{'wall':>8}{'CPU':>8}" if base else "")]
    for name, row in rows.items():
        line = f"{name:44}{row['wall']:>9.2f}{row['cpu']:>9.2f}"
        if base:
            line += "".join(f"{rows['pegboard train'][kind] / row[kind]:>8.2f}" for kind in ("wall", "cpu"))
        lines.append(line)
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--plugins", type=int, default=500)
    parser.add_argument("--json", type=Path, default=ROOT / "benchmarks" / "results" / "start.json")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        found = {"machine": machine(), "repeats": args.repeats, "start": starts(bench, args.repeats)}
        print("until the first step begins; the last columns are Pegboard's time over that of the row\n")
        print(table(found["start"]["rows"], "pegboard train"))
        print(f"\nimported by then: {', '.join(found['start']['libraries'])}")
        found["crowd"] = crowds(bench, args.repeats, args.plugins)
        print(f"\nwhole commands\n\n{table(found['crowd']['rows'])}")
    args.json.parent.mkdir(parents=True, exist_ok=True)
    args.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
