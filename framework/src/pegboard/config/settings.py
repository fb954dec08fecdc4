"""Settings from parts that were read and found right, and the config in full."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..contract.kinds import sections
from ..contract.options import ModelOptions
from ..contract.specs import DataSpec
from ..registry.discovery import Registry
from .fields import plain
from .nodes import Chosen, Origin, Plugins, Settings, Trainer
from .sections import Read, top_keys
from .steppers import SECTION, choice


@dataclass(frozen=True)
class Whole:
    """What a config says besides its parts."""

    name: str
    seed: int
    trainer: Trainer
    plugins: Plugins
    spec: DataSpec | None
    origins: Mapping[str, Origin]
    values: Mapping[str, Origin]
    file: Path | None
    notes: tuple[str, ...]
    begun: bool


def settle(whole: Whole, reads: Mapping[str, Read], registry: Registry) -> Settings:
    """The settings of a config in which nothing is wrong."""
    settings = Settings(
        name=whole.name,
        seed=whole.seed,
        parts=_parts(reads),
        trainer=whole.trainer,
        plugins=whole.plugins,
        spec=whole.spec,
        plain={},
        origins=whole.origins,
        values=whole.values,
        file=whole.file,
        notes=whole.notes,
        begun=whole.begun,
        registry=registry,
    )
    return replace(settings, plain=_plain(settings, registry))


def _parts(reads: Mapping[str, Read]) -> dict[str, Chosen]:
    """Every part by its path, in the order of a config."""
    top, keyed = top_keys(), {name for name, (section, _) in sections().items() if section.keyed}

    def place(path: str) -> tuple[int, str]:
        section = path.partition(".")[0]
        return top.index(section), path if section in keyed else ""

    parts = {}
    for path in sorted(reads, key=place):
        section, _, key = path.partition(".")
        key = key if section in keyed else path.rpartition(".")[2]
        read = reads[path]
        parts[path] = Chosen(key=key, path=path, entry=read.entry, config=read.config, options=read.options)
    start = parts["model"].options
    assert isinstance(start, ModelOptions)
    if start.infer_pegs is None:
        hangs = any("hang" in getattr(c.entry.part, "stages", ()) for c in parts.values())
        parts["model"] = replace(parts["model"], options=replace(start, infer_pegs=hangs))
    return parts


def _plain(settings: Settings, registry: Registry) -> dict[str, Any]:
    """The config in full: training from it alone repeats the run."""

    names = {path: registry.reference(chosen.entry) for path, chosen in settings.parts.items()}

    def node(path: str) -> dict[str, Any] | None:
        if (chosen := settings.parts.get(path)) is None:
            return None
        own = {} if chosen.options is None else plain(chosen.options)
        return {"name": names[path], **own, **plain(chosen.config)}

    def keyed(key: str, chosen: Chosen) -> dict[str, Any]:
        keys = node(chosen.path) or {}
        if chosen.options is not None:  # a key of the core is left out where it is at its default
            plain_options = plain(type(chosen.options)())
            keys = {k: v for k, v in keys.items() if k not in plain_options or v != plain_options[k]}
        return {k: v for k, v in keys.items() if k != "name" or v != key}

    whole: dict[str, Any] = {"name": settings.name, "seed": settings.seed}
    rows = sections()
    for name in top_keys()[2:]:
        if name not in rows:
            whole[name] = plain(getattr(settings, name))
        elif rows[name][0].keyed:
            whole[name] = {key: keyed(key, c) for key, c in settings.keyed(name).items()}
            if not (whole[name] or rows[name][0].stated):
                del whole[name]
        elif name != SECTION or not choice(settings.trainer):  # else fields of the trainer stand for it
            whole[name] = node(name)
    optimizer = whole["optimizer"]
    optimizer["schedule"] = node("optimizer.schedule")
    if settings.player_optimizers:
        optimizer["players"] = {
            player: {**(node(own.path) or {}), "schedule": node(f"{own.path}.schedule")}
            for player, (own, _) in settings.player_optimizers.items()
        }
    return {key: value for key, value in whole.items() if value is not None}
