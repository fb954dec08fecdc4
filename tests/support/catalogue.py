"""The index of the catalogue, and which of its entries have tests.

A test says what it covers with `@pytest.mark.catalogue("S3-131", ...)`. Run as a script, this
prints for each home how many entries are covered; with the name of a home, what is open there.
"""

from __future__ import annotations

import ast
import csv
import difflib
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("framework/tests", "plugins/*/tests", "zoo/tests", "tests")


@dataclass(frozen=True)
class Entry:
    """One entry: its id, the part of the framework it belongs to, the id of one that states the same."""

    id: str
    home: str
    duplicate_of: str
    name: str


def index() -> dict[str, Entry]:
    """Every entry by its id, in the order of the index."""
    with (ROOT / "tests" / "catalogue.csv").open(encoding="utf-8", newline="") as lines:
        return {row["id"]: Entry(**row) for row in csv.DictReader(lines)}


def mistakes(ids: Iterable[object], entries: dict[str, Entry]) -> Iterator[str]:
    """What is wrong with the arguments of one marker, in words."""
    ids = list(ids)
    if not ids:
        yield "the catalogue marker names no entry: expected ids as T011, S07, S3-131 or S4-030"
    for id in ids:
        if id not in entries:
            nearest = difflib.get_close_matches(str(id), entries, n=3, cutoff=0.0)
            yield f"{id!r} is not an entry of tests/catalogue.csv; nearest: {', '.join(nearest)}"


def carried(path: Path) -> Iterator[str]:
    """The ids that the markers of one test file carry, read without importing it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.catalogue":
            for id in node.args:
                if not isinstance(id, ast.Constant):
                    raise SystemExit(f"{path}:{id.lineno}: expected the id of an entry, written out")
                yield str(id.value)


def covered(root: Path = ROOT) -> dict[str, list[Path]]:
    """The test files that carry each id."""
    where: dict[str, list[Path]] = {}
    for folder in FOLDERS:
        for path in sorted(root.glob(f"{folder}/**/test_*.py")):
            for id in dict.fromkeys(carried(path)):
                where.setdefault(id, []).append(path)
    return where


def totals() -> str:
    """A line for each home: entries, covered, open."""
    entries, tested = index(), covered()
    lines = [f"{'home':<16} {'entries':>7} {'covered':>7} {'open':>7}"]

    def line(name: str, ids: list[str]) -> str:
        done = sum(id in tested for id in ids)
        return f"{name:<16} {len(ids):>7} {done:>7} {len(ids) - done:>7}"

    for home in dict.fromkeys(entry.home for entry in entries.values()):
        lines.append(line(home, [id for id, entry in entries.items() if entry.home == home]))
    return "\n".join([*lines, line("total", list(entries))])


def details(home: str) -> str:
    """A line for each entry of one home, with the test files that cover it."""
    entries, tested = index(), covered()
    homes = dict.fromkeys(entry.home for entry in entries.values())
    if home not in homes:
        raise SystemExit(f"{home!r} is not a home; expected one of {', '.join(homes)}")
    lines = []
    for entry in entries.values():
        if entry.home == home:
            files = ", ".join(str(path.relative_to(ROOT)) for path in tested.get(entry.id, []))
            same = f" (= {entry.duplicate_of})" if entry.duplicate_of else ""
            lines.append(f"{entry.id:<7} {entry.name}{same}\n        {files or 'open'}")
    return "\n".join(lines)


if __name__ == "__main__":
    print("\n".join(map(details, sys.argv[1:])) or totals())
