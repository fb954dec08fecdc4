"""The page of a run: one file that needs nothing else, readable on a phone, in light and dark."""

from __future__ import annotations

import base64
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from .console import number, split_place
from .curves import CHART

COLUMNS, ROWS = 40, 200  # of a table that are shown
CHARTS = ("curves",)  # a dark page inverts them, and others that are noted to hold no picture of the data
LOSSES = (
    "The training loss is the mean over the steps since the row before, with all that the tricks do in "
    "training. The losses of other splits are the objective alone, measured at that step."
)
STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8882; --good: #2a7f3f; --bad: #b3462c; }
@media (prefers-color-scheme: dark) { :root { --good: #6fcf87; --bad: #f0927a; } }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 60rem; padding: 1rem; }
h1 { margin: 0; font-size: 1.6rem; overflow-wrap: anywhere; }
h2 { margin: 2rem 0 .5rem; font-size: 1.15rem; }
.about { margin: .2rem 0 1rem; opacity: .75; overflow-wrap: anywhere; }
.verdict { padding: .8rem 1rem; border-left: .3rem solid var(--line); background: var(--soft); }
.verdict b { display: block; font-size: 1.25rem; }
.fine { border-color: var(--good); } .fine b { color: var(--good); }
.underfits, .overfits, .failed { border-color: var(--bad); }
.underfits b, .overfits b, .failed b { color: var(--bad); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .7rem; border-bottom: 1px solid var(--line); text-align: right; }
th:first-child, td:first-child { text-align: left; }
img { width: 100%; min-width: 40rem; background: #fff; }
@media (prefers-color-scheme: dark) {
  img { filter: brightness(.85); }
  img.chart { filter: invert(.9) hue-rotate(180deg); } /* lines on white become lines on the dark page */
}
pre { overflow-x: auto; padding: .8rem; background: var(--soft); font-size: .85rem; line-height: 1.4; }
summary { cursor: pointer; }
"""


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
    local: Sequence[str] = ()  # files of local plugins, which commands name


def page(run: Contents) -> str:
    """The page as text."""
    body = "\n".join(
        [*_heading(run), *_figures(run), *_reference(run), *_pictures(run), *_tables(run), *_files(run)]
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(run.name)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _heading(run: Contents) -> Iterator[str]:
    summary, judged = run.summary, _mapping(run.summary.get("diagnosis"))
    status = str(summary.get("status", "unfinished"))
    about = [status]
    if isinstance(folds := summary.get("folds"), int):
        about.append(f"{folds} folds in {_cell(summary.get('seconds', '?'))} s")
    if isinstance(steps := summary.get("steps"), int):
        about.append(f"{steps:,} steps in {_cell(summary.get('seconds', '?'))} s")
    if summary.get("best") is not None:
        about.append(f"best at step {_cell(summary.get('best_step'))} by {_cell(summary.get('monitor'))}")
    yield f"<h1>{escape(run.name)}</h1>"
    yield f'<p class="about">{escape(" · ".join(about))}<br>{escape(run.folder)}</p>'
    if summary.get("why"):
        bad = "failed" if status not in ("finished", "stopped") else ""
        yield f'<p class="verdict {bad}"><b>{escape(status)}</b>{escape(str(summary["why"]))}</p>'
    if judged.get("rule"):
        verdict = str(judged.get("verdict") or "no verdict")
        kind = verdict if verdict in ("underfits", "overfits", "fine") else ""
        kind = "underfits" if verdict.startswith("behind") else kind
        yield f'<p class="verdict {kind}"><b>{escape(verdict)}</b>{escape(str(judged["rule"]))}</p>'


def _figures(run: Contents) -> Iterator[str]:
    figures, judged = _mapping(run.summary.get("figures")), _mapping(run.summary.get("diagnosis"))
    best = _mapping(_mapping(run.summary.get("reference")).get("figures"))
    spread = _mapping(run.summary.get("statistics"))
    if figures:
        yield f"<h2>Figures{', means over the folds' if spread else ''}</h2>"
        rules = _mapping(_mapping(run.summary.get("baselines")).get("figures"))
        others = {f", {name}": _mapping(of) for name, of in rules.items()} | {", optimum": best}
        yield _by_split(figures, others, _mapping(_mapping(run.environment.get("data")).get("samples")))
    yield from _probes(figures, _mapping(run.summary.get("failed_probes")))
    if isinstance(gap := judged.get("gap"), float):
        yield f"<p>generalisation gap: {number(gap)} of loss between held-out and training samples</p>"
    if isinstance(count := judged.get("samples"), int):
        yield f"<p>the training split was measured on {count:,} samples, drawn by the seed</p>"
    if spread:
        yield "<h2>Over the folds</h2>"
        rows = [_spread(name, _mapping(spread[name])) for name in sorted(spread, key=split_place)]
        yield _table(["figure", "mean", "std", "95 % interval of the mean", "fold by fold"], rows)


def _probes(figures: Mapping[str, Any], failed: Mapping[str, Any]) -> Iterator[str]:
    """What was measured besides, and what could not be."""
    rows = [
        [key, value]
        for key, value in figures.items()
        if split_place(key)[0] > 2 and not key.startswith("shared/")
    ]
    if rows or failed:
        yield "<h2>Probes</h2>"
    if rows:
        yield _table(["figure", "value"], rows)
    for key, why in failed.items():
        yield f'<p class="verdict failed"><b>{escape(key)}</b>{escape(str(why))}</p>'


def _spread(name: str, of: Mapping[str, Any]) -> list[Any]:
    """A figure over the folds."""
    ends = of.get("interval")
    interval = " to ".join(map(number, ends)) if isinstance(ends, list) else ""
    return [name, of.get("mean", ""), of.get("std", ""), interval, of.get("values", "")]


SPLITS = {"train": "train (training)", "val": "val (validation)", "test": "test"}


def _by_split(
    figures: Mapping[str, Any], others: Mapping[str, Mapping[str, Any]], samples: Mapping[str, Any]
) -> str:
    """A row for each split, with its samples, and one for each rule without learning and for the optimum."""
    splits = [s for s in SPLITS if any(key.startswith(f"{s}/") for key in figures)]
    names = list(dict.fromkeys(key.partition("/")[2] for key in figures if key.partition("/")[0] in splits))
    rows = [
        [SPLITS[split] + what, samples.get(split, ""), *(found.get(f"{split}/{name}", "") for name in names)]
        for what, found in (("", figures), *others.items())
        for split in splits
        if any(key.startswith(f"{split}/") for key in found)
    ]
    return _table(["split", "samples", *names], rows)


def _reference(run: Contents) -> Iterator[str]:
    reference = _mapping(run.summary.get("reference"))
    if not reference:
        return
    yield f"<h2>Reference: {escape(str(reference.get('name', '')))}</h2>"
    if reference.get("formula"):
        yield f"<p>the least possible of <code>{escape(str(reference['formula']))}</code></p>"
    if reference.get("error"):
        yield f'<p class="verdict failed">{escape(str(reference["error"]))}</p>'
    names = [name for name in ("objective", "optimum", "gap", "relative") if name in reference]
    if names:
        yield _table(names, [[reference[name] for name in names]])


def _pictures(run: Contents) -> Iterator[str]:
    for name, picture in run.pictures.items():
        data = base64.b64encode(picture).decode("ascii")
        yield f"<h2>{escape(name.capitalize())}</h2>"
        chart = name in CHARTS or CHART.encode() in picture[:1000]  # notes stand before the pixels
        kind = ' class="chart"' if chart else ""
        yield f'<div class="wide"><img{kind} alt="{escape(name)}" src="data:image/png;base64,{data}"></div>'
        if name == "curves":
            yield f"<p>{escape(LOSSES)}</p>"


def _tables(run: Contents) -> Iterator[str]:
    for name, found in run.tables.items():
        columns, rows = _mapping(found).get("columns"), _mapping(found).get("rows")
        if isinstance(columns, list) and isinstance(rows, list) and rows:
            split = _mapping(found).get("split")
            of = f", {split} split" if isinstance(split, str) and split else ""
            yield f"<h2>{escape(name.replace('_', ' ').capitalize() + of)}</h2>"
            yield _table(columns, [row for row in rows if isinstance(row, list)])


def _files(run: Contents) -> Iterator[str]:
    folder, words = shlex.quote(run.folder), [w for path in run.local for w in ("--local", path)]
    local = f" {shlex.join(words)}" if words else ""
    one = f"{folder}/fold-0" if run.summary.get("folds") else folder  # of several none has weights itself
    places = {"eval": one, "predict": one, "resume": folder}
    commands = [f"pegboard {what} {place}{local}" for what, place in places.items()]
    yield "<h2>Go on</h2>"
    yield f"<pre>{escape(chr(10).join(commands))}</pre>"
    environment = json.dumps(run.environment, indent=1, default=str) if run.environment else ""
    for title, text in (("Plan", run.plan), ("Config", run.config), ("Environment", environment)):
        if text:
            yield f"<details><summary>{title}</summary><pre>{escape(text)}</pre></details>"


def _table(columns: Sequence[Any], rows: Sequence[Sequence[Any]]) -> str:
    cut = len(columns) > COLUMNS or len(rows) > ROWS
    head = "".join(f"<th>{_cell(c)}</th>" for c in columns[:COLUMNS])
    lines = ["".join(f"<td>{_cell(c)}</td>" for c in row[:COLUMNS]) for row in rows[:ROWS]]
    body = "".join(f"<tr>{line}</tr>\n" for line in lines)
    more = f"<p>{len(rows):,} rows of {len(columns):,} columns, cut here</p>" if cut else ""
    return f'<div class="wide"><table>\n<tr>{head}</tr>\n{body}</table></div>{more}'


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return escape(", ".join(number(v) for v in value[:COLUMNS]))
    return escape(number(value))


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
