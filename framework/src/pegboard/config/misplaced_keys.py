"""Keys that stand in the wrong node: where in the config they belong."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from ..base.nearest import CUTOFF, score
from ..contract.kinds import KINDS, Kind, sections
from ..contract.options import DataOptions
from ..registry.discovery import Registry
from .errors import Mistake, join, listed
from .fields import describe
from .moved_fields import LEFT
from .nodes import Plugins, Trainer
from .other_trainers import instead, key_here
from .sections import Read, part_fields, top_keys


def relocate(mistakes: Iterable[Mistake], reads: Mapping[str, Read], registry: Registry) -> Iterator[Mistake]:
    """Mistakes with, for each unknown key, the node that has such a key."""
    places = functools.cache(
        lambda: _Places(reads, registry)
    )  # made for a mistake alone: it asks all plugins
    for mistake in mistakes:
        yield places().relocate(mistake) if mistake.unknown else mistake


class _Places:
    """Where keys stand in a config with these parts: dotted path -> key."""

    def __init__(self, reads: Mapping[str, Read], registry: Registry) -> None:
        self.reads, self.registry = reads, registry
        self.core = dict(_core())
        self.own = dict(_parts(reads, registry))

    def relocate(self, mistake: Mistake) -> Mistake:
        key = mistake.unknown
        parent = mistake.path.removesuffix(join("", key)).rstrip(".")
        here = max((score(key, n) for n in mistake.nearest), default=0.0)
        siblings = self.siblings(parent, key) if here < CUTOFF else []
        if "." in key and key.split(".")[0] in (*top_keys(), *mistake.nearest):
            return replace(mistake, hint=_nested(key), nearest=())
        if not parent and (hint := self.part(key)):
            return replace(mistake, hint=hint, nearest=())
        if here < 0.9 and (known := self.habit(mistake, key, parent)) is not None:
            return known
        best, place = self.best(key, parent, core_only=bool(siblings))
        if siblings:  # a guess from the value is worth less than this
            kind = self.reads[parent].entry.part.kind
            hint = f"{key!r} is a key of {kind} {listed(map(repr, siblings))}"
            mistake = replace(mistake, nearest=(), hint=f"{hint}\n{mistake.hint}".strip())
        if best < 0.75 or here >= 0.7 or best <= here + 0.1:
            return mistake
        if place == key:
            message = f"{mistake.message}; {place!r} stands at the top of the config"
            return replace(mistake, message=message, nearest=(), hint="indent it less")
        return replace(mistake, nearest=(place, *mistake.nearest))

    def habit(self, mistake: Mistake, key: str, parent: str) -> Mistake | None:
        """The mistake of a key that other trainers have, with what stands in its place here."""
        if parent not in ("", "trainer", "data", "model", "optimizer"):
            return None
        if hint := instead(key):
            return replace(mistake, hint=hint, nearest=())
        path = key_here(key)
        if not path or path == parent:
            return None
        if path in LEFT and (taken := self.registry.replacement(path)):
            path = ".".join(("regularizers", *taken))
        inside, _, name = path.rpartition(".")
        best = name if inside and inside == parent else path
        return replace(mistake, nearest=(best, *(n for n in mistake.nearest[:1] if n != best)))

    def siblings(self, parent: str, key: str) -> list[str]:
        """Other parts of the kind that have such a key."""
        if parent not in self.reads:
            return []
        entries = self.registry.entries(self.reads[parent].entry.part.kind)
        return [e.part.name for e in entries if any(f.name == key for f in part_fields(e))]

    def part(self, key: str) -> str:
        """A hint for a part that stands by its name where its section should."""
        for kind in _single():
            if any(e.part.name == key.lower() for e in self.registry.entries(kind.name)):
                at = kind.section.name
                return f"{key.lower()!r} is the name of a part: {at}: {{name: {key.lower()}, ...}}"
        return ""

    def best(self, key: str, parent: str, core_only: bool) -> tuple[float, str]:
        """The likeliest place of a key outside its node; sections, and keys inside a trick, count less."""
        places = self.core if core_only else {**self.core, **self.own}
        scored = [
            (score(key, name) * (0.9, 1.0, 0.8)[min(path.count("."), 2)], -path.count("."), path)
            for path, name in places.items()
            if path.rpartition(".")[0] != parent and path not in (parent, "name")
        ]
        likeliest = max(scored)
        return likeliest[0], likeliest[2]


def _nested(key: str) -> str:
    first, *inner = key.split(".")
    return f"nest it: {first}: {{{': {'.join(inner)}: ...{'}' * len(inner)}"


def _core() -> Iterator[tuple[str, str]]:
    """Dotted path and key of everything that is the core's."""
    for name in ("extends", *top_keys()):
        yield name, name
    for path, cls in (("trainer", Trainer), ("data", DataOptions), ("plugins", Plugins)):
        for field in describe(cls):
            yield f"{path}.{field.name}", field.name
    for name in sections():
        if "." in name:
            yield name, name.rpartition(".")[2]
    yield "model.weights", "weights"


def _parts(reads: Mapping[str, Read], registry: Registry) -> Iterator[tuple[str, str]]:
    """Dotted path and key of what the parts of this config have, and of parts that stand under a key."""
    for path, read in reads.items():
        for field in part_fields(read.entry):
            yield f"{path}.{field.name}", field.name
    for kind in _single():
        if kind.section.name not in reads:  # any that may yet be named there
            for entry in registry.entries(kind.name):
                for field in part_fields(entry):
                    yield f"{kind.section.name}.{field.name}", field.name
    for kind in KINDS.values():
        for entry in registry.entries(kind.name) if kind.section.keyed else ():
            yield f"{kind.section.name}.{entry.part.name}", entry.part.name


def _single() -> Iterator[Kind]:
    """The kinds of which a config names one at its top."""
    return (k for k in KINDS.values() if not k.section.keyed and "." not in k.section.name)
