"""The page of a run: one file that needs nothing else, readable on a phone, in light and dark."""

from __future__ import annotations

import base64
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..contract.drawing import CHART
from .console import number, numbers, split_place

COLUMNS, ROWS = 40, 200  # of a table that are shown
CHARTS = ("curves",)  # a dark page inverts them, and others that are noted to hold no picture of the data


@dataclass(kw_only=True)
class Contents:
    """What a page shows, as it was read from a run folder; nothing of it is trusted."""

    name: str
    folder: str
    summary: Mapping[str, Any]
    config: str = ""
    plan: str = ""
    environment: Mapping[str, Any] = field(default_factory=dict)
    tables: Mapping[str, Any] = field(default_factory=dict)
    pictures: Mapping[str, bytes] = field(default_factory=dict)  # name -> PNG
    fold: str = ""  # of a cross-validation, the folder in it whose weights commands name
    local: Sequence[str] = ()  # files of local plugins, which commands name


@dataclass(frozen=True)
class Cells:
    """A table in texts, no larger than a page shows."""

    columns: list[str]
    rows: list[list[str]]
    cut: str = ""  # what is said where there is more


def _cells(columns: Sequence[Any], rows: Sequence[Sequence[Any]]) -> Cells:
    cut = f"{len(rows):,} rows of {len(columns):,} columns, cut here"
    whole = len(columns) <= COLUMNS and len(rows) <= ROWS
    shown = [numbers(row[:COLUMNS]) for row in rows[:ROWS]]
    return Cells(numbers(columns[:COLUMNS]), shown, "" if whole else cut)


