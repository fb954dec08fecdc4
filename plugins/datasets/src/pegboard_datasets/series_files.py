"""A folder in which each file is a sample: csv, tsv, parquet or npy, labelled by folders or by a table."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import NDArray

from .hub_options import Hub, columns_of, forecasts, series_of, target_columns, target_of
from .mistakes import mistake, nearest, unknown
from .rows import Rows
from .series_options import FILE, FOLDER, Series
from .series_reading import numbers_of
from .series_time import find_clock, on_grid, read_times

Array = NDArray[Any]
SUFFIXES = (".csv", ".tsv", ".parquet", ".npy")
VALUES = "values"  # the column that an array has
SPLITS = {"train": "train", "validation": "validation", "valid": "validation", "val": "validation",
          "dev": "validation", "test": "test"}  # fmt: skip
SPLIT = "split"  # the column of the index that names the split of a file


def read_folder(folder: Path, config: Hub) -> tuple[dict[str, Rows], list[str]]:
    """The splits of a folder, a row for each file, and what a person should know of it."""
    import datasets  # type: ignore[import-untyped]

    series, index = series_of(config), None
    paths = sorted(p for p in folder.rglob("*") if p.suffix.lower() in SUFFIXES and p.is_file())
    paths = [p for p in paths if not any(part.startswith(".") for part in p.relative_to(folder).parts)]
    if series.index is not None:
        table = folder / series.index
        paths = [p for p in paths if p != table]
        index = _index(table)
    if not paths:
        raise mistake(f"{str(folder)!r} holds no series", f"files that end in {', '.join(SUFFIXES)}")
    labels, warnings = _labels(folder, paths, index, series.index or "")
    wanted = [name for name in columns_of(config) if name not in (FOLDER, FILE)]
    constant = [n for n in target_columns(target_of(config)) if n not in labels]
    splits: dict[str, dict[str, list[Any]]] = {}
    for row, path in enumerate(paths):
        shown = str(path.relative_to(folder))
        if index is not None and not labels[FILE][row]:
            continue
        if forecasts(config):
            names = list(dict.fromkeys((*wanted, *series.known, *constant)))
            own = read_steps(path, shown, series.time, names)
        else:
            own = read_file(path, shown, series, [*wanted, *constant], {*constant})
        split = labels[SPLIT][row] if SPLIT in labels else _split_of(path.relative_to(folder))
        made = splits.setdefault(SPLITS.get(str(split), str(split)), {})
        for name, value in {**{n: labels[n][row] for n in labels if n != SPLIT}, **own}.items():
            made.setdefault(name, []).append(value)
    found = {name: Rows(datasets.Dataset.from_dict(made), name) for name, made in splits.items()}
    for rows in found.values():
        rows.listed = "files"
    return found, warnings


def _split_of(path: Path) -> str:
    return SPLITS.get(path.parts[0].lower(), "train") if len(path.parts) > 1 else "train"


def _labels(
    folder: Path, paths: Sequence[Path], index: Mapping[str, list[Any]] | None, name: str
) -> tuple[dict[str, list[Any]], list[str]]:
    """What is known of each file besides its steps; one that the index leaves out has no name."""
    plain = [path.relative_to(folder).as_posix() for path in paths]
    folders = [path.parent.name if path.parent != folder else "" for path in paths]
    if index is None:
        return {FILE: plain, FOLDER: folders}, []
    place = {name: row for row, name in enumerate(plain)} | {
        str(Path(name).with_suffix("").as_posix()): row for row, name in enumerate(plain)
    }
    found: dict[str, list[Any]] = {key: [None] * len(paths) for key in index} | {FOLDER: folders}
    found[FILE] = [""] * len(paths)
    for line, written in enumerate(index[FILE]):
        row = place.get(str(written))
        if row is None:
            near = nearest(str(written), plain)
            raise mistake(
                f"{name}, row {line} (0 is the first): there is no file {str(written)!r}{near}",
                "a file of the folder",
            )
        for key, cells in index.items():
            found[key][row] = plain[row] if key == FILE else cells[line]
    left = [plain[row] for row, named in enumerate(found[FILE]) if not named]
    if not left:
        return found, []
    return found, [f"{len(left)} files are left out, as {name} has no row for them: {', '.join(left[:5])}"]


def _index(path: Path) -> dict[str, list[Any]]:
    """The table that says what is known of each file."""
    if not path.is_file():
        raise mistake(f"there is no index {str(path)!r}", "a csv, tsv or parquet table in the folder")
    table = table_of(path)
    if FILE not in table:
        raise unknown("column", FILE, table, f" in {path.name}", "it names the file of each row")
    return {name: list(cells) for name, cells in table.items()}


def table_of(path: Path) -> dict[str, list[Any]]:
    """The columns of a file as Python values, None where they are empty."""
    try:
        if path.suffix.lower() == ".parquet":
            import pyarrow.parquet  # type: ignore[import-untyped]

            return dict(pyarrow.parquet.read_table(path).to_pydict())
        import pandas  # type: ignore[import-untyped]

        frame = pandas.read_csv(path, sep="\t" if path.suffix.lower() == ".tsv" else ",")
        return {str(name): [None if _empty(v) else v for v in frame[name].tolist()] for name in frame}
    except Exception as error:  # of whatever library reads it
        raise mistake(
            f"{str(path)!r} cannot be read: {' '.join(str(error).split())[:200]}", "a table"
        ) from None


def _empty(value: Any) -> bool:
    return value is None or (isinstance(value, float) and value != value)


def read_file(
    path: Path, shown: str, series: Series, wanted: Sequence[str], constant: Collection[str] = ()
) -> dict[str, Any]:
    """The columns of a file that are asked for: lists of its steps, and values that all its steps share."""
    time = series.time
    if path.suffix.lower() == ".npy":
        return _array(path, shown, time, wanted)
    table = table_of(path)
    for name in (*wanted, *([time] if time else [])):
        if name not in table:
            raise unknown("column", name, table, f" in {shown}")
    made: dict[str, Any] = {}
    places: Array | None = None
    if time is not None:
        times, dates = read_times(table[time], lambda row: f"{shown}, column {time!r}, row {row}")
        order = numpy.argsort(times, kind="stable")
        clock = find_clock([times], dates)
        steps = on_grid(clock, times[order], series.irregular, lambda at: f"{shown}, row {order[at]}")
        places = numpy.full(int(steps[-1]) + 1, -1)
        places[steps] = order
    for name in wanted:
        if name in constant:
            made[name] = _shared(table[name], name, shown)
            continue
        numbers = numbers_of(table[name], lambda row, name=name: f"{shown}, column {name!r}, row {row}")
        if places is not None:
            numbers = numpy.where(places < 0, numpy.nan, numbers[places])
        made[name] = numbers
    return made


def read_steps(path: Path, shown: str, time: str | None, wanted: Sequence[str]) -> dict[str, Any]:
    """The columns of a file as they stand, the times as texts."""
    if path.suffix.lower() == ".npy":
        return _array(path, shown, time, wanted)
    table = table_of(path)
    for name in (*wanted, *([time] if time else [])):
        if name not in table:
            raise unknown("column", name, table, f" in {shown}")
    made: dict[str, Any] = {}
    for name in wanted:
        made[name] = numbers_of(table[name], lambda row, name=name: f"{shown}, column {name!r}, row {row}")
    return made if time is None else made | {time: [str(cell) for cell in table[time]]}


def _shared(cells: Sequence[Any], name: str, shown: str) -> Any:
    for row, cell in enumerate(cells):
        if cell != cells[0]:
            raise mistake(
                f"{shown}, column {name!r}, row {row}: {cell!r}", f"{cells[0]!r}, as in its first row"
            )
    return cells[0] if cells else None


def _array(path: Path, shown: str, time: str | None, wanted: Sequence[str]) -> dict[str, Any]:
    """An array (steps,) or (steps, channels), in the column `values`."""
    for name in (*wanted, *([time] if time else [])):
        if name != VALUES:
            raise unknown("column", name, [VALUES], f" in {shown}", "an array has no names of columns")
    try:
        array = numpy.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise mistake(f"{str(path)!r} cannot be read: {str(error)[:200]}", "an array of numbers") from None
    if array.ndim not in (1, 2) or array.dtype.kind not in "biuf":
        found = f"{shown} holds {array.dtype} of shape {array.shape}"
        raise mistake(found, "numbers of shape (steps,) or (steps, channels)")
    return {VALUES: array.astype(numpy.float64).tolist()}
