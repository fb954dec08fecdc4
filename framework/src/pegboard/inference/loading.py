"""Models from runs, checkpoints and the zoo. Nothing read here is executed.

A saved config may have come from anybody, so that the Python files it names as local plugins are run
only where the user has named them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from ..base.errors import PegboardError
from ..config.check import check
from ..config.errors import ConfigError
from ..config.load import Loaded
from ..config.load import load as load_config
from ..config.load import locate as placed
from ..config.nodes import Settings
from ..config.steppers import without_choice
from ..config.trained_models import weights_alone
from ..contract.kinds import spare_sections
from ..contract.records import Context
from ..contract.results import Codec
from ..contract.specs import DataSpec
from ..engine.precision import choose_device
from ..planning.plan import Plan, build_network, make_plan
from ..registry.discovery import Registry, UnknownPart, was_run
from ..registry.installed import find_installed, names_of
from ..registry.spec_names import SpecNames, from_json
from ..store import checkpoint
from ..store.names import CONFIG, DATA, ENVIRONMENT, WEIGHTS
from ..store.run_reader import fold_count, fold_folder, not_a_run, read_object

ZOO = "zoo:"


@dataclass
class Saved:
    """Something that weights can be loaded from."""

    config: Path  # the resolved config of the run that made them
    weights: Path
    manifest: Mapping[str, Any]  # what was noted beside the weights
    where: str  # for messages

    def spec(self, names: SpecNames, prefer: str = "") -> DataSpec:
        """What the data of the run holds; classes of plugins are found among `names`."""
        try:
            return from_json(self.manifest["spec"], lambda name, keys: names.find(name, keys, prefer))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise PegboardError(
                f"{self.where}: the manifest does not say what the data holds: {error}"
            ) from None


def locate(ref: str | Path, which: str = "best") -> Saved:
    """What a run folder, a checkpoint folder or `zoo:name` holds."""
    text = str(ref)
    if text.startswith(ZOO):
        from ..store.zoo import find_recipe

        recipe = find_recipe(text.removeprefix(ZOO))
        weights = recipe.folder / WEIGHTS
        if not weights.is_file():
            raise PegboardError(
                f"{text} is a recipe without weights: make them with pegboard zoo train {recipe.name}"
            )
        return Saved(recipe.config, weights, recipe.result, text)
    if folds := fold_count(Path(ref)):
        raise PegboardError(
            f"{text} is a cross-validation of {folds} runs, and has no weights of its own\n"
            f"name one of them, as {fold_folder(Path(ref), 0)}"
        )
    if Path(ref).is_symlink() and not Path(ref).exists():
        raise PegboardError(not_a_run(Path(ref)))
    folder = checkpoint.find(ref, which)
    manifest = checkpoint.read_manifest(folder)
    checkpoint.verify(folder, manifest)
    config = folder.resolve().parent.parent / CONFIG
    if not config.is_file():
        raise PegboardError(
            f"{text}: no {config.name} beside the folder checkpoints/, so the model is unknown"
        )
    return Saved(config, folder / WEIGHTS, manifest, text)


def restore(ref: str | Path, which: str, settings: Settings) -> Codec | None:
    """How the data set of a run reads and writes samples, from the files it kept; None where it has none."""
    part: Any = settings.data.entry.part
    if part.restore is None:
        return None
    if str(ref).startswith(ZOO):
        from ..store.zoo import find_recipe

        recipe = find_recipe(str(ref).removeprefix(ZOO))
        folder, hashes = recipe.folder / DATA, recipe.result.get("files")
    else:
        run = checkpoint.find(ref, which).resolve().parent.parent
        folder, data = run / DATA, (read_object(run / ENVIRONMENT) or {}).get("data")
        hashes = data.get("files") if isinstance(data, dict) else None
    if not folder.is_dir():
        return None
    _verify(folder, hashes if isinstance(hashes, dict) else {})
    try:
        made: Codec = part.restore(settings.data.config, folder)
    except PegboardError:
        raise
    except Exception as error:  # of a file that is not what the data set wrote
        what = f"{type(error).__name__}: {error}".splitlines()[0]
        raise PegboardError(
            f"data set {part.name!r} cannot read what it kept in {folder}: {what}\n"
            "without that folder the data itself is read"
        ) from error
    return made


def _verify(folder: Path, hashes: Mapping[Any, Any]) -> None:
    """Compare the files that a data set kept with the hashes that were noted with them."""
    wrong = []
    for name, digest in hashes.items():
        path = folder / Path(str(name)).name
        if not path.is_file():
            wrong.append(f"{path} is not there")
        elif checkpoint.digest(path) != digest:
            wrong.append(f"{path} is damaged: its hash is not the one that was noted with it")
    if wrong:
        raise PegboardError("\n".join([*wrong, f"without the folder {folder} the data itself is read"]))


def read_saved(config: Path, local: Sequence[str | Path] = (), overrides: Sequence[str] = ()) -> Loaded:
    """A config that came with a run or a recipe, with `local` in place of the local plugins it names.

    Files that were run in this process already, because the user named them, need not be named again.
    """
    loaded = load_config(config, overrides, inside=config.parent if config.name == CONFIG else None)
    if loaded.mistakes:
        raise ConfigError([placed(m, loaded) for m in loaded.mistakes], loaded.title)
    plugins = loaded.tree["plugins"] = loaded.tree.get("plugins") or {}
    written = plugins.get("local") or [] if isinstance(plugins, dict) else None
    if not isinstance(written, list) or not all(isinstance(name, str) for name in written):
        raise PegboardError(f"{config}: found no list of files after plugins.local, expected one")
    named = [config.parent / name for name in written]
    unknown = [path for path in named if not was_run(path)]
    if unknown and not local:
        files = " ".join(f"--local {path}" for path in named)
        listed = ", ".join(map(str, named))
        raise PegboardError(
            f"{config} names the Python file {unknown[0]}, and a config that came with a run or a recipe "
            f"runs no files by itself\nif you trust it, name it: {files} (in Python: local=[...]; where the "
            f"config of another run names this one: plugins.local=[{listed}])"
        )
    plugins["local"] = [str(Path(path).absolute()) for path in local or named]
    return loaded


def structure(saved: Saved, local: Sequence[str | Path] = ()) -> tuple[Settings, DataSpec]:
    """The settings of a saved model, without what is not needed to use it, and its spec.

    Its data, which the spec describes, need not be there.
    """
    loaded = read_saved(saved.config, local)
    tree = loaded.tree
    registry = _discover(tree["plugins"])
    tricks, model = tree.get("regularizers"), tree.get("model")
    for key, node in list(tricks.items()) if isinstance(tricks, dict) else ():
        name = node.get("name", key) if isinstance(node, dict) else key
        try:
            part: Any = registry.lookup("regularizer", name if isinstance(name, str) else key).part
        except UnknownPart:
            continue  # the check says it better
        if not {"hang", "edit_model"} & set(part.stages):
            del tree["regularizers"][key]
    for section in spare_sections():
        tree.pop(section, None)
    if isinstance(trainer := tree.get("trainer"), dict):
        tree["trainer"] = without_choice(trainer)
    if isinstance(model, dict):
        model.pop("weights", None)
    spec = saved.spec(registry.specs, _data_plugin(tree.get("data"), registry))
    return check(loaded, registry=registry, spec=spec), spec


def _discover(plugins: Mapping[str, Any]) -> Registry:
    """The plugins of a run, with those switched off that its config switches off and that are here."""
    here = names_of(find_installed())
    given = {key: plugins.get(key) for key in ("disable", "only")}
    listed = {
        key: [name for name in names if name in here]
        for key, names in given.items()
        if isinstance(names, list)
    }
    return Registry.discover(local=plugins["local"], **listed)


def _data_plugin(node: Any, registry: Registry) -> str:
    """The distribution that a run's data set is of; "" where that is not known."""
    name = node.get("name") if isinstance(node, dict) else node
    try:
        return registry.lookup("dataset", name).plugin.dist if isinstance(name, str) else ""
    except UnknownPart:
        return ""


