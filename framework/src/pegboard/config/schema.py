"""JSON Schema of configs made of the installed parts, for editors."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..parts import Ge, Gt, Le, Length, Lt, Matches
from ..registry import Entry, Registry
from .fields import Field, describe, members, options, plain, split
from .merge import KEYED, PARTS
from .nodes import Plugins, Trainer
from .sections import OPTIONS, part_fields

DRAFT = "https://json-schema.org/draft/2020-12/schema"
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


def schema(registry: Registry) -> dict[str, Any]:
    """The schema of a config; a part that needs a key says so in the key's description."""
    defs: dict[str, Any] = {"interpolation": {"type": "string", "pattern": r"\$\{.*\}"}}
    for kind in (*PARTS.values(), *KEYED.values()):
        for entry in registry.entries(kind.kind):
            defs[f"{kind.kind}.{registry.reference(entry)}"] = _part(entry)
    for entry in registry.entries("schedule"):
        defs[f"schedule.{registry.reference(entry)}"] = _part(entry)
    defs["schedule"] = _node("schedule", registry)
    properties: dict[str, Any] = {
        "extends": {
            "description": "configs that this one is laid over, relative to it",
            "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}],
        },
        "name": {"type": "string", "description": "name of the run, and of its folder"},
        "seed": {
            "type": "integer",
            "minimum": 0,
            "default": 0,
            "description": "of all randomness in the run",
        },
        **{section: _node(kind.kind, registry) for section, kind in PARTS.items()},
        **{section: _keyed(kind.kind, registry) for section, kind in KEYED.items()},
        "trainer": _object(describe(Trainer)),
        "plugins": _object(describe(Plugins)),
    }
    return {
        "$schema": DRAFT,
        "title": "a Pegboard config",
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        "if": {"not": {"required": ["extends"]}},
        "then": {"required": ["data", "model", "optimizer"]},
        "$defs": defs,
    }


def _node(kind: str, registry: Registry) -> dict[str, Any]:
    """A node that names its part by the key `name`, or is that name alone."""
    entries = registry.entries(kind)
    names = [registry.reference(e) for e in entries]
    chosen = {
        "type": "object",
        "properties": {"name": {"anyOf": [{"enum": names}, _INTERPOLATION]}},
        "allOf": [
            {
                "if": {"properties": {"name": {"const": name}}, "required": ["name"]},
                "then": {"$ref": f"#/$defs/{kind}.{name}"},
            }
            for name in names
        ],
    }
    return {"anyOf": [chosen, {"enum": names}, {"type": "null"}]}


def _keyed(kind: str, registry: Registry) -> dict[str, Any]:
    """A mapping of names to settings; null or false switches a part off."""
    off = [{"type": "null"}, {"type": "boolean"}]
    known = {registry.reference(e): e.part for e in registry.entries(kind)}
    return {
        "type": ["object", "null"],
        "properties": {
            name: {"description": part.summary, "anyOf": [{"$ref": f"#/$defs/{kind}.{name}"}, *off]}
            for name, part in known.items()
        },
        "additionalProperties": {**_node(kind, registry), "required": ["name"]},
    }


def _part(entry: Entry) -> dict[str, Any]:
    """The keys of a part: its own, and those of the core that stand beside them."""
    part = entry.part
    made = _object(part_fields(entry))
    made["description"] = part.summary
    own = made["properties"]
    own["name"] = {"type": "string", "description": f"which {part.kind}"}
    if part.kind in OPTIONS:
        own.update(_object(describe(OPTIONS[part.kind]))["properties"])
    if part.kind == "optimizer":
        own["schedule"] = {"description": "how the learning rate changes", "$ref": "#/$defs/schedule"}
        own["players"] = {"description": "what differs for a player, by its name", "type": "object"}
    return made


def _object(fields: Iterable[Field]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {field.name: _field(field) for field in fields},
        "additionalProperties": False,
    }


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
        return {"type": "object", "additionalProperties": _type(args[1]) if args else {}}
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _object(describe(hint))
    return {}
