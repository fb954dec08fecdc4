"""Plugins and their parts: discovery, lazy import, isolation of what is broken.

Discovery never raises, whatever a plugin does: each ends in one status. Use raises: a config that
names a part of a broken plugin is told the original cause, the distribution and the phase.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import importlib.machinery
import importlib.util
import json
import linecache
import os
import sys
import time
import traceback
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import pluggy

from ..base.errors import PegboardError
from ..base.nearest import nearest
from ..contract import hookspecs
from ..contract.kinds import KINDS
from ..contract.records import Part
from ..contract.sampling import SampleMethod
from .adapters import adapt
from .enabled import Switches
from .hook_checks import answered, check_hooks, check_records, check_sample_methods, check_schemas, remarks
from .installed import GROUP, Plugin, find_installed, names_of, negotiate, raised_at
from .offers_cache import Memo, Offers
from .spec_names import SpecNames, light_specs

BESIDE_PARTS = ("pegboard_recipes", "pegboard_sample_methods")  # hooks of what no config names
SLOW = 200.0  # milliseconds after which the import of a light module is remarked on


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


class Registry:
    """The plugins that are installed, what became of each, and the parts of those that are ready."""

    def __init__(self, plugins: Iterable[Plugin] = ()) -> None:
        self._plugins = list(plugins)

    @classmethod
    def discover(
        cls,
        local: Sequence[str | Path] = (),
        disable: Sequence[str] = (),
        only: Sequence[str] | None = None,
    ) -> Registry:
        """Every plugin with an entry point in the group `pegboard`, and the local files named.

        `disable` and `only` are the switches of a config; those of the environment and of the user hold too.
        """
        manager = pluggy.PluginManager(GROUP)
        manager.add_hookspecs(hookspecs)
        switches, found = Switches(disable, only), list(find_installed())
        switches.check(names_of(found))
        plugins, memo = [], Memo()
        with contextlib.redirect_stdout(sys.stderr):  # standard output is the command's own
            for plugin, point, dist in found:
                plugins.append(plugin)
                if switches.given and (why := switches.off(plugin)):
                    plugin.status, plugin.reason = "disabled", why
                    plugin.offers = memo.lookup(dist, point)[1] or frozenset()
                elif plugin.status == "found":
                    _consider(plugin, point, dist, manager, memo)
            for path in _each_once(local):
                plugin = Plugin(Path(path).stem, str(path), "local", target=str(path))
                plugins.append(plugin)
                load_plugin(plugin, functools.partial(import_file, Path(path)), manager)
        memo.save()
        registry = cls(plugins)
        registry._enforce()
        return registry

    @property
    def plugins(self) -> list[Plugin]:
        """All of them, each with what became of it."""
        self._import_all()
        return self._plugins

    def _import_all(self) -> None:
        for plugin in self._plugins:
            if plugin.waits is not None:
                plugin.waits()

    def _find(self, kind: str, name: str | None = None) -> list[Entry]:
        """What ready plugins offer of a kind and a name; those known to offer such are imported first."""
        for plugin in self._plugins:
            if plugin.waits is not None and any(k == kind and name in (None, n) for k, n in plugin.offers):
                plugin.waits()
        return [
            Entry(part, plugin)
            for plugin in self._plugins
            if plugin.status == "ready"
            for part in plugin.parts
            if part.kind == kind and name in (None, part.name)
        ]

    def _enforce(self) -> None:
        """The strict switch makes every status an error."""
        if os.environ.get("PEGBOARD_PLUGINS_STRICT") == "1":
            bad = [p for p in self.plugins if p.status not in ("ready", "disabled")]
            if bad:
                lines = "\n".join(f"  {p.name} ({p.dist}): {p.state}: {p.reason}" for p in bad)
                raise PegboardError(f"PEGBOARD_PLUGINS_STRICT=1 and not every plugin is ready:\n{lines}")

    def failed(self, local: Iterable[str | Path]) -> list[Plugin]:
        """Those of the local files that are not ready."""
        return [p for p in self._plugins if p.dist in map(str, local) and p.status != "ready"]

    def insist(self, local: Sequence[str | Path]) -> Registry:
        """This registry, where the local files that a person named are ready; an error where one is not."""
        for plugin in self.failed(local):
            raise PegboardError(f"{plugin.dist} did not load ({plugin.phase}): {plugin.reason}")
        return self

    def entries(self, kind: str) -> list[Entry]:
        """The parts of a kind that ready plugins offer, by name."""
        return sorted(self._find(kind), key=lambda e: (e.part.name, e.plugin.dist))

    def indexed_entries(self, kind: str) -> Iterator[Entry]:
        """Those of them that the core's own list has, plugin by plugin: none is imported before its turn."""
        for plugin in sorted(self._plugins, key=lambda plugin: plugin.dist):
            if plugin.waits is not None and any(
                k == kind and _known(k, n) == plugin.dist for k, n in plugin.offers
            ):
                plugin.waits()
            for part in plugin.parts if plugin.status == "ready" else ():
                if part.kind == kind and self.indexed(Entry(part, plugin)):
                    yield Entry(part, plugin)

    def recipes(self) -> list[tuple[Plugin, Path]]:
        """Folders of recipes with the plugin that brings each."""
        return [(p, folder) for p in self._plugins if p.status == "ready" for folder in p.recipes]

    def sample_methods(self) -> list[tuple[Plugin, SampleMethod]]:
        """What samples trained models, with the plugin that brings each."""
        for plugin in self._plugins:
            if plugin.waits is not None and any(kind == SampleMethod.kind for kind, _ in plugin.offers):
                plugin.waits()
        return [(p, method) for p in self._plugins if p.status == "ready" for method in p.sample_methods]

    def known_methods(self) -> list[tuple[str, str]]:
        """Methods of models by which plugins of the core's own list sample them, and their distributions."""
        return sorted(_index().get(SampleMethod.kind, {}).items())

    def recipe_folders(self) -> list[tuple[str, Path, str]]:
        """Name, folder and distribution of every recipe that a ready plugin brings, by name."""
        found = [
            (config.parent.relative_to(root).as_posix(), config.parent, plugin.dist)
            for plugin, root in self.recipes()
            for config in root.glob("*/*/recipe.yaml")
        ]
        return sorted(found, key=lambda recipe: (recipe[0], recipe[2]))

    def reference(self, entry: Entry) -> str:
        """The shortest name that finds this part again."""
        alone = len(self._find(entry.part.kind, entry.part.name)) == 1
        return entry.part.name if alone else entry.qualified

    def shown(self, entry: Entry) -> str:
        """What `pegboard show` is given to show this part."""
        return self.reference(entry) + (f" --local {entry.plugin.dist}" if entry.plugin.local else "")

    def lookup(self, kind: str, ref: str) -> Entry:
        """The part that `ref` names: `name`, or `plugin:name` where two plugins offer the same."""
        owner, _, name = ref.rpartition(":")
        if not self._find(kind, name):
            self._import_all()  # what a plugin offers may depend on more than its files
        found = [e for e in self._find(kind, name) if not owner or owner in (e.plugin.dist, e.plugin.name)]
        if not found and owner.endswith(".py"):  # a local file that stands elsewhere now
            file = Path(owner).name
            found = [e for e in self._find(kind, name) if e.plugin.local and Path(e.plugin.dist).name == file]
        if len(found) == 1:
            return found[0]
        if found:
            raise UnknownPart(
                f"{len(found)} plugins offer the {kind} {name!r}",
                f"one of {', '.join(repr(e.qualified) for e in found)}",
                [e.qualified for e in found],
                "write the qualified name, or leave one out: plugins.disable",
            )
        raise self._explain_missing(kind, owner, name)

    def unready(self, name: str, kind: str = "", owner: str = "") -> UnknownPart | None:
        """What became of the plugin that a part is of, where that is not ready; `kind` may be left open."""
        kinds = [kind] if kind else [*KINDS]
        for plugin in self.plugins:
            known = any(_known(k, name) == plugin.dist for k in kinds)
            meant = owner in (plugin.name, plugin.dist) if owner else known
            meant = meant or (not owner and plugin.name == name.replace("-", "_"))
            meant = meant or (not owner and any((k, name) in plugin.offers for k in kinds))
            meant = meant or (not owner and _quotes(plugin, name))
            if meant and plugin.status not in ("ready", "shadowed"):
                at = f" ({plugin.where})" if plugin.status == "broken" and plugin.where else ""
                error = UnknownPart(
                    f"{kind or 'part'} {name!r} comes from plugin {plugin.name!r} ({plugin.dist} "
                    f"{plugin.version}), which is {plugin.state}: {plugin.reason}{at}",
                    hint="" if plugin.status == "disabled" else f"see: pegboard plugins doctor {plugin.dist}",
                )
                error.__cause__ = plugin.error
                return error
        return None

    def _explain_missing(self, kind: str, owner: str, name: str) -> UnknownPart:
        """Why no ready plugin offers this part, and what to do."""
        if unready := self.unready(name, kind, owner):
            return unready
        dist = _known(kind, name)
        if dist and owner in ("", dist) and not any(p.dist == dist for p in self.plugins):
            return UnknownPart(
                f"{kind} {name!r} is part of {dist}, which is not installed", hint=f"pip install {dist}"
            )
        names = [e.part.name for e in self._find(kind)]
        others = [k for k in KINDS if self._find(k, name)]
        message = f"unknown {kind} {name!r}"
        if owner and not any(owner in (p.name, p.dist) for p in self.plugins):
            message = f"the plugin {owner!r} is not installed, so it offers no {kind} {name!r}"
        elif others and kind not in others:
            message = f"{name!r} is {_article(others[0])}, not {_article(kind)}"
        elif owner:
            message = f"plugin {owner!r} offers no {kind} {name!r}"
        hint = f"list them: pegboard show {KINDS[kind].plural}"
        if broken := [p.name for p in self.plugins if p.status in ("broken", "incompatible")]:
            hint += f"; plugins that did not load: {_few(broken)} (pegboard plugins doctor)"
        if off := [p.name for p in self.plugins if p.status == "disabled"]:
            hint += f"; plugins that are switched off: {_few(off)} (pegboard plugins list)"
        # A name that is not installed may still be the one that was meant.
        near = nearest(name, [*names, *_index().get(kind, ())])
        return UnknownPart(message, f"one of {', '.join(sorted(set(names))) or 'none installed'}", near, hint)

    def replacement(self, path: str) -> tuple[str, str] | None:
        """The regularizer, and its field, that took over a field of the core's, as trainer.x; None for none.

        One that is not installed is known too, so that it is said what to install.
        """
        for entry in self.entries("regularizer"):
            replaces: dict[str, str] = getattr(entry.part, "replaces", {})
            if path in replaces:
                return self.reference(entry), replaces[path]
        name, _, own = _index().get("moved", {}).get(path, "").partition(".")
        return (name, own) if name else None

    @property
    def specs(self) -> SpecNames:
        """The specs of the core and of its plugins, by their names in files."""
        return SpecNames(self._plugins)

    def indexed(self, entry: Entry) -> bool:
        """Whether the core's own list has this part with this distribution."""
        return _known(entry.part.kind, entry.part.name) == entry.plugin.dist


