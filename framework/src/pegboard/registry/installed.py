"""Installed plugins as their metadata describes them: none of their code runs here."""

from __future__ import annotations

import os
import re
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..base.version import __version__
from ..contract.records import Part
from ..contract.sampling import SampleMethod
from .offers_cache import Offers

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet

    from ..contract.specs import Spec

GROUP = "pegboard"
UNBOUND = "it does not say with which releases of the core it works"
_NEED = re.compile(r"^Requires-Dist:[ \t]*(pegboard[ \t]*(?:$|[\[(<>=!~;@].*))", re.M | re.I)
_RANGE = re.compile(r"pegboard[ \t]*(?:\[[^\]]*\])?[ \t]*\(?[<>=!~]", re.I)


@dataclass
class Plugin:
    """One installed or local plugin and what became of it."""

    name: str  # of the entry point
    dist: str  # distribution, or the path of a local file
    version: str
    status: str = "found"  # ready, disabled, incompatible, shadowed, broken
    phase: str = ""  # where it broke: import, register, hook, collect, record, schema
    reason: str = ""
    where: str = ""  # file and line at which it broke
    remarks: tuple[str, ...] = ()  # what is amiss, though it can be used
    error: BaseException | None = field(default=None, repr=False)
    parts: list[Part[Any, Any]] = field(default_factory=list, repr=False)
    recipes: list[Path] = field(default_factory=list, repr=False)
    sample_methods: list[SampleMethod] = field(default_factory=list, repr=False)
    specs: tuple[type[Spec], ...] = field(default=(), repr=False)  # that its light module has
    milliseconds: float = 0.0  # of its own import
    offers: Offers = frozenset()  # what it offered when it was last imported, while it is not
    waits: Callable[[], None] | None = field(default=None, repr=False)  # imports it, where that was put off
    target: str = ""  # what the entry point names, or the path of a local file
    needs: tuple[str, ...] = ()  # its requirements on the core
    module: Any = field(default=None, repr=False)  # its light module, once that is imported
    empty: bool = True  # it brings nothing, nor answers for what others use of it
    local: bool = field(init=False)  # it is a file that a config or a command names

    def __post_init__(self) -> None:
        self.local = self.version == "local"

    @property
    def title(self) -> str:
        """How messages to its author call it."""
        return self.dist if self.local else f"{self.dist} {self.version} (plugin {self.name!r})"

    @property
    def offered(self) -> list[str]:
        """What it brings, as a person reads it: kind and name of each."""
        return [f"{kind} {name}" for kind, name in self.names]

    @property
    def names(self) -> list[tuple[str, str]]:
        """Kind and name of what it brings."""
        parts = [(part.kind, part.name) for part in self.parts]
        return [*parts, *((method.kind, method.name) for method in self.sample_methods)]

    @property
    def state(self) -> str:
        return f"broken({self.phase})" if self.status == "broken" else self.status


def raised_at(error: BaseException | None) -> str:
    """File and line of a plugin's code at which an error was raised; a syntax error has its own."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__ if error else None)
    core = str(Path(__file__).parents[1]) + os.sep
    mine = [f for f in frames if not f.filename.startswith(("<", core))]
    own = [f for f in mine if not re.search(r"[\\/](importlib|pluggy)[\\/]", f.filename)]
    return f"{own[-1].filename}:{own[-1].lineno}" if own else ""


Found = tuple[Plugin, metadata.EntryPoint, metadata.Distribution]


def canonical(name: str) -> str:
    """The one spelling of a distribution's name: pip takes `Acme_Norm` and `acme.norm` for the same."""
    return re.sub(r"[-_.]+", "-", name).lower()


def find_installed() -> Iterator[Found]:
    """Plugins named by entry points, and who brings them; runs no plugin code."""
    found: list[tuple[str, str, _Head, metadata.Distribution, metadata.EntryPoint]] = []
    for dist in metadata.distributions():
        try:
            if points := _points(dist.read_text("entry_points.txt") or ""):
                head = _head(dist)
                found += [(canonical(head.name), p.name, head, dist, p) for p in points]
        except Exception:  # a damaged installation is not ours to report
            continue
    first: dict[str, metadata.Distribution] = {}
    for name, _, _, dist, _ in found:  # earlier on sys.path wins, as for imports
        first.setdefault(name, dist)
    for name, point_name, head, dist, point in sorted(found, key=lambda f: f[:2]):
        plugin = Plugin(point_name, name, head.version, target=point.value)
        plugin.needs = head.needs
        if not any(_RANGE.match(need) and "extra" not in need for need in head.needs):
            plugin.reason = UNBOUND
        if first[name] is not dist:
            if place(first[name]) == place(dist):  # a folder that stands on sys.path twice
                continue
            plugin.status, plugin.reason = "shadowed", "another copy stands earlier on sys.path"
        yield plugin, point, dist


def place(dist: metadata.Distribution) -> str:
    """The folder in which a distribution is installed."""
    return str(dist.locate_file(""))


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


class _Head(NamedTuple):
    """What the metadata of a distribution say first."""

    name: str
    version: str
    needs: tuple[str, ...]  # requirements on the core


def _head(dist: metadata.Distribution) -> _Head:
    text = (dist.read_text("METADATA") or "").replace("\r", "").partition("\n\n")[0]
    # Parsing all of it takes longer than all the rest.
    found = [re.search(rf"^{head}:[ \t]*(\S+)", text, re.M | re.I) for head in ("Name", "Version")]
    if all(found):
        return _Head(found[0][1], found[1][1], tuple(_NEED.findall(text)))  # type: ignore[index]
    needs = tuple(_NEED.findall("\n".join(f"Requires-Dist: {need}" for need in dist.requires or ())))
    return _Head(dist.metadata["Name"] or "unknown", dist.version or "unknown", needs)


def names_of(found: Iterable[Found]) -> set[str]:
    """Names and distributions of plugins: the words that mean one."""
    return {name for plugin, _, _ in found for name in (plugin.name, plugin.dist)}


def core_range(needs: Sequence[str]) -> SpecifierSet:
    """The releases of the core that requirements allow, all that apply here taken together."""
    from packaging.requirements import Requirement
    from packaging.specifiers import SpecifierSet

    allowed = SpecifierSet()
    for text in needs:
        try:
            need = Requirement(text)
            applies = need.marker is None or need.marker.evaluate({"extra": ""})
        except ValueError:  # not a requirement, or a condition that cannot be decided
            continue
        if applies:
            allowed &= need.specifier
    return allowed


def negotiate(plugin: Plugin) -> None:
    """Compare the plugin's own requirements on the core with this core, before its code is imported."""
    allowed = core_range(plugin.needs)
    if allowed.contains(__version__, prereleases=True):
        return
    early = any(s.operator in (">=", ">", "~=") and not s.contains(__version__, True) for s in allowed)
    newer = "pegboard" if early else plugin.dist
    plugin.status = "incompatible"
    plugin.reason = f"needs pegboard{allowed}, this is {__version__}; pip install --upgrade {newer}"
