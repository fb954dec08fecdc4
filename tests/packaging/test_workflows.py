"""The workflows in .github call commands, files and jobs that exist."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pegboard.cli import COMMANDS
from sandbox import ROOT

FILES = sorted(ROOT.glob(".github/workflows/*.yml"))
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.M))
SYSTEMS = ("ubuntu-latest", "macos-latest", "windows-latest")
TAKES_VALUE = ("-n", "-c", "-r", "-k", "-e", "--dist")


def variants(job: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The values of a job's matrix, one mapping for each combination."""
    matrix = dict(job.get("strategy", {}).get("matrix", {}))
    extra = matrix.pop("include", [])
    yield from (dict(zip(matrix, values, strict=True)) for values in itertools.product(*matrix.values()))
    yield from extra


def filled(text: str, values: dict[str, Any]) -> str:
    """A text with its `${{ matrix.x }}` filled in; other expressions become a word."""
    text = re.sub(r"\$\{\{ *matrix\.(\w+) *\}\}", lambda found: str(values[found[1]]), text)
    return re.sub(r"\$\{\{.*?\}\}", "X", text)


def wrong_words(line: str) -> list[str]:
    """What a command line names that does not exist."""
    line = re.sub(r"\$\(printf -- '-e %s ' (\S+)\)", lambda found: globbed(found[1]), line)
    words = shlex.split(line)
    match words:
        case ["make", target, *_]:
            return [] if target in TARGETS else [target]
        case ["pegboard", command, *rest]:
            wrong = [] if command in COMMANDS else [command]
            return wrong + [word for word in rest if "/" in word and not (ROOT / word).is_file()]
        case ["pip", "install", *rest]:
            pairs = [pair for pair in itertools.pairwise(rest) if pair[0] in ("-c", "-r", "-e")]
            files = [value if flag != "-e" else f"{value}/pyproject.toml" for flag, value in pairs]
            return [file for file in files if not (ROOT / file).is_file()]
        case ["pytest", *rest]:
            paths = [b for a, b in itertools.pairwise(["", *rest]) if b[0] != "-" and a not in TAKES_VALUE]
            return [path for path in paths if not (ROOT / path).is_dir()]
    return [line]


def globbed(pattern: str) -> str:
    return " ".join(f"-e {path.relative_to(ROOT)}" for path in sorted(ROOT.glob(pattern)) if path.is_dir())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_step_calls_what_exists(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text("utf-8"))
    assert workflow["name"] and workflow[True]  # YAML reads `on` as a truth value
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        assert not {*([job["needs"]] if "needs" in job else [])} - set(workflow["jobs"])
        for values in variants(job):
            assert filled(job["runs-on"], values) in SYSTEMS
            for step in job["steps"]:
                assert ("uses" in step) != ("run" in step)
                if "uses" in step:
                    assert re.fullmatch(r"[\w-]+/[\w-]+@[\w/.]+", step["uses"])
                else:
                    assert not wrong_words(filled(step["run"], values))
                for file in filter(None, [step.get("with", {}).get("cache-dependency-path")]):
                    assert (ROOT / file).is_file()


def test_lint_tests_and_release_check_run_on_three_systems() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text("utf-8"))["jobs"]
    run = {
        (filled(job["runs-on"], values), filled(step["run"], values).split(" -")[0])
        for job in jobs.values()
        for values in variants(job)
        for step in job["steps"]
        if "run" in step
    }
    wanted = {("ubuntu-latest", f"make {target}") for target in ("lint", "test", "docs", "release-check")}
    assert wanted | {("macos-latest", "make test"), ("windows-latest", "pytest")} <= run


@pytest.mark.parametrize(
    "line",
    [
        "make nothing",
        "pegboard nothing",
        "pegboard train configs/nothing.yaml",
        "pip install -r nothing.txt",
        "pip install -e plugins/nothing",
        "pytest -n 2 tests/nothing",
        "curl somewhere",
    ],
)
def test_a_command_that_does_not_exist_is_found(line: str) -> None:
    assert wrong_words(line)
