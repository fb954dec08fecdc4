"""JSON Schema of configs made of the installed parts, for editors: what they complete, explain and underline.

A schema describes a file, and a file may be one that others extend: so nothing is required of it. What is
wrong is found at the key that is wrong, because an editor underlines that: alternatives (`anyOf`) are kept to
single values, and never stand around a whole mapping.
"""

from __future__ import annotations

import dataclasses
import re
import typing
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..contract.kinds import KINDS, sections
from ..contract.records import Ge, Gt, Le, Length, Lt, Matches
from ..registry.discovery import Entry, Registry
from .fields import Field, describe, members, options, plain, split
from .nodes import Plugins, Trainer
from .sections import nameable, part_fields

DRAFT = "https://json-schema.org/draft/2020-12/schema"
HEADER = "# yaml-language-server: $schema="  # the line by which a config names its schema

_SIMPLE: dict[Any, dict[str, Any]] = {
    str: {"type": "string"},
    Path: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
}
_RANGES = {Ge: "minimum", Gt: "exclusiveMinimum", Le: "maximum", Lt: "exclusiveMaximum"}
_INTERPOLATION = {"$ref": "#/$defs/interpolation"}
_SWITCH = {"type": ["object", "null", "boolean", "string"], "pattern": "^(?:[Oo]n|[Oo]ff|[Yy]es|[Nn]o)$"}


def schema(registry: Registry) -> dict[str, Any]:
    """The schema of a config; a part that needs a key says so in the key's description."""
    defs: dict[str, Any] = {"interpolation": {"type": "string", "pattern": r"\$\{.*\}"}}
    nodes: dict[str, Any] = {}
    for section, owner in sections().values():
        kind = section.name if section.only else owner.name
        defs[f"names.{kind}"] = _names(kind, registry)
        defs[kind] = _keys(kind, registry)
        for entry in nameable(registry, kind):
            defs[_definition(entry, registry)] = _part(entry)
        if "." not in section.name:
            about = section.about
            nodes[section.name] = _keyed(kind, about, registry) if section.keyed else _node(kind, about)
    properties: dict[str, Any] = {
        "extends": {
            "description": "configs that this one is laid over, relative to it",
            "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}],
        },
        "name": {"type": "string", "description": "name of the run, and of its folder"},
        "seed": {
            "description": "of all randomness in the run",
            "anyOf": [{"type": "integer", "minimum": 0}, _INTERPOLATION],
            "default": 0,
        },
        **nodes,
        "trainer": _section(Trainer),
        "plugins": _section(Plugins),
    }
    return {
        "$schema": DRAFT,
        "title": "a Pegboard config",
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        "$defs": defs,
    }


def _section(cls: type[Any]) -> dict[str, Any]:
    note = (cls.__doc__ or "").split("\n")[0]
    return {"description": note, "type": ["object", "null"], **_object(describe(cls))}


def _names(kind: str, registry: Registry) -> dict[str, Any]:
    """The names of parts, each with what it is; names that say their plugin too are taken, not offered."""
    entries = nameable(registry, kind)
    offered = [
        {
            "const": registry.reference(entry),
            "description": _about(entry),
            **({"deprecated": True} if entry.part.deprecated else {}),
        }
        for entry in entries
    ]
    owned = "|".join(_qualified(entry) for entry in entries)
    qualified = [{"type": "string", "pattern": f"^(?:{owned})$"}] if entries else []
    return {"anyOf": [*offered, *qualified, _INTERPOLATION]}


def _about(entry: Entry) -> str:
    """What an editor shows of a part."""
    part = entry.part
    lines = [part.summary, f"deprecated: {part.deprecated}" if part.deprecated else "", part.docs]
    return "\n".join(filter(None, (*lines, f"{entry.plugin.dist} {entry.plugin.version}")))


def _qualified(entry: Entry) -> str:
    """A regular expression of the names of a part that say its plugin, as editors read it too."""
    owners = dict.fromkeys((entry.plugin.dist, entry.plugin.name))
    quoted = "|".join(re.sub(r"[.*+?^${}()|\[\]\\/]", r"\\\g<0>", owner) for owner in owners)
    return f"(?:{quoted}):{entry.part.name}"


def _definition(entry: Entry, registry: Registry) -> str:
    """The key of a part's definition, of characters that may stand in a reference to it."""
    return f"{entry.part.kind}." + re.sub(r"[^\w.:-]", "_", registry.reference(entry))


def _node(kind: str, note: str) -> dict[str, Any]:
    """A node that names its part by the key `name`, or is that name alone."""
    names = {"$ref": f"#/$defs/names.{kind}"}
    alone = [{"type": "object"}, names, {"type": "null"}]
    return {"description": note, "anyOf": alone, "$ref": f"#/$defs/{kind}"}


