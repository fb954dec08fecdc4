"""What is going away: how the core tells the authors of plugins, at the line they will have to change.

The calendar is in docs/compatibility.md: what is deprecated works and warns for at least two minor releases,
is an error from the next major release on, and is gone one minor release later.
"""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from importlib.metadata import entry_points
from pathlib import Path
from types import FrameType
from typing import Any

OURS = str(Path(__file__).parents[1]) + os.sep

Place = tuple[str, int]  # a file and a line in it
_told: set[tuple[Place, str]] = set()


class PegboardDeprecationWarning(FutureWarning):
    """A plugin uses something of the core that is going away. Users see it, and it names whom to tell."""


def deprecated(what: str, instead: str, since: str, who: str = "", at: Place | None = None) -> None:
    """Warn once a process that a plugin uses `what`, deprecated since the release `since`.

    `at` is where its author wrote that, and `who` the plugin. Without them they are the line that led into
    the core, and the plugin whose code it is.
    """
    frame = _caller()
    at = at or (frame.f_code.co_filename, frame.f_lineno)
    if (at, what) in _told:
        return
    who = who or _owner(str(frame.f_globals.get("__name__", "")))
    major = int(since.split(".")[0]) + 1
    text = f"{what} is deprecated since pegboard {since} and an error from {major}.0 on; {instead}"
    if who:
        text = f"{who}: {text}"
    warnings.warn_explicit(PegboardDeprecationWarning(text), PegboardDeprecationWarning, *at)
    _told.add((at, what))


def renamed(cls: str, old: str, new: str, since: str) -> property:
    """An attribute under its old name, for the body of a class that plugins read:

    stage = renamed("Context", "stage", "phase", since="0.3")
    """

    def read(self: Any) -> Any:
        deprecated(f"{cls}.{old}", f"read {cls}.{new}", since)
        return getattr(self, new)

    return property(read, doc=f"Deprecated: {new}.")


def moved(name: str, module: str, since: str) -> Any:
    """A name of `pegboard` that a plugin has now, with a warning; an ImportError says what to install."""
    new = f"from {module} import {name}"
    try:
        home = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        dist = module.replace("_", "-")
        raise ImportError(
            f"pegboard.{name} is part of {dist}, which is not installed\npip install {dist}, then: {new}",
            name=module,
        ) from None
    deprecated(f"pegboard.{name}", f"write {new}", since)
    return getattr(home, name)


def _caller() -> FrameType:
    """The innermost call that is neither the core's nor the import statement's own."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith((OURS, "<frozen importlib")):
        frame = frame.f_back
    return frame


def _owner(module: str) -> str:
    """The plugin a module belongs to: the one whose light module shares most of its name; "" for none."""
    lights = {
        point.module: f"{point.dist.name} {point.dist.version} (plugin {point.name!r})"
        for point in entry_points(group="pegboard")
        if point.dist is not None
    }
    while module:
        for light, title in lights.items():
            if f"{light}.".startswith(f"{module}."):
                return title
        module = module.rpartition(".")[0]
    return ""
