"""Files and tables that a person asks about, as columns that the form of a run encodes."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pegboard import Codec

from .hub_options import Hub, columns_of, forecasts, layout, series_of
from .mistakes import mistake
from .quoting import SEPARATORS, choose, names_of, quotes_in
from .reading import Columns
from .series_files import SUFFIXES, read_file, read_steps, table_of
from .series_options import FILE, FOLDER, keys_of
from .series_reading import wide_columns


def opened(codec: Codec, config: Hub) -> Codec:
    """A codec that reads the files of its data set, and rows that are whole series of a forecast."""
    codec = codec._replace(read=partial(read_given, config))
    inner, to_table = codec.encode, codec.table
    if forecasts(config):
        assert to_table is not None
        return codec._replace(
            encode=lambda table: inner(unfolded(config, table)),
            table=lambda asked, answers: to_table(
                asked if isinstance(asked, str) else unfolded(config, asked), answers
            ),
        )
    return codec._replace(table=_beside_files) if to_table is None else codec


def read_given(config: Hub, paths: Sequence[str]) -> Columns | None:
    """The columns of files in which each is a series, or of one table that only this data set reads."""
    if layout(config) == "files" or any(Path(path).suffix.lower() == ".npy" for path in paths):
        return _series(config, paths)
    suffix = Path(paths[0]).suffix.lower()
    if len(paths) > 1 or not Path(paths[0]).is_file():
        return None
    if suffix == ".parquet":
        return table_of(Path(paths[0]))
    if suffix == ".tsv" or (suffix == ".csv" and (config.quoting == "none" or not config.header)):
        return _lines(config, paths[0])
    return None


def _series(config: Hub, paths: Sequence[str]) -> Columns:
    """A row for each file; for a forecast the steps of all of them, beside the name of their file."""
    series = series_of(config)
    names = [*columns_of(config), *(series.known if forecasts(config) else ())]
    wanted = [name for name in dict.fromkeys(names) if name not in (FILE, FOLDER)]
    made: dict[str, list[Any]] = {}
    for shown, path in _files(paths, series.index):
        if forecasts(config):
            own = read_steps(path, shown, series.time, wanted)
            count = len(next(iter(own.values())))
            own = {FILE: [shown] * count, **own}
        else:
            own = {FILE: [shown], FOLDER: [path.parent.name]}
            own |= {name: [_list(cells)] for name, cells in read_file(path, shown, series, wanted).items()}
        for name, cells in own.items():
            made.setdefault(name, []).extend(cells)
    return made


def _files(paths: Sequence[str], index: str | None) -> list[tuple[str, Path]]:
    """Files by what a table calls them: those in folders below these."""
    found = []
    for path in map(Path, paths):
        if not path.is_dir():
            found.append((str(path), path))
            continue
        inside = sorted(p for p in path.rglob("*") if p.suffix.lower() in SUFFIXES and p.is_file())
        found += [(p.relative_to(path).as_posix(), p) for p in inside if index is None or p != path / index]
    for shown, path in found:
        if not path.is_file() or path.suffix.lower() not in SUFFIXES:
            what = "is no series" if path.is_file() else "is not there"
            raise mistake(
                f"{shown} {what}", f"a file that ends in {', '.join(SUFFIXES)}, or a folder of them"
            )
    if not found:
        raise mistake(f"{', '.join(paths)} holds no series", f"files that end in {', '.join(SUFFIXES)}")
    return found


def _list(cells: Any) -> list[Any]:
    return list(cells if isinstance(cells, list) else cells.tolist())


def _lines(config: Hub, path: str) -> Columns:
    """A csv or tsv table, with quotes as the config says."""
    enclosing, _ = choose(config.quoting, {path: quotes_in(path)})
    separator = SEPARATORS[Path(path).suffix.lower()].decode()
    how: dict[str, Any] = {"delimiter": separator} | ({} if enclosing else {"quoting": csv.QUOTE_NONE})
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            rows = [row for row in csv.reader(file, **how) if row]
    except (OSError, ValueError, csv.Error) as error:
        raise mistake(f"{path} cannot be read: {error}") from None
    names = names_of(path) if not config.header else rows.pop(0) if rows else []
    if not rows:
        raise mistake(f"{path} holds no rows", "rows to answer")
    for number, row in enumerate(rows):
        if len(row) != len(names):
            where = f"{path}, row {number} (0 is the first)"
            raise mistake(f"{where}: {len(row)} cells", f"{len(names)}, as in the first line")
    return {name: [_cell(row[at]) for row in rows] for at, name in enumerate(names)}


def _cell(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text


def _beside_files(asked: str | Columns, answers: Mapping[str, list[Any]]) -> Mapping[str, list[Any]]:
    """Answers beside the name of the file that each is about."""
    if isinstance(asked, str) or FILE not in asked:
        return answers
    return {FILE: list(asked[FILE]), **answers}


def unfolded(config: Hub, table: Columns) -> Columns:
    """Rows that are whole series as a row for each of their steps; a table of steps as it is."""
    series, made = series_of(config), dict(table)
    names = list(dict.fromkeys((*columns_of(config), *series.known)))
    for name, options in columns_of(config).items():
        if options.columns and name not in made:
            steps = zip(*(made[column] for column in wide_columns(options.columns, made)), strict=True)
            made[name] = [_whole(row) for row in steps]
    made |= {name: [_listed(cell) for cell in made[name]] for name in names if name in made}
    if not any(isinstance(cell, list) for name in names for cell in made.get(name, ())):
        return table
    if series.time in made:
        made[series.time] = [_listed(cell) for cell in made[series.time]]
        names.append(series.time)
    count = len(next(iter(made.values())))
    keys = keys_of(series) or ("series",)
    if not series.key:
        made["series"] = [str(row) for row in range(count)]
    found: dict[str, list[Any]] = {name: [] for name in (*keys, *names) if name in made}
    for row in range(count):
        cells = {name: made[name][row] for name in names if name in made}
        lengths = {name: len(cell) if isinstance(cell, list) else 1 for name, cell in cells.items()}
        if len({*lengths.values()}) != 1:
            said = ", ".join(f"{length} of {name!r}" for name, length in lengths.items())
            raise mistake(f"row {row} (0 is the first): {said}", "as many steps in every column")
        for name in keys:
            if name in made:
                found[name] += [made[name][row]] * next(iter(lengths.values()))
        for name, cell in cells.items():
            found[name] += cell if isinstance(cell, list) else [cell]
    return found


def _whole(row: Sequence[Any]) -> list[Any]:
    """The steps of a row of a wide table, without what is empty at its end."""
    steps = list(row)
    while steps and (steps[-1] is None or steps[-1] == "" or steps[-1] != steps[-1]):
        steps.pop()
    return steps


def _listed(cell: Any) -> Any:
    if isinstance(cell, str) and cell.lstrip().startswith("["):
        try:
            return json.loads(cell)
        except (ValueError, RecursionError):
            return cell
    return cell
