"""Specs in the files of a run, by names with the plugin that defines them: `pegboard-video:Video`.

A spec of the core has a bare name. One of an installed plugin stands behind the name of its distribution,
one of a local file behind the name of the file, `video.py:Video`, with as many folders as tell it from other
local files of that name. A plugin needs no hook for its specs: they are found where its light module defines
or imports them.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import fields
from importlib import metadata
from math import isfinite
from pathlib import Path, PurePath
from types import ModuleType
from typing import Any

from ..base import moved
from ..base.errors import PegboardError
from ..base.nearest import nearest
from ..contract.specs import DataSpec, Spec, SpecType, core_specs, subclasses
from .installed import Plugin

MOST = 2**40  # of a size that a file states


class UnknownSpec(PegboardError, ValueError):
    """A name in a file that no spec has, or several have."""


def light_specs(plugin: Plugin, module: ModuleType) -> tuple[SpecType, ...]:
    """The specs that exist once the light module of a plugin is imported: its own, and those it imports."""
    declared = ("inputs", "targets", "default_for")
    named = [cls for part in plugin.parts for name in declared for cls in getattr(part, name, ())]
    named += [value for value in list(vars(module).values()) if isinstance(value, type)]
    theirs = [cls for cls in subclasses() if cls.__module__ != Spec.__module__]
    own = [cls for cls in theirs if _depth(cls.__module__, plugin)]
    found = (cls for cls in (*own, *named) if issubclass(cls, Spec) and cls.__module__ != Spec.__module__)
    return tuple(dict.fromkeys(found))


class SpecNames:
    """The specs of the core and of plugins that are ready, by their names in files."""

    def __init__(self, plugins: Sequence[Plugin]) -> None:
        self._plugins = plugins

    def name(self, cls: SpecType) -> str:
        """The name by which `find` gives this class again, in another process too."""
        if cls.__module__ == Spec.__module__:
            return cls.__name__
        owner = self.owner(cls)
        self._import(owner)
        known = [other for other in self._known() if self.owner(other) == owner]
        if cls not in known:
            for plugin in self._plugins:
                if plugin.dist == owner and plugin.status != "ready":
                    state = f"plugin {plugin.name!r} is {plugin.state}: {plugin.reason}"
                    raise PegboardError(f"the spec {cls.__name__} is of {owner}, whose {state}")
            raise PegboardError(
                f"the spec {cls.__name__} of {owner} cannot be found again once the run is over: the light "
                f"module of its plugin does not import {cls.__module__}\n"
                "define it there, or import it there: a spec is a dataclass and needs no torch"
            )
        alone = [other for other in known if other.__name__ == cls.__name__] == [cls]
        return f"{owner}:{cls.__name__ if alone else _path(cls)}"

    def find(self, name: str, keys: Collection[str] = (), prefer: str = "") -> SpecType:
        """The class that a name in a file means.

        A bare name that the core does not have, as older runs wrote them, is that of the only plugin with
        such a spec, one with the fields `keys`, or of the distribution `prefer`.
        """
        owner, _, label = name.rpartition(":")
        if not owner:
            return self._find_bare(label, keys, prefer)
        self._import(owner)
        found = [cls for cls in self._known() if label in (cls.__name__, _path(cls))]
        if not found:
            found = [cls for cls in self._known(whole=True) if label in (cls.__name__, _path(cls))]
        matches = [cls for cls in found if self.owner(cls) == owner]
        if not matches and owner.endswith(".py"):  # the file may stand elsewhere now
            local = {cls: self._local(cls) for cls in found}
            matches = [cls for cls, path in local.items() if path and path.name == PurePath(owner).name]
            matches = matches or [cls for cls, path in local.items() if path]
        if len(matches) == 1:
            return matches[0]
        raise UnknownSpec(self._explain(name, owner, matches))

    def _find_bare(self, name: str, keys: Collection[str], prefer: str) -> SpecType:
        def fits(cls: SpecType) -> bool:
            return {f.name for f in fields(cls) if f.init} >= set(keys)

        if (core := core_specs().get(name)) is not None and fits(core):
            return core
        found = [cls for cls in self._known(whole=True) if cls.__name__ == name and fits(cls)]
        wanted = [prefer, moved.owner(name)]  # of the core once, it was no other plugin's
        preferred = [cls for cls in found if self.owner(cls) in wanted]
        matches = preferred if len(preferred) == 1 else found
        if len(matches) == 1:
            return matches[0]
        raise UnknownSpec(self._explain(name, "", matches))

    def _explain(self, name: str, owner: str, matches: Sequence[SpecType]) -> str:
        if matches:
            several = ", ".join(sorted(self._qualified(cls) for cls in matches))
            return f"several specs are called {name!r}: {several}"
        text = f"unknown spec {name!r}"
        owner = owner or moved.owner(name)
        meant = [p for p in self._plugins if not p.local and owner in (p.dist, p.name)]
        if owner.endswith(".py"):
            return f"{text}: it is of a local plugin, name the file: --local {owner}"
        if not owner:
            text += ": is the plugin that defines it installed?"
        elif not meant:
            return f"{text}: {owner} is not installed\npip install {owner}"
        elif meant[0].status != "ready":
            return f"{text}: plugin {meant[0].name!r} of {owner} is {meant[0].state}: {meant[0].reason}"
        else:
            text += f": {owner} {meant[0].version} defines no such spec"
        names = [self._qualified(cls) for cls in self._known(whole=True)]
        label = name.rpartition(":")[2]
        near = [n for n in names if re.search(rf"[:.]{re.escape(label)}$", n)] or nearest(name, core_specs())
        return text + (f"; did you mean {near[0]!r}?" if near else "")

    def _qualified(self, cls: SpecType) -> str:
        return f"{self.owner(cls)}:{_path(cls)}"

    def _known(self, whole: bool = False) -> list[SpecType]:
        if whole:
            for plugin in self._plugins:
                _ready(plugin)
        ready = [plugin for plugin in self._plugins if plugin.status == "ready"]
        return list(dict.fromkeys(cls for plugin in ready for cls in plugin.specs))

    def _import(self, owner: str) -> None:
        for plugin in self._plugins:
            if owner == plugin.dist:
                _ready(plugin)

    def owner(self, cls: SpecType) -> str:
        """The distribution or the local file that defines a class."""
        if cls.__module__ == Spec.__module__:
            return "pegboard"
        if (path := self._local(cls)) is not None:
            return _apart(path, self._files())
        depths = {p.dist: _depth(cls.__module__, p) for p in self._plugins if not p.local}
        deepest = max(depths.values(), default=0)
        found = [dist for dist, depth in depths.items() if depth == deepest > 0]
        if len(found) == 1:
            return found[0]
        top = cls.__module__.partition(".")[0]  # of a library that plugins share, or of a shared namespace
        dists = metadata.packages_distributions().get(top, [])
        return dists[0] if len(set(dists)) == 1 else top

    def _local(self, cls: SpecType) -> Path | None:
        """The local file that defines a class."""
        for plugin in self._plugins:
            if plugin.local and getattr(plugin.module, "__name__", None) == cls.__module__:
                return Path(plugin.dist)
        return None

    def _files(self) -> list[Path]:
        return [Path(plugin.dist) for plugin in self._plugins if plugin.local]


def to_json(spec: DataSpec, name: Callable[[SpecType], str] | None = None) -> dict[str, Any]:
    """A form of the spec that JSON holds, read back by `from_json`.

    `name` gives the name of a class that is not the core's; without it such a class is a ValueError.
    """

    def one(s: Spec) -> dict[str, Any]:
        values = {f.name: getattr(s, f.name) for f in fields(s) if f.init}
        return {"type": (name or _core_name)(type(s)), **{k: _plain(v, one) for k, v in values.items()}}

    target = None if spec.target is None else one(spec.target)
    return {"inputs": [one(s) for s in spec.inputs], "target": target, "names": list(spec.names)}


def from_json(
    data: Mapping[str, Any], find: Callable[[str, Collection[str]], SpecType] | None = None
) -> DataSpec:
    """The spec that `to_json` wrote; a type that is not known is a ValueError.

    `find` gives the class of a name and of the names of its fields; without it only the core's are known.
    """

    def one(entry: Mapping[str, Any]) -> Spec:
        values = {k: _read(v, one) for k, v in entry.items() if k != "type"}
        cls = (find or _core_spec)(entry["type"], values)
        _check_values(cls, values)
        try:
            return cls(**values)
        except Exception as error:  # of a spec's own checks, or fields that it does not have
            raise ValueError(f"{cls.__name__} cannot be made of {values!r:.200}: {error}") from error

    target = None if data["target"] is None else one(data["target"])
    return DataSpec(tuple(one(s) for s in data["inputs"]), target, tuple(data["names"]))


def _plain(value: Any, one: Callable[[Spec], dict[str, Any]]) -> Any:
    """The value of a field as JSON holds it; a spec inside a spec keeps its type."""
    if isinstance(value, Spec):
        return one(value)
    return [_plain(v, one) for v in value] if isinstance(value, tuple) else value


def _read(value: Any, one: Callable[[Mapping[str, Any]], Spec]) -> Any:
    """The value of a field from JSON: lists were tuples, and a mapping with a type is a spec."""
    if isinstance(value, Mapping) and "type" in value:
        return one(value)
    return tuple(_read(v, one) for v in value) if isinstance(value, list) else value


def _check_values(cls: SpecType, values: Mapping[str, Any]) -> None:
    """Refuse what no data set writes, before a model is built by it."""
    ours = (
        cls.__module__ == Spec.__module__
    )  # a plugin's own spec may hold anything but sizes beyond all memory
    for name, value in values.items():
        number = isinstance(value, int) and (-1 if ours else -MOST) <= value < MOST
        words = isinstance(value, tuple) and all(isinstance(v, str) for v in value)
        units = isinstance(value, tuple) and all(isinstance(v, float) and isfinite(v) for v in value)
        if value is not None and not (number or words or units) and (ours or isinstance(value, int)):
            raise ValueError(f"{name} of {cls.__name__} is {value!r:.40}")


def _core_name(cls: SpecType) -> str:
    if cls.__module__ != Spec.__module__:
        raise ValueError(f"{cls.__name__} is a spec of {cls.__module__}, and its plugin is not known here")
    return cls.__name__


def _core_spec(name: str, keys: Collection[str]) -> SpecType:
    if name not in (known := core_specs()):
        raise ValueError(f"unknown spec {name!r}: is the plugin that defines it installed?")
    return known[name]


def check_record(spec: DataSpec, names: SpecNames) -> None:
    """Refuse specs of plugins that files of a run cannot hold, or not with the same values."""
    specs = [s for s in (*spec.inputs, spec.target) if s is not None]
    if all(type(s).__module__ == Spec.__module__ for s in specs):
        return
    try:
        found = from_json(json.loads(json.dumps(to_json(spec, names.name))), names.find)
    except (TypeError, ValueError) as error:
        raise PegboardError(f"{spec} cannot be written to a file and read again: {error}") from None
    again = [s for s in (*found.inputs, found.target) if s is not None]
    for one, other in zip(specs, again, strict=True):
        if one != other:
            raise PegboardError(
                f"{one} comes back from a file as {other}\nexpected fields that are numbers, texts, tuples "
                "of them or specs, compared by value: @dataclass(frozen=True)"
            )


def _ready(plugin: Plugin) -> None:
    if plugin.waits is not None:
        plugin.waits()


def _path(cls: SpecType) -> str:
    """Module and name of a class; the module of a local file has no name that lasts."""
    local = getattr(sys.modules.get(cls.__module__), "__pegboard_local__", False)
    return cls.__qualname__ if local else f"{cls.__module__}.{cls.__qualname__}"


def _depth(module: str, plugin: Plugin) -> int:
    """How closely a module belongs to a plugin: the length of the package they share, 0 for not at all."""
    if plugin.local:
        return int(getattr(plugin.module, "__name__", None) == module)
    light = plugin.target.partition(":")[0].strip()
    for package in filter(None, (light, light.rpartition(".")[0])):
        if module == package or module.startswith(f"{package}."):
            return len(package)
    return 0


def _apart(path: Path, others: Iterable[Path]) -> str:
    """The shortest end of a path that no other file has."""
    whole = path.absolute()
    apart = [o for o in map(Path.absolute, others) if o.name == whole.name and o != whole]
    for count in range(1, len(whole.parts)):
        end = whole.parts[-count:]
        if not any(other.parts[-count:] == end for other in apart):
            return "/".join(end)
    return whole.as_posix()
