"""Interpolations, `${data.batch_size}`, resolved by OmegaConf after everything is merged."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ..nearest import nearest
from .report import Mistake

Key = str | int


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
    for path, text in found:
        try:
            OmegaConf.create({"value": text})
        except Exception as error:
            mistakes.append(_mistake(path, text, error, tree))
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
        except Exception as error:  # a resolver may raise anything
            mistakes.append(_mistake(path, text, error, tree))
            resolved.append((path, None))
    for path, value in resolved:
        _put(tree, path, value)
    return {".".join(map(str, path)): text for path, text in found}, mistakes


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
    elif match := re.search(r"Environment variable '(.*?)' not found", reason):
        reason = f"the environment variable {match[1]} is not set"
        hint = "with a default: ${oc.env:" + match[1] + ",value}"
    elif match := re.search(r"Unsupported interpolation type (\S+)", reason):
        reason = f"no resolver {match[1]!r}"
        near = nearest(match[1], ["oc.env", "oc.decode", "oc.create", "oc.select"])
        expected = "${a.key} or ${oc.env:VARIABLE}"
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
