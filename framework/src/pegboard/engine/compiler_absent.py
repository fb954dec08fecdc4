"""Runs that compile nothing do without torch's compiler, whose import takes as long as that of torch itself.

Torch hides some of its functions from the compiler, those of optimizers among them, and imports the compiler
for that when such a function is first called. While it was not imported there is nothing to hide from.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch

from .compile_private import ATTRIBUTE, COMPILER, MARK, compiler


class _Absent(ModuleType):
    """Stands where the compiler's module will be; whoever wants more of it gets the real one."""

    def __init__(self) -> None:
        super().__init__(COMPILER)
        self.hidden: list[Callable[..., Any]] = []
        sys.modules[COMPILER] = self
        setattr(torch, ATTRIBUTE, self)

    def disable(self, function: Callable[..., Any], *args: Any, **options: Any) -> Callable[..., Any]:
        self.hidden.append(function)
        return function

    def graph_break(self, *args: Any, **options: Any) -> None:
        """What an optimizer says around its step, and where nothing is compiled means nothing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__path__":  # asked of every module by those who look at all
            raise AttributeError(name)
        self.leave()
        return getattr(compiler(), name)

    def leave(self) -> None:
        """Give the place back; the compiler hides functions by itself once it is imported."""
        if sys.modules.get(COMPILER) is self:
            del sys.modules[COMPILER]
        if vars(torch).get(ATTRIBUTE) is self:
            del vars(torch)[ATTRIBUTE]
        for function in self.hidden:
            vars(function).pop(MARK, None)
        self.hidden.clear()


@contextmanager
def compiler_absent() -> Iterator[None]:
    """Inside, torch's compiler is imported only when it is used."""
    if COMPILER in sys.modules:
        yield
        return
    absent = _Absent()
    try:
        yield
    finally:
        absent.leave()
