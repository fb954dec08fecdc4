"""Plain data as YAML that reads back to the same values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml

from .yaml_reader import scalar


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    # What our reader takes for a number differs from what PyYAML does: 1e-3.
    style = None if isinstance(scalar(text), str) else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style)


_Dumper.add_representer(str, _text)


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
    if isinstance(value, Mapping):
        return {k: _escape(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_escape(v) for v in value]
    if isinstance(value, str):
        return re.sub(r"(\\*)\$\{", r"\1\1\\${", value)
    return value