def _quotes(plugin: Plugin, name: str) -> bool:
    """Whether the file in which a plugin broke names a part so: it may never have said what it offers."""
    if plugin.status != "broken":
        return False
    frames = traceback.extract_tb(plugin.error.__traceback__ if plugin.error else None)
    files = {plugin.where.rpartition(":")[0], *(frame.filename for frame in frames)}
    own = [f for f in files if not f.startswith(str(Path(__file__).parents[1])) and plugin.status == "broken"]
    for file in own:
        with contextlib.suppress(OSError, UnicodeDecodeError):
            text = Path(file).read_text("utf-8")
            if "hookimpl" in text and (f'"{name}"' in text or f"'{name}'" in text):
                return True
    return False


def _article(kind: str) -> str:
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


@functools.cache
def _index() -> dict[str, dict[str, str]]:
    """Which distribution is known to offer which part, installed or not: kind -> name -> distribution.

    Under `moved`, which field of which part has taken the place of a field of the core: path -> part.field.
    """
    index: dict[str, dict[str, str]] = json.loads(
        Path(__file__).with_name("known_parts.json").read_text("utf-8")
    )
    return index


def _known(kind: str, name: str) -> str:
    return _index().get(kind, {}).get(name, "")


def _consider(
    plugin: Plugin,
    point: metadata.EntryPoint,
    dist: metadata.Distribution,
    manager: pluggy.PluginManager,
    memo: Memo,
) -> None:
    """Import a plugin that fits this core; one that is known and unchanged waits until it is used."""
    key, offers = memo.lookup(dist, point)
    if offers is None:
        negotiate(plugin)
        if plugin.status == "found":
            load_plugin(plugin, point.load, manager)
            memo.keep(key, _offered(plugin))
        return

    def load() -> None:
        plugin.waits = None
        with contextlib.redirect_stdout(sys.stderr):
            load_plugin(plugin, point.load, manager)
        memo.keep(key, _offered(plugin))
        memo.save()

    plugin.offers, plugin.waits = offers, load