def load_model(
    ref: str | Path,
    device: str = "cpu",
    which: str = "best",
    strict: bool = True,
    local: Sequence[str | Path] = (),
) -> tuple[nn.Module, Plan]:
    """A trained model in eval mode, and the plan it was built by."""
    device = str(device) if str(device) == "meta" else choose_device(str(device))
    saved = locate(ref, which)
    settings, spec = structure(saved, local)
    plan = make_plan(settings, read=False, spec=spec)

    def built(where: str) -> nn.Module:
        def context(key: str) -> Context:
            return Context(spec=plan.spec, outputs=plan.outputs, device=where, seed=settings.seed, key=key)

        return build_network(plan, context)[0]

    if device == "meta":
        return built("meta").eval(), plan
    weights = checkpoint.read_weights(saved.weights)
    if strict:  # a config that asks for a model larger than its weights gets no memory
        checkpoint.compare_weights(built("meta"), weights, strict, saved.where)
    model = built("cpu")
    checkpoint.fit_weights(model, weights, strict, saved.where)
    return model.to(device).eval(), plan


def load_into(model: nn.Module, ref: str) -> list[str]:
    """Start a model from saved weights, taking what fits; returns a line for each name that did not.

    A model with a method `adopt(state) -> state` gets to rename weights of other implementations first.
    """
    path = weights_file(ref)
    weights = checkpoint.read_file(path) if weights_alone(ref) else checkpoint.read_weights(path)
    if (adopt := getattr(model, "adopt", None)) is not None:
        try:
            weights = adopt(weights)
        except (IndexError, KeyError, RuntimeError, ValueError) as error:  # shapes of another architecture
            what = f"{type(error).__name__}: {error}".splitlines()[0]
            raise PegboardError(
                f"the weights of {ref} are not of this model's architecture: {what}"
            ) from error
    return checkpoint.fit_weights(model, weights, False, ref)


def weights_file(ref: str) -> Path:
    """The file of weights that a run folder, a checkpoint folder, `zoo:name` or its own path means."""
    return Path(ref) if weights_alone(ref) else locate(ref).weights
