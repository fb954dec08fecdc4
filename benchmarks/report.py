"""The results as tables for people, as charts, and held against the targets.

    python benchmarks/report.py [--docs docs/performance.md] [--readme README.md]

reads every file of `benchmarks/results`, prints tables and targets, draws `docs/images/bench-*.png`, and puts
the tables and targets between the markers of the docs, and three lines of figures between those of the
README. Nothing is measured here.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
from pathlib import Path
from typing import Any

from loops import fingerprint
from ratios import measured, ratio, series
from targets import judge_all

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
IMAGES = HERE.parent / "docs" / "images"
ORDER = ("mlp", "cnn", "lstm", "transformer", "gcn")
COLOURS = {"ours": "#1f6f8b", "hand": "#8d99a5", "peer": "#c9ced3"}


def name_of(row: dict[str, Any]) -> str:
    number = row["version"] if row["kind"] == "peer" else ""
    return f"{row['title']} {number}".rstrip()


def table(results: dict[str, Any]) -> str:
    """Time of a step over that of the plain loop in the same round, for threads and modes."""
    facts, threads = results["machine"], measured(results)
    head = [f"{'':34}"]
    for t in threads:
        what = f"{t} thread{'' if t == '1' else 's'}"
        head.append(f"{what + ', off':>18}{'on':>18}")
    lines = [
        f"{results['title']}; {results['steps']}, median (quartiles) of {results['rounds']} rounds",
        f"torch {facts['torch']}, Python {facts['python']}, {facts['cpu']}, {facts['cores']} cores",
        "",
        "".join(head) + f"{'CPU':>7}{'us':>8}{'calls':>7}{'compile s':>12}",
    ]
    for name, row in results["rows"].items():
        cells = [f"{name_of(row):34}"]
        for t in threads:
            for mode in ("off", "on"):
                base = series(results, "plain", t, mode)
                cells.append(f"{ratio(series(results, name, t, mode), base) or '-':>18}")
        cells.append(_last_columns(results, name, row, threads[0]))
        lines.append("".join(map(str, cells)).rstrip())
    notes = {name_of(row).strip(): row["note"] for row in results["rows"].values() if row["note"]}
    lines += [f"{name}: {note}" for name, note in notes.items()]
    lines += [f"left out: {name}: {why}" for name, why in results["left_out"].items()]
    return "\n".join(lines + older(results))


OLDER = "measured with an earlier version of the loops"


def older(results: dict[str, Any]) -> list[str]:
    """A line that says so where the loops have changed since they were measured."""
    return [] if results.get("loops") == fingerprint() else [OLDER]


BRIEF = {"hand": "best hand-written loop", "pegboard": "Pegboard", "steps32": "Pegboard, compiled"}


def brief(results: dict[str, dict[str, Any]]) -> str:
    """Three lines of the tables, a column for each workload, with defaults off and one thread."""
    lines = [f"{'':24}" + "".join(f"{workload:>13}" for workload in results)]
    for name, title in BRIEF.items():
        cells = []
        for found in results.values():
            made = ratio(*(series(found, n, measured(found)[0], "off") for n in (name, "plain")))
            cells.append(f"{f'{made.middle:.2f}' if made else '-':>13}")
        lines.append(f"{title:24}{''.join(cells)}".rstrip())
    return "\n".join(lines + ([OLDER] if any(map(older, results.values())) else []))


def _last_columns(results: dict[str, Any], name: str, row: dict[str, Any], threads: str) -> str:
    times = series(results, name, threads, "off")
    cpu = ratio(series(results, name, threads, "off", "cpu"), series(results, "plain", threads, "off", "cpu"))
    again, cold = row["first"]["again"], row["first"]["cold"]
    compiled = f"{cold:.1f}, {statistics.median(again):.1f}" if row["compiled"] and again else ""
    shown = f"{cpu.middle:.2f}" if cpu else "-"
    return f"{shown:>7}{statistics.median(times):>8.0f}{row['calls']:>7.0f}{compiled:>12}"


def chart(results: dict[str, Any], path: Path) -> Path:
    """Bars of the ratios with one thread; a line spans the quartiles, the thin bar is with defaults on."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    threads = measured(results)[0]
    found = {
        mode: {
            name: made
            for name in results["rows"]
            if (made := ratio(*(series(results, n, threads, mode) for n in (name, "plain"))))
        }
        for mode in ("off", "on")
    }
    order = sorted(found["off"], key=lambda name: -found["off"][name].middle)
    figure, axes = pyplot.subplots(figsize=(8, 0.32 * len(order) + 1.2))
    for at, name in enumerate(order):
        off, colour = found["off"][name], COLOURS[results["rows"][name]["kind"]]
        axes.barh(at, off.middle, 0.56, color=colour)
        axes.plot([off.low, off.high], [at, at], color="#333", lw=0.8)
        axes.text(max(off.high, off.middle) + 0.03, at, f"{off.middle:.2f}", va="center", fontsize=8)
        if name in found["on"]:
            axes.barh(at - 0.36, found["on"][name].middle, 0.12, color=colour, alpha=0.5)
    axes.axvline(1, color="#555", lw=0.8, ls=":")
    axes.set_yticks(range(len(order)), [_label(results["rows"], name) for name in order], fontsize=8)
    plural = "thread" if threads == "1" else "threads"
    axes.set_xlabel(f"time of a step, plain DataLoader loop = 1, {threads} {plural}", fontsize=8)
    figure.text(0.99, 0.01, "thin bars: defaults on", fontsize=7, ha="right")
    axes.set_title(results["title"], fontsize=9, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, bbox_inches="tight", metadata={"Software": None})
    pyplot.close(figure)
    return path


