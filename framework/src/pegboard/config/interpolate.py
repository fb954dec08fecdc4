"""Interpolations, `${data.batch_size}`, resolved by OmegaConf after everything is merged.

They name other keys and nothing else. OmegaConf's resolvers are refused: `${oc.env:TOKEN}` in a config
from a stranger would write a secret of the reader's into the run folder and to trackers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ..base.nearest import nearest
from .errors import Mistake

Key = str | int
LONGEST = 10_000  # characters and values that the interpolations of a config may grow to
_REFERENCE = re.compile(r"\$\{([^{}$]*)\}")


def interpolated(tree: Any, path: tuple[Key, ...] = ()) -> Iterator[tuple[tuple[Key, ...], str]]:
    """Paths and texts of the values that contain an interpolation."""
    if isinstance(tree, str):
        if "${" in tree:
            yield path, tree
    elif isinstance(tree, dict | list):
        for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from interpolated(value, (*path, key))


def interpolate(tree: dict[str, Any]) -> tuple[dict[str, str], list[Mistake]]:
    """Resolve a tree in place; gives what was written by dotted path, and what could not be resolved."""
    found = list(interpolated(tree))
    if not found:
        return {}, []
    from omegaconf import DictConfig, ListConfig, OmegaConf  # a tenth of a second, so only where needed

    mistakes = []
    sizes = _Sizes(tree)
    for path, text in found:
        if refused := _refuse(path, text) or sizes.refuse(path, text):
            mistakes.append(refused)
            continue
        try:
            OmegaConf.create({"value": text})
        except Exception as error:
            mistakes.append(_mistake(path, text, error, tree))
    told = {m.path for m in mistakes}
    for path, _ in found:
        if ".".join(map(str, path)) in told:
            _put(tree, path, None)
    config = OmegaConf.create(tree)
    resolved = []
    for path, text in found:
        node: Any = config
        try:
            for key in path:
                node = node[key]
            if isinstance(node, DictConfig | ListConfig):
                node = OmegaConf.to_container(node, resolve=True)
            resolved.append((path, node))
        except Exception as error:  # whatever it is, a person reads it beside the other mistakes
            mistakes.append(_mistake(path, text, error, tree))
            resolved.append((path, None))
    for path, value in resolved:
        _put(tree, path, value)
    return {".".join(map(str, path)): text for path, text in found}, mistakes


def _refuse(path: tuple[Key, ...], text: str) -> Mistake | None:
    """A mistake where an interpolation is more than the name of a key."""
    depth = at = 0
    while at < len(text):
        if text[at] == "\\":
            at += 2  # the next character is meant as it stands
            continue
        if text.startswith("${", at):
            depth, at = depth + 1, at + 1
            if depth > 1:
                return _not_a_name(path, text, "an interpolation inside an interpolation")
        elif depth and text[at] == "}":
            depth -= 1
        elif depth and text[at] == ":":
            return _not_a_name(path, text, "a resolver, which would read more than this config")
        at += 1
    return None


def _not_a_name(path: tuple[Key, ...], text: str, what: str) -> Mistake:
    return Mistake(
        path=".".join(map(str, path)),
        message=f"{text!r} cannot be resolved: {what}",
        expected="the dotted path of a key from the top, as ${data.batch_size}",
        hint="a value from the environment comes over the command line: key=$VARIABLE",
    )


class _Sizes:
    """How much the values of a tree grow to, so that a few lines cannot ask for all memory."""

    def __init__(self, tree: dict[str, Any]) -> None:
        self.tree = tree
        self.known: dict[tuple[Key, ...], int] = {}

    def refuse(self, path: tuple[Key, ...], text: str) -> Mistake | None:
        if self.of(path) <= LONGEST:
            return None
        message = f"{text!r:.60} grows to more than {LONGEST} characters"
        return Mistake(path=".".join(map(str, path)), message=message)

    def of(self, path: tuple[Key, ...]) -> int:
        """The size of what stands at a path; 0 where nothing does, or where it leads back to itself."""
        if path not in self.known:
            self.known[path] = 0
            value: Any = self.tree
            for key in path:
                value = _child(value, key)
            self.known[path] = min(self._value(value, path), LONGEST + 1)
        return self.known[path]

    def _value(self, value: Any, path: tuple[Key, ...]) -> int:
        if isinstance(value, dict | list):
            keys = list(value) if isinstance(value, dict) else range(len(value))
            return 1 + sum(self.of((*path, key)) for key in keys)
        if not isinstance(value, str):
            return 1
        return len(value) + sum(self.of(_target(r, path)) for r in _REFERENCE.findall(value))


def _child(value: Any, key: Key) -> Any:
    if isinstance(value, dict):
        return value.get(str(key))
    return (
        value[int(key)]
        if isinstance(value, list) and str(key).isdecimal() and int(key) < len(value)
        else None
    )


def _target(reference: str, path: tuple[Key, ...]) -> tuple[Key, ...]:
    """The path that a reference means; leading dots count from where it stands."""
    names = reference.strip().replace("[", ".").replace("]", "")
    dots = len(names) - len(names.lstrip("."))
    around = path[: len(path) - dots] if dots else ()
    return (*around, *(part.strip() for part in names.split(".") if part.strip()))


def _put(tree: Any, path: tuple[Key, ...], value: Any) -> None:
    for key in path[:-1]:
        tree = tree[key]
    tree[path[-1]] = value


def _mistake(path: tuple[Key, ...], text: str, error: Exception, tree: dict[str, Any]) -> Mistake:
    reason = str(error).split("\n")[0]
    near: list[str] = []
    hint = expected = ""
    if match := re.search(r"Interpolation key '(.*?)' not found", reason):
        reason = f"no key {match[1]!r} in the config"
        near = nearest(match[1], _paths(tree))
        expected = "the dotted path of a key from the top, as ${data.batch_size}"
    elif "Recursi" in reason or "parent node" in reason:
        reason = "it leads back to itself"
    elif "input" in reason or "token" in reason:
        reason = "not a valid interpolation"
        hint = "close it with '}', or write \\${ where the text itself is meant"
    return Mistake(
        path=".".join(map(str, path)),
        message=f"{text!r} cannot be resolved: {reason}",
        expected=expected,
        nearest=tuple(near),
        hint=hint,
    )


def _paths(tree: Any, path: str = "") -> Iterator[str]:
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield f"{path}{key}"
            yield from _paths(value, f"{path}{key}.")
