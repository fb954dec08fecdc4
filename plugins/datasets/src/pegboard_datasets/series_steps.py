"""Tables whose rows are steps -> the series of each key, by time, with a place for every step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy
from numpy.typing import NDArray

from .categories import category_text
from .mistakes import mistake
from .reading import Columns, column
from .rows import Rows
from .series_options import Series, keys_of
from .series_reading import joined, list_steps, number_column, numbers_of, wide_columns, wide_steps
from .series_time import Clock, find_clock, on_grid, read_times

Array = NDArray[Any]
FILLS = (
    "series: {missing: forward} puts the last value there; zero puts 0, and mask says besides where; "
    "irregular: rows counts rows as steps, whatever their times"
)


@dataclass
class Keyed:
    """The series of one key: a place for every step from its first row to its last."""

    key: tuple[str, ...]
    rows: Array  # (steps,) number of the row of each step, -1 where there is none
    ticks: Array  # (steps,) times in steps of the clock

    def __len__(self) -> int:
        return len(self.rows)

    def spread(self, values: Array) -> Array:
        """A column, or several (rows, columns), on the places of the steps; nan where no row is."""
        found: Array = values[self.rows].astype(numpy.float64)
        found[self.rows < 0] = numpy.nan
        return found


@dataclass
class StepTable:
    """Columns of a table of steps, whoever wrote it."""

    keys: list[tuple[str, ...]]  # of each row
    times: Array | None  # of each row
    dates: bool
    where: Callable[[int], str]
    numbers: Callable[[str], Array]  # a column, nan where it is empty

    def series(self, clock: Clock, irregular: str) -> list[Keyed]:
        """The series of every key, by key."""
        found = []
        groups = self.groups()
        longest = max(map(len, groups.values()), default=0)
        for key, rows in groups.items():
            times = numpy.arange(len(rows), dtype=numpy.float64) if self.times is None else self.times[rows]

            def where(at: int, rows: Array = rows, key: tuple[str, ...] = key) -> str:
                of = f"series {'/'.join(key)!r}, " if key else ""
                return of + self.where(int(rows[at]))

            steps = on_grid(clock, times, irregular, where)
            places = numpy.full(int(steps[-1]) + 1, -1)
            places[steps] = rows
            ticks = clock.ticks(times)
            if self.times is None:  # nothing says when a series was: all end together
                ticks = ticks + (longest - len(rows))
            elif irregular != "rows":
                ticks = ticks[0] + numpy.arange(len(places))
            found.append(Keyed(key, places, ticks))
        return found

    def groups(self) -> dict[tuple[str, ...], Array]:
        """The numbers of the rows of every key, in the order of time."""
        found: dict[tuple[str, ...], list[int]] = {}
        for row, key in enumerate(self.keys):
            found.setdefault(key, []).append(row)
        arrays = {key: numpy.array(found[key]) for key in sorted(found)}
        if self.times is None:
            return arrays
        return {key: rows[numpy.argsort(self.times[rows], kind="stable")] for key, rows in arrays.items()}

    def clock(self) -> Clock:
        """How far steps are apart in this table."""
        if self.times is None:
            return Clock("rows", 1.0)
        return find_clock([self.times[rows] for rows in self.groups().values()], self.dates)


def steps_of(rows: Rows, series: Series) -> StepTable:
    """The rows of a split as steps."""
    names, time = keys_of(series), series.time
    rows.need([*names, *([time] if time else [])])
    texts = [[category_text(value) for value in rows.values(name)] for name in names]
    keys: list[tuple[str, ...]] = list(zip(*texts, strict=True)) if names else [()] * len(rows)
    times, dates = None, False
    if time is not None:
        stamps = rows.arrow(time).to_pylist()
        times, dates = read_times(stamps, lambda row: f"column {time!r}, {rows.where(row)}")
    return StepTable(keys, times, dates, rows.where, lambda name: number_column(rows, name))


def written_table(table: Columns, names: Sequence[str], time: str | None) -> StepTable:
    """The rows that a person wrote as steps."""

    def where(row: int) -> str:
        return f"row {row} (0 is the first)"

    count = len(next(iter(table.values()), ()))
    texts = [[category_text(value) for value in column(table, name)] for name in names]
    keys: list[tuple[str, ...]] = list(zip(*texts, strict=True)) if names else [()] * count
    times, dates = None, False
    if time is not None:
        times, dates = read_times(column(table, time), lambda row: f"column {time!r}, {where(row)}")

    def numbers(name: str) -> Array:
        return numbers_of(column(table, name), lambda row: f"column {name!r}, {where(row)}")

    return StepTable(keys, times, dates, where, numbers)


def insist(
    found: Sequence[Keyed], names: Sequence[str], values: Array, table: StepTable, clock: Clock
) -> None:
    """Every step of every series has a row, and every row a value in these columns (rows, columns)."""
    missing, first = 0, ""
    for one in found:
        spread = one.spread(values)
        empty = numpy.isnan(spread)
        missing += int(empty.any(1).sum())
        if first or not empty.any():
            continue
        step = int(empty.any(1).argmax())
        has = f"series {'/'.join(one.key)!r} has" if one.key else "there is"
        when = clock.shown(one.ticks[step : step + 1])[0]
        if one.rows[step] >= 0:
            name = names[int(empty[step].argmax())]
            first = f"column {name!r}, {table.where(int(one.rows[step]))}: nothing"
        else:
            before = one.rows[:step][one.rows[:step] >= 0][-1]
            first = f"{has} no row for {when}, after {table.where(int(before))}"
    if missing:
        many = f"{missing} steps have" if missing > 1 else "a step has"
        raise mistake(
            f"{many} no value; the first: {first}", f"a value for every step of {clock.says()}", FILLS
        )


def rows_of_steps(
    rows: Rows, series: Series, names: Sequence[str], wide: Mapping[str, str | tuple[str, ...]]
) -> tuple[Rows, Series]:
    """Rows that are whole series as a row for each step, and how these are read.

    A series is known by the key columns, or by the number of its row; its times are a column of lists.
    """
    import datasets  # type: ignore[import-untyped]

    parts = []
    for name in names:
        if given := wide.get(name):
            part = wide_steps(rows, name, wide_columns(given, rows.data.features))
        else:
            part = list_steps(rows, name)
        if part.values.shape[1] != 1:
            found = f"column {name!r} has {part.values.shape[1]} numbers in a step"
            raise mistake(found, "one, for a forecast")
        parts.append(part)
    steps = joined(parts, names, rows.where)
    keys = keys_of(series) or ("series",)
    owner = numpy.repeat(numpy.arange(len(rows)), steps.lengths).tolist()
    made: dict[str, list[Any]] = {}
    for name in keys:
        texts = [category_text(v) for v in (rows.values(name) if series.key else range(len(rows)))]
        made[name] = [texts[row] for row in owner]
    if series.time is not None:
        stamps = rows.values(series.time)
        for row, (cells, length) in enumerate(zip(stamps, steps.lengths, strict=True)):
            if not isinstance(cells, list) or len(cells) != length:
                found = f"column {series.time!r}, {rows.where(row)}: no list of {length} time stamps"
                raise mistake(found, "a stamp for every step")
        made[series.time] = [stamp for cells in stamps for stamp in cells]
    for place, name in enumerate(names):
        made[name] = steps.values[:, place].tolist()
    return Rows(datasets.Dataset.from_dict(made), rows.split), replace(series, key=keys, layout="steps")


def sample_rows(rows: Rows, series: Series, steps: Sequence[str], others: Sequence[str]) -> Rows:
    """A row for each key: lists of the values of `steps`, and what stands in `others` at all its steps."""
    import datasets

    table = steps_of(rows, series)
    clock = table.clock()
    found = table.series(clock, series.irregular)
    rows.need([*steps, *others])
    names = keys_of(series)
    made: dict[str, list[Any]] = {name: [one.key[i] for one in found] for i, name in enumerate(names)}
    values = numpy.stack([table.numbers(name) for name in steps], 1) if steps else numpy.zeros((len(rows), 0))
    if series.missing == "error":
        insist(found, steps, values, table, clock)
    for place, name in enumerate(steps):
        made[name] = [one.spread(values[:, place]) for one in found]
    for name in others:
        cells = rows.arrow(name).to_pylist()
        made[name] = [_constant(one, cells, name, table) for one in found]
    number, text = datasets.Value("float64"), datasets.Value("string")
    features = dict.fromkeys(names, text) | {name: datasets.Sequence(number) for name in steps}
    features |= {name: rows.data.features[name] for name in others}
    made_rows = Rows(datasets.Dataset.from_dict(made, datasets.Features(features)), rows.split)
    made_rows.listed = "steps"
    return made_rows


def _constant(one: Keyed, cells: Sequence[Any], name: str, table: StepTable) -> Any:
    """What stands in a column at every step of a series."""
    there = one.rows[one.rows >= 0]
    first = cells[int(there[0])]
    for row in there[1:]:
        if cells[int(row)] != first:
            of = "/".join(one.key)
            raise mistake(
                f"column {name!r}: series {of!r} has {first!r} in {table.where(int(there[0]))} and "
                f"{cells[int(row)]!r} in {table.where(int(row))}",
                "one value for all steps of a series",
                "target: {kind: forecast} predicts what changes from step to step",
            )
    return first


def written_samples(
    table: Columns, series: Series, steps: Sequence[str], others: Sequence[str]
) -> dict[str, list[Any]]:
    """Steps that a person wrote as a row for each key, in columns of lists."""
    written = written_table(table, keys_of(series), series.time)
    found = written.series(written.clock(), series.irregular)
    made: dict[str, list[Any]] = {
        name: [one.key[i] for one in found] for i, name in enumerate(keys_of(series))
    }
    for name in steps:
        values = written.numbers(name)
        made[name] = [[None if numpy.isnan(v) else float(v) for v in one.spread(values)] for one in found]
    for name in others:
        made[name] = [_constant(one, column(table, name), name, written) for one in found]
    return made