def _label(rows: dict[str, Any], name: str) -> str:
    """A title that stands alone: an indented one continues the one before it."""
    label = name_of(rows[name])
    if label.startswith(" "):
        above = [rows[n]["title"] for n in list(rows)[: list(rows).index(name)]]
        label = f"{next(t for t in reversed(above) if not t.startswith(' '))}, {label.strip()}"
    return label


def load(folder: Path) -> dict[str, dict[str, Any]]:
    """All results, in this order."""
    paths = [folder / f"{workload}.json" for workload in ORDER]
    return {path.stem: json.loads(path.read_text()) for path in paths if path.exists()}


def targets_text(results: dict[str, dict[str, Any]]) -> str:
    """Every target with what was measured, for each number of threads."""
    threads = sorted({t for found in results.values() for t in measured(found)})
    heads = "".join(f"{t + (' thread' if t == '1' else ' threads'):>29}" for t in threads)
    lines = [f"{'how many times as fast':58}{'workload':13}{'target':>6}{heads}"]
    for target, workload, found in judge_all(results):
        cells = []
        for t in threads:
            verdict = target.verdict(found[t]) if t in found else ""
            cells.append(f"{found.get(t, '-')!s:>21}{verdict:>8}")
        needed = "" if target.needed is None else f"{target.needed:.1f}"
        lines.append(f"{target.text:58}{workload:13}{needed:>6}{''.join(cells)}".rstrip())
    old = [workload for workload, found in results.items() if older(found)]
    return "\n".join(lines + ([f"{OLDER}: {', '.join(old)}"] if old else []))


def put(page: str, key: str, text: str, picture: str = "") -> str:
    """A page with the block of a marker replaced."""
    begin, end = f"<!-- bench {key} -->", f"<!-- end bench {key} -->"
    if begin not in page:
        raise SystemExit(f"the page has no marker {begin}")
    block = f"{begin}\n```text\n{text}\n```\n{picture}{end}"
    return re.sub(re.escape(begin) + ".*?" + re.escape(end), lambda _: block, page, flags=re.S)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--images", type=Path, default=IMAGES)
    parser.add_argument("--docs", type=Path)
    parser.add_argument("--readme", type=Path)
    args = parser.parse_args()
    results = load(args.results)
    page = args.docs.read_text("utf-8") if args.docs else ""
    for key, found in results.items():
        print(table(found), end="\n\n")
        path = chart(found, args.images / f"bench-{key}.png")
        if page:
            page = put(page, key, table(found), f"\n![The same as a chart](images/{path.name})\n")
    print(targets_text(results))
    if page:
        args.docs.write_text(put(page, "targets", targets_text(results)), "utf-8")
    if args.readme:
        args.readme.write_text(put(args.readme.read_text("utf-8"), "brief", brief(results)), "utf-8")


if __name__ == "__main__":
    main()
