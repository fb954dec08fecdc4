"""Runs of before, whose files name specs that the core had and a plugin has now, are used and go on."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pegboard
import pytest
from pegboard import Spec
from pegboard.cli import main
from pegboard.engine.loop import Interrupted
from pegboard.registry.discovery import Registry
from pegboard.registry.spec_names import SpecNames, UnknownSpec
from pegboard.testing.runs import differences, lean, watched, whole
from pegboard.tools.api import resume, train

TOYS = str(Path(__file__).parents[1] / "support" / "parts" / "bert_toys.py")
TRAINER = {"steps": 6, "save_every": 2, "device": "cpu", "threads": 1}
RUNS: dict[str, dict[str, Any]] = {
    "pegboard-gnn": {
        "data": {"name": "block_model", "nodes": 40, "batch_size": 8},
        "model": {"name": "gcn", "hidden": [4]},
    },
    "pegboard-transformer": {
        "data": {"name": "toy", "task": "pairs", "samples": 40, "batch_size": 8},
        "model": {"name": "bert", "layers": 1, "width": 8, "heads": 2, "longest": 16},
    },
}


def written_before(folder: Path, owner: str) -> set[str]:
    """Let the files of a run name specs as they did when the core had them; the names that there were."""
    names = set[str]()
    for path in folder.glob("checkpoints/*/manifest.json"):
        manifest = json.loads(path.read_text("utf-8"))
        for entry in filter(None, (*manifest["spec"]["inputs"], manifest["spec"]["target"])):
            names.add(entry["type"])
            entry["type"] = entry["type"].removeprefix(f"{owner}:")
        path.write_text(json.dumps(manifest), "utf-8")
    return names


@pytest.mark.parametrize("owner", RUNS)
def test_a_run_of_before_is_used_and_goes_on(
    owner: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = {"optimizer": {"name": "adam", "lr": 0.01}, "trainer": TRAINER, **RUNS[owner]}
    given["plugins"] = {"local": [TOYS]}
    with lean():
        untouched, events = whole(given, tmp_path / "whole")
        with watched(cut=len(events) // 2), pytest.raises(Interrupted) as stopped:
            train(given, root=tmp_path, quiet=True)
        folder = next(path for path in tmp_path.glob("*/2*") if str(path) in str(stopped.value))
        assert any(name.startswith(f"{owner}:") for name in written_before(folder, owner))
        assert resume(folder, quiet=True, local=[TOYS]).summary["status"] == "finished"
        assert differences(untouched, folder) == []
        written_before(folder, owner)
        assert main(["eval", str(folder), "--local", TOYS]) == 0
        assert main(["predict", str(folder), "--local", TOYS]) == 0
        assert pegboard.load(folder, local=[TOYS]) is not None
    assert "test" in capsys.readouterr().out


def test_a_bare_name_is_that_of_the_plugin_it_moved_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another plugin may have one of that name; where none is installed, it is said what to install."""

    @dataclass(frozen=True)
    class Nodes(Spec):
        features: int | None = None
        count: int = 0

    registry = Registry.discover()
    theirs = next(p for p in registry.plugins if p.dist == "pegboard-mlp")
    monkeypatch.setattr(theirs, "specs", (Nodes,))
    Nodes.__module__ = "pegboard_mlp"
    assert registry.specs.find("Nodes", ["features", "count"]).__module__ == "pegboard_gnn.specs"
    without = SpecNames([p for p in registry.plugins if p.dist not in ("pegboard-gnn", "pegboard-mlp")])
    with pytest.raises(UnknownSpec, match="unknown spec 'Nodes': pegboard-gnn is not installed"):
        without.find("Nodes")
