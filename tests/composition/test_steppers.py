"""A stepper of a local plugin makes the updates of a run: the one that docs/plugins.md shows."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pegboard
import pytest
from pegboard.cli import main
from pegboard.testing.runs import cut_and_resumed, differences, lean, points, whole
from pegboard.testing.subjects import PARTNERS, partner_config
from sandbox import ROOT

SECTION = "### Steppers\n"


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    page = (ROOT / "docs" / "plugins.md").read_text("utf-8").partition(SECTION)[2]
    path = tmp_path / "ahead.py"
    path.write_text(re.findall(r"```python\n(.*?)```", page, re.S)[0])
    return path


def config(plugin: Path, **stepper: Any) -> dict[str, Any]:
    node = {"stepper": {"name": "ahead", **stepper}} if stepper else {}
    return partner_config(plugins={"local": [str(PARTNERS), str(plugin)]}, **node)


def test_it_trains_to_the_same_bits_and_tells_of_itself(plugin: Path, tmp_path: Path) -> None:
    with lean():
        run, usual = (
            pegboard.train(config(plugin, **node), root=tmp_path / str(len(node)), quiet=True)
            for node in ({"updates": 2}, {})
        )
    # Rows are due between two calls; the weights are those of as many ordinary updates.
    assert not [line for line in differences(run.folder, usual.folder) if "weights" in line]
    assert run.summary["ahead"] == {"calls": 6} and "ahead" not in usual.summary  # 9 updates, 3 an epoch
    assert "stepper" in (run.folder / "config.yaml").read_text()
    assert "stepper" not in (usual.folder / "config.yaml").read_text()
    manifest = json.loads((run.folder / "checkpoints" / "last" / "manifest.json").read_text())
    assert manifest["parts"]["stepper"] == f"{plugin}:ahead"


def test_a_run_with_it_is_cut_anywhere_and_ends_as_one_that_was_not(plugin: Path, tmp_path: Path) -> None:
    with lean():
        given = config(plugin, updates=2)
        one, events = whole(given, tmp_path / "whole")
        for cut in points(events, 4):
            two = cut_and_resumed(given, tmp_path / str(cut), cut)
            assert differences(one, two) == []


def test_it_is_checked_explained_and_shown(
    plugin: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(json.dumps(config(plugin, updates=0)))
    assert main(["check", str(file)]) == 2
    assert "stepper.updates\n    found 0" in capsys.readouterr().err
    file.write_text(json.dumps(config(plugin, updates=4)))
    assert main(["explain", str(file)]) == 0
    assert re.search(r"stepper +ahead +", capsys.readouterr().out)
    assert main(["show", "ahead", "--local", str(plugin)]) == 0
    assert "stepper: {name: ahead, updates: 2}" in capsys.readouterr().out
