"""Models from runs, checkpoints and the zoo. Nothing read here is executed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from .config.check import check
from .config.load import load as load_config
from .config.nodes import Settings
from .engine import checkpoint
from .errors import PegboardError
from .parts import Context
from .planning import Plan, build_network, make_plan
from .registry import Registry, UnknownPart
from .specs import DataSpec, from_json

ZOO = "zoo:"


@dataclass
class Saved:
    """Something that weights can be loaded from."""

    config: Path  # the resolved config of the run that made them
    weights: Path
    spec: DataSpec
    where: str  # for messages


def locate(ref: str | Path, which: str = "best") -> Saved:
    """What a run folder, a checkpoint folder or `zoo:name` holds."""
    text = str(ref)
    if text.startswith(ZOO):
        from .zoo import find_recipe

        recipe = find_recipe(text.removeprefix(ZOO))
        weights = recipe.folder / checkpoint.WEIGHTS
        if not weights.is_file():
            raise PegboardError(
                f"{text} is a recipe without weights: make them with pegboard zoo train {recipe.name}"
            )
        return Saved(recipe.folder / "recipe.yaml", weights, from_json(recipe.result["spec"]), text)
    folder = checkpoint.find(ref, which)
    manifest = checkpoint.read_manifest(folder)
    checkpoint.verify(folder, manifest)
    config = folder.resolve().parent.parent / "config.yaml"
    if not config.is_file():
        raise PegboardError(
            f"{text}: no {config.name} beside the folder checkpoints/, so the model is unknown"
        )
    return Saved(config, folder / checkpoint.WEIGHTS, _spec(manifest, text), text)


def _spec(manifest: Mapping[str, Any], where: str) -> DataSpec:
    try:
        return from_json(manifest["spec"])
    except (KeyError, TypeError, ValueError) as error:
        raise PegboardError(f"{where}: the manifest does not say what the data holds: {error}") from None


def structure(config: Path) -> Settings:
    """The settings of a saved model, without the tricks and trackers that leave no trace in it."""
    tree = load_config(config).tree
    local = (tree.get("plugins") or {}).get("local", ())
    registry = Registry.discover(local=local)
    for key, node in list((tree.get("regularizers") or {}).items()):
        try:
            part: Any = registry.lookup("regularizer", (node or {}).get("name", key)).part
        except UnknownPart:
            continue  # the check says it better
        if not {"hang", "edit_model"} & set(part.stages):
            del tree["regularizers"][key]
    tree["trackers"] = {}
    tree["model"].pop("weights", None)
    return check(tree, registry=registry)


def load_model(
    ref: str | Path, device: str = "cpu", which: str = "best", strict: bool = True
) -> tuple[nn.Module, Plan]:
    """A trained model in eval mode, and the plan it was built by."""
    saved = locate(ref, which)
    settings = structure(saved.config)
    plan = make_plan(settings, read=False, spec=saved.spec)

    def context(key: str) -> Context:
        where = "meta" if device == "meta" else "cpu"
        return Context(spec=plan.spec, outputs=plan.outputs, device=where, seed=settings.seed, key=key)

    model, _, _ = build_network(plan, context)
    if device != "meta":
        checkpoint.fit_weights(model, checkpoint.read_weights(saved.weights), strict, saved.where)
    return model.to(device).eval(), plan


def load_into(model: nn.Module, ref: str) -> list[str]:
    """Start a model from saved weights, taking what fits; returns a line for each name that did not."""
    saved = locate(ref)
    return checkpoint.fit_weights(model, checkpoint.read_weights(saved.weights), False, saved.where)
