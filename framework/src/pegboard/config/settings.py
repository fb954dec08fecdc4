"""Settings from parts that were read and found right, and the config in full."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..contract.specs import DataSpec
from ..registry.discovery import Registry
from .fields import plain
from .merge import KEYED
from .nodes import Chosen, DataOptions, ModelOptions, Origin, Plugins, RegularizerOptions, Settings, Trainer
from .sections import Read

_PLAYER = re.compile(r"optimizer\.players\.((?:(?!\.schedule$).)*)")


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
    batches, start = reads["data"].options, reads["model"].options
    assert isinstance(batches, DataOptions) and isinstance(start, ModelOptions)
    keyed: dict[str, dict[str, Chosen]] = {section: {} for section in KEYED}
    for path in sorted(reads):
        section, _, key = path.partition(".")
        if section in KEYED:
            keyed[section][key] = _chosen(path, reads)
    tricks = keyed["regularizers"]
    hangs = any("hang" in getattr(c.entry.part, "stages", ()) for c in tricks.values())
    start = replace(start, infer_pegs=hangs if start.infer_pegs is None else start.infer_pegs)
    players = {match[1]: path for path in reads if (match := _PLAYER.fullmatch(path))}

    def maybe(path: str) -> Chosen | None:
        return _chosen(path, reads) if path in reads else None

    settings = Settings(
        name=whole.name,
        seed=whole.seed,
        data=_chosen("data", reads),
        batches=batches,
        model=_chosen("model", reads),
        weights=start.weights,
        infer_pegs=bool(start.infer_pegs),
        optimizer=_chosen("optimizer", reads),
        schedule=maybe("optimizer.schedule"),
        player_optimizers={n: (_chosen(p, reads), maybe(f"{p}.schedule")) for n, p in players.items()},
        objective=maybe("objective"),
        reference=maybe("reference"),
        **keyed,
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
    return replace(settings, plain=_plain(settings, start, registry))


def _chosen(path: str, reads: Mapping[str, Read]) -> Chosen:
    read = reads[path]
    keyed = path.partition(".")[0] in KEYED
    players = read.options.players if isinstance(read.options, RegularizerOptions) else ()
    key = path.partition(".")[2] if keyed else path.rpartition(".")[2]
    return Chosen(key=key, path=path, entry=read.entry, config=read.config, players=players)


def _plain(settings: Settings, start: ModelOptions, registry: Registry) -> dict[str, Any]:
    """The config in full: training from it alone repeats the run."""

    def node(chosen: Chosen | None, *options: Any) -> dict[str, Any] | None:
        if chosen is None:
            return None
        keys: dict[str, Any] = {"name": registry.reference(chosen.entry)}
        for part in (*options, chosen.config):
            keys.update(plain(part))
        return keys

    def keyed(key: str, chosen: Chosen) -> dict[str, Any]:
        players = [{"players": chosen.players}] if chosen.players else []
        keys = node(chosen, *players) or {}
        return {k: v for k, v in keys.items() if k != "name" or v != key}

    optimizer = node(settings.optimizer) or {}
    optimizer["schedule"] = node(settings.schedule)
    if settings.player_optimizers:
        optimizer["players"] = {
            player: {**(node(own) or {}), "schedule": node(schedule)}
            for player, (own, schedule) in settings.player_optimizers.items()
        }
    whole = {
        "name": settings.name,
        "seed": settings.seed,
        "data": node(settings.data, settings.batches),
        "model": node(settings.model, start),
        "optimizer": optimizer,
        "objective": node(settings.objective),
        "reference": node(settings.reference),
        "probes": {key: keyed(key, c) for key, c in settings.probes.items()} or None,
        "regularizers": {key: keyed(key, c) for key, c in settings.regularizers.items()},
        "trainer": plain(settings.trainer),
        "trackers": {key: keyed(key, c) for key, c in settings.trackers.items()},
        "plugins": plain(settings.plugins),
    }
    return {key: value for key, value in whole.items() if value is not None}
