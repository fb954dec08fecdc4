"""The projects of the workspace agree with each other and with the files at its root."""

from __future__ import annotations

import re
import subprocess
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import known_parts
import pytest
import trove_classifiers
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from pegboard import __version__
from sandbox import PROJECTS, ROOT

TESTED = "3.11"  # the Python that every test runs with
NARROW = ("compile",)  # plugins that rest on what is private in torch: for the release that is tested, alone


def project(folder: Path) -> dict[str, Any]:
    return tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    parsed = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(r.name): str(r.specifier) for r in parsed}


NAMES = {project(folder)["name"] for folder in PROJECTS}
BY_NAME = pytest.mark.parametrize("folder", PROJECTS, ids=lambda folder: str(folder.relative_to(ROOT)))


@BY_NAME
def test_project_says_the_same_as_its_neighbours(folder: Path) -> None:
    table = project(folder)
    if folder.parent.name == "plugins":
        module = f"pegboard_{folder.name}"
        assert table["name"] == module.replace("_", "-")
        assert table["entry-points"]["pegboard"] == {folder.name: module}
        assert (folder / "src" / module / "py.typed").is_file()
    assert table["license"] == "Apache-2.0"
    assert (folder / "LICENSE").read_text("utf-8") == (ROOT / "LICENSE").read_text("utf-8")
    assert table["requires-python"] == ">=3.11"
    assert not set(table["classifiers"]) - trove_classifiers.classifiers
    assert f"Programming Language :: Python :: {TESTED}" in table["classifiers"]
    assert (folder / table["readme"]).read_text(encoding="utf-8").strip()


def test_classifiers_and_addresses_are_the_same_everywhere() -> None:
    tables = {project(folder)["name"]: project(folder) for folder in PROJECTS}
    core = tables["pegboard"]
    for name, table in tables.items():
        assert table["classifiers"] == core["classifiers"], name
        homepage = {"Homepage": f"https://pypi.org/project/{name}/"}
        assert table["urls"] == core["urls"] | homepage, name


def test_core_plugins_and_zoo_have_one_version_and_ask_for_it() -> None:
    assert project(ROOT / "framework")["dynamic"] == ["version"]
    minor = ".".join(__version__.split(".")[:2])
    for folder in set(PROJECTS) - {ROOT / "framework"}:
        table = project(folder)
        assert table["version"] == __version__, folder
        for needed in map(Requirement, table["dependencies"]):
            if needed.name == "pegboard":
                assert str(needed.specifier) == f"<1,>={minor}", folder
            elif needed.name in NAMES:
                assert str(needed.specifier) == f">={minor}", folder


@BY_NAME
def test_dependencies_have_lower_bounds_only_and_are_pinned_for_tests(folder: Path) -> None:
    for text in project(folder)["dependencies"]:
        needed = Requirement(text)
        if needed.name in NAMES:
            continue  # a plugin says for itself with which cores it works
        narrow = needed.name == "torch" and folder.name in NARROW
        assert {s.operator for s in needed.specifier} == ({">=", "<"} if narrow else {">="}), text
        pinned = pins().get(canonicalize_name(needed.name), "")
        assert pinned.startswith("=="), f"constraints.txt does not pin {needed.name}"
        assert needed.specifier.contains(pinned[2:])


def test_torch_is_pinned_first() -> None:
    assert next(iter(pins().items())) == ("torch", "==2.13.0")


def test_no_older_torch_is_promised_than_the_one_that_is_tested() -> None:
    tested = pins()["torch"].removeprefix("==").rpartition(".")[0]  # patch releases break nothing
    folders = [*PROJECTS, *(path.parent for path in ROOT.glob("docs/examples/plugins/*/pyproject.toml"))]
    needs = {
        str(folder.relative_to(ROOT)): str(needed.specifier)
        for folder in folders
        for needed in map(Requirement, project(folder)["dependencies"])
        if needed.name == "torch"
    }
    assert "framework" in needs
    major, minor = tested.split(".")
    narrow = {needs.pop(f"plugins/{name}") for name in NARROW}
    assert narrow == {f"<{major}.{int(minor) + 1},>={tested}"}
    assert set(needs.values()) == {f">={tested}"}
    assert f"torch {tested}" in (ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8")


def test_tools_are_pinned() -> None:
    tools = (ROOT / "requirements-dev.txt").read_text().splitlines()
    assert {t for t in tools if not t.startswith("#")} <= set(pins())


def test_extra_all_is_every_plugin_and_the_zoo() -> None:
    assert set(project(ROOT / "framework")["optional-dependencies"]["all"]) == NAMES - {"pegboard"}


def test_names_of_test_files_are_unique() -> None:
    patterns = ("framework/tests", "plugins/*/tests", "zoo/tests", "tests")
    names = Counter(p.name for pattern in patterns for p in ROOT.glob(f"{pattern}/**/test_*.py"))
    assert not [name for name, count in names.items() if count > 1]


def test_make_alone_lists_every_command() -> None:
    text = subprocess.check_output(["make", "-s"], cwd=ROOT, text=True)
    listed = re.findall(r"^  make ([a-z-]+) ", text, re.MULTILINE)
    phony = re.search(r"^\.PHONY: (.*)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert phony is not None
    assert sorted(listed) == sorted(phony[1].split())


def test_core_knows_where_to_get_every_part() -> None:
    assert known_parts.FILE.read_text(encoding="utf-8") == known_parts.text(), "stale: make known-parts"


@BY_NAME
def test_git_ignores_no_file_of_a_project(folder: Path) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    files = [
        str(path) for path in folder.rglob("*") if path.suffix in (".py", ".toml", ".md", ".yaml", ".json")
    ]
    outcome = subprocess.run(["git", "check-ignore", *files], cwd=ROOT, capture_output=True, text=True)
    kept = ("/runs/", "/wandb/wandb/", "/.mypy_cache/", "/.pytest_cache/", "/dist/", "/build/")
    assert not [name for name in outcome.stdout.splitlines() if not any(part in name for part in kept)]
