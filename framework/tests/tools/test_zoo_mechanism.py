"""Recipes: found through plugins, recorded, shown, and used as teachers or starting points."""

from __future__ import annotations

import json
import os
import subprocess
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pegboard
import pytest
import yaml
from pegboard import PegboardError
from pegboard.cli import main
from pegboard.registry.discovery import Registry
from pegboard.store import zoo
from pegboard.tools import zoo_table

Config = Callable[..., dict[str, Any]]


@pytest.fixture
def shelf(config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A third party's recipes, brought by a plugin of their own."""
    root = tmp_path / "shelf"
    for name in ("points/net", "points/net-wide"):
        (root / name).mkdir(parents=True)
        (root / name / "card.md").write_text(f"# {name}\n\nWhat it is.\n")
        given = config(model={"name": "net", "width": 12 if "wide" in name else 4})
        (root / name / "recipe.yaml").write_text(yaml.safe_dump(given))
    site = tmp_path / "site"
    (site / "acme_shelf-1.0.dist-info").mkdir(parents=True)
    module = f"acme_shelf_{tmp_path.name}"  # imports are kept, so each test needs its own
    (site / f"{module}.py").write_text(
        textwrap.dedent(f"""
        from pathlib import Path
        from pegboard import hookimpl

        @hookimpl
        def pegboard_recipes():
            return [Path({str(root)!r})]
        """)
    )
    (site / "acme_shelf-1.0.dist-info" / "METADATA").write_text("Name: acme-shelf\nVersion: 1.0\n")
    (site / "acme_shelf-1.0.dist-info" / "entry_points.txt").write_text(f"[pegboard]\nshelf = {module}\n")
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.chdir(tmp_path)
    return root


def test_recipes_are_recorded_and_then_load(shelf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(PegboardError, match="recipe without weights"):
        pegboard.load("zoo:points/net")
    assert main(["zoo", "record", "points/net", "--seeds", "2", "--root", "out"]) == 0
    result = json.loads((shelf / "points/net/result.json").read_text())
    assert result["seeds"] == [3, 4]
    figure = result["figures"]["test/right"]
    assert figure["mean"] == pytest.approx(sum(figure["values"]) / 2)
    assert result["parameters"] == 22 and result["versions"]["torch"]
    assert (shelf / "points/net/curves.png").is_file()
    assert pegboard.load("zoo:points/net").training is False
    assert main(["eval", "zoo:points/net", "--json"]) == 0
    measured = json.loads(capsys.readouterr().out.splitlines()[-1])["test/right"]
    assert measured == pytest.approx(figure["values"][0])


def test_a_result_names_machine_commit_and_versions(
    shelf: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def git(*words: str) -> str:
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        return subprocess.run(["git", *who, *words], check=True, capture_output=True, text=True).stdout

    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "first")
    (tmp_path / "beside.txt").write_text("not committed")
    assert main(["zoo", "record", "points/net", "--seeds", "1", "--root", "out"]) == 0
    result = json.loads((shelf / "points/net/result.json").read_text())
    head = git("rev-parse", "HEAD").strip()
    assert result["commit"]["id"] == head and result["commit"]["changed"] >= 1
    assert result["machine"]["cpu"] and result["machine"]["cores"] == os.cpu_count()
    assert result["machine"]["device"] == "cpu" and result["machine"]["threads"] >= 1
    assert result["versions"].keys() >= {"pegboard", "torch", "python"}
    capsys.readouterr()
    assert main(["zoo", "show", "points/net"]) == 0
    shown = capsys.readouterr().out
    assert head in shown and result["machine"]["platform"] in shown and "seconds of a run" in shown


def test_a_reference_written_by_hand_is_kept_and_shown(
    shelf: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reference = {"test/right": {"value": 0.9, "source": "a paper"}}
    (shelf / "points/net/result.json").write_text(
        json.dumps({"reference": reference, "seeds": [], "figures": {}})
    )
    main(["zoo", "record", "points/net", "--seeds", "1", "--root", "out"])
    page = shelf / "README.md"
    page.write_text(f"Before\n{zoo_table.BEGIN}\nwhat was there\n{zoo_table.END}\nafter\n")
    assert main(["zoo", "table", str(page), "--check"]) == 1
    assert main(["zoo", "table", str(page)]) == 0
    assert main(["zoo", "table", str(page), "--check"]) == 0
    text = page.read_text()
    assert (
        "0.9: a paper" in text
        and "not recorded yet" in text
        and "what was there" not in text
        and "after" in text
    )
    capsys.readouterr()
    assert main(["zoo", "list"]) == 0 and main(["zoo", "show", "points/net"]) == 0
    shown = capsys.readouterr().out
    assert "points/net-wide" in shown and "What it is." in shown and "acme-shelf" in shown


def test_a_cross_validation_is_recorded_with_its_deviation_over_the_folds(shelf: Path) -> None:
    config = shelf / "points/net/recipe.yaml"
    given = yaml.safe_load(config.read_text())
    given["trainer"] |= {"folds": 3, "epochs": 2}
    config.write_text(yaml.safe_dump(given))
    reference = {"shared/right": {"value": 0.9, "source": "a paper"}}
    (shelf / "points/net/result.json").write_text(
        json.dumps({"reference": reference, "seeds": [], "figures": {}})
    )
    assert main(["zoo", "record", "points/net", "--seeds", "2", "--root", "out"]) == 0
    recipe = zoo.find_recipe("points/net")
    figure = recipe.result["figures"]["shared/right"]
    folders = Path("out/points-net").glob("2*")
    seed = lambda folder: yaml.safe_load((folder / "config.yaml").read_text())["seed"]  # noqa: E731
    runs = [
        pegboard.Run(folder) for folder in sorted(folders, key=seed)
    ]  # of one second, names tell no order
    found = [run.summary["statistics"]["shared/right"] for run in runs]
    assert figure["values"] == [one["mean"] for one in found]
    assert figure["folds"] == pytest.approx(sum(one["std"] for one in found) / 2)
    line = zoo_table.table([recipe]).splitlines()[-1]
    assert f"± {figure['folds']:.4f} over folds | 2 | 0.9: a paper" in line
    assert line.endswith(f"| {pegboard.__version__} |")  # outside a repository; in one, the commit too
    recipe.result["commit"] = {"id": "0123456789abcdef", "changed": 0}
    assert zoo_table.table([recipe]).endswith(f"| {pegboard.__version__} at 0123456 |")
    recipe.result["commit"]["changed"] = 2
    assert zoo_table.table([recipe]).endswith(f"| {pegboard.__version__} at 0123456, changed |")


def test_a_recipe_trains_with_overrides(shelf: Path) -> None:
    assert main(["zoo", "train", "points/net-wide", "trainer.epochs=1", "--root", "out"]) == 0
    (folder,) = Path("out/points-net-wide").glob("2*")
    assert pegboard.Run(folder).summary["steps"] == 4


def test_unknown_and_doubled_names_are_errors(shelf: Path) -> None:
    with pytest.raises(PegboardError, match="did you mean 'points/net'"):
        zoo.find_recipe("points/nte")
    assert zoo.find_recipe("acme-shelf:points/net").name == "points/net"
    registry = Registry.discover()
    registry.plugins.extend([p for p in registry.plugins if p.name == "shelf"])
    with pytest.raises(PegboardError, match="is brought by acme-shelf, acme-shelf"):
        zoo.find_recipe("points/net", registry)
    with pytest.raises(PegboardError, match="no place for the table"):
        zoo_table.update_table("nothing", [])
