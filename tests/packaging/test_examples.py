"""The example plugins of the guide install alone, pass their own tests, and train what their cards show."""

from __future__ import annotations

import re
import shutil
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from sandbox import PROJECTS, ROOT, Sandbox, build_wheels, requirements

GUIDE = ROOT / "docs" / "examples"
EXAMPLES = sorted(path.parent for path in GUIDE.glob("plugins/*/pyproject.toml"))
EACH = pytest.mark.parametrize("folder", EXAMPLES, ids=lambda folder: folder.name)
SOME = pytest.mark.parametrize(  # they take a while: two in the long run, the others as a proof
    "folder",
    [
        pytest.param(f, marks=[pytest.mark.prove] if at > 1 else [pytest.mark.sweep], id=f.name)
        for at, f in enumerate(EXAMPLES)
    ],
)
COMPILED = {"PYTHONDONTWRITEBYTECODE": ""}  # as installed: only the first call compiles
BLOCK = re.compile(r"^```(python|yaml)\n(?:# ([\w.-]+)\n)?(.*?)^```$", re.M | re.S)


def table(folder: Path) -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
    return project


def beside(folder: Path) -> list[str]:
    """What the extra `test` brings."""
    return [Requirement(text).name for text in table(folder)["optional-dependencies"]["test"]]


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Those of all examples, of the core, and of the plugins that the configs on their cards use."""
    used = {"pegboard"}.union(*map(beside, EXAMPLES))
    projects = [project for project in PROJECTS if table(project)["name"] in used]
    return build_wheels(tmp_path_factory.mktemp("wheels"), [*projects, *EXAMPLES])


@pytest.fixture(scope="module")
def together(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Sandbox:
    """All examples, with what their extras bring."""
    return Sandbox.create(tmp_path_factory.mktemp("together") / "env", wheels.values())


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 6


@SOME
def test_own_tests_pass_beside_the_core_alone(folder: Path, wheels: dict[str, Path], tmp_path: Path) -> None:
    wheel = wheels[table(folder)["name"]]
    declared = [wheels[r.name] for r in requirements(wheel) if r.name in wheels]
    assert declared == [wheels["pegboard"]]
    sandbox = Sandbox.create(tmp_path / "env", [wheel, *declared], tools=["pytest"])
    work = tmp_path / "work"  # without its sources, so that the wheel is what is tested
    shutil.copytree(folder / "tests", work / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(folder / "pyproject.toml", work)
    command = ("python", "-m", "pytest", "-q", "-ra", "-p", "no:cacheprovider")
    outcome = sandbox.run(*command, cwd=work, env=COMPILED)
    assert outcome.returncode == 0, outcome.stdout[-6000:] + outcome.stderr[-2000:]
    assert re.search(r"\d\d+ passed", outcome.stdout), outcome.stdout


@SOME
def test_config_of_its_card_trains(folder: Path, together: Sandbox, tmp_path: Path) -> None:
    trained = 0
    for language, name, text in BLOCK.findall((folder / "README.md").read_text("utf-8")):
        file = tmp_path / (name or f"block.{language}")
        file.write_text(text, "utf-8")
        whole = language == "yaml" and {"data", "model"} <= set(yaml.safe_load(text))
        if name and language == "python":
            outcome = together.run("python", file.name, cwd=tmp_path, env=COMPILED)
        elif whole:
            outcome = together.run("pegboard", "train", file.name, cwd=tmp_path, env=COMPILED)
            trained += 1
        else:
            continue
        assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    assert trained


@EACH
def test_wheel_is_typed_and_holds_no_tests(folder: Path, wheels: dict[str, Path]) -> None:
    files = zipfile.ZipFile(wheels[table(folder)["name"]]).namelist()
    packages = {name.split("/")[0] for name in files if ".dist-info" not in name}
    assert packages == {path.name for path in (folder / "src").iterdir()}
    assert {f"{package}/py.typed" for package in packages} <= set(files)


@EACH
def test_dependencies_have_lower_bounds_and_are_pinned_for_tests(folder: Path) -> None:
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    pins = [Requirement(line) for line in lines if line and not line.startswith("#")]
    pinned = {canonicalize_name(r.name): str(r.specifier).removeprefix("==") for r in pins}
    for needed in map(Requirement, table(folder)["dependencies"]):
        if needed.name == "pegboard":
            assert {s.operator for s in needed.specifier} == {">=", "<"}
        else:
            assert {s.operator for s in needed.specifier} == {">="}
            assert needed.specifier.contains(pinned[canonicalize_name(needed.name)])


@EACH
def test_page_of_the_guide_shows_all_of_its_code(folder: Path) -> None:
    page = (GUIDE / f"{folder.name}.md").read_text("utf-8")
    shown = {ROOT / path for path in re.findall(r'^--8<-- "([^"]+)"$', page, re.M)}
    code = {path for path in folder.rglob("src/**/*.py") if path.read_text("utf-8").strip()}
    assert code | {folder / "tests" / "test_conformance.py", folder / "pyproject.toml"} <= shown


@EACH
def test_kit_takes_three_lines(folder: Path) -> None:
    lines = (folder / "tests" / "test_conformance.py").read_text("utf-8").splitlines()
    name = table(folder)["name"]
    assert lines == [
        "from pegboard.testing import conformance", "", f'test_part = conformance("{name}")'
    ]  # fmt: skip
