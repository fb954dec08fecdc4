"""The index of the catalogue, which of its entries have tests, and the page that says so.

A test says what it covers with `@pytest.mark.catalogue("S3-131", ...)`; an entry whose kind is "docs only"
may be settled by a page of docs/ with the comment `<!-- catalogue: T001 -->`. Run as a script, this prints
for each home how many entries are covered, open and settled by a page; with the name of a home, where. It
fails where an entry that tests/catalogue.csv records as covered is so no longer. `--record` records what is
covered now, and writes docs/catalogue.md.
"""

from __future__ import annotations

import ast
import csv
import difflib
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import NamedTuple

import pegboard

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = ("framework/tests", "plugins/*/tests", "zoo/tests", "tests")
INDEX, PAGE = "tests/catalogue.csv", "docs/catalogue.md"
COMMENT = re.compile(r"<!-- catalogue: ([\w\s-]+?) -->")
WORDS = {"test": "tested", "docs": "documented", "": "open"}


@dataclass(frozen=True)
class Entry:
    """One entry of the catalogue."""

    id: str
    home: str  # the part of the framework it belongs to
    kind: str
    duplicate_of: str  # id of one that states the same
    name: str
    parts: str = ""  # that show it, as kind:name, with spaces between them
    recorded: str = ""  # how it was covered when that was last recorded: test, docs or nothing

    @property
    def plain(self) -> bool:
        """Whether a test of calculus or of the core settles it, without any part."""
        return self.home in ("core", "docs") or self.kind.startswith("analysis")


class Test(NamedTuple):
    """A test function; of a marker that stands outside of one, its file alone."""

    path: Path
    function: str

    def __str__(self) -> str:
        return "::".join(filter(None, (self.path.name, self.function)))


def index(root: Path = ROOT) -> dict[str, Entry]:
    """Every entry by its id, in the order of the index."""
    with (root / INDEX).open(encoding="utf-8", newline="") as lines:
        return {row["id"]: Entry(**row) for row in csv.DictReader(lines)}


def mistakes(ids: Iterable[object], entries: dict[str, Entry]) -> Iterator[str]:
    """What is wrong with the arguments of one marker, in words."""
    ids = list(ids)
    if not ids:
        yield "the catalogue marker names no entry: expected ids as T011, S07, S3-131 or S4-030"
    for id in ids:
        if id not in entries:
            nearest = difflib.get_close_matches(str(id), entries, n=3, cutoff=0.0)
            yield f"{id!r} is not an entry of {INDEX}; nearest: {', '.join(nearest)}"


def carried(path: Path) -> Iterator[tuple[str, Test]]:
    """The ids that the markers of one test file carry, read without importing it."""

    def walk(node: ast.AST, names: tuple[str, ...]) -> Iterator[tuple[str, Test]]:
        for inner in ast.iter_child_nodes(node):
            if isinstance(inner, ast.ClassDef | ast.FunctionDef):
                yield from walk(inner, (*names, inner.name)) if len(names) < 2 else ()
            elif isinstance(inner, ast.Call) and ast.unparse(inner.func) == "pytest.mark.catalogue":
                for id in inner.args:
                    if not isinstance(id, ast.Constant):
                        raise SystemExit(f"{path}:{id.lineno}: expected the id of an entry, written out")
                    yield str(id.value), Test(path, "::".join(names))
            else:
                yield from walk(inner, names)

    yield from walk(ast.parse(path.read_text(encoding="utf-8")), ())


def covered(root: Path = ROOT) -> dict[str, list[Test]]:
    """The tests that carry each id."""
    where: dict[str, list[Test]] = {}
    for folder in FOLDERS:
        for path in sorted(root.glob(f"{folder}/**/test_*.py")):
            for id, test in dict.fromkeys(carried(path)):
                where.setdefault(id, []).append(test)
    return where


def documented(entries: dict[str, Entry], root: Path = ROOT) -> dict[str, Path]:
    """The page that settles each entry for which a page is enough."""
    where: dict[str, Path] = {}
    for path in sorted((root / "docs").glob("*.md")):
        for ids in COMMENT.findall(path.read_text(encoding="utf-8")):
            for id in ids.split():
                for mistake in mistakes([id], entries):
                    raise SystemExit(f"{path}: {mistake}")
                if entries[id].kind != "docs only":
                    raise SystemExit(f"{path}: {id} is of kind {entries[id].kind!r}: a test settles it")
                where.setdefault(id, path)
    return where


