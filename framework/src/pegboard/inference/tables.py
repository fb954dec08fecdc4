"""What people give a trained model to answer, and the tables it answers with; no torch."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..base.errors import PegboardError
from ..base.nearest import nearest

TABLES = (".csv", ".json", ".jsonl")
FORMULA = tuple("=+-@\t\r\n")  # first characters of what spreadsheets work out
SHOWN = 20  # files that a message lists


@dataclass
class Given:
    """Samples of one column: a file or a text for each, and what tells a person which one it is."""

    values: list[str]  # texts, or paths of pictures
    columns: dict[str, list[Any]] = field(default_factory=dict)  # of the answer's table, first
    names: list[str] = field(default_factory=list)  # for messages


def given_texts(texts: Sequence[str]) -> Given:
    """Texts of a command line."""
    return Given(list(texts), {"text": list(texts)}, [repr(text) for text in texts])


def given_files(paths: Sequence[str], kind: str, suffixes: Sequence[str], lines: bool = False) -> Given:
    """Samples that files hold, also all those in folders; with `lines` a text for every line."""
    found = _files(paths, suffixes, kind)
    names = [str(path) for path in found]
    if kind != "text":
        return Given(names, {"file": names}, names)
    given, wrong = Given([], {"file": []} | ({"line": []} if lines else {})), []
    for name, path in zip(names, found, strict=True):
        try:
            text = path.read_text("utf-8-sig")
        except (OSError, ValueError) as error:
            wrong.append(f"{name}: {getattr(error, 'strerror', None) or 'no text in UTF-8'}")
            continue
        rows = [(n, line) for n, line in enumerate(text.splitlines(), 1) if line.strip()]
        for number, row in rows if lines else [(0, text.rstrip("\r\n"))]:
            given.values.append(row)
            given.names.append(f"{name}, line {number}" if lines else name)
            for column, value in zip(given.columns, (name, number), strict=False):
                given.columns[column].append(value)
    refuse(wrong, len(names))
    if not given.values:
        raise PegboardError(f"{', '.join(names[:SHOWN])}: no line holds a text")
    return given


def refuse(wrong: Sequence[str], count: int) -> None:
    """One message for all files that cannot be read."""
    if wrong:
        more = [f"and {len(wrong) - SHOWN} more"] if len(wrong) > SHOWN else []
        lines = [f"{len(wrong)} of {count} cannot be read:", *wrong[:SHOWN], *more]
        raise PegboardError("\n  ".join(lines))


def _files(paths: Sequence[str], suffixes: Sequence[str], kind: str) -> list[Path]:
    """Files by name, and in folders those that end as such files do, in the order of their names."""
    found: list[Path] = []
    wrong = []
    for path in map(Path, paths):
        if os.path.isdir(path):
            inside = [p for p in sorted(path.rglob("*")) if p.suffix.lower() in suffixes and p.is_file()]
            found += [p for p in inside if not any(part[0] == "." for part in p.relative_to(path).parts)]
            if not inside:
                wrong.append(f"{path} holds no {kind}: expected files that end in {', '.join(suffixes)}")
        elif os.path.isfile(path):
            found.append(path)
        else:
            wrong.append(_missing(path))
    if wrong:
        raise PegboardError("\n".join(wrong))
    return found


def _missing(path: Path) -> str:
    beside = path.parent.iterdir() if os.path.isdir(path.parent) else ()
    near = nearest(path.name, [p.name for p in beside if p.is_file()])
    return f"no file {path}" + (f"; did you mean {near[0]!r}?" if near else "")


def read_table(path: Path) -> dict[str, list[Any]]:
    """Columns of a .csv file with a header, or of a .json file (a list of rows, or columns)."""
    if not path.is_file():
        raise PegboardError(_missing(path))
    try:
        if path.suffix == ".csv":
            with path.open(newline="", encoding="utf-8-sig") as file:  # spreadsheets write a mark in front
                rows: Any = list(csv.DictReader(file))
        elif path.suffix in (".json", ".jsonl"):
            text = path.read_text("utf-8-sig")
            rows = (
                [json.loads(t) for t in text.splitlines() if t]
                if path.suffix == ".jsonl"
                else json.loads(text)
            )
        else:
            raise PegboardError(f"{path} is not a table that predict reads: expected .csv, .json or .jsonl")
    except RecursionError:
        raise PegboardError(f"cannot read {path}: nested too deep for a table") from None
    except (ValueError, OSError, csv.Error) as error:
        raise PegboardError(f"cannot read {path}: {error}") from None
    if isinstance(rows, dict):
        columns = {str(k): v for k, v in rows.items() if isinstance(v, list)}
        if len(columns) < len(rows) or len({len(v) for v in columns.values()}) != 1:
            raise PegboardError(f"{path}: expected columns as lists of the same length")
        return columns
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise PegboardError(f"{path} holds no rows: expected a header and rows, or a list of objects")
    if None in rows[0] or any(None in row for row in rows):  # what DictReader calls cells without a column
        raise PegboardError(f"{path}: a row has more cells than the header has columns")
    return {str(key): [_number(row.get(key)) for row in rows] for key in rows[0]}


def _number(text: Any) -> Any:
    try:
        return float(text)
    except (TypeError, ValueError, OverflowError):
        return text


def write_table(columns: Mapping[str, Sequence[Any]], path: Path | None) -> str:
    """Columns as CSV text, in a file where one is named; `.json` gives a list of rows."""
    if path is not None and path.suffix not in (".csv", ".json", ""):
        raise PegboardError(f"{path} is not a table that predict writes: expected .csv or .json")
    rows = list(zip(*columns.values(), strict=True))
    if path is not None and path.suffix == ".json":
        objects = [dict(zip(columns, row, strict=True)) for row in rows]
        path.write_text(json.dumps(objects, indent=1) + "\n", "utf-8")
        return ""
    text = "".join(_line(row) for row in (tuple(columns), *rows))
    if path is not None:
        with path.open("w", encoding="utf-8", errors="backslashreplace", newline="") as file:
            file.write(text)
    return text


def _line(cells: Sequence[Any]) -> str:
    """A line of CSV; the writer quotes a return inside a cell where it ends lines with one."""
    file = io.StringIO()
    csv.writer(file, lineterminator="\r\n").writerow([_cell(value) for value in cells])
    return file.getvalue().removesuffix("\r\n") + "\n"


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return json.dumps(value)
    if isinstance(value, str):
        return plain_text(value)
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def plain_text(text: str) -> str:
    """A text as a cell that no spreadsheet takes for a formula, by an apostrophe in front of it.

    What is a number stays one: -1 is no formula.
    """
    return f"'{text}" if text[:1] in FORMULA and not isinstance(_number(text), float) else text
