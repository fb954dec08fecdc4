"""Answers that are a stretch of a text: from columns to characters, and from these to symbols."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any

from .mistakes import mistake
from .rows import Rows
from .text import Places

Stretch = tuple[int, int]  # the first character and the one after the last


def token_span(places: Places, stretch: Stretch) -> tuple[int, int] | None:
    """The first and the last symbol that have a character of a stretch; None where none has."""
    start, stop = stretch
    first = bisect_right(places, start, key=lambda place: place[1])
    last = bisect_left(places, stop, key=lambda place: place[0]) - 1
    return (first, last) if first <= last else None


def answers(rows: Rows, columns: Sequence[str], texts: Sequence[str], name: str) -> list[Stretch | None]:
    """Where each row's answer stands in its text, None where there is no answer.

    From a column of starts and one of texts or of ends; or from one of {"text": [...], "answer_start":
    [...]}, whose first counts.
    """
    stretches: list[Stretch | None] = []
    for row, (value, text) in enumerate(zip(_values(rows, columns), texts, strict=True)):
        start, answer, stop = value
        if start is None or start < 0 or not (answer or stop is not None):
            stretches.append(None)
            continue
        stop = start + len(answer) if stop is None else stop
        said = (
            f"{rows.where(row)}: the answer {answer!r} at {start}"
            if answer
            else f"{rows.where(row)}: {start} to {stop}"
        )
        if not start < stop <= len(text) or (answer and text[start:stop] != answer):
            raise mistake(
                f"{said} is not in column {name!r}, which there has {text[start:stop]!r:.80}",
                "the number of the answer's first character, counted from 0, and the answer or its end",
            )
        stretches.append((start, stop))
    return stretches


def _values(rows: Rows, columns: Sequence[str]) -> list[tuple[int | None, str, int | None]]:
    """Start, text and end of each answer; no start where there is none."""
    if len(columns) == 1:
        return [_first(value, rows, row) for row, value in enumerate(rows.values(columns[0]))]
    if rows.type(columns[0]) != "integer" or rows.type(columns[1]) not in ("integer", "string"):
        found = f"columns {columns[0]!r} and {columns[1]!r} of split {rows.split!r} hold"
        raise mistake(
            f"{found} {rows.shown_type(columns[0])} and {rows.shown_type(columns[1])}",
            "the number of the answer's first character, and the answer or the number after its last",
        )
    starts, others = rows.values(columns[0]), rows.values(columns[1])
    if rows.type(columns[1]) == "string":
        return [(start, text, None) for start, text in zip(starts, others, strict=True)]
    return [(start, "", stop) for start, stop in zip(starts, others, strict=True)]


def _first(value: Any, rows: Rows, row: int) -> tuple[int | None, str, int | None]:
    try:
        texts, starts = value["text"], value["answer_start"]
        return (int(starts[0]), str(texts[0]), None) if len(texts) else (None, "", None)
    except (KeyError, TypeError, IndexError, ValueError):
        raise mistake(
            f"{rows.where(row)}: {value!r:.80}",
            'an answer as {"text": [...], "answer_start": [...]}, or two columns of start and text',
        ) from None
