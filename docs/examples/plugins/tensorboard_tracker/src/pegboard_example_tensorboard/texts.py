"""What TensorBoard shows as text or as settings, from plain values. Needs no TensorBoard."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any


def block(text: str, language: str = "text") -> str:
    """A text as Markdown that keeps its lines and spaces."""
    return f"```{language}\n{text.rstrip()}\n```"


def markdown(columns: Sequence[Any], rows: Sequence[Sequence[Any]]) -> str:
    """A table in Markdown."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(value: Any) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ")


def flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, float | str]:
    """Every value of a nested config under its dotted path, as a number or a text; nulls are left out."""
    found: dict[str, float | str] = {}
    for key, value in config.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping):
            found |= flat(value, f"{path}.")
        elif isinstance(value, int | float | str) and not isinstance(value, bool):
            found[path] = value
        elif value is not None:
            found[path] = json.dumps(value)
    return found
