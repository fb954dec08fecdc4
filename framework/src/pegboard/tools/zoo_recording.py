"""Training recipes of the zoo with several seeds, and writing what came of them beside their configs."""

from __future__ import annotations

import json
import re
import shutil
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.files import follow, write_json
from ..store.names import CHECKPOINTS, CURVES, DATA, ENVIRONMENT, FIGURES, RESULT, WEIGHTS
from ..store.zoo import Recipe

if TYPE_CHECKING:
    from .api import Run

SMALL = 5 * 2**20  # bytes of weights, and of what the data set keeps, that a recipe may carry


def record(recipe: Recipe, count: int, root: Path, say: Callable[[str], None], weights: bool = True) -> Path:
    """Train a recipe with its seed and those after it, and write what came of it beside its config.

    Small weights of the first run are kept too, unless `weights` is false or it is a cross-validation.
    """
    from ..config.check import check
    from ..report.console import bar_alone
    from ..store.checkpoint import read_manifest
    from . import cross_validation
    from .api import Run

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
        settings = check(recipe.config, [f"seed={seed}", f"name={slug(recipe.name)}"])
        runs.append(Run(cross_validation.train(settings, root, bar_alone())))
        say("  " + ", ".join(f"{k} {v:.4g}" for k, v in runs[-1].figures.items()))
    one = (
        runs[0].folds[0] if runs[0].folds else runs[0]
    )  # of a cross-validation the first fold stands for all
    best = follow(one.folder / CHECKPOINTS / "best")
    environment = json.loads((one.folder / ENVIRONMENT).read_text("utf-8"))
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
        "parameters": _parameters(best / WEIGHTS),
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
    write_json(recipe.folder / RESULT, result)
    if (curves := one.folder / FIGURES / CURVES).is_file():  # where pictures are drawn
        shutil.copyfile(curves, recipe.folder / CURVES)
    return recipe.folder / RESULT


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
    weights, data = follow(run / CHECKPOINTS / "best") / WEIGHTS, run / DATA
    _forget(recipe)
    if sum(path.stat().st_size for path in (weights, *data.glob("*"))) > SMALL:
        return False
    shutil.copyfile(weights, recipe / weights.name)
    if data.is_dir():
        shutil.copytree(data, recipe / data.name)
    return True


def _forget(recipe: Path) -> bool:
    """Remove the weights that were kept before."""
    (recipe / WEIGHTS).unlink(missing_ok=True)
    shutil.rmtree(recipe / DATA, ignore_errors=True)
    return False


def _beside(reference: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of the optimum that a run found beside its own; what has none is written by hand."""
    source = f"exact optimum, {reference.get('name')}"
    figures = reference.get("figures", {}).items()
    return {name: {"value": value, "source": source} for name, value in figures if name.startswith("test/")}


def slug(name: str) -> str:
    """The name of a recipe as that of a run."""
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
    from ..store.checkpoint import read_weights

    return sum(t.numel() for t in read_weights(weights).values())
