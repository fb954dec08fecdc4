"""Transformers for Pegboard. No torch at import."""

from __future__ import annotations

from typing import Any

from pegboard import Model, hookimpl


@hookimpl
def pegboard_models() -> list[Model[Any]]:
    return []
