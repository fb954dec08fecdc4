"""The tests need neither data nor network, and each of them is run by one of the commands."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from pegboard.config.check import check
from pegboard.planning.plan import make_plan
from pegboard.store import zoo
from sandbox import ROOT
from sweeps import first_of_each, mark_long_checks, only

MADE = """
import pytest

@pytest.mark.parametrize("value", [1, pytest.param(2, marks=pytest.mark.sweep)])
def test_plain(value):
    pass

@pytest.mark.data
def test_real():
    pass

@pytest.mark.data
@pytest.mark.sweep
def test_real_sweep():
    pass

@pytest.mark.prove
def test_long():
    pass

@pytest.mark.data
@pytest.mark.prove
def test_real_long():
    pass
"""


def commands() -> dict[str, tuple[list[str], bool]]:
    """For each command of the Makefile: its words for pytest, and True if the tests see the data."""
    found = {}
    for name in ("test", "test-all", "test-data", "prove"):
        words = ["make", "-s", "-n", "-C", str(ROOT), name, "ARGS=", f"PEGBOARD_DATA={ROOT}"]
        said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        line = next(line for line in said.splitlines() if " -m pytest" in line)
        chosen = re.search(r'-m "([^"]+)"|-m (\w+) ', line.partition("-m pytest")[2])
        given = [] if chosen is None else ["-m", chosen[1] or chosen[2]]
        found[name] = (given, "env -u PEGBOARD_DATA" not in line)
    return found


def passed(folder: Path, words: list[str], data: bool) -> tuple[set[str], str]:
    """The tests that passed, and what was printed."""
    settings = ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT), "-p", "no:cacheprovider"]
    env = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST", "PEGBOARD"))}
    env |= {"PEGBOARD_DATA": str(folder)} if data else {}
    command = [sys.executable, "-m", "pytest", *settings, "-v", *words, str(folder / "test_made.py")]
    shown = subprocess.run([*command, "-p", "conftest"], capture_output=True, text=True, cwd=ROOT, env=env)
    assert shown.returncode == 0, shown.stdout + shown.stderr
    return set(re.findall(r"::(\S+) PASSED", shown.stdout)), shown.stdout


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[set[str], str]]:
    """What each command makes of some tests."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "test_made.py").write_text(MADE)
    return {name: passed(folder, *how) for name, how in commands().items()}


def test_every_test_is_run_by_one_of_the_commands(found: dict[str, tuple[set[str], str]]) -> None:
    assert {name: tests for name, (tests, _) in found.items()} == {
        "test": {"test_plain[1]"},
        "test-all": {"test_plain[1]", "test_plain[2]"},
        "test-data": {"test_real", "test_real_sweep"},
        "prove": {"test_long", "test_real_long"},
    }


def test_a_test_without_its_data_names_the_command_that_has_it(
    found: dict[str, tuple[set[str], str]],
) -> None:
    (reason,) = set(re.findall(r"SKIPPED \[1\] \S+ (.*)", found["test"][1]))
    assert reason == "needs the real data sets: PEGBOARD_DATA=folder make test-data"


def test_of_each_kind_of_a_sweep_the_first_is_in_every_run() -> None:
    swept = [len(p.marks) for p in first_of_each(["a1", "b1", "a2", "c1", "b2"], lambda value: value[0])]
    assert swept == [0, 0, 1, 0, 1]
    assert [len(p.marks) for p in only("abc", "b")] == [1, 0, 1]


def test_of_the_long_checks_of_a_plugin_the_first_of_each_kind_is_in_every_run(
    request: pytest.FixtureRequest,
) -> None:
    names = ("model-a-exact_resume", "model-b-exact_resume", "model-b-schema", "probe-c-exact_resume")

    class Named(pytest.Item):
        def runtest(self) -> None: ...

    items = [Named.from_parent(request.node.parent, name=f"test_part[{name}]") for name in names]
    mark_long_checks(items)
    assert [item.get_closest_marker("sweep") is not None for item in items] == [False, True, False, False]


def test_no_test_reaches_the_network() -> None:
    for address in (("192.0.2.1", 80), ("huggingface.co", 443)):
        with pytest.raises(OSError, match="tests have no network"):
            socket.create_connection(address, timeout=5)
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        door.listen()
        socket.create_connection(door.getsockname()).close()


def read_data() -> list[zoo.Recipe]:
    """One recipe for each node `data` that names a known data set."""
    node = re.compile(r"^data: \{name: (?:hub|pixel_clouds|planetoid|tudataset), .*?(?=, batch_size)", re.M)
    found = {recipe: node.search(recipe.config.read_text("utf-8")) for recipe in zoo.recipes()}
    return list({match[0]: recipe for recipe, match in found.items() if match}.values())


@pytest.mark.data
@pytest.mark.parametrize("recipe", read_data(), ids=lambda r: r.name)
def test_small_files_have_the_spec_of_the_real_data(
    recipe: zoo.Recipe, small_data: Path, rows_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = ["data.limit=2000"] if "pixel_clouds" in recipe.config.read_text("utf-8") else []
    settings = check(recipe.config, [*few, "trainer.steps=100000"])
    real = make_plan(settings, read=True).splits
    monkeypatch.setenv("PEGBOARD_DATA", str(small_data))
    small = make_plan(settings, read=True).splits
    assert real is not None and small is not None and small.spec == real.spec