def _keys(kind: str, registry: Registry) -> dict[str, Any]:
    """The keys of a node that names its part: those of the part."""
    chosen = []
    for entry in nameable(registry, kind):
        name = registry.reference(entry)
        pattern = _qualified(entry) + (f"|{name}" if name == entry.part.name else "")
        named = {"properties": {"name": {"type": "string", "pattern": f"^(?:{pattern})$"}}}
        then = {"$ref": f"#/$defs/{_definition(entry, registry)}"}
        chosen.append({"if": {**named, "required": ["name"]}, "then": then})
    names = {"$ref": f"#/$defs/names.{kind}"}
    own = {"properties": {"name": {"description": f"which {kind}", **names}}}
    return {**own, "allOf": chosen} if chosen else own  # an empty list is no schema


def _keyed(kind: str, note: str, registry: Registry) -> dict[str, Any]:
    """A mapping of names to settings; null or false switches a part off."""
    known = {registry.reference(entry): entry for entry in nameable(registry, kind)}
    return {
        "description": note,
        "type": ["object", "null"],
        "properties": {name: _settings(entry, registry) for name, entry in known.items()},
        "patternProperties": {f"^{_qualified(e)}$": _settings(e, registry) for e in known.values()},
        "additionalProperties": {
            "description": f"under a name of your own: `name` says which {kind} it is",
            **_SWITCH,
            "required": ["name"],
            "$ref": f"#/$defs/{kind}",
        },
    }


def _settings(entry: Entry, registry: Registry) -> dict[str, Any]:
    """What stands under the name of a part: its keys, unless they name another one."""
    return {
        "description": _about(entry),
        **_SWITCH,
        "if": {"type": "object", "required": ["name"]},
        "then": {"$ref": f"#/$defs/{entry.part.kind}"},
        "else": {"$ref": f"#/$defs/{_definition(entry, registry)}"},
    }


def _part(entry: Entry) -> dict[str, Any]:
    """The keys of a part: its own, and those of the core that stand beside them."""
    part = entry.part
    made = {"description": part.summary, **_object(part_fields(entry))}
    own = made["properties"]
    own["name"] = {"type": "string", "description": f"which {part.kind}"}
    if (options := KINDS[part.kind].options) is not None:
        own.update(_object(describe(options))["properties"])
    for section, kind in sections().values():
        above, _, key = section.name.rpartition(".")
        if above == KINDS[part.kind].section.name:
            own[key] = _node(kind.name, section.about)
    if part.kind == "optimizer":
        player = _node("optimizer", "what differs for this player")
        own["players"] = {
            "description": "what differs for a player, by its name",
            "type": "object",
            "additionalProperties": player,
        }
    return made


def _object(fields: Iterable[Field]) -> dict[str, Any]:
    """The keys of a mapping."""
    return {"properties": {field.name: _field(field) for field in fields}, "additionalProperties": False}


def _field(field: Field) -> dict[str, Any]:
    made = {"anyOf": [_type(field.hint), _INTERPOLATION]}
    note = field.comment + (" (required)" if field.required else "")
    return {
        **({"description": note.strip()} if note else {}),
        **made,
        **({} if field.required else {"default": plain(field.default)}),
    }


def _type(hint: Any) -> dict[str, Any]:
    """The schema of a type with its ranges."""
    bare, ranges = split(hint)
    if len(members(bare)) > 1:
        made: dict[str, Any] = {"anyOf": [_type(m) for m in members(bare)]}
    else:
        made = dict(_single(bare))
    for limit in ranges:
        if type(limit) in _RANGES:
            made[_RANGES[type(limit)]] = limit.bound
        elif isinstance(limit, Matches):
            made["pattern"] = f"^(?:{limit.pattern})$"
            made["patternErrorMessage"] = f"expected {limit.shown}"  # which editors show instead of it
        elif isinstance(limit, Length):
            what = {"array": "Items", "object": "Properties"}.get(str(made.get("type")), "Length")
            made[f"min{what}"] = limit.least
            if limit.most is not None:
                made[f"max{what}"] = limit.most
    return made


def _single(hint: Any) -> dict[str, Any]:
    args = typing.get_args(hint)
    container = typing.get_origin(hint) or hint
    if hint in _SIMPLE:
        return _SIMPLE[hint]
    if choices := options(hint):
        return {"enum": list(choices)}
    if container is tuple and args and args[-1] is not Ellipsis:
        return {
            "type": "array",
            "prefixItems": [_type(a) for a in args],
            "minItems": len(args),
            "items": False,
        }
    if container in (tuple, list, Sequence, set, frozenset):
        return {"type": "array", "items": _type(args[0]) if args else {}}
    if container in (dict, Mapping):
        numbered = {"propertyNames": {"pattern": "^[0-9]+$"}} if args and split(args[0])[0] is int else {}
        return {"type": "object", **numbered, "additionalProperties": _type(args[1]) if args else {}}
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return {"type": "object", **_object(describe(hint))}
    return {}
