"""Installed plugins as their metadata describes them: none of their code runs here."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from .memo import Offers
from .parts import Part
from .version import __version__

GROUP = "pegboard"


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
    offers: Offers = frozenset()  # what it offered when it was last imported, while it waits
    waits: Callable[[], None] | None = field(default=None, repr=False)  # imports it, where that was put off

    @property
    def option(self) -> str:
        """What a command needs to know a part of it."""
        return f" --local {self.dist}" if self.version == "local" else ""

    @property
    def state(self) -> str:
        return f"broken({self.phase})" if self.status == "broken" else self.status


def find_installed() -> Iterator[tuple[Plugin, metadata.EntryPoint, metadata.Distribution]]:
    """Plugins named by entry points, and who brings them; runs no plugin code."""
    found: list[tuple[str, str, str, metadata.Distribution, metadata.EntryPoint]] = []
    for dist in metadata.distributions():
        try:
            if points := _points(dist.read_text("entry_points.txt") or ""):
                name, version = _named(dist)
                found += [(name, p.name, version, dist, p) for p in points]
        except Exception:  # a damaged installation is not ours to report
            continue
    first: dict[str, metadata.Distribution] = {}
    for name, _, _, dist, _ in found:  # earlier on sys.path wins, as for imports
        first.setdefault(name.lower().replace("_", "-"), dist)
    for name, point_name, version, dist, point in sorted(found, key=lambda f: f[:2]):
        plugin = Plugin(point_name, name.lower().replace("_", "-"), version)
        if first[plugin.dist] is not dist:
            plugin.status, plugin.reason = "shadowed", "another copy stands earlier on sys.path"
        yield plugin, point, dist


def _points(text: str) -> list[metadata.EntryPoint]:
    """The entry points of our group in the text of an `entry_points.txt`; reading it once more costs time."""
    found, ours = [], False
    for line in map(str.strip, text.splitlines() if f"[{GROUP}]" in text else ()):
        if line.startswith("[") and line.endswith("]"):
            ours = line == f"[{GROUP}]"
        elif ours and line and not line.startswith("#"):
            name, _, value = line.partition("=")
            found.append(metadata.EntryPoint(name.strip(), value.strip(), GROUP))
    return found


def _named(dist: metadata.Distribution) -> tuple[str, str]:
    """Name and version of a distribution."""
    text = dist.read_text("METADATA") or ""  # parsing all of it takes longer than all the rest
    found = [re.search(rf"^{head}:[ \t]*(\S+)", text, re.M | re.I) for head in ("Name", "Version")]
    if all(found):
        return found[0][1], found[1][1]  # type: ignore[index]
    return dist.metadata["Name"] or "unknown", dist.version or "unknown"


def installed() -> set[str]:
    """Names and distributions of the installed plugins; runs no plugin code."""
    return {name for plugin, _, _ in find_installed() for name in (plugin.name, plugin.dist)}


def negotiate(plugin: Plugin, requires: Sequence[str]) -> None:
    """Compare the plugin's own requirement on the core with this core, before its code is imported."""
    from packaging.requirements import Requirement

    for text in requires:
        try:
            need = Requirement(text)
            applies = need.marker is None or need.marker.evaluate({"extra": ""})
        except ValueError:  # not a requirement, or a condition that cannot be decided
            continue
        if need.name.lower() == "pegboard" and applies:
            if not need.specifier.contains(__version__, prereleases=True):
                plugin.status = "incompatible"
                plugin.reason = f"needs pegboard{need.specifier}, this is {__version__}"
            return