def _offered(plugin: Plugin) -> Offers | None:
    """What is worth keeping: of recipes the paths are asked for, and what is broken may be mended."""
    if plugin.status != "ready" or plugin.recipes:
        return None
    return plugin.offers


def _each_once(paths: Sequence[str | Path]) -> list[str | Path]:
    """Paths without those of a file that was named before."""
    first: dict[str, str | Path] = {}
    for path in paths:
        first.setdefault(os.path.realpath(path), path)
    return list(first.values())


def was_run(path: Path) -> bool:
    """Whether this process has run a Python file as a local plugin, with what it holds now."""
    try:
        return _module_name(path, path.read_bytes()) in sys.modules
    except OSError:
        return False


def _module_name(path: Path, source: bytes) -> str:
    """Two files of one name are two modules, and so is a file once it was changed."""
    digest = hashlib.sha256(os.fsencode(os.path.realpath(path)) + b"\0" + source).hexdigest()
    return f"pegboard_local_{path.stem}_{digest[:16]}"


class _Loader(importlib.machinery.SourceFileLoader):
    """Runs the very bytes that name the module: compiled files go by a time stamp of whole seconds."""

    def __init__(self, name: str, path: str, source: bytes) -> None:
        super().__init__(name, path)
        self._source = source

    def get_code(self, fullname: str) -> types.CodeType:
        return self.source_to_code(self._source, self.path)


