"""Recipes: configs with the results they must reach, brought by plugins through `pegboard_recipes`.

A recipe is a folder `data/model-variant` with `recipe.yaml` (an ordinary config), `card.md`,
`result.json` (written by `pegboard zoo record`), and, where they are small, `model.safetensors` with the
files that the data set keeps in `data/`.
No torch at import.
"""

from __future__ import annotations

import json
import re
import shutil
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.errors import PegboardError
from ..base.nearest import nearest
from ..registry.discovery import Registry

if TYPE_CHECKING:
    from ..tools.api import Run

SMALL = 5 * 2**20  # bytes of weights, and of what the data set keeps, that a recipe may carry
BEGIN, END = "<!-- table: made by `pegboard zoo table` -->", "<!-- end of table -->"


@dataclass(frozen=True)
class Recipe:
    """One recipe of the zoo."""

    name: str  # data/model-variant
    folder: Path
    dist: str

    @property
    def config(self) -> Path:
        return self.folder / "recipe.yaml"

    @cached_property
    def result(self) -> dict[str, Any]:
        """What was recorded, empty before the first time."""
        path = self.folder / "result.json"
        try:
            result = dict(json.loads(path.read_text("utf-8"))) if path.is_file() else {}
            for figure in result.get("figures", {}).values():  # what tables format
                float(figure["mean"]), float(figure["std"])
            if result and not ("figures" in result and isinstance(result.get("seeds"), list)):
                raise ValueError("it lacks figures or seeds")
            return result
        except (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
            raise PegboardError(f"cannot read {path}: {error}") from None

    @property
    def card(self) -> str:
        path = self.folder / "card.md"
        return path.read_text("utf-8") if path.is_file() else ""


def recipes(registry: Registry | None = None) -> list[Recipe]:
    """Every recipe that a ready plugin brings, by name."""
    return [Recipe(*found) for found in (registry or Registry.discover()).recipe_folders()]


def find_recipe(name: str, registry: Registry | None = None) -> Recipe:
    """The recipe of this name; `dist:name` where two plugins bring the same."""
    dist, _, plain = name.rpartition(":")
    every = recipes(registry)
    found = [r for r in every if r.name == plain and dist in ("", r.dist)]
    if len(found) == 1:
        return found[0]
    if found:
        raise PegboardError(
            f"recipe {name!r} is brought by {', '.join(r.dist for r in found)}: write dist:name"
        )
    near = nearest(plain, [r.name for r in every])
    raise PegboardError(
        f"no recipe {name!r} in the zoo"
        + (f", did you mean {near[0]!r}?" if near else "")
        + "\nlist them: pegboard zoo list"
        + ("" if every else " (there are none: pip install pegboard-zoo)")
    )


def record(recipe: Recipe, count: int, root: Path, say: Callable[[str], None], weights: bool = True) -> Path:
    """Train a recipe with its seed and those after it, and write what came of it beside its config.

    Small weights of the first run are kept too, unless `weights` is false or it is a cross-validation.
    """
    from ..config.check import check
    from ..report.console import bar_alone
    from ..tools import cross_validation
    from ..tools.api import Run
    from .checkpoint import read_manifest

    runs = []
    as_it_stands = check(recipe.config)
    if as_it_stands.trainer.precision == "auto":
        say(
            f"{recipe.config} leaves trainer.precision open, which is another one on another device: "
            "name the one it is recorded with"
        )
    first = as_it_stands.seed  # the weights that are kept are those of the recipe as it stands
    seeds = range(first, first + count)
    for seed in seeds:
        say(f"{recipe.name} with seed {seed}")
        settings = check(recipe.config, [f"seed={seed}", f"name={_slug(recipe.name)}"])
        runs.append(Run(cross_validation.train(settings, root, bar_alone())))
        say("  " + ", ".join(f"{k} {v:.4g}" for k, v in runs[-1].figures.items()))
    one = (
        runs[0].folds[0] if runs[0].folds else runs[0]
    )  # of a cross-validation the first fold stands for all
    best = one.folder / "checkpoints" / "best"
    environment = json.loads((one.folder / "environment.json").read_text("utf-8"))
    manifest = read_manifest(best)
    result = {
        "name": recipe.name,
        "seeds": list(seeds),
        "figures": {
            name: _spread([r.figures[name] for r in runs]) | _over_folds(name, runs)
            for name in runs[0].figures
            if all(name in r.figures for r in runs)  # a probe may have failed
        },
        "steps": one.summary["steps"],
        "seconds": round(statistics.median(r.summary["seconds"] for r in runs), 2),
        "parameters": _parameters(best / "model.safetensors"),
        "versions": {k: environment[k] for k in ("pegboard", "torch", "python")} | environment["plugins"],
        "recorded": time.strftime("%Y-%m-%d"),
        **made_on(environment),
        "data": environment["data"].get("fingerprint", ""),
        "spec": manifest["spec"],
        "reference": _beside(runs[0].summary.get("reference", {})) or recipe.result.get("reference", {}),
    }
    gaps = [r.summary["reference"]["gap"] for r in runs if "gap" in r.summary.get("reference", {})]
    if gaps:
        result["gap"] = _spread(gaps)  # of what the reference minimises, to the optimum
    kept = _keep(one.folder, recipe.folder) if weights and one is runs[0] else _forget(recipe.folder)
    if kept and "files" in environment["data"]:
        result["files"] = environment["data"]["files"]  # with their hashes
    (recipe.folder / "result.json").write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    shutil.copyfile(one.folder / "figures" / "curves.png", recipe.folder / "curves.png")
    return recipe.folder / "result.json"


def made_on(environment: Mapping[str, Any]) -> dict[str, Any]:
    """Machine and commit of a recorded run, from its environment.json."""
    git = environment["git"]
    machine = {name: environment[name] for name in ("platform", "device", "threads")}
    return {
        "machine": environment["hardware"] | machine,
        # None outside a repository; what was changed and not committed is no part of the commit
        "commit": {"id": git["commit"], "changed": len(git["changed"])} if git else None,
    }


def _keep(run: Path, recipe: Path) -> bool:
    """Copy the best weights of a run, and what its data set keeps, beside a recipe where they are small."""
    weights, data = run / "checkpoints" / "best" / "model.safetensors", run / "data"
    _forget(recipe)
    if sum(path.stat().st_size for path in (weights, *data.glob("*"))) > SMALL:
        return False
    shutil.copyfile(weights, recipe / weights.name)
    if data.is_dir():
        shutil.copytree(data, recipe / data.name)
    return True


def _forget(recipe: Path) -> bool:
    """Remove the weights that were kept before."""
    (recipe / "model.safetensors").unlink(missing_ok=True)
    shutil.rmtree(recipe / "data", ignore_errors=True)
    return False


def _beside(reference: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of the optimum that a run found beside its own; what has none is written by hand."""
    source = f"exact optimum, {reference.get('name')}"
    figures = reference.get("figures", {}).items()
    return {name: {"value": value, "source": source} for name, value in figures if name.startswith("test/")}


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9_-]+", "-", name.lower())


def _spread(values: Sequence[float]) -> dict[str, Any]:
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return {"mean": statistics.fmean(values), "std": deviation, "values": list(values)}


def _over_folds(name: str, runs: Sequence[Run]) -> dict[str, float]:
    """The deviation of a figure over the folds of a cross-validation, in the mean of the seeds."""
    found = [r.summary.get("statistics", {}).get(name, {}).get("std") for r in runs]
    return {} if None in found else {"folds": statistics.fmean(found)}


def _parameters(weights: Path) -> int:
    """How many numbers a weights file holds."""
    from .checkpoint import read_weights

    return sum(t.numel() for t in read_weights(weights).values())


def table(found: Sequence[Recipe]) -> str:
    """The zoo as a Markdown table, made from the result files."""
    lines = [
        "| recipe | figure | measured | seeds | beside it | gap | parameters | seconds | recorded with |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for recipe in found:
        result = recipe.result
        if not result.get("figures"):
            lines.append(f"| {recipe.name} | not recorded yet | | | | | | | |")
            continue
        figure = headline(result)
        measured = result["figures"][figure]
        beside = result.get("reference", {}).get(figure)
        reference = f"{beside['value']:.4g}: {beside['source']}" if beside else ""
        lines.append(
            f"| {recipe.name} | {figure} | {shown(measured)} "
            f"| {len(result['seeds'])} | {reference} | {_gap(result)} | {result['parameters']:,} "
            f"| {result['seconds']:.1f} | {_core(result)} |"
        )
    return "\n".join(lines)


def _core(result: Mapping[str, Any]) -> str:
    """Version and commit of the core that a result was recorded with."""
    version, commit = result.get("versions", {}).get("pegboard", ""), result.get("commit")
    if not commit:
        return str(version)
    return f"{version} at {commit['id'][:7]}{', changed' if commit.get('changed') else ''}"


def conditions(result: Mapping[str, Any]) -> list[list[Any]]:
    """What a result was recorded with, as rows of a table: time, machine, commit and versions."""
    if not result.get("figures"):
        return []
    machine, commit = result.get("machine") or {}, result.get("commit") or {}
    rows = [["seconds of a run", result["seconds"]], ["recorded", result.get("recorded")]]
    rows += [[name, value] for name, value in machine.items()]
    if commit:
        changed = f" with {commit['changed']} changed files" if commit.get("changed") else ""
        rows.append(["commit", f"{commit['id']}{changed}"])
    return [row for row in (rows + [[k, v] for k, v in result["versions"].items()]) if row[1] is not None]


def shown(measured: Mapping[str, Any]) -> str:
    """The mean of a figure over the seeds and their deviation, which one seed has not; or that over folds."""
    if "folds" in measured:
        return f"{measured['mean']:.4f} ± {measured['folds']:.4f} over folds"
    deviation = f" ± {measured['std']:.4f}" if len(measured["values"]) > 1 else ""
    return f"{measured['mean']:.4f}{deviation}"


def _gap(result: Mapping[str, Any]) -> str:
    """How far what the reference minimises is from its optimum, in the mean over the seeds."""
    return f"{result['gap']['mean']:.1g}" if "gap" in result else ""


def headline(result: Mapping[str, Any]) -> str:
    """The figure that a table shows: the first test metric, of those with a reference if there are any."""
    beside = [name for name in result.get("reference", {}) if name in result["figures"]]
    figures = beside or list(result["figures"])
    return str(([f for f in figures if f.startswith("test/") and f != "test/loss"] or figures)[0])


def update_table(text: str, found: Sequence[Recipe]) -> str:
    """A page with the table between its two marks made anew."""
    if BEGIN not in text or END not in text:
        raise PegboardError(f"the page has no place for the table: expected the lines\n{BEGIN}\n{END}")
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n{table(found)}\n{END}{rest.partition(END)[2]}"
