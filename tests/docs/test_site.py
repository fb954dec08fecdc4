"""The documentation site builds strictly, and what is made from the code is whole."""

from __future__ import annotations

import argparse
import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import pegboard
import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.exceptions import Abort
from pegboard.cli import make_parser
from pegboard.config.fields import describe
from pegboard.config.nodes import Trainer
from pegboard.contract import hookspecs
from pegboard.contract.kinds import KINDS
from pegboard.registry.discovery import Registry
from pegboard.testing import CHECKS
from pegboard.testing import checks as _checks  # noqa: F401  registers them
from sandbox import ROOT
from sweeps import first_of_each_row


class Read(HTMLParser):
    """What a page has: the section of every heading with an id, and the first cells of the rows in it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.sections: dict[str, list[str]] = {"": []}
        self._at, self._cells, self._text = "", 0, ""
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if re.fullmatch("h[1-6]", tag) and (name := dict(attributes).get("id")):
            self._at = name
            self.sections[name] = []
        elif tag == "tr":
            self._cells = 0
        elif tag == "td":
            self._cells, self._text = self._cells + 1, ""

    def handle_data(self, data: str) -> None:
        self._text += data

    def handle_endtag(self, tag: str) -> None:
        if tag == "td" and self._cells == 1:
            self.sections[self._at].append(self._text.strip())


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@cache
def read(path: Path) -> dict[str, list[str]]:
    return Read(path).sections


@pytest.mark.parametrize("kind", KINDS)
def test_every_installed_part_has_a_section_and_every_field_a_row(kind: str, site: Path) -> None:
    sections, registry = read(site / "parts" / f"{kind}s.html"), Registry.discover()
    for entry in registry.entries(kind):
        name = registry.reference(entry).replace(":", "-")
        assert name in sections, f"no section of {kind} {name}"
        assert sections[name] == [field.name for field in describe(entry.part.config)]


def test_every_hook_and_every_record_has_a_section(site: Path) -> None:
    sections = read(site / "reference" / "hooks.html")
    hooks = [name for name, found in vars(hookspecs).items() if hasattr(found, "pegboard_spec")]
    assert len(hooks) >= 9
    assert {*hooks, *(kind.record.__name__ for kind in KINDS.values())} <= set(sections)
    assert sections["Regularizer"][:2] == ["stages", "after"]
    assert sections["Part"][:3] == ["name", "config", "build"]


def test_every_public_name_has_a_section(site: Path) -> None:
    there = {*read(site / "reference" / "hooks.html"), *read(site / "reference" / "python.html")}
    assert not {name.strip("_") for name in pegboard.__all__} - there
    fields = read(site / "reference" / "python.html")["Batch"]
    assert fields == ["inputs", "target", "weight", "rows", "samples"]


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for sub in action.choices.values():
                yield sub
                yield from parsers(sub)


def test_every_command_has_a_section_and_every_option_a_row(site: Path) -> None:
    sections = read(site / "reference" / "commands.html")
    for parser in parsers(make_parser(None)):
        rows = " ".join(sections[parser.prog.replace(" ", "-")])
        options = [a.option_strings[-1] for a in parser._actions if a.option_strings and a.dest != "help"]
        assert not [option for option in options if option not in rows], parser.prog


def test_every_check_of_the_kit_and_every_field_of_the_trainer_has_a_row(site: Path) -> None:
    rows = [row for section in read(site / "testing.html").values() for row in section]
    assert len(CHECKS) > 20 and not set(CHECKS) - set(rows)
    assert read(site / "reference" / "config.html")["trainer"] == [f.name for f in describe(Trainer)]


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 20
    fetched = re.compile(r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=\"?(?:https?:)?//[^>]*>")
    assert not [(page.name, found) for page in pages for found in fetched.findall(page.read_text("utf-8"))]
    styles = [path.read_text("utf-8") for path in site.rglob("*.css")]
    assert not [style for style in styles if re.search(r"url\(['\"]?(?:https?:)?//", style)]


def test_packages_and_tools_are_no_pages(site: Path) -> None:
    assert not (site / "hooks.py").exists()
    assert not (site / "examples" / "plugins").exists()


@pytest.mark.parametrize(
    ("text", "nav", "message"),
    first_of_each_row(
        [
            ("[x](nothing.md)", [{"A": "a.md"}], "nothing.md"),
            ("[x](#nothing)", [{"A": "a.md"}], "no such anchor"),
            ("[x](/elsewhere.md)", [{"A": "a.md"}], "absolute link"),
            ("# A", [{"B": "b.md"}], 'not included in the "nav"'),
            ('```python\n--8<-- "docs/nothing.py"\n```', [{"A": "a.md"}], "nothing.py"),
        ]
    ),
)
def test_a_wrong_page_is_refused(
    text: str, nav: list[dict[str, str]], message: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text(text)
    (tmp_path / "docs" / "b.md").write_text("# B")
    if "A" in nav[0]:
        (tmp_path / "docs" / "b.md").unlink()
    folders = {"docs_dir": str(tmp_path / "docs"), "site_dir": str(tmp_path / "site")}
    config = load_config(str(ROOT / "mkdocs.yml"), strict=True, nav=nav, hooks=[], extra_css=[], **folders)
    with caplog.at_level(logging.WARNING, "mkdocs"), pytest.raises(Exception) as caught:
        build(config)
    assert isinstance(caught.value, Abort) or "nothing.py" in str(caught.value)
    assert message in caplog.text + str(caught.value)


def test_every_link_in_the_docs_opens_in_a_checkout() -> None:
    """No page links to what exists only once the site is built."""
    pages = [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md"), *ROOT.glob("plugins/**/README.md")]
    dead = [
        f"{page.relative_to(ROOT)}: {place}"
        for page in pages
        for place in re.findall(r"\]\((?!https?:|mailto:|#)([^)#\s]+)", page.read_text("utf-8"))
        if not (page.parent / place).exists()
    ]
    assert not dead, "\n".join(dead[:20])


def test_links_to_sources_lead_to_the_pages_that_are_made_from_them(site: Path) -> None:
    catalogue = (site / "catalogue.html").read_text("utf-8")
    assert 'href="parts/models.html#mlp"' in catalogue
    assert 'href="reference/hooks.html#pegboard_models"' in (site / "plugins.html").read_text("utf-8")
    assert 'href="reference/python.html#Trick"' in (site / "tricks.html").read_text("utf-8")
