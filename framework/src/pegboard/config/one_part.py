"""One part that a command names, its fields checked as those of a config are; no torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..contract.kinds import KINDS
from ..contract.records import Facts, Part
from ..registry.discovery import Registry
from .compatibility import facts, objections, own_rules, read_spec
from .errors import ConfigError, Mistake
from .load import load_part, locate
from .misplaced_keys import relocate
from .nodes import Chosen, Origin
from .sections import Parts


def choose(kind: type[Part[Any, Any]], name: str, words: Sequence[str], registry: Registry) -> Chosen:
    """The part with this name and the fields that `words` give, or everything that is wrong with them."""
    section = KINDS[kind.kind].section
    place = kind.kind if section.keyed else section.name
    loaded = load_part(place, name, words)
    found: list[Mistake] = []
    if any(word.startswith("name=") for word in words):
        found.append(
            Mistake(path=f"{place}.name", message=f"the name is {name!r} already", expected="fields of it")
        )
    parts = Parts(registry, found)
    read = parts.read(kind, place, loaded.tree[place])
    reads = {} if read is None else {place: read}
    if read is not None:
        spec = read_spec(parts, read) if kind.kind == "dataset" else None
        found += own_rules(parts, reads.values(), facts(reads, spec, None))
    mistakes = [locate(m, loaded) for m in (*loaded.mistakes, *relocate(found, reads, registry))]
    if mistakes:
        raise ConfigError(mistakes, f"{kind.kind} {name!r}")
    assert read is not None
    return Chosen(key=place, path=place, entry=read.entry, config=read.config)


def insist_on_fit(chosen: Chosen, known: Facts, title: str, words: Sequence[str] = ()) -> None:
    """Refuse a part whose own rules say that it does not go with what is known of a run."""
    named = {word.partition("=")[0]: word for word in words}
    mistakes = [
        Mistake(
            path=f"{chosen.key}.{p.field}" if p.field else chosen.key,
            message=p.message,
            expected=p.expected,
            hint=p.hint,
            origin=Origin(word=named.get(p.field, chosen.entry.part.name)),
        )
        for p in objections(chosen.entry.part, chosen.config, known)
    ]
    if mistakes:
        raise ConfigError(mistakes, title)