class Catalogue:
    """The entries, and what settles each of them now."""

    def __init__(self, root: Path = ROOT) -> None:
        self.root, self.entries, self.tests = root, index(root), covered(root)
        self.pages = documented(self.entries, root)

    def status(self, id: str) -> str:
        return "test" if id in self.tests else "docs" if id in self.pages else ""

    def homes(self) -> dict[str, list[Entry]]:
        """The entries of each home."""
        homes: dict[str, list[Entry]] = {}
        for entry in self.entries.values():
            homes.setdefault(entry.home, []).append(entry)
        return homes

    def lost(self) -> list[str]:
        """What was covered when that was last recorded, and is so no longer."""
        return [
            f"{e.id} {e.name}: recorded as {WORDS[e.recorded]}, and nothing covers it now"
            for e in self.entries.values()
            if e.recorded and not self.status(e.id)
        ]

    def totals(self) -> str:
        """A line for each home: entries, covered, open, and settled by a page."""
        homes = self.homes()
        lines = [f"{'home':<16} {'entries':>7} {'covered':>7} {'open':>7} {'docs':>7}"]
        for home, entries in (*homes.items(), ("total", [e for es in homes.values() for e in es])):
            found = [self.status(e.id) for e in entries]
            counts = (len(found), *(found.count(status) for status in ("test", "", "docs")))
            lines.append(" ".join([f"{home:<16}", *(f"{count:>7}" for count in counts)]))
        return "\n".join(lines)

    def details(self, home: str) -> str:
        """A line for each entry of one home, with what covers it."""
        homes = self.homes()
        if home not in homes:
            raise SystemExit(f"{home!r} is not a home; expected one of {', '.join(homes)}")
        lines = []
        for entry in homes[home]:
            files = [*(test.path for test in self.tests.get(entry.id, ()))] or [*self.page(entry.id)]
            shown = ", ".join(str(path.relative_to(self.root)) for path in dict.fromkeys(files))
            same = f" (= {entry.duplicate_of})" if entry.duplicate_of else ""
            lines.append(f"{entry.id:<7} {entry.name}{same}\n        {shown or 'open'}")
        return "\n".join(lines)

    def page(self, id: str) -> Iterator[Path]:
        yield from [self.pages[id]] if id in self.pages else ()

    def record(self) -> None:
        """Write down what is covered now, and the page of the site."""
        rows = [replace(e, recorded=self.status(e.id)) for e in self.entries.values()]
        with (self.root / INDEX).open("w", encoding="utf-8", newline="") as lines:
            writer = csv.DictWriter(lines, [f.name for f in fields(Entry)], lineterminator="\n")
            writer.writeheader()
            writer.writerows(asdict(row) for row in rows)
        (self.root / PAGE).write_text(self.markdown(), encoding="utf-8")

    # The page.
    def markdown(self) -> str:
        """Every entry with its parts and its tests, a table for each home."""
        done = sum(bool(self.status(id)) for id in self.entries)
        blocks = [
            "# Catalogue",
            "The models, algorithms, data sets, tricks and facts that Pegboard sets out to show: "
            f"{len(self.entries)} entries, each under the part of the framework that it belongs to. {done} "
            "are shown today, by a test that names the entry: one that trains or measures parts of the "
            "framework, or a plain one where the entry is a fact about calculus. `make catalogue` counts "
            "them, and fails when one that was shown is so no longer; `make catalogue ARGS=--record` writes "
            "this page.",
        ]
        for home, entries in self.homes().items():
            rows = [self.row(entry) for entry in entries]
            blocks += [f"## {home}", _table(["id", "name", "parts", "tests", "status"], rows)]
        return "\n\n".join(blocks) + "\n"

    def row(self, entry: Entry) -> list[str]:
        same = f" (as {entry.duplicate_of})" if entry.duplicate_of else ""
        tests = [f"[{_plain(str(t))}]({self.link(t.path)})" for t in self.tests.get(entry.id, ())]
        if not tests:
            tests = [f"[{path.stem}]({path.name})" for path in self.page(entry.id)]
        parts = [f"[{name}]({self.card(kind, name)})" for kind, _, name in map(_cut, entry.parts.split())]
        status = WORDS[self.status(entry.id)]
        return [entry.id, _plain(entry.name) + same, ", ".join(parts), "<br>".join(tests), status]

    def card(self, kind: str, name: str) -> str:
        """The README of the plugin that has a part, in a checkout; on the site its own section."""
        index = json.loads((Path(pegboard.__file__).parent / "registry/known_parts.json").read_text("utf-8"))
        folder = index[kind][name].removeprefix("pegboard-").replace("-", "_")
        return self.link(self.root / "plugins" / folder / "README.md") + f"#{name}"

    def link(self, path: Path) -> str:
        return Path(os.path.relpath(path, (self.root / PAGE).parent)).as_posix()


def _cut(part: str) -> tuple[str, str, str]:
    return part.partition(":")


def _plain(text: str) -> str:
    """Text that Markdown leaves as it is."""
    return re.sub(r"([*_|\[\]{}<`\\])", r"\\\1", text)


def _table(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *rows))


def main(words: list[str]) -> int:
    catalogue = Catalogue()
    homes = [word for word in words if word != "--record"]
    print("\n".join(map(catalogue.details, homes)) or catalogue.totals())
    lost = catalogue.lost()
    if "--record" in words:
        catalogue.record()
        print(f"recorded in {INDEX} and {PAGE}")
    elif lost:
        print("\n".join(lost), "if that is meant: make catalogue ARGS=--record", sep="\n", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
