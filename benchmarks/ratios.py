"""Series of measurements of one result, and how one compares with another."""

from __future__ import annotations

import statistics
from typing import Any, NamedTuple


class Ratio(NamedTuple):
    """A median over the rounds, and what half of them lie between."""

    low: float
    middle: float
    high: float

    def __str__(self) -> str:
        return f"{self.middle:.2f} ({self.low:.2f}-{self.high:.2f})"

    def __format__(self, width: str) -> str:
        return format(str(self), width)


def series(results: dict[str, Any], name: str, threads: str, mode: str, kind: str = "epoch") -> list[float]:
    """Microseconds of a step in each round; empty where it was not measured."""
    found = results["rows"].get(name, {}).get("times", {}).get(threads, {}).get(mode, {}).get(kind, [])
    return list(found)


def ratio(over: list[float], under: list[float]) -> Ratio | None:
    """One series over another, round by round: what slows a whole round slows both."""
    parts = sorted(a / b for a, b in zip(over, under, strict=False))
    if not parts:
        return None
    quarter = len(parts) // 4
    return Ratio(parts[quarter], statistics.median(parts), parts[-1 - quarter])


def measured(results: dict[str, Any]) -> list[str]:
    """The numbers of threads of a result, as its keys."""
    return list(results["rows"]["plain"]["times"])
