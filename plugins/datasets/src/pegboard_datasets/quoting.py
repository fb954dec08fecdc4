"""Quotes in csv and tsv files: whether they enclose values, and which lines they join to one row."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from .hub_options import Quoting
from .mistakes import mistake

SEPARATORS = {".csv": b",", ".tsv": b"\t"}
# The rest of a quoted value: a quote that is written twice is one of the value's own.
CLOSED = re.compile(rb'(?:[^"]|"")*"(?!")')
CHUNK = 2**20
UNQUOTED = 3  # as csv.QUOTE_NONE
AS_TEXT = "quoting: none reads every quote as a part of its value"


@dataclass(frozen=True)
class Quotes:
    """What the quotes of a file enclose, read in the standard way; lines are counted from 1."""

    lines: int = 0  # that are not blank, the header too; 0 in a file without quotes
    inside: int = 0  # line breaks inside of values
    joined: tuple[int, int] | None = None  # the first value with line breaks: where it begins and ends
    trailing: int | None = None  # the first line with text between a closing quote and the separator
    unclosed: int | None = None  # where a value begins that nothing closes

    @property
    def stray(self) -> bool:
        """Whether the quotes of a table whose values have no line breaks can enclose nothing."""
        return (self.joined, self.trailing, self.unclosed) != (None, None, None)

    @property
    def first(self) -> int:
        """The line of the first quote that is odd."""
        begins = self.joined[0] if self.joined else None
        return min(line for line in (begins, self.trailing, self.unclosed) if line is not None)


def quotes_in(path: str) -> Quotes:
    """What the quotes of a file enclose."""
    separator = SEPARATORS[Path(path).suffix]
    try:
        with open(path, "rb") as file:
            if not any(b'"' in chunk for chunk in iter(lambda: file.read(CHUNK), b"")):
                return Quotes()
            file.seek(0)
            return _scan(file, separator)
    except OSError as error:
        raise mistake(f"{path!r} cannot be read: {error.strerror or error}") from None


def _scan(file: Iterable[bytes], separator: bytes) -> Quotes:
    begun: int | None = None  # the line where an open value began
    count, inside, joined, trailing = 0, 0, None, None
    blank = b" \t\r\n".replace(separator, b"")
    for number, line in enumerate(file, 1):
        if begun is None and not line.strip(blank):
            continue  # which the reader leaves out
        count += 1
        text, at = line.rstrip(b"\r\n"), 0
        while at <= len(text):
            if begun is None and text[at : at + 1] == b'"':
                begun, at = number, at + 1
            if begun is not None:
                end = CLOSED.match(text, at)
                if end is None:
                    break  # it goes on in the next line
                if number > begun:
                    joined, inside = joined or (begun, number), inside + number - begun
                begun, at = None, end.end()
                if text[at : at + 1] not in (separator, b""):
                    trailing = trailing or number
            following = text.find(separator, at)
            if following < 0:
                break
            at = following + 1
    return Quotes(count, inside, joined, trailing, begun)


def choose(quoting: Quoting, found: Mapping[str, Quotes]) -> tuple[bool, str]:
    """Whether the quotes in files enclose values, and what a person should know of that.

    By itself a value of a tsv file has no line break, so quotes that join lines are text there.
    """
    odd = next((path for path, quotes in found.items() if quotes.stray), None)
    if quoting == "none":
        return False, ""
    if quoting == "auto" and odd is not None and all(Path(path).suffix == ".tsv" for path in found):
        return False, (
            f"{odd}:{found[odd].first}: a quote begins a value and does not end one on its line, so all "
            "quotes are read as text; quoting: standard lets them enclose values"
        )
    for path, quotes in found.items():
        if quotes.unclosed is not None:
            raise mistake(
                f"{path}:{quotes.unclosed}: a quote begins a value and nothing closes it",
                "a quote at the end of the value too",
                AS_TEXT,
            )
    return True, ""


def first_line(path: str) -> list[str]:
    """The cells of the first line of a csv or tsv file that is not blank."""
    with open(path, newline="", encoding="utf-8-sig", errors="replace") as file:
        return next(
            (row for row in csv.reader(file, delimiter=SEPARATORS[Path(path).suffix].decode()) if row), []
        )


def names_of(path: str) -> list[str]:
    """What the columns of a file without a header are called: 0, 1, 2 and so on."""
    return [str(number) for number in range(len(first_line(path)))]


def insist_on_header(path: str, wanted: Iterable[str]) -> None:
    """Refuse a file whose first line holds numbers and none of the columns that are wanted."""
    cells = first_line(path)
    if (
        cells
        and not {*wanted} & {*cells}
        and all(map(_is_number, cells))
        and not all(map(str.isdigit, cells))
    ):
        shown = ", ".join(cells[:3]) + (", ..." if len(cells) > 3 else "")
        raise mistake(
            f"{path}: the first line holds numbers and no names: {shown}",
            "a line of names",
            "header: false reads it as a row; columns are then called 0, 1, 2, ...",
        )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def told(found: Mapping[str, Quotes], rows: int, header: bool = True) -> list[str]:
    """What a person should know of the quotes of files that became so many rows."""
    lines = [line for path, quotes in found.items() for line in _told_of(path, quotes, header)]
    counted = sum(quotes.lines - header for quotes in found.values())
    if all(quotes.lines for quotes in found.values()) and not lines and counted != rows:
        lines.append(f"{', '.join(found)}: {_lines(counted, header)} became {rows} rows; {AS_TEXT}")
    return lines


def _lines(count: int, header: bool) -> str:
    return f"{count} lines below the header" if header else f"{count} lines"


def _told_of(path: str, quotes: Quotes, header: bool) -> Iterator[str]:
    if quotes.joined is not None:
        begin, end = quotes.joined
        below, rows = quotes.lines - header, quotes.lines - header - quotes.inside
        yield (
            f"{path}:{begin}: {_lines(below, header)} became {rows} rows, as a quoted value that "
            f"begins in line {begin} ends in line {end}; {AS_TEXT}"
        )
    if quotes.trailing is not None:
        yield (
            f"{path}:{quotes.trailing}: text stands between a closing quote and the next value, and becomes "
            f"a part of it; {AS_TEXT}"
        )
