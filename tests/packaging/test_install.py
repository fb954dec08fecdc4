"""Built wheels work where only what they declare is installed, and stay light until torch is needed."""

from __future__ import annotations

import json
import re
import shutil
import tomllib
import zipfile
from pathlib import Path

import pytest
from pegboard.cli import COMMANDS
from sandbox import PROJECTS, ROOT, Sandbox, build_wheels, requirements
from sweeps import first_of_each, only

TABLES = [tomllib.loads((folder / "pyproject.toml").read_text())["project"] for folder in PROJECTS]
PLUGINS = {table["name"]: table["entry-points"]["pegboard"] for table in TABLES if "entry-points" in table}
CONFIGS = [path for path in sorted((ROOT / "configs").glob("*.yaml")) if "\nmodel:" in path.read_text()]
HEAVY = re.compile(r"\| +(torch|numpy|matplotlib|pandas|sklearn|scipy|datasets|wandb|torchmetrics)\n")


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return build_wheels(tmp_path_factory.mktemp("wheels"))


@pytest.fixture(scope="session")
def whole(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Sandbox:
    """All wheels together."""
    return Sandbox.create(tmp_path_factory.mktemp("whole") / "env", wheels.values())


@pytest.fixture(scope="session")
def alone(
    request: pytest.FixtureRequest, wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Sandbox]:
    """The core and one plugin, which needs no other; recipes need the parts that they name."""
    needed = {r.name for r in requirements(wheels[request.param])} & set(wheels)
    assert needed == {"pegboard"} or request.param == "pegboard-zoo"
    wanted = {request.param, *needed}
    folder = tmp_path_factory.mktemp(request.param) / "env"
    return request.param, Sandbox.create(folder, [wheels[name] for name in wanted])


EACH = pytest.mark.parametrize("alone", first_of_each(PLUGINS), indirect=True, scope="session")


def test_every_project_gives_a_typed_wheel_with_no_tests_in_it(wheels: dict[str, Path]) -> None:
    assert set(wheels) == {table["name"] for table in TABLES}
    for name, path in wheels.items():
        files = zipfile.ZipFile(path).namelist()
        module = name.replace("-", "_")
        assert not [f for f in files if not f.startswith((f"{module}/", f"{module}-"))]
        assert not [f for f in files if "/tests/" in f or "__pycache__" in f]
        assert f"{module}/py.typed" in files
        if name == "pegboard":
            assert "pegboard/report/page.html" in files


@EACH
def test_plugin_is_ready_beside_the_core_alone(alone: tuple[str, Sandbox]) -> None:
    name, sandbox = alone
    complaints = sandbox.pip("check").stdout
    assert "pegboard" not in complaints
    code = "from pegboard.registry.discovery import Registry\n"
    code += "for p in Registry.discover().plugins: print(p.dist, p.state)"
    found = sandbox.run("python", "-c", code)
    assert f"{name} ready" in found.stdout.splitlines(), found.stdout + found.stderr
    listed = sandbox.run("pegboard", "plugins", "list")
    assert listed.returncode == 0, listed.stderr
    assert name in listed.stdout
    assert "ready" in listed.stdout
    assert "broken" not in listed.stdout


@EACH
def test_light_module_imports_nothing_heavy(alone: tuple[str, Sandbox]) -> None:
    name, sandbox = alone
    for module in PLUGINS[name].values():
        outcome = sandbox.run("python", "-X", "importtime", "-c", f"import {module}")
        assert outcome.returncode == 0, outcome.stderr
        assert not HEAVY.findall(outcome.stderr)
        assert outcome.stdout == ""


@EACH
def test_show_describes_every_part_without_torch(alone: tuple[str, Sandbox]) -> None:
    name, sandbox = alone
    code = (
        "from pegboard.registry.discovery import Registry\nfor p in Registry.discover().plugins:\n"
        " for part in p.parts: print(p.dist, part.kind, part.name)"
    )
    rows = [line.split() for line in sandbox.run("python", "-c", code).stdout.splitlines()]
    parts = [(kind, part) for dist, kind, part in rows if dist == name]
    for _, part in parts[:3]:
        outcome = sandbox.run("python", "-X", "importtime", "-m", "pegboard", "show", part)
        assert outcome.returncode == 0, outcome.stderr
        assert part in outcome.stdout
        assert not HEAVY.findall(outcome.stderr)


@EACH
def test_every_part_trains_beside_the_core_alone(alone: tuple[str, Sandbox], tmp_path: Path) -> None:
    name, sandbox = alone
    shutil.copy(ROOT / "tests" / "support" / "parts" / "try_parts.py", tmp_path)
    env = {"WANDB_MODE": "offline"}
    outcome = sandbox.run("python", "try_parts.py", name, cwd=tmp_path, env=env)
    assert outcome.returncode == 0, outcome.stderr
    lines = [line for line in outcome.stdout.splitlines() if line.startswith("{")]
    tried = {row["part"]: row["wrong"] for row in map(json.loads, lines)}
    assert tried or name in ("pegboard-zoo", "pegboard-generation", "pegboard-plots")
    assert not {part: wrong for part, wrong in tried.items() if wrong}


def test_core_alone_lists_no_plugin(wheels: dict[str, Path], tmp_path: Path) -> None:
    sandbox = Sandbox.create(tmp_path / "env", [wheels["pegboard"]])
    outcome = sandbox.run("pegboard", "plugins", "list")
    assert outcome.returncode == 0, outcome.stderr
    config = tmp_path / "config.yaml"
    config.write_text("data: {name: digits}\nmodel: {name: mlp}\noptimizer: {name: adamw}\n")
    checked = sandbox.run("pegboard", "check", str(config))
    assert checked.returncode != 0
    for dist in ("pegboard-datasets", "pegboard-mlp", "pegboard-optimizers"):
        assert f"pip install {dist}" in checked.stdout + checked.stderr


def test_help_lists_every_command(whole: Sandbox) -> None:
    text = whole.run("pegboard", "--help").stdout
    assert not [command for command in COMMANDS if not re.search(rf"\b{command}\b", text)]


@pytest.mark.parametrize("command", only(["", *COMMANDS, "plugins list", "zoo list"], ("", "train")))
def test_help_imports_nothing_heavy(whole: Sandbox, command: str) -> None:
    outcome = whole.run("python", "-X", "importtime", "-m", "pegboard", *command.split(), "--help")
    assert outcome.returncode == 0, outcome.stderr
    assert "usage" in outcome.stdout.lower()
    assert not HEAVY.findall(outcome.stderr)


@pytest.mark.parametrize("path", first_of_each(CONFIGS), ids=lambda path: path.name)
def test_check_imports_nothing_heavy(whole: Sandbox, path: Path) -> None:
    outcome = whole.run("python", "-X", "importtime", "-m", "pegboard", "check", str(path))
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    assert not HEAVY.findall(outcome.stderr)


def test_probe_for_heavy_imports_can_fail(whole: Sandbox) -> None:
    outcome = whole.run("python", "-X", "importtime", "-c", "import numpy")
    assert HEAVY.findall(outcome.stderr)
