"""Time stamps of steps: how far two steps are apart, which are missing, and which stamp comes next."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy
from numpy.typing import NDArray

from .mistakes import mistake

Array = NDArray[Any]
Where = Callable[[int], str]
Unit = Literal["rows", "number", "months", "microseconds"]
NEAR = 1e-3  # of a step, by which a stamp may be beside it
DAY = 86_400_000_000  # microseconds


def read_times(values: Sequence[Any], where: Where) -> tuple[Array, bool]:
    """Stamps as numbers (float64), or as microseconds since 1970 (int64); and whether they are dates."""
    known = [v for v in values if v is not None and v != ""]
    if len(known) < len(values):
        row = next(r for r, v in enumerate(values) if v is None or v == "")
        raise mistake(f"{where(row)}: nothing", "a time stamp in every row")
    if all(isinstance(v, int | float) and not isinstance(v, bool) for v in known):
        return numpy.array(known, numpy.float64), False
    if (numbers := _numbers(known)) is not None:
        return numbers, False
    found = numpy.empty(len(values), numpy.int64)
    for row, value in enumerate(values):
        stamp = _stamp(value)
        if stamp is None:
            expected = "a date or time as 2024-03-31 or 2024-03-31T18:00, or a number"
            raise mistake(f"{where(row)}: {value!r}", expected)
        found[row] = stamp
    return found, True


def _numbers(values: Sequence[Any]) -> Array | None:
    """Texts that are all numbers, as a table read as texts has them."""
    try:
        found = numpy.array([float(value) for value in values if isinstance(value, str)])
    except ValueError:
        return None
    return found if len(found) == len(values) and bool(numpy.isfinite(found).all()) else None


def _stamp(value: Any) -> int | None:
    """Microseconds since 1970 in UTC, a stamp without a zone as it stands; None where it is no stamp."""
    if isinstance(value, datetime.datetime):
        value = value if value.tzinfo is None else value.astimezone(datetime.UTC).replace(tzinfo=None)
        return int(numpy.datetime64(value, "us").astype(numpy.int64))
    if isinstance(value, datetime.date):
        return int(numpy.datetime64(value, "us").astype(numpy.int64))
    if not isinstance(value, str):
        return None
    try:
        return _stamp(datetime.datetime.fromisoformat(value.strip()))
    except ValueError:
        try:  # a month or a year alone
            return int(numpy.datetime64(value.strip(), "us").astype(numpy.int64))
        except ValueError:
            return None


@dataclass(frozen=True)
class Clock:
    """How far two steps are apart."""

    unit: Unit
    step: float  # of the unit
    rest: int = 0  # months: microseconds after the beginning of the month; -1 for its last day
    dates: bool = False  # stamps are dates without a time of day

    def ticks(self, times: Array) -> Array:
        """Stamps on the axis of the clock, in steps from its zero."""
        if self.unit == "months":
            months = times.astype("datetime64[us]").astype("datetime64[M]").astype(numpy.int64)
            return months / self.step
        return times / self.step

    def shown(self, ticks: Array) -> list[Any]:
        """Stamps for people."""
        if self.unit == "rows":
            return [round(float(t)) for t in ticks]
        if self.unit == "number":
            found = numpy.round(ticks * self.step, 9).tolist()
            return [int(t) if float(t).is_integer() else t for t in found]
        if self.unit == "months":
            months = numpy.round(ticks * self.step).astype(numpy.int64)
            if self.rest < 0:
                stamps = (months + 1).astype("datetime64[M]").astype("datetime64[D]") - numpy.timedelta64(
                    1, "D"
                )
                return [str(stamp) for stamp in stamps]
            stamps = months.astype("datetime64[M]").astype("datetime64[us]") + numpy.timedelta64(
                self.rest, "us"
            )
        else:
            stamps = numpy.round(ticks * self.step).astype(numpy.int64).astype("datetime64[us]")
        if self.dates:
            return [str(stamp) for stamp in stamps.astype("datetime64[D]")]
        return [str(stamp).removesuffix(".000000").removesuffix(":00") for stamp in stamps]

    def says(self) -> str:
        """The distance of two steps, for people."""
        if self.unit == "months":
            months = round(self.step)
            return "a year" if months == 12 else "a month" if months == 1 else f"{months} months"
        if self.unit != "microseconds":
            return f"{self.step:g}"
        for size, name in (
            (DAY, "day"),
            (3_600_000_000, "hour"),
            (60_000_000, "minute"),
            (1_000_000, "second"),
        ):
            if self.step % size == 0:
                count = round(self.step / size)
                return f"{'an' if name == 'hour' else 'a'} {name}" if count == 1 else f"{count} {name}s"
        return f"{self.step / 1e6:g} seconds"

    def state(self) -> dict[str, Any]:
        """All of it, as JSON holds it."""
        return {"unit": self.unit, "step": self.step, "rest": self.rest, "dates": self.dates}

    @classmethod
    def load(cls, state: Mapping[str, Any]) -> Clock:
        """The one that `state` described."""
        return cls(state["unit"], float(state["step"]), int(state["rest"]), bool(state["dates"]))


def find_clock(parts: Sequence[Array], dates: bool) -> Clock:
    """The distance that most neighbours among the stamps of each series have."""
    parts = [numpy.unique(part) for part in parts]
    whole = numpy.unique(numpy.concatenate(parts)) if parts else numpy.zeros(0)
    if not dates:
        return Clock("number", _usual(parts))
    days = bool((whole % DAY == 0).all())
    months = whole.astype("datetime64[us]").astype("datetime64[M]")
    rest = whole - months.astype("datetime64[us]").astype(numpy.int64)
    ends = (months + 1).astype("datetime64[us]").astype(numpy.int64) - whole
    last = days and bool((ends == DAY).all())
    gaps = [numpy.diff(part) for part in parts if len(part) > 1]
    far = bool(gaps) and min(float(gap.min()) for gap in gaps) >= 28 * DAY
    if far and (last or (rest == rest[0]).all()):
        step = _usual([p.astype("datetime64[us]").astype("datetime64[M]").astype(numpy.int64) for p in parts])
        return Clock("months", step, -1 if last else int(rest[0]), days)
    return Clock("microseconds", _usual(parts), 0, days)


def _usual(parts: Sequence[Array]) -> float:
    """The most frequent distance of neighbours, the least of several."""
    gaps = [numpy.diff(part) for part in parts if len(part) > 1]
    if not gaps:
        return 1.0
    found = numpy.concatenate(gaps)
    # Floats of equal distance differ in their last digits.
    rounded = found if found.dtype.kind == "i" else numpy.round(found / found.min(), 6) * found.min()
    values, counts = numpy.unique(rounded, return_counts=True)
    return float(values[counts.argmax()])


def on_grid(clock: Clock, times: Array, irregular: str, where: Where) -> Array:
    """For each of the sorted stamps of one series the number of its step, counted from the first."""
    ticks = clock.ticks(times)
    if irregular == "rows" or clock.unit == "rows":
        return numpy.arange(len(times))
    away = ticks - ticks[0]
    steps = numpy.round(away)
    odd = numpy.flatnonzero(numpy.abs(away - steps) > NEAR)
    if len(odd) and irregular == "error":
        at = int(odd[0])
        near = " and ".join(
            map(str, clock.shown(ticks[0] + numpy.array([numpy.floor(away[at]), numpy.ceil(away[at])])))
        )
        raise mistake(
            f"{where(at)}: the time stamp {clock.shown(ticks[[at]])[0]} lies between two steps, {near}",
            f"steps of {clock.says()}, as most of the rows have",
            "series: {irregular: nearest} moves it to the nearest, rows counts rows as steps",
        )
    same = numpy.flatnonzero(numpy.diff(steps) == 0)
    if len(same):
        at = int(same[0]) + 1
        exact = "the same time stamp" if times[at] == times[at - 1] else "a time stamp of the same step"
        raise mistake(
            f"{where(at)}: {exact} as {where(at - 1)}, {clock.shown(ticks[at : at + 1])[0]}",
            "each time once in a series",
            "series: {key: ...} names the columns that tell series apart; times of a clock that was set back "
            "are told apart in UTC, and irregular: rows counts rows",
        )
    numbers: Array = steps.astype(numpy.int64)
    return numbers
