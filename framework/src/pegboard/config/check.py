"""A config to settings: every mistake found at once, without torch and without data.

`check` gives `Settings` or raises one `ConfigError` that lists everything that is wrong.
"""

from __future__ import annotations

import re
import traceback
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from ..base.nearest import meant, nearest, score
from ..contract.kinds import Kind, Section, sections
from ..contract.records import Ge, Length, Matches, Optimizer, Schedule
from ..contract.specs import DataSpec
from ..registry.discovery import Registry
from ..registry.enabled import absent
from ..registry.installed import find_installed, names_of
from . import compatibility
from .cross_checks import Fitting
from .errors import ConfigError, Mistake, flow, join, listed, shown
from .load import Loaded, Source, load, locate
from .match_fields import About, build, convert
from .merge import merge, part_at
from .misplaced_keys import relocate
from .moved_fields import Moved, move
from .no_effect import SWITCHES
from .nodes import Plugins, Settings, Trainer
from .sections import Parts, Read, as_node, top_keys
from .settings import Whole, settle
from .steppers import SECTION, read_choice
from .yaml_reader import bare, wrap

__all__ = ["ConfigError", "check", "refine"]

SEED = Annotated[int, Ge(0)]
RUN_NAME = Annotated[
    str,
    Matches(r"[A-Za-z0-9][A-Za-z0-9._-]*", "a folder name: at most 100 letters, digits, '.', '_' and '-'"),
    Length(1, 100),
]
# Fields of the trainer on which others depend: where one is wrong, nothing is said of those.
DECIDING = {"epochs", "steps", "accumulate", "folds", "fold", *SWITCHES.values()}


def check(
    source: Source | Loaded,
    overrides: Sequence[str] = (),
    registry: Registry | None = None,
    begun: bool = False,
    spec: DataSpec | None = None,
) -> Settings:
    """The settings of a config, or a ConfigError with everything that is wrong with it.

    `source` is the path of a config, a mapping, or what `load` gave. Without a `registry` the
    installed plugins are asked, with the local ones that the config names. A run that has `begun` does not
    need the weights any more that it started from, and one whose `spec` is known not its data.
    """
    loaded = source if isinstance(source, Loaded) else load(source, overrides)
    checker = _Checker(loaded, begun)
    settings = checker.run(registry, spec)
    mistakes = checker.report()
    if mistakes:
        raise ConfigError(mistakes, loaded.title)
    assert settings is not None
    for old, note in () if begun else checker.moved.notes():
        warnings.warn(f"{loaded.locate(old)}: {note}", FutureWarning, stacklevel=2)
    for chosen in checker.reads.values():
        if note := chosen.entry.part.deprecated:
            where = loaded.locate(chosen.path)
            warnings.warn(f"{where}: {chosen.what} is deprecated: {note}", FutureWarning, stacklevel=2)
    return settings


def refine(
    settings: Settings,
    spec: DataSpec,
    samples: int | None = None,
    found: Sequence[Mistake] = (),
    validated: bool | None = None,
) -> Settings:
    """Settings once the data was read: the checks that waited for its spec, and the objective.

    `samples` is how many the training split has, `validated` whether there is a validation split; what else
    was `found` wrong with the data is told with it.
    """
    checker = _Checker(written(settings), settings.begun)
    refined = checker.fit_again(settings, spec, samples, validated)
    checker.found += found
    if mistakes := checker.report():
        raise ConfigError(mistakes, f"config {settings.name!r}, now that its data is read")
    assert refined is not None
    return refined


def written(settings: Settings) -> Loaded:
    """The config of settings in full, with the places where it was written."""
    origins, values = dict(settings.origins), dict(settings.values)
    return Loaded(tree=dict(settings.plain), origins=origins, values=values, file=settings.file)


