"""Plugins and their parts: discovery, lazy import, isolation of what is broken.

Discovery never raises, whatever a plugin does: each ends in one status. Use raises: a config that
names a part of a broken plugin is told the original cause, the distribution and the phase.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import importlib.util
import json
import os
import sys
import time
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import pluggy

from . import hookspecs
from .errors import PegboardError
from .parts import (
    NAME,
    Dataset,
    Model,
    ObjectivePart,
    Optimizer,
    Part,
    ProbePart,
    Regularizer,
    Schedule,
    TrackerPart,
)
from .version import __version__

GROUP = "pegboard"
KINDS: dict[str, type[Part[Any, Any]]] = {
    cls.kind: cls
    for cls in (Model, Optimizer, Schedule, Regularizer, Dataset, ObjectivePart, TrackerPart, ProbePart)
}
HOOKS: dict[str, tuple[type[Part[Any, Any]], ...]] = {
    "pegboard_models": (Model,),
    "pegboard_optimizers": (Optimizer, Schedule),
    "pegboard_regularizers": (Regularizer,),
    "pegboard_datasets": (Dataset,),
    "pegboard_objectives": (ObjectivePart,),
    "pegboard_trackers": (TrackerPart,),
    "pegboard_probes": (ProbePart,),
}


@dataclass
class Plugin:
    """One installed or local plugin and what became of it."""

    name: str  # of the entry point
    dist: str  # distribution, or the path of a local file
    version: str
    status: str = "found"  # ready, disabled, incompatible, shadowed, broken
    phase: str = ""  # where it broke: import, register, hook, collect, record, schema
    reason: str = ""
    error: BaseException | None = field(default=None, repr=False)
    parts: list[Part[Any, Any]] = field(default_factory=list, repr=False)
    recipes: list[Path] = field(default_factory=list, repr=False)
    milliseconds: float = 0.0  # of its own import

    @property
    def state(self) -> str:
        return f"broken({self.phase})" if self.status == "broken" else self.status


@dataclass(frozen=True)
class Entry:
    """A part with the plugin that provides it."""

    part: Part[Any, Any]
    plugin: Plugin

    @property
    def qualified(self) -> str:
        return f"{self.plugin.dist}:{self.part.name}"


class UnknownPart(PegboardError):
    """A name that no ready plugin offers; the fields say what a person needs to mend it."""

    def __init__(self, message: str, expected: str = "", nearest: Sequence[str] = (), hint: str = "") -> None:
        super().__init__("\n".join(filter(None, (message, expected, hint))))
        self.message, self.expected, self.nearest, self.hint = message, expected, tuple(nearest), hint
