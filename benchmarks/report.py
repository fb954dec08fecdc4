"""The results as a table for people and as a chart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from peers import PEERS


def title(name: str, results: dict[str, Any]) -> str:
    number = results["versions"].get(name, "")
    return f"{PEERS[name].title} {number}".strip() if not name.startswith("pegboard") else PEERS[name].title


COLUMNS = (("off", "cpu"), ("off", "step"), ("off", "epoch"), ("defaults", "epoch"))
HEADS = ("off: CPU", "off: step", "off: epoch", "on: epoch")


def table(results: dict[str, Any]) -> str:
    """Ratios to the plain loop, everything off and defaults on, for each number of threads."""
    facts, times = results["machine"], results["times"]
    width = max(7 * len(times), 11)
    lines = [
        f"{results['title']}; {results['steps']}, median of {results['rounds']} rounds",
        f"torch {facts['torch']}, Python {facts['python']}, {facts['cpu']}, {facts['cores']} cores",
        "",
        f"{'':34}" + "".join(f"{head:>{width}}" for head in HEADS) + f"{'us':>8}{'calls':>7}",
        f"{'threads':34}" + "".join(f"{t:>{width // len(times)}}" for t in times) * len(HEADS),
    ]
    for name, row in times[next(iter(times))]["off"].items():
        cells = [
            times[t][mode].get(name, {}).get(kind, {}).get("ratio") for mode, kind in COLUMNS for t in times
        ]
        shown = "".join(
            f"{'-' if cell is None else format(cell, '.2f'):>{width // len(times)}}" for cell in cells
        )
        lines.append(f"{title(name, results):34}{shown}{row['step']['us']:>8.0f}{row['calls']:>7.0f}")
    lines += [f"left out: {PEERS[name].title}: {why}" for name, why in results["left_out"].items()]
    return "\n".join(lines)


def chart(results: dict[str, Any], path: Path) -> Path:
    """Bars of the ratios with one thread; the thin one is with defaults on."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    threads, modes = next(iter(results["times"].items()))
    order = sorted(modes["off"], key=lambda name: -modes["off"][name]["step"]["ratio"])
    figure, axes = pyplot.subplots(figsize=(8, 0.36 * len(order) + 1.2))
    for at, name in enumerate(order):
        ours = name.startswith("pegboard")
        off = modes["off"][name]["step"]["ratio"]
        axes.barh(at, off, 0.56, color="#1f6f8b" if ours else "#b8bfc6")
        axes.text(off + 0.03, at, f"{off:.2f}", va="center", fontsize=8)
        if name in modes["defaults"]:
            axes.barh(
                at - 0.36,
                modes["defaults"][name]["epoch"]["ratio"],
                0.12,
                color="#99c4d1" if ours else "#dde1e5",
            )
    axes.axvline(1, color="#555", lw=0.8, ls=":")
    axes.set_yticks(range(len(order)), [title(name, results) for name in order], fontsize=8)
    plural = "thread" if threads == "1" else "threads"
    axes.set_xlabel(
        f"time of a step, plain DataLoader loop = 1, {threads} {plural}",
        fontsize=8,
    )
    figure.text(0.99, 0.01, "thin bars: defaults on, ends of epochs included", fontsize=7, ha="right")
    axes.set_title(results["title"], fontsize=9, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, bbox_inches="tight", metadata={"Software": None})
    pyplot.close(figure)
    return path
