"""Config of series: how rows become series, and how a forecast of them is asked. No torch at import."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Annotated, Literal

from pegboard import Ge, Problem

Layout = Literal["auto", "rows", "steps", "files"]
Missing = Literal["error", "forward", "linear", "zero", "mask"]
Irregular = Literal["error", "nearest", "rows"]
Steps = Annotated[int, Ge(1)]
FORECAST = ("window", "horizon", "stride", "gap", "known", "season")  # fields that only a forecast has
ORDERED = ("key", "irregular")  # fields that only a table of steps has
FOLDER, FILE = "folder", "file"  # columns that one file a sample has besides its own


@dataclass(frozen=True, kw_only=True)
class Series:
    """How rows become series, and what a forecast of them reads and predicts."""

    layout: Layout = "auto"  # a row is a series (rows), a step of one (steps), or each file is one (files)
    key: str | tuple[str, ...] = ()  # steps: columns that tell series apart; none: all rows are one series
    time: str | None = None  # steps, files: column that orders the steps; null: as they stand
    missing: Missing = "error"  # steps without a value: the last one, a line between, 0, 0 and a mask
    irregular: Irregular = "error"  # time stamps between two steps: move to the nearest, or count rows
    index: str | None = None  # files: table with the column file, and labels; without it folders are labels
    window: Steps | None = None  # forecast: steps that the model reads
    horizon: Steps = 1  # forecast: steps that it predicts, those after the window
    stride: Steps = 1  # forecast: steps from one window to the next
    gap: Annotated[int, Ge(0)] = 0  # forecast: steps between the last target of a split and the next split
    known: tuple[str, ...] = ()  # forecast: columns that are known ahead, over the horizon too
    season: Annotated[int, Ge(2)] | Literal["auto"] | None = "auto"  # forecast: steps of a season


def keys_of(series: Series) -> tuple[str, ...]:
    """The columns that tell series apart."""
    return ((series.key,) if series.key else ()) if isinstance(series.key, str) else series.key


def layout_of(series: Series | None, forecast: bool, path: str) -> str:
    """What a row is, as the config says or as it can only be."""
    if series is None:
        return "steps" if forecast else "rows"
    if series.layout != "auto":
        return series.layout
    if series.index is not None or _has_arrays(path):
        return "files"
    if forecast or series.key:
        return "steps"
    return "steps" if series.time is not None else "rows"


def _has_arrays(path: str) -> bool:
    folder = os.path.expanduser(path)
    found = glob.iglob(os.path.join(glob.escape(folder), "**", "*.npy"), recursive=True)
    return os.path.isdir(folder) and next(found, None) is not None


def check_series(
    series: Series | None, forecast: bool, layout: str, inputs: tuple[str, ...], targets: tuple[str, ...]
) -> Iterator[Problem]:
    """Fields that mean nothing, or cannot go together."""
    given = series or Series()
    default = Series()
    for f in fields(Series):
        if getattr(given, f.name) == getattr(default, f.name):
            continue
        if f.name in FORECAST and not forecast:
            yield Problem(
                f"{f.name} means nothing without a forecast", f"series.{f.name}", "target.kind: forecast"
            )
        elif f.name in ORDERED and layout != "steps" and not (forecast and layout == "rows"):
            yield Problem(
                f"{f.name} means nothing where {_says(layout)}", f"series.{f.name}", "layout: steps"
            )
        elif f.name == "time" and layout == "rows" and not forecast:
            yield Problem(
                f"time means nothing where {_says(layout)}", "series.time", "layout: steps or files"
            )
        elif f.name == "index" and layout != "files":
            yield Problem(f"index means nothing where {_says(layout)}", "series.index", "layout: files")
    keys = keys_of(given)
    if layout == "steps" and not keys and not forecast:
        yield Problem(
            "all rows would be one series, which is one sample",
            "series.key",
            "columns that tell series apart",
        )
    for name in sorted({*keys, *((given.time,) if given.time else ())} & {*inputs, *targets, *given.known}):
        yield Problem(
            f"column {name!r} is key or time, and an input or target too", "series.key", "another column"
        )
    if not forecast:
        return
    if given.window is None:
        yield Problem("the window of the forecast is missing", "series.window", "steps that the model reads")
    if given.missing == "linear":
        yield Problem(
            "a line between steps looks ahead",
            "series.missing",
            "error, forward, zero or mask for a forecast",
        )
    if not targets:
        yield Problem("the forecast names no column", "target.column", "one or several columns of numbers")
    for name in sorted({*given.known} & {*targets}):
        yield Problem(f"column {name!r} is predicted, and known ahead", "series.known", "other columns")


def _says(layout: str) -> str:
    return {"rows": "a row is a series", "files": "each file is a series", "steps": "a row is a step"}[layout]
