"""Functions of modules that need torch, imported when they are called."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, Literal

from pegboard import Context, Splits

Deferred = Literal["embedded", "made_splits", "studies"]


def build_of(module: Deferred, name: str) -> Callable[[Any, Context], Splits]:
    """The build function of a data set, `name` in a module of this plugin."""

    def build(config: Any, context: Context) -> Splits:
        splits: Splits = getattr(_imported(module), name)(config, context)
        return splits

    return build


def _imported(module: Deferred) -> ModuleType:
    if module == "embedded":
        from . import embedded

        return embedded
    if module == "made_splits":
        from . import made_splits

        return made_splits
    from . import studies

    return studies
