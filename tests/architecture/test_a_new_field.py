"""A field of the trainer is a line and the code that reads it: what docs/architecture.md shows is tried."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pegboard
import pytest
from sandbox import ROOT

CORE = Path(pegboard.__file__).parent
CONFIG = """\
data: {name: iris, batch_size: 32}
model: mlp
optimizer: {name: adamw, lr: 1e-2}
trainer: {epochs: 40, device: cpu, monitor: val/accuracy, enough: 0.8}
"""


def diff() -> str:
    """The change that the page shows."""
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    found = re.search(r"^ *```diff\n(.*?)^ *```$", text, re.M | re.S)
    assert found
    return textwrap.dedent(found[1])


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a core in which the change was made."""
    folder = tmp_path_factory.mktemp("core")
    shutil.copytree(CORE, folder / "pegboard", ignore=shutil.ignore_patterns("__pycache__"))
    done = subprocess.run(
        ["git", "apply", "-p1", "-C1"],
        cwd=folder / "pegboard", input=diff(), text=True, capture_output=True,
        env=os.environ | {"GIT_CEILING_DIRECTORIES": str(folder)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (folder / "config.yaml").write_text(CONFIG)
    return folder


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A command of the changed core."""
    return subprocess.run(
        [sys.executable, "-m", "pegboard", *words],
        cwd=folder, text=True, capture_output=True,
        env=os.environ | {"PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


def test_it_takes_at_most_three_files_of_the_core() -> None:
    assert 1 <= len(re.findall(r"^\+\+\+ ", diff(), re.M)) <= 3


def test_it_is_shown_checked_and_in_the_schema(changed: Path) -> None:
    shown = run(changed, "show", "trainer").stdout
    assert "enough" in shown and "value of the monitored figure at which the run ends" in shown
    schema = json.loads(run(changed, "schema").stdout)
    assert "enough" in json.dumps(schema["properties"]["trainer"])
    wrong = run(changed, "check", "config.yaml", "trainer.enough=much")
    assert wrong.returncode == 2 and "trainer.enough" in wrong.stderr and "Traceback" not in wrong.stderr


@pytest.mark.sweep
def test_a_run_does_what_it_says(changed: Path) -> None:
    done = run(changed, "train", "config.yaml")
    assert done.returncode == 0, done.stderr
    assert re.search(r"stopped early by trainer\.enough: val/accuracy is (0\.[89]\d*|1)\n", done.stdout)


def test_the_core_as_it_is_has_no_such_field(tmp_path: Path) -> None:
    from pegboard.config.errors import ConfigError

    (tmp_path / "config.yaml").write_text(CONFIG)
    with pytest.raises(ConfigError, match="enough"):
        pegboard.plan(tmp_path / "config.yaml")
