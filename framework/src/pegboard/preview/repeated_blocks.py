"""Rows about blocks that are all alike, as one: `blocks.0..5.feed` for six of them. No torch."""

from __future__ import annotations

import re
from collections.abc import Sequence

LEAST = 3  # rows that are worth it
_NUMBER = re.compile(r"\d+")

Row = tuple[str, ...]  # a name, then what is said of it


def folded(rows: Sequence[Row]) -> list[Row]:
    """The rows, where those whose cells differ by even steps of one number each are one.

    A row stands where the first of those that it sums up stood, but never before a row that came again.
    """
    pieces: list[dict[Row, None]] = [{}]
    for row in rows:
        if row in pieces[-1]:
            pieces.append({})
        pieces[-1][row] = None
    return [row for piece in pieces for row in _fold(piece)]


def _fold(left: dict[Row, None]) -> list[Row]:
    """The same of rows that are all different, which are used up."""
    found = []
    while left:
        first = next(iter(left))
        run = max((_run(first, left, at) for at in range(_count(first[0]))), key=len, default=[first])
        run = run if len(run) >= LEAST else [first]
        for row in run:
            del left[row]
        found.append(tuple(_span(cells) for cells in zip(*run, strict=True)))
    return found


def _count(name: str) -> int:
    return len(_NUMBER.findall(name))


def _run(first: Row, rows: dict[Row, None], at: int) -> list[Row]:
    """Rows like the first, with number `at` of the name larger by even steps."""
    same = _without(first[0], at)
    like = [
        row
        for row in rows
        if _count(row[0]) == _count(first[0])
        and _without(row[0], at) == same
        and [_shape(cell) for cell in row[1:]] == [_shape(cell) for cell in first[1:]]
    ]
    run = like[:2]
    for row in like[2:]:
        if not all(_even(cells) for cells in zip(*run[-2:], row, strict=True)):
            break
        run.append(row)
    return run


def _without(name: str, at: int) -> str:
    """A name with one of its numbers taken out."""
    number = list(_NUMBER.finditer(name))[at]
    return f"{name[: number.start()]}\0{name[number.end() :]}"


def _shape(cell: str) -> str:
    """A cell without its numbers."""
    return _NUMBER.sub("\0", cell)


def _even(cells: tuple[str, ...]) -> bool:
    """Whether the numbers of three cells grow, or shrink, by the same steps."""
    columns = zip(*(map(int, _NUMBER.findall(cell)) for cell in cells), strict=True)
    return all(b - a == c - b for a, b, c in columns)


def _span(cells: tuple[str, ...]) -> str:
    """One cell for all: `2,6..38` for 2, 6, 10 and so on up to 38, `0..5` where the step is one."""
    columns: list[tuple[str, ...]] = list(zip(*(_NUMBER.findall(cell) for cell in cells), strict=True))
    numbers = iter(columns)

    def told(match: re.Match[str]) -> str:
        values = next(numbers)
        if len(set(values)) == 1:
            return values[0]
        between = "" if abs(int(values[1]) - int(values[0])) == 1 else f",{values[1]}"
        return f"{values[0]}{between}..{values[-1]}"

    return _NUMBER.sub(told, cells[0])
