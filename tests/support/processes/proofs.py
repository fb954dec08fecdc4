"""Configs for every part of the registry; runs cut at chosen instants and compared are the kit's."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pegboard
from pegboard.registry.discovery import Entry, Registry
from pegboard.testing import PARTNERS, Subject, partner_data
from pegboard.testing.runs import cut_and_resumed, differences, points, unequal, watched, whole

# of the kit
__all__ = ["cut_and_resumed", "differences", "partner_data", "points", "unequal", "watched", "whole"]

FOLDER = Path(__file__).parents[1] / "parts"
LOCAL = [str(PARTNERS), str(FOLDER / "proof_parts.py")]
Config = dict[str, Any]

# Three updates an epoch, the last of two batches; rows, saves and evaluations at different steps.
TRAINER = {"epochs": 3, "accumulate": 3, "log_every": 2, "save_every": 4, "device": "cpu"}


def plain(**nodes: Any) -> Config:
    """A config of plain parts; keyword arguments replace its nodes."""
    base: Config = {
        "seed": 5,
        "data": {"name": "partner", "batch_size": 4},
        "model": {"name": "mlp", "hidden": [6]},
        "optimizer": {"name": "adam", "lr": 0.01},
        "trainer": dict(TRAINER),
        "plugins": {"local": LOCAL},
    }
    return base | nodes


@functools.cache
def taught(shelf: Path, target: str) -> Path:
    """A trained network of the same data, made once for each target."""
    given = plain(data={"name": "partner", "target": target}, trainer={"steps": 2}, name=f"teacher-{target}")
    return pegboard.train(given, root=shelf, quiet=True).folder.resolve()


def subject(entry: Entry, shelf: Path) -> Subject:
    return Subject(entry.plugin, entry, _registry(), shelf)


@functools.cache
def _registry() -> Registry:
    return Registry.discover(local=[str(PARTNERS)])


def fields(entry: Entry, shelf: Path) -> Config:
    """The fields with which a part is tried."""
    return subject(entry, shelf).fields


def entries(kind: str) -> list[Entry]:
    """The parts of a kind in the registry of the workspace."""
    return sorted(Registry.discover().entries(kind), key=lambda entry: entry.qualified)


def name_of(entry: Entry) -> str:
    return f"{entry.part.kind}-{entry.part.name}"


def fitting(what: str, configs: Iterable[Config]) -> Config:
    """The first config that the planner accepts; where it accepts none, a failure with its last words."""
    wrong = "nothing to try"
    for config in configs:
        try:
            pegboard.plan(config)
        except pegboard.PegboardError as error:
            wrong = str(error)
        else:
            return config
    raise AssertionError(f"{what} cannot be tried with plain partners. The planner said last:\n{wrong}")


def tried(entry: Entry, shelf: Path) -> Config:
    """A config that trains with one part, beside the kit's partners."""
    return subject(entry, shelf).config


def all_tricks(shelf: Path) -> Config:
    """As many tricks of the registry at once as stand beside each other."""
    chosen: dict[str, Any] = {}
    for entry in entries("regularizer"):
        more = {**chosen, entry.part.name: {"name": entry.qualified, **fields(entry, shelf)}}
        try:
            pegboard.plan(plain(regularizers=more))
        except pegboard.PegboardError:
            continue
        chosen = more
    return plain(regularizers=chosen)
