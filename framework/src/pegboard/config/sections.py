"""The nodes of a config that name a part: which part, and its checked config."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..base.nearest import nearest, score
from ..contract.kinds import KINDS, Section, sections
from ..contract.records import Part
from ..registry.discovery import Entry, Registry, UnknownPart
from .errors import Mistake, flow, listed, shown
from .fields import Field, describe
from .match_fields import BAD, About, build, convert

_CALLED_NAME = ("name", "type", "kind", "class", "_target_", "id", "part")


@dataclass(frozen=True, kw_only=True)
class Read:
    """A part node: what is known of it, however much of it is wrong."""

    path: str
    entry: Entry
    config: Any = None  # None where it is wrong
    options: Any = None  # the core's own keys of the node, None where they are wrong
    guessed: bool = False  # the name was wrong, and this is the likeliest one

    @property
    def what(self) -> str:
        return f"{self.entry.part.kind} {self.entry.part.name!r}"


def top_keys() -> tuple[str, ...]:
    """The keys at the top of a config, in the order of a config in full."""
    names = [name for name in sections() if "." not in name]
    names.insert(names.index("trackers"), "trainer")  # what only reports a run stands behind what makes it
    return ("name", "seed", *names, "plugins")


def home(part: Part[Any, Any]) -> Section:
    """Where in a config a part is named first of all: a probe that knows an optimum as the reference."""
    return KINDS[part.kind].home(part)


def nameable(registry: Registry, what: str) -> list[Entry]:
    """The parts of a kind, or those of it that may be named in a special section, as `reference`."""
    section, kind = sections().get(what, (None, None))
    if section is None or kind is None or not section.only:
        return registry.entries(what)
    return [entry for entry in registry.entries(kind.name) if getattr(entry.part, section.only, False)]


def as_node(value: Any) -> Any:
    """A part node with the short form `model: NAME` written out."""
    return {"name": value} if isinstance(value, str) else value


class Parts:
    """Reads part nodes with one registry, and notes what is wrong with them.

    In a special `section`, as `reference`, other parts of the kind are refused.
    """

    def __init__(self, registry: Registry, found: list[Mistake], section: str = "") -> None:
        self.registry, self.found, self.special = registry, found, section

    def entries(self, kind: str) -> list[Entry]:
        """The parts that may be named."""
        return nameable(self.registry, self.special or kind)

    def note(self, path: str, message: str, **more: Any) -> None:
        self.found.append(Mistake(path=path, message=message, **more))

    def read(self, kind: type[Part[Any, Any]], path: str, value: Any, key: str = "") -> Read | None:
        """The part at `path`; `key` is the name under which it stands, where that may name it."""
        node = value if key else as_node(value)
        if not isinstance(node, Mapping):
            if not key or self._lookup(kind.kind, key, path, {}, at_key=True)[0]:
                self._no_mapping(kind.kind, path, node, key)
            return None
        node, aside = self._name(kind.kind, path, node, key)
        name = node.get("name", key)
        if not isinstance(name, str) or not name:
            if "name" in node:
                wanted = f"the name of {_a(kind.kind)}, in quotes if it is a number"
                self.note(f"{path}.name", f"found {shown(name)}", expected=wanted)
            return None
        place = f"{path}.{aside or 'name'}" if "name" in node else path
        given = {k: v for k, v in node.items() if k not in kind.reserved and k != aside}
        entry, guessed = self._lookup(kind.kind, name, place, given, at_key="name" not in node)
        if entry is None:
            return None
        return self._checked(entry, path, node, given, guessed)

    def _checked(
        self, entry: Entry, path: str, node: Mapping[str, Any], given: Mapping[str, Any], guessed: bool
    ) -> Read:
        part = entry.part
        cls = KINDS[part.kind].options
        own = {f.name: f.hint for f in describe(cls)} if cls is not None else {}
        about = About(
            what=f"{part.kind} {part.name!r}",
            also={name: own.get(name, Any) for name in sorted(part.reserved - {"name"})},
            listing=f"pegboard show {self.registry.shown(entry)}",
        )
        config = options = None
        try:
            config = build(part.config, given, path, self.found, about)
        except Exception as error:  # a type hint that does not resolve is the plugin's fault
            self.defect(entry, path, "its config class", error)
        if cls is not None:
            options = build(cls, {k: v for k, v in node.items() if k in own}, path, self.found)
        return Read(path=path, entry=entry, config=config, options=options, guessed=guessed)

    def defect(self, entry: Entry, path: str, where: str, error: BaseException) -> None:
        """A plugin's own fault, told as such."""
        reason = f"{type(error).__name__}: {error}".split("\n")[0]
        plugin = f"{entry.plugin.dist} {entry.plugin.version}"
        self.note(
            path,
            f"{where} failed in {entry.part.kind} {entry.part.name!r} of {plugin}: {reason}",
            hint="this is a defect of the plugin, not of the config",
            at_key=True,
        )

    def _lookup(
        self, kind: str, name: str, place: str, given: Mapping[str, Any], *, at_key: bool
    ) -> tuple[Entry | None, bool]:
        """The part, or the one that was probably meant, so that its fields are checked all the same."""
        try:
            entry = self.registry.lookup(kind, name)
            if not self.special or home(entry.part).name == self.special:
                return entry, False
            self._no_reference(entry, place)
            return None, False
        except UnknownPart as error:
            names = [e.part.name for e in self.entries(kind)]
            near = list(error.nearest)
            if name not in names and error.expected:  # without that, the name is right and its plugin is not
                near = nearest(name, [*names, *near])
            hint = error.hint
            for other in KINDS:
                named = [
                    e.part for e in self.registry.entries(other) if other != kind and e.part.name == name
                ]
                if named:
                    at, keyed = home(named[0]).name, home(named[0]).keyed
                    hint = f"{_a(other)} stands under {at}: {at}: {{{name}: {{}}}}\n{hint}"
                    if not keyed:
                        hint = f"{_a(other)} stands under {at}: {at}: {{name: {name}}}\n{error.hint}"
            self.note(
                place,
                error.message,
                expected=self._references() if self.special else _short(error.expected),
                kind=self.special or kind,
                nearest=tuple(near),
                hint=hint,
                at_key=at_key,
            )
        if near and near[0] in names and names.count(near[0]) == 1 and score(name, near[0]) >= 0.75:
            entry = self.registry.lookup(kind, near[0])
            known = {f.name for f in part_fields(entry)}
            like = sum(bool(nearest(key, known, 1)) for key in given)
            if score(name, near[0]) >= 0.9 or 2 * like >= len(given):
                return entry, True
        return None, False

    def _no_reference(self, entry: Entry, place: str) -> None:
        """A probe that measures but knows no optimum."""
        name = entry.part.name
        message = (
            f"probe {name!r} is no reference: it measures a run, and knows no optimum to compare it with"
        )
        hint = f"measure it at the end of the run: probes: {{{name}: {{}}}}"
        self.note(place, message, expected=self._references(), kind="reference", hint=hint)

    def _references(self) -> str:
        names = sorted({e.part.name for e in self.entries("probe")})
        return f"one of {listed(names)}" if names else "a reference; none is installed"

    def _name(self, kind: str, path: str, node: Mapping[str, Any], key: str) -> tuple[dict[str, Any], str]:
        """The node with its name, and the key it was misspelt under, if it was."""
        if "name" in node or key:
            return dict(node), ""
        for wrong, value in node.items():
            like = wrong.lower() in _CALLED_NAME or score(wrong, "name") >= 0.7
            if like and isinstance(value, str) and self._known(kind, value):
                self.note(
                    f"{path}.{wrong}",
                    f"unknown key {wrong!r}",
                    expected=f"name: {value}",
                    nearest=("name",),
                    at_key=True,
                )
                return {**node, "name": value}, wrong
        self._nameless(kind, path, node)
        return dict(node), ""

    def _known(self, kind: str, name: str) -> bool:
        return bool(nearest(name, [e.part.name for e in self.entries(kind)], 1))

    def _nameless(self, kind: str, path: str, node: Mapping[str, Any]) -> None:
        entries = self.entries(kind)
        names = sorted({e.part.name for e in entries})
        nested = [k for k in node if k in names]
        if nested:
            inner = node[nested[0]]
            rest = flow(inner)[1:-1] if isinstance(inner, Mapping) else ""
            hint = f"write {path}: {{name: {nested[0]}{', ' if rest else ''}{rest}}}"
            self.note(
                f"{path}.{nested[0]}",
                f"{nested[0]!r} is the name of {_a(kind)}, not a key",
                hint=hint,
                at_key=True,
            )
            return
        given = set(node)
        fits = [
            e.part.name
            for e in entries
            if given and given <= {f.name for f in part_fields(e)} | e.part.reserved
        ]
        self.note(
            f"{path}.name",
            f"{path} does not say which {kind}: its key 'name' is missing",
            expected=f"one of {listed(names) or 'none installed'}",
            kind=self.special or kind,
            nearest=(f"name: {fits[0]}",) if len(fits) == 1 else (),
            hint=f"list them: pegboard show {KINDS[kind].plural}",
            absent=True,
        )

    def _no_mapping(self, kind: str, path: str, value: Any, key: str) -> None:
        if key:
            hint = self._first_field(kind, path, key, value)
            wanted = f"a mapping of its keys: {key}: {{}} takes the defaults"
            self.note(path, f"found {shown(value)}", expected=wanted, hint=hint)
            return
        names = listed(sorted({e.part.name for e in self.entries(kind)})) or "none installed"
        if value is None:
            message = f"no {kind} is named: the key {path!r} is missing or empty"
            wanted = f"{path}: {{name: ...}} with one of {names}"
            hint = f"list them: pegboard show {KINDS[kind].plural}"
            self.note(path, message, expected=wanted, kind=self.special or kind, hint=hint, absent=True)
            return
        self.note(
            path,
            f"found {shown(value)}",
            expected=f"a mapping with a name: {path}: {{name: ...}}",
            hint=f"{KINDS[kind].plural}: {names}",
        )

    def _first_field(self, kind: str, path: str, key: str, value: Any) -> str:
        """A hint for `trick: 0.5`, which was probably meant for the part's first field."""
        near = nearest(key, [e.part.name for e in self.entries(kind)], 1)
        entry = next((e for e in self.entries(kind) if near and e.part.name == near[0]), None)
        for field in part_fields(entry) if entry else ():
            if convert(field.hint, value, path, []) is not BAD:
                return f"write {key}: {{{field.name}: {flow(value)}}}"
        return ""


def part_fields(entry: Entry) -> tuple[Field, ...]:
    """The fields of a part; none where its class is defective."""
    try:
        return describe(entry.part.config)
    except Exception:  # reported where it is used
        return ()


def _a(kind: str) -> str:
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"


def _short(expected: str) -> str:
    """A long list of names, its first few."""
    if not expected.startswith("one of "):
        return expected
    return f"one of {listed(expected.removeprefix('one of ').split(', '))}"
