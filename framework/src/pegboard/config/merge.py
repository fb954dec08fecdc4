"""How one config is laid over another, and which of its nodes are parts."""

from __future__ import annotations

from typing import Any

from ..contract.kinds import KINDS
from ..contract.records import Optimizer, Part
from .yaml_reader import Node, switched

Path = tuple[str, ...]


def part_at(path: Path) -> type[Part[Any, Any]] | None:
    """The kind of part whose config stands at a path, if one does."""
    if path[:2] == ("optimizer", "players") and len(path) > 2:
        path = ("optimizer", *path[3:])  # a player has the nodes that the optimizer has
    for kind in KINDS.values():
        for section in (kind.section, kind.special):
            if section and (path[:-1] if section.keyed else path) == tuple(section.name.split(".")):
                return kind.record
    return None


def is_keyed(path: Path) -> bool:
    """Whether a path is in a section, or is one, where parts stand by keys."""
    return bool(path) and any(k.section.keyed and k.section.name == path[0] for k in KINDS.values())


def merge(base: Node, over: Node, path: Path = ()) -> Node:
    """`over` laid over `base`: mappings merge key by key, everything else is replaced.

    Where the name of a part changes, only the core's own keys of its node are inherited. A null
    for a regularizer, probe or tracker takes the inherited one out.
    """
    part = part_at(path)
    if part is not None:
        base, over = as_mapping(base, path), as_mapping(over, path)
    if len(path) == 1 and over.blank and isinstance(base.value, dict):
        return base  # a section whose lines are all commented out
    if not (isinstance(base.value, dict) and isinstance(over.value, dict)):
        return over
    merged: dict[str, Node] = dict(base.value)
    if part is not None and _renamed(base, over, path):
        merged = {k: _without_fields(v, k, part) for k, v in merged.items() if k in part.reserved}
    for key, node in over.value.items():
        off = (node.value is None and not node.blank) or switched(node.value) is False
        if len(path) == 1 and key in merged and off and is_keyed(path):
            del merged[key]
        else:
            merged[key] = merge(merged[key], node, (*path, key)) if key in merged else node
    return Node(merged, over.at, over.key)


def as_mapping(node: Node, path: Path) -> Node:
    """The node of a part with its short forms written out: `model: NAME`, `NAME: true`."""
    if is_keyed(path):
        on = switched(node.value)
        return node if on is None else Node({} if on else None, node.at, node.key)
    if isinstance(node.value, str):
        return Node({"name": Node(node.value, node.at, node.at)}, node.at, node.key)
    return node


def _name(node: Node, path: Path) -> str | None:
    name = node.value.get("name")
    if name is not None and isinstance(name.value, str):
        return str(name.value).rpartition(":")[2]
    return None


def _renamed(base: Node, over: Node, path: Path) -> bool:
    before = _name(base, path) or (path[-1].rpartition(":")[2] if is_keyed(path) else None)
    after = _name(over, path)
    return before is not None and after is not None and before != after


def _without_fields(node: Node, key: str, part: type[Part[Any, Any]]) -> Node:
    """What each player changes in an optimizer goes with the optimizer."""
    if part is not Optimizer or key != "players" or not isinstance(node.value, dict):
        return node
    kept = {}
    for player, partial in node.value.items():
        if isinstance(partial.value, dict) and "name" not in partial.value:
            own = {k: v for k, v in partial.value.items() if k in part.reserved}
            partial = Node(own, partial.at, partial.key)
        kept[player] = partial
    return Node(kept, node.at, node.key)
