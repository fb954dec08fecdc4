"""Columns of texts and categories, as a person names them."""

from __future__ import annotations

import math
from typing import Any

from .mistakes import mistake
from .rows import PIECE, Rows


def strings(rows: Rows, name: str) -> list[str]:
    """A column of texts."""
    if rows.type(name) != "string":
        raise mistake(f"column {name!r} of split {rows.split!r} holds {rows.shown_type(name)}", "text")
    return rows.values(name)


def category_text(value: Any) -> str:
    """A category or a text as a person writes it, also where a reader of tables made it a number."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def category_values(rows: Rows, name: str) -> list[str]:
    """A column of categories or classes, by name."""
    names = rows.class_names(name)
    kind = rows.type(name)
    if kind in ("list", "image", "other"):
        found = f"column {name!r} of split {rows.split!r} holds {rows.shown_type(name)}"
        raise mistake(found, "one category in every row")
    values = rows.values(name)
    if names is None:
        return [category_text(v) for v in values]
    for row, value in enumerate(values):
        if not 0 <= value < len(names):
            raise mistake(
                f"column {name!r}, {rows.where(row)}: {value}, which is no class",
                f"0 to {len(names) - 1}",
                "a split without labels cannot serve; splits: {test: cut} takes a share of train instead",
            )
    return [names[v] for v in values]


def category_names(rows: Rows, name: str, *others: Rows) -> tuple[str, ...]:
    """The categories of a column, as its type lists them or sorted as numbers or texts."""
    named = rows.class_names(name)
    if named is not None:
        return tuple(named)
    pieces = (piece for r in (rows, *others) for piece in r.pieces(PIECE))
    found = {value for piece in pieces for value in category_values(piece, name)}
    return tuple(sorted(found, key=by_number))


def by_number(text: str) -> tuple[bool, float, str]:
    """A key that sorts numbers by value, before texts."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    return (False, number, text) if math.isfinite(number) else (True, 0.0, text)
