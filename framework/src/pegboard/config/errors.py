"""The one report of everything that is wrong with a config."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..base.errors import PegboardError
from .nodes import Origin

LISTED = 20  # names shown before "and N more"


@dataclass(frozen=True, kw_only=True)
class Mistake:
    """One thing that is wrong: where, what was found, what was expected, how to mend it."""

    path: str  # dotted path of the key; "" is the config as a whole
    message: str
    expected: str = ""
    nearest: tuple[str, ...] = ()  # the likeliest meant, first
    hint: str = ""
    at_key: bool = False  # it is the key that is wrong, not the value
    absent: bool = False  # something is not there; not reported when a file could not be read
    unknown: str = ""  # the key, where it is one that nobody knows
    kind: str = ""  # the kind of part, where it is a name that no part of it has
    origin: Origin | None = None

    def __str__(self) -> str:
        place = str(self.origin or "config")
        lines = [f"{place}: {self.path}" if self.path else place]
        meant = f"; did you mean {self.nearest[0]!r}?" if self.nearest else ""
        lines.append(f"    {self.message}{meant}")
        if self.expected:
            lines.append(f"    expected {self.expected}")
        lines += [f"    {line}" for line in self.hint.splitlines()]
        return "\n".join(lines)


class ConfigError(PegboardError):
    """Everything that is wrong with a config, in one report; `mistakes` has them one by one."""

    def __init__(self, mistakes: Sequence[Mistake], title: str = "the config") -> None:
        self.mistakes = tuple(mistakes)
        count = len(self.mistakes)
        heading = f"{count} mistake{'s' if count != 1 else ''} in {title}"
        text = "\n\n".join([heading, *map(str, self.mistakes)])
        super().__init__(text.encode("utf-8", "backslashreplace").decode())


def join(path: str, key: object) -> str:
    """A dotted path one key longer; a key that itself has a dot is quoted."""
    step = f'"{key}"' if "." in str(key) else str(key)
    return f"{path}.{step}" if path else step


def leaves(node: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted path and value of everything in a config; lists and empty nodes inside a section are values."""
    for key, value in node.items():
        inner = join(path, key)
        if isinstance(value, Mapping) and value:
            yield from leaves(value, inner)
        elif path or not isinstance(value, Mapping):
            yield inner, value


def shown(value: Any) -> str:
    """A value as a person would say it."""
    if value is None:
        return "no value"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return number(value)
    if isinstance(value, str):
        return f"the text {_cut(repr(value))}"
    if isinstance(value, Mapping):
        return f"a mapping with {listed(value)}" if value else "an empty mapping"
    if isinstance(value, list | tuple):
        return _cut(f"the list {flow(value)}") if value else "an empty list"
    return f"a {type(value).__name__}"


def number(value: float) -> str:
    """A number as YAML writes it."""
    if isinstance(value, float) and not math.isfinite(value):
        return ".nan" if math.isnan(value) else (".inf" if value > 0 else "-.inf")
    return _cut(str(value)) if abs(value) < 1e300 else "a number too large"


def flow(value: Any) -> str:
    """A value on one line, in YAML's own way."""
    if value is None:
        return "null"
    if isinstance(value, bool | int | float):
        return shown(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{k}: {flow(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(flow, value)) + "]"
    text = str(value)
    return text if re.fullmatch(r"[A-Za-z_][\w./-]*", text) else f'"{text}"'


def listed(names: Iterable[Any], most: int = LISTED) -> str:
    """Names in a row, the first few of many."""
    known = [_cut(str(n)) for n in names]
    more = f" and {len(known) - most} more" if len(known) > most else ""
    return ", ".join(known[:most]) + more


def _cut(text: str, most: int = 80) -> str:
    return text if len(text) <= most else text[: most - 4] + " ..." + text[-1] * (text[-1] in "'\"]}")