class _Checker:
    """One pass over a config; `found` collects what is wrong."""

    def __init__(self, loaded: Loaded, begun: bool) -> None:
        self.loaded, self.begun = loaded, begun
        self.found: list[Mistake] = []
        self.sections: dict[str, tuple[str, Any]] = {}  # section -> the key it stands under, its value
        self.reads: dict[str, Read] = {}  # dotted path -> part
        self.unfinished: list[Mistake] = []  # values that are still to be given
        self.moved = Moved({}, {})
        self.asked: Trainer | None = None  # with defaults for fields that are wrong
        self.local: dict[str, str] = {}  # files of local plugins -> dotted path

    def run(
        self,
        registry: Registry | None,
        spec: DataSpec | None = None,
    ) -> Settings | None:
        """Check everything; settings where nothing is wrong."""
        self._top()
        plugins = self._core(Plugins, "plugins")
        name = self._value("name", RUN_NAME, self._default_name())
        seed = self._value("seed", SEED, 0)
        plugins = self._local(plugins or Plugins())
        self.registry = self._discover(plugins) if registry is None else registry
        self._move()
        self.asked, wrong = self._trainer()
        trainer = None if wrong & DECIDING else self.asked
        self.found += compatibility.fit_folds(trainer, self._key("trainer"))
        self.parts = Parts(self.registry, self.found)
        for section, kind in sections().values():
            if section.keyed:
                self._keyed(section, kind)
            elif "." not in section.name:
                self._part(section, kind)
        if trainer is not None:
            self._choose_stepper(trainer)
        self.found += compatibility.fit_pictures(trainer, self._key("trainer"), self.reads.get("model"))
        self._optimizer()
        return self._fit(name, seed, trainer, plugins, spec)

    def fit_again(
        self, settings: Settings, spec: DataSpec, samples: int | None, validated: bool | None
    ) -> Settings | None:
        """Check how the parts of settings fit data that was read; each of them is right by itself."""
        self._top()
        self.registry = settings.registry or self._discover(settings.plugins)
        self.parts = Parts(self.registry, self.found)
        self.reads = {
            path: Read(path=path, entry=c.entry, config=c.config, options=c.options, guessed=False)
            for path, c in settings.parts.items()
        }
        self.asked = settings.trainer
        core = (settings.name, settings.seed, settings.trainer, settings.plugins)
        return self._fit(*core, spec, samples, validated)

    def _fit(
        self,
        name: str,
        seed: int,
        trainer: Trainer | None,
        plugins: Plugins,
        spec: DataSpec | None,
        samples: int | None = None,
        validated: bool | None = None,
    ) -> Settings | None:
        """Whether all fits together; settings where nothing is wrong."""
        fitting = Fitting(self.loaded, self.sections, self.parts, self.reads, trainer, self.begun, self.asked)
        spec = fitting.run(spec, samples, validated)
        self._blank()
        if self.found or self.loaded.mistakes or self.unfinished:
            return None
        assert trainer is not None
        loaded, notes = self.loaded, tuple(map(fitting.noted, (*self.moved.remarks, *fitting.late)))
        places = (loaded.origins, loaded.values, loaded.file)
        whole = Whole(name, seed, trainer, plugins, spec, *places, notes, self.begun)
        return settle(whole, self.reads, self.registry)

    def report(self) -> list[Mistake]:
        """Everything that is wrong, in the order in which it stands in the files; at one place, by key.

        The order of a mapping, whose keys have no place, never changes a report.
        """
        loaded = self.loaded
        first = [*loaded.mistakes, *self.unfinished]
        told = {m.path for m in first if m.path}
        fresh = [
            m
            for m in self.found
            if (loaded.complete or not m.absent)
            and not any(m.path == p or m.path.startswith(f"{p}.") for p in told)
        ]
        placed = [locate(m, loaded) for m in (*first, *relocate(fresh, self.reads, self.registry))]
        unique = {(m.path, m.message): self._written(m) for m in placed}
        return sorted(unique.values(), key=self._rank)

    def _written(self, mistake: Mistake) -> Mistake:
        text = self.loaded.written.get(mistake.path)
        if text is None or not mistake.message.startswith("found"):
            return mistake
        return replace(mistake, message=f"{mistake.message} (written {text})")

    def _rank(self, mistake: Mistake) -> tuple[Any, ...]:
        origin = mistake.origin
        assert origin is not None  # every mistake was located
        other = origin.file != str(self.loaded.file)
        place = (origin.word is not None, other, origin.file, origin.line, origin.column)
        return (*place, mistake.path)

    # The core's own keys.
    def _top(self) -> None:
        """Sort the keys at the top; a misspelt section is checked as the one that was meant."""
        tree, top = self.loaded.tree, top_keys()
        self.sections = {key: (key, value) for key, value in tree.items() if key in top}
        self.unfinished = _unfinished(tree)
        for key, value in tree.items():
            if key in top:
                continue
            names = ("extends", *top)
            near = meant(key, names, tree)
            self.found.append(
                Mistake(
                    path=join("", key),
                    message=f"unknown key {key!r} at the top of the config",
                    expected=f"one of {listed(names)}",
                    nearest=tuple(near),
                    at_key=True,
                    unknown=key,
                )
            )
            if near and near[0] not in tree and score(key, near[0]) >= 0.75:
                self.sections.setdefault(near[0], (key, value))

    def _move(self) -> None:
        """Fields of the trainer that plugins have taken over become parts, with the places of the fields."""
        sections = [self.sections.get(name, (name, {}))[1] for name in ("trainer", "regularizers")]
        trainer, tricks = ({} if node is None else node for node in sections)
        if not (isinstance(trainer, Mapping) and isinstance(tricks, Mapping)):
            return
        self.moved = move(trainer, tricks, self.loaded, self.registry, self.begun)
        self.found += self.moved.mistakes
        for name, node in (("trainer", self.moved.trainer), ("regularizers", self.moved.regularizers)):
            if name in self.sections or node:
                self.sections[name] = (self._key(name), node)
        origins, values = ({**places} for places in (self.loaded.origins, self.loaded.values))
        for places in (origins, values):
            places |= {new: places[old] for new, old in self.moved.places.items() if old in places}
        self.loaded = replace(self.loaded, origins=origins, values=values)

    def _blank(self) -> None:
        """Keys with nothing after them, where nothing else is wrong with them; null says it on purpose."""
        told = {m.path for m in self.found}
        for path in sorted(self.loaded.blank - told):
            section = "." not in path or path == "optimizer.players"
            if not section and part_at(tuple(path.split("."))) is None:
                name = path.rpartition(".")[2]
                self._note(path, f"nothing is written after '{name}:'", hint=f"for none: {name}: null")

    def _core(self, cls: type[Any], section: str) -> Any:
        key, node = self.sections.get(section, (section, None))
        if node is not None and not isinstance(node, Mapping):
            hint = "write a space after the colon" if isinstance(node, str) and ":" in node else ""
            self._note(key, f"found {shown(node)}", expected=f"a mapping: {key}: {{key: value}}", hint=hint)
            return None
        about = About(what=section, listing=f"pegboard show {section}")
        return build(cls, node or {}, key, self.found, about)

    def _trainer(self) -> tuple[Trainer | None, set[str]]:
        """The trainer, with defaults in place of the fields that are wrong; the names of those."""
        before = len(self.found)
        made, (key, node) = self._core(Trainer, "trainer"), self.sections.get("trainer", ("trainer", None))
        if made is not None or not isinstance(node, Mapping):
            return made, set()
        fresh = [m for m in self.found[before:] if m.path.startswith(f"{key}.")]
        wrong = {m.path.removeprefix(f"{key}.").partition(".")[0] for m in fresh}
        meant = {name for m in fresh for name in m.nearest[:1] if m.unknown}
        right = {name: value for name, value in node.items() if name not in wrong | meant}
        return build(Trainer, right, key, []), wrong | meant

    def _value(self, section: str, hint: Any, default: Any) -> Any:
        key, value = self.sections.get(section, (section, default))
        before = len(self.found)
        made = convert(hint, value, key, self.found)
        if section == "name" and isinstance(value, str) and len(self.found) > before:
            self.found[-1] = replace(self.found[-1], hint=f"as name: {_folder(value)}")
        return made

    def _default_name(self) -> str:
        return _folder(self.loaded.file.stem) if self.loaded.file else "run"

    def _note(self, path: str, message: str, **more: Any) -> None:
        self.found.append(Mistake(path=path, message=message, **more))

    # Plugins.
    def _local(self, plugins: Plugins) -> Plugins:
        """Local files relative to the config that names them; absolute, so that a copy finds them too."""
        key = self.sections.get("plugins", ("plugins", None))[0]
        for index, name in enumerate(plugins.local):
            path = f"{key}.local.{index}"
            origin = self.loaded.locate(path)
            shown_file = Path(origin.file).parent / name if origin.file else Path(name)
            file = shown_file.absolute()
            if file.is_file():
                self.local.setdefault(str(file), path)
                continue
            inside = {p.stem: p.name for p in file.parent.glob("*.py")} if file.parent.is_dir() else {}
            self._note(
                path,
                f"no file {str(shown_file)!r}",
                expected="a Python file, relative to this config",
                nearest=tuple(inside[stem] for stem in nearest(file.stem, inside)),
            )
        return replace(plugins, local=tuple(self.local))

    def _discover(self, plugins: Plugins) -> Registry:
        known = names_of(find_installed()) if plugins.disable or plugins.only else set()
        disable = self._installed("disable", plugins.disable, known)
        only = None if plugins.only is None else self._installed("only", plugins.only, known)
        registry = Registry.discover(local=plugins.local, disable=disable, only=only)
        for plugin in registry.failed(self.local):
            file = f"{plugin.dist}{_line(plugin.error, plugin.dist)}"
            self._note(self.local[plugin.dist], f"{file} did not load ({plugin.phase}): {plugin.reason}")
        return registry

    def _installed(self, switch: str, names: Sequence[str], known: set[str]) -> tuple[str, ...]:
        """Those names of a switch that are installed; the others are mistakes."""
        wrong = absent(names, known)
        for index, name in enumerate(names):
            if name in wrong:
                self._note(
                    f"{self.sections['plugins'][0]}.{switch}.{index}",
                    f"the plugin {name!r} is not installed",
                    nearest=tuple(nearest(name, known)),
                    hint="list them: pegboard plugins list",
                )
        return tuple(name for name in names if name not in wrong)

    def _key(self, section: str) -> str:
        """The key under which a section stands, misspelt or not."""
        return self.sections.get(section, (section,))[0]

    # Parts.
    def _keep(self, path: str, read: Read | None) -> None:
        if read is not None:
            self.reads[path] = read

    def _part(self, section: Section, kind: Kind) -> None:
        """The part of a section that has one."""
        key, value = self.sections.get(section.name, (section.name, None))
        if value is None and not section.stated:
            return
        parts = Parts(self.registry, self.found, section.name) if section.only else self.parts
        self._keep(section.name, parts.read(kind.record, key, value))

    def _choose_stepper(self, trainer: Trainer) -> None:
        """What makes the updates, where fields of the trainer say it."""
        origins, values = dict(self.loaded.origins), dict(self.loaded.values)

        def locate(path: str, written: str) -> None:
            for places in (origins, values):
                if written in places:
                    places[path] = places[written]

        given = self.sections.get(SECTION, (SECTION, None))[1] is not None
        read = read_choice(trainer, self._key("trainer"), self.parts, given, locate)
        if read is not None:
            self.loaded = replace(self.loaded, origins=origins, values=values)
            self._keep(SECTION, read)

    def _optimizer(self) -> None:
        """The schedule of the optimizer, and what players change in it."""
        key, node = self.sections.get("optimizer", ("optimizer", None))
        node = as_node(node)
        if not isinstance(node, Mapping):
            return
        if node.get("schedule") is not None:
            path = f"{key}.schedule"
            self._keep("optimizer.schedule", self.parts.read(Schedule, path, node["schedule"]))
        players = node.get("players")
        if players is not None and not isinstance(players, Mapping):
            wanted = "a mapping of players to what differs for each: players: {name: {key: value}}"
            self._note(f"{key}.players", f"found {shown(players)}", expected=wanted)
            return
        shared = {k: v for k, v in node.items() if k != "players"}
        for player, partial in (players or {}).items():
            self._player(join(f"{key}.players", player), player, shared, partial)

    def _player(self, path: str, player: str, shared: dict[str, Any], partial: Any) -> None:
        partial = as_node(partial)
        if not isinstance(partial, Mapping):
            self._note(path, f"found {shown(partial)}", expected="a mapping of what differs for this player")
            return
        if "players" in partial:
            self._note(f"{path}.players", "a player has no players of its own", hint="remove it", at_key=True)
        whole = bare(merge(wrap(shared), wrap(dict(partial)), ("optimizer", "players", player)))
        inner: list[Mistake] = []
        parts = Parts(self.registry, inner)
        self._keep(f"optimizer.players.{player}", parts.read(Optimizer, path, whole))
        if whole.get("schedule") is not None:
            read = parts.read(Schedule, f"{path}.schedule", whole["schedule"])
            self._keep(f"optimizer.players.{player}.schedule", read)
        # What is inherited was checked where it stands.
        for mistake in inner:
            key = mistake.path.removeprefix(path).lstrip(".").split(".")[0]
            if key in partial or "name" in partial or not key:
                self.found.append(mistake)

    def _keyed(self, section: Section, kind: Kind) -> None:
        """The parts of a section that has any number of them."""
        key, nodes = self.sections.get(section.name, (section.name, None))
        if nodes is None:
            return
        if not isinstance(nodes, Mapping):
            example: dict[str, Any] = {}
            for node in nodes if isinstance(nodes, list) else [nodes]:
                example |= node if isinstance(node, dict) else {node: {}} if isinstance(node, str) else {}
            hint = f"write {section.name}: {flow(example or {'name': {}})}"
            wanted = "a mapping of names to settings"
            self._note(key, f"found {shown(nodes)}", expected=wanted, hint=hint)
            return
        for name, node in nodes.items():
            path = join(key, name)
            if node is None:
                self._switched_off(path, name, kind.name)
            else:
                self._keep(f"{section.name}.{name}", self.parts.read(kind.record, path, node, name))
            if name in section.taken:
                hint = f"under another key: {section.name}: {{mine: {{name: {name}}}}}"
                self._note(path, f"{name!r} is {section.taken[name]}", hint=hint, at_key=True)
            if isinstance(node, Mapping) and "name" in node and not re.fullmatch(r"[A-Za-z_][\w:-]*", name):
                self._note(
                    path, f"{name!r} cannot be a key", expected="letters, digits, '_' and '-'", at_key=True
                )

    def _switched_off(self, path: str, name: str, kind: str) -> None:
        """Null takes a part out; a key without a value, or a name that means nothing, is a slip."""
        if path in self.loaded.blank:
            hint = f"{name}: {{}} takes the defaults, {name}: null switches it off"
            self._note(
                path, f"nothing is written after '{name}:'", expected="its settings, or null", hint=hint
            )
            return
        names = [e.part.name for e in self.registry.entries(kind)]
        near = nearest(name.rpartition(":")[2], names)
        if near and name.rpartition(":")[2] not in names:
            message = f"nothing is called {name!r} here, so null switches nothing off"
            self._note(path, message, nearest=tuple(near), at_key=True)


def _line(error: BaseException | None, file: str) -> str:
    """`:line` of a file in which an error arose, where one of its lines did it."""
    if isinstance(error, SyntaxError) and error.filename == file:
        return f":{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__ if error else None)
    return next((f":{frame.lineno}" for frame in reversed(frames) if frame.filename == file), "")


def _folder(text: str) -> str:
    """The folder name that is most like a text."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("._-")[:100] or "run"


def _unfinished(tree: Any, path: str = "") -> list[Mistake]:
    """Values that a config leaves to be given, written `???`."""
    if tree == "???":
        hint = f"give it in the file, or on the command line: {path}=value"
        return [Mistake(path=path, message="the value is still to be given: found '???'", hint=hint)]
    if isinstance(tree, Mapping):
        return [m for k, v in tree.items() for m in _unfinished(v, f"{path}.{k}" if path else k)]
    if isinstance(tree, list):
        return [m for i, v in enumerate(tree) for m in _unfinished(v, f"{path}.{i}")]
    return []
