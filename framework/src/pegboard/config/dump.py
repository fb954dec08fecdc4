"""Plain data as YAML that reads back to the same values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml

from .yaml_reader import NUMBER


class _Dumper(yaml.SafeDumper):
    """Quotes what the reader takes for a number, which PyYAML does not always: 1e-3."""


_Dumper.add_implicit_resolver("!number", NUMBER, list("-+.0123456789"))


def to_yaml(plain: Mapping[str, Any]) -> str:
    """YAML of a config; floats keep every bit, and no text becomes an interpolation."""
    nested = any(isinstance(v, Mapping | list | tuple) for v in plain.values())
    return yaml.dump(
        _escape(plain),
        Dumper=_Dumper,
        sort_keys=False,
        default_flow_style=None if nested else False,  # what is innermost on one line, never all of it
        allow_unicode=True,
        width=110,
    )


def _escape(value: Any) -> Any:
    # Fresh containers, so that nothing stands twice and becomes an alias.
    if isinstance(value, Mapping):
        return {k: _escape(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_escape(v) for v in value]
    if isinstance(value, str):
        return re.sub(r"(\\*)\$\{", r"\1\1\\${", value)
    return value