def page(run: Contents) -> str:
    """The page as text, by the template beside this module."""
    import jinja2  # only who writes a page needs it

    templates = jinja2.FileSystemLoader(Path(__file__).parent)
    environment = jinja2.Environment(
        loader=templates,
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    figures = _mapping(run.summary.get("figures"))
    told = json.dumps(run.environment, indent=1, default=str) if run.environment else ""
    return environment.get_template("page.html").render(
        run=run,
        about=_about(run.summary),
        verdicts=list(_verdicts(run.summary)),
        figures=_by_split(run, figures) if figures else None,
        probes=_probes(figures),
        failed=list(_mapping(run.summary.get("failed_probes")).items()),
        remarks=list(_remarks(_mapping(run.summary.get("diagnosis")))),
        spread=_spread(_mapping(run.summary.get("statistics"))),
        reference=_reference(_mapping(run.summary.get("reference"))),
        pictures=[_picture(*named) for named in run.pictures.items()],
        tables=list(_tables(run.tables)),
        commands=_commands(run),
        texts=[("Plan", run.plan), ("Config", run.config), ("Environment", told)],
    )


def _about(summary: Mapping[str, Any]) -> str:
    about, seconds = [_status(summary)], number(summary.get("seconds", "?"))
    if isinstance(folds := summary.get("folds"), int):
        about.append(f"{folds} folds in {seconds} s")
    if isinstance(steps := summary.get("steps"), int):
        about.append(f"{steps:,} steps in {seconds} s")
    if summary.get("best") is not None:
        about.append(f"best at step {number(summary.get('best_step'))} by {number(summary.get('monitor'))}")
    return " · ".join(about)


def _status(summary: Mapping[str, Any]) -> str:
    return str(summary.get("status", "unfinished"))


def _verdicts(summary: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Remarks that stand out: kind, title, text."""
    status, judged = _status(summary), _mapping(summary.get("diagnosis"))
    if summary.get("why"):
        bad = "failed" if status not in ("finished", "stopped") else ""
        yield bad, status, summary["why"]
    if judged.get("rule"):
        verdict = str(judged.get("verdict") or "no verdict")
        kind = verdict if verdict in ("underfits", "overfits", "fine") else ""
        kind = "underfits" if verdict.startswith("behind") else kind
        yield kind, verdict, judged["rule"]


SPLITS = {"train": "train (training)", "val": "val (validation)", "test": "test"}


def _by_split(run: Contents, figures: Mapping[str, Any]) -> Cells:
    """A row for each split, with its samples, and one for each rule without learning and for the optimum."""
    best = _mapping(_mapping(run.summary.get("reference")).get("figures"))
    rules = _mapping(_mapping(run.summary.get("baselines")).get("figures"))
    samples = _mapping(_mapping(run.environment.get("data")).get("samples"))
    others = {f", {name}": _mapping(of) for name, of in rules.items()} | {", optimum": best}
    splits = [s for s in SPLITS if any(key.startswith(f"{s}/") for key in figures)]
    names = list(dict.fromkeys(key.partition("/")[2] for key in figures if key.partition("/")[0] in splits))
    rows = [
        [SPLITS[split] + what, samples.get(split, ""), *(found.get(f"{split}/{name}", "") for name in names)]
        for what, found in (("", figures), *others.items())
        for split in splits
        if any(key.startswith(f"{split}/") for key in found)
    ]
    return _cells(["split", "samples", *names], rows)


def _probes(figures: Mapping[str, Any]) -> Cells | None:
    """What was measured besides."""
    rows = [
        [key, value]
        for key, value in figures.items()
        if key.partition("/")[0] not in SPLITS and not key.startswith("shared/")
    ]
    return _cells(["figure", "value"], rows) if rows else None


def _remarks(judged: Mapping[str, Any]) -> Iterator[str]:
    if isinstance(gap := judged.get("gap"), float):
        yield f"generalisation gap: {number(gap)} of loss between held-out and training samples"
    if isinstance(count := judged.get("samples"), int):
        yield f"the training split was measured on {count:,} samples, drawn by the seed"


def _spread(statistics: Mapping[str, Any]) -> Cells | None:
    """The figures over the folds."""
    rows = []
    for name in sorted(statistics, key=split_place):
        of = _mapping(statistics[name])
        ends = of.get("interval")
        interval = " to ".join(map(number, ends)) if isinstance(ends, list) else ""
        rows.append([name, of.get("mean", ""), of.get("std", ""), interval, of.get("values", "")])
    columns = ["figure", "mean", "std", "95 % interval of the mean", "fold by fold"]
    return _cells(columns, rows) if rows else None


def _reference(found: Mapping[str, Any]) -> dict[str, Any] | None:
    if not found:
        return None
    names = [name for name in ("objective", "optimum", "gap", "relative") if name in found]
    made = {name: found.get(name, "") for name in ("name", "formula", "error")}
    return made | {"measures": _cells(names, [[found[name] for name in names]]) if names else None}


def _picture(name: str, png: bytes) -> tuple[str, bool, str]:
    """Its name, whether it may be inverted, its bytes as text."""
    chart = name in CHARTS or CHART.encode() in png[:1000]  # notes stand before the pixels
    return name, chart, base64.b64encode(png).decode("ascii")


def _tables(tables: Mapping[str, Any]) -> Iterator[tuple[str, Cells]]:
    for name, found in tables.items():
        columns, rows = _mapping(found).get("columns"), _mapping(found).get("rows")
        if isinstance(columns, list) and isinstance(rows, list) and rows:
            split = _mapping(found).get("split")
            of = f", {split} split" if isinstance(split, str) and split else ""
            title = name.replace("_", " ").capitalize() + of
            yield title, _cells(columns, [row for row in rows if isinstance(row, list)])


def _commands(run: Contents) -> str:
    """How to go on with a run."""
    folder, words = shlex.quote(run.folder), [w for path in run.local for w in ("--local", path)]
    local = f" {shlex.join(words)}" if words else ""
    one = f"{folder}/{run.fold}" if run.fold else folder
    places = {"eval": one, "predict": one, "resume": folder}
    return "\n".join(f"pegboard {what} {place}{local}" for what, place in places.items())


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
