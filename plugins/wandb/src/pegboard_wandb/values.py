"""Plain values and valid names for W&B."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping
from typing import Any


def plain(value: Any) -> Any:
    """The same value in types that JSON has; numbers of numpy and torch become Python's.

    NaN and the infinities stay what they are.
    """
    if hasattr(value, "tolist"):  # numpy and torch, scalars included
        return plain(value.tolist())
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    return str(value)


def flat(values: Mapping[str, Any], keys: Collection[str]) -> dict[str, Any]:
    """The same values, those of the mappings under some keys one by one: `key/inner`."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        if key in keys and isinstance(value, Mapping):
            inner = flat(value, [k for k in value if isinstance(value[k], Mapping)])
            found |= {f"{key}/{name}": one for name, one in inner.items()}
        else:
            found[key] = value
    return found


def slug(text: str, most: int = 64) -> str:
    """The text as W&B takes it in a run id or an artifact's name; different texts stay different."""
    clean = re.sub(r"[^A-Za-z0-9_.-]+", "-", text).strip("-.")
    if clean == text and 0 < len(clean) <= most:
        return clean
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{clean[: most - 9]}-{digest}".lstrip("-")
