"""Plugins as they were once work with today's core, and their authors are told what to change."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pegboard
import pytest
from pegboard.testing import partner_config
from sandbox import ROOT

FROZEN = ROOT / "tests" / "frozen" / "api1_optimizers"
LIGHT = FROZEN / "src" / "pegboard_optimizers" / "__init__.py"
WEIGHTS = "checkpoints/last/model.safetensors"
CONFIGS = {
    "adam": partner_config(optimizer={"name": "adam", "schedule": {"name": "cosine", "warmup": 2}}),
    "lbfgs": partner_config(optimizer={"name": "lbfgs"}, trainer={"steps": 3, "device": "cpu"}),
}

# What a user of the old plugin does, in a process that has it first on its path.
USE = """
import json, sys, warnings
heard = []
def note(text, category, file, line, *more):
    heard.append([category.__name__, str(text), file, line])
warnings.showwarning = note
import pegboard
from pegboard.registry.discovery import Registry

configs, root = json.loads(sys.argv[1]), sys.argv[2]
runs = {name: str(pegboard.train(config, root=root, quiet=True).folder) for name, config in configs.items()}
plugins = [
    {"state": p.state, "parts": [part.name for part in p.parts], "file": getattr(p.module, "__file__", "")}
    for p in Registry.discover().plugins
    if p.dist == "pegboard-optimizers"
]
print(json.dumps({"plugins": plugins, "runs": runs, "heard": heard}))
"""


def installed(site: Path, plugin: Path = FROZEN) -> dict[str, str]:
    """The environment of a process in which a plugin is installed, before today's."""
    project = tomllib.loads((plugin / "pyproject.toml").read_text())["project"]
    info = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir(parents=True)
    needs = "".join(f"Requires-Dist: {need}\n" for need in project["dependencies"])
    head = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (info / "METADATA").write_text(head + needs)
    points = "".join(f"{name} = {to}\n" for name, to in project["entry-points"]["pegboard"].items())
    (info / "entry_points.txt").write_text(f"[pegboard]\n{points}")
    path = os.pathsep.join((str(site), str(plugin / "src")))
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}


def use(folder: Path, configs: dict[str, Any], plugin: Path = FROZEN) -> dict[str, Any]:
    """What comes of these configs in a process that has the plugin."""
    folder.mkdir(exist_ok=True)
    command = [sys.executable, "-c", USE, json.dumps(configs), str(folder / "runs")]
    env = installed(folder / "site", plugin)
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return use(tmp_path_factory.mktemp("frozen"), CONFIGS)


def test_it_is_ready_and_todays_stands_behind_it(used: dict[str, Any]) -> None:
    old, now = sorted(used["plugins"], key=lambda plugin: plugin["state"])
    assert (old["state"], now["state"]) == ("ready", "shadowed")
    assert old["file"] == str(LIGHT) and len(old["parts"]) == 21


def test_its_author_is_told_each_line_once(used: dict[str, Any]) -> None:
    lines = LIGHT.read_text().splitlines()
    places = [number for number, line in enumerate(lines, 1) if "synchronizes=True" in line]
    assert len(places) == 3
    ours = [note for note in used["heard"] if note[0] == "PegboardDeprecationWarning"]
    assert sorted((file, line) for _, _, file, line in ours) == [(str(LIGHT), line) for line in places]
    text = next(text for _, text, _, line in ours if "lbfgs" in lines[line - 1])
    assert text.startswith(
        "pegboard-optimizers 0.1.0 (plugin 'optimizers'): synchronizes=True of optimizer 'lbfgs'"
    )


@pytest.mark.parametrize("name", CONFIGS)
def test_it_trains_to_the_same_bits_as_todays(name: str, used: dict[str, Any], tmp_path: Path) -> None:
    today = pegboard.train(CONFIGS[name], root=tmp_path, quiet=True)
    assert (Path(used["runs"][name]) / WEIGHTS).read_bytes() == (today.folder / WEIGHTS).read_bytes()
    assert today.summary["steps"] > 2


def test_its_lbfgs_still_says_that_it_waits(used: dict[str, Any]) -> None:
    plan = (Path(used["runs"]["lbfgs"]) / "plan.txt").read_text()
    assert "for the device in every step: optimizer (lbfgs), its plugin does not say why" in plan
    assert "waits" not in (Path(used["runs"]["adam"]) / "plan.txt").read_text()


@pytest.mark.sweep
def test_a_trick_that_changed_gradients_in_place_trains_to_the_same_bits_as_todays(tmp_path: Path) -> None:
    configs = {
        "plain": partner_config(regularizers={"autoclip": {"percentile": 40.0}}),
        "together": partner_config(
            regularizers={"autoclip": {}},
            trainer={"steps": 4, "accumulate": 2, "clip": 0.5, "device": "cpu"},
        ),
    }
    old, today = (
        use(tmp_path / plugin.name, configs, plugin)
        for plugin in (
            ROOT / "tests" / "frozen" / "api2_autoclip",
            ROOT / "docs" / "examples" / "plugins" / "stateful_trick",
        )
    )
    for name in configs:
        weights = [(Path(found["runs"][name]) / WEIGHTS).read_bytes() for found in (old, today)]
        assert weights[0] == weights[1]
    (told,) = (note for note in old["heard"] if note[0] == "PegboardDeprecationWarning")
    assert "edit_grads(params) of regularizer 'autoclip' is deprecated since pegboard 0.3" in told[1]
    line = Path(told[2]).read_text().splitlines()[told[3] - 1]
    assert Path(told[2]).name == "trick.py" and "def edit_grads(self, params" in line
    assert not [note for note in today["heard"] if note[0] == "PegboardDeprecationWarning"]
