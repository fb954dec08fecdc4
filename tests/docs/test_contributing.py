"""What CONTRIBUTING.md, CHANGELOG.md and the forms name is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from packaging.version import Version
from pegboard import __version__
from pegboard.cli import COMMANDS
from sandbox import ROOT

FORMS = sorted(ROOT.glob(".github/ISSUE_TEMPLATE/*.yml"))
PAGES = [
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    ROOT / ".github" / "pull_request_template.md",
    *FORMS,
]
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.M))
A_PLUGIN = ROOT / "plugins" / "dropout"  # whose layout stands for that of the others
PATH = re.compile(r"[\w.-]+/[\w./-]*|[\w-]+\.(?:md|py|toml|txt|json|yaml)")


def lacking(text: str) -> list[str]:
    """Targets, commands, paths and links of a page that do not exist."""
    code = [*re.findall(r"`([^`\n]+)`", text), *re.findall(r"^(?:make|pip|pegboard) [^#\n]*", text, re.M)]
    wrong = []
    for words in map(str.split, code):
        match words:
            case ["make", target, *_] if target not in TARGETS:
                wrong.append(f"make {target}")
            case ["pegboard", command, *_] if command not in COMMANDS:
                wrong.append(f"pegboard {command}")
            case ["make" | "pegboard" | "pip", *rest]:
                named = [word.removeprefix("ARGS=") for word in rest if not word.startswith("-")]
                wrong += [name for name in named if PATH.fullmatch(name) and not there(name)]
            case [name] if PATH.fullmatch(name) and name not in ("report.html", "pegboard.testing"):
                wrong += [] if there(name) else [name]
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", text)
    return wrong + [link for link in links if not link.startswith("https://") and not there(link)]


def there(name: str) -> bool:
    return (ROOT / name).exists() or (A_PLUGIN / name).exists()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_names_is_there(page: Path) -> None:
    assert not lacking(page.read_text("utf-8"))


def test_what_is_not_there_is_found() -> None:
    text = "`make nothing` `pegboard nothing` `docs/nothing.md` [x](nothing.md) `src/` `make test`\n"
    wrong = ["make nothing", "pegboard nothing", "docs/nothing.md", "make no-thing", "nothing.md"]
    assert lacking(f"{text}make no-thing\n") == wrong


def test_every_command_that_writes_a_file_is_told() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    makefile = (ROOT / "Makefile").read_text("utf-8")
    writing = re.findall(r"^([a-z-]+):.*## rewrite", makefile, re.M)
    assert len(writing) >= 3
    assert not [target for target in writing if f"`make {target}`" not in text]


def test_the_changelog_has_a_section_for_every_release_the_newest_first() -> None:
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    sections = re.findall(r"^## (\d[\w.]*)(?: \((.+)\))?$", text, re.M)
    versions = [Version(number) for number, _ in sections]
    assert versions == sorted(versions, reverse=True)
    assert versions[0].release[:2] == Version(__version__).release[:2]
    assert not [number for number, said in sections[1:] if said == "unreleased"]
    apis = re.findall(
        r"^\| \d+ \| (\d[\w.]*) \|", (ROOT / "docs" / "compatibility.md").read_text("utf-8"), re.M
    )
    assert [Version(number) for number in reversed(apis)] == versions


@pytest.mark.parametrize("form", [f for f in FORMS if f.name != "config.yml"], ids=lambda form: form.name)
def test_a_form_is_one_that_can_be_filled_in(form: Path) -> None:
    read = yaml.safe_load(form.read_text("utf-8"))
    assert read["name"] and read["description"]
    ids = [field["id"] for field in read["body"]]
    assert len(ids) == len(set(ids))
    for field in read["body"]:
        assert field["type"] in ("textarea", "input", "dropdown")
        assert field["attributes"]["label"]
        assert (field["type"] == "dropdown") == ("options" in field["attributes"])