def import_file(path: Path) -> types.ModuleType:
    """The module of a local plugin; a file is run once in a process, and again only where it was changed."""
    if not path.is_file():
        raise FileNotFoundError(f"no file {path}")
    if path.suffix != ".py":
        raise ImportError(f"{path} is not a Python file")
    source = path.read_bytes()
    name = _module_name(path, source)
    if name in sys.modules:
        return sys.modules[name]
    loader = _Loader(name, str(path), source)
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    module.__dict__["__pegboard_local__"] = True
    linecache.checkcache(str(path))  # tracebacks show what is run now
    sys.modules[name] = module  # dataclasses look their module up while they are made
    try:
        loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def load_plugin(plugin: Plugin, target: Callable[[], Any], manager: pluggy.PluginManager) -> None:
    """Import, register and ask one plugin; whatever goes wrong becomes its status."""
    phase = "import"
    module: Any = None
    try:
        known = set(sys.modules)
        started = time.perf_counter()
        module = target()
        plugin.milliseconds = (time.perf_counter() - started) * 1000
        plugin.module, plugin.where = module, getattr(module, "__file__", None) or ""
        fresh = sys.modules.keys() - known
        phase = "register"
        manager.register(module, f"{plugin.dist}:{plugin.name}")
        phase = "hook"
        callers = manager.get_hookcallers(module) or []
        check_hooks(module, [caller.name for caller in callers])
        phase = "collect"
        asked = (*BESIDE_PARTS, *(kind.hook for kind in KINDS.values()))
        answers = {
            caller.name: answered(caller.name, impl.function())
            for caller in callers
            for impl in caller.get_hookimpls()
            if impl.plugin is module and caller.name in asked
        }
        phase = "record"
        answers = adapt(plugin, answers)
        plugin.recipes = [Path(p) for p in answers.pop("pegboard_recipes", [])]
        plugin.sample_methods = check_sample_methods(answers.pop("pegboard_sample_methods", []))
        parts = [record for records in answers.values() for record in records]
        brought = [r for r in (*parts, *plugin.sample_methods) if isinstance(r, Part | SampleMethod)]
        plugin.offers = frozenset((r.kind, r.name) for r in brought)
        for hook, records in answers.items():
            check_records(hook, records)
        phase = "schema"
        plugin.parts = parts
        check_schemas(plugin.parts)
        plugin.remarks = tuple(remarks(module, plugin.parts, fresh))
        plugin.specs = light_specs(plugin, module)
        plugin.status, plugin.where = "ready", ""
        plugin.empty = not (brought or plugin.recipes or hasattr(module, "pegboard_health"))
        if plugin.empty:
            plugin.reason = "it offers nothing: its hooks returned no records"
        elif plugin.milliseconds > SLOW:
            plugin.reason = f"slow: its import took {plugin.milliseconds:.0f} ms"
        plugin.reason = "; ".join(filter(None, (plugin.reason, *plugin.remarks)))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # sys.exit at import, a pytest outcome: nothing may get through
        if module is not None and manager.is_registered(module):
            manager.unregister(module)
        reason = _said(error)
        plugin.status, plugin.phase, plugin.error = "broken", phase, error
        plugin.where = raised_at(error) or plugin.where
        plugin.reason = (
            reason.removeprefix("PegboardError: ").split("\n")[0] if phase != "register" else reason
        )
        plugin.parts, plugin.recipes, plugin.sample_methods = [], [], []


def _said(error: BaseException) -> str:
    try:
        text = f"{type(error).__name__}: {error}".strip().removesuffix(":")
        return text.encode("utf-8", "replace").decode()  # what cannot be printed is a question mark
    except Exception:  # even its text is the plugin's code
        return type(error).__name__
