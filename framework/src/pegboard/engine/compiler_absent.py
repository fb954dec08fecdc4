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

NAME = "torch._dynamo"
MARK = "__dynamo_disable"  # where torch keeps the hidden form of a function


class _Absent(ModuleType):
    """Stands where the compiler's module will be; whoever wants more of it gets the real one."""

    def __init__(self) -> None:
        super().__init__(NAME)
        self.hidden: list[Callable[..., Any]] = []
        sys.modules[NAME] = self
        setattr(torch, "_dynamo", self)  # noqa: B010 the type checker knows another module of that name

    def disable(self, function: Callable[..., Any], *args: Any, **options: Any) -> Callable[..., Any]:
        self.hidden.append(function)
        return function

    def graph_break(self, *args: Any, **options: Any) -> None:
        """What an optimizer says around its step, and where nothing is compiled means nothing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__path__":  # asked of every module by those who look at all
            raise AttributeError(name)
        self.leave()
        import torch._dynamo

        return getattr(torch._dynamo, name)

    def leave(self) -> None:
        """Give the place back; the compiler hides functions by itself once it is imported."""
        if sys.modules.get(NAME) is self:
            del sys.modules[NAME]
        if vars(torch).get("_dynamo") is self:
            del vars(torch)["_dynamo"]
        for function in self.hidden:
            vars(function).pop(MARK, None)
        self.hidden.clear()


@contextmanager
def compiler_absent() -> Iterator[None]:
    """Inside, torch's compiler is imported only when it is used."""
    if NAME in sys.modules:
        yield
        return
    absent = _Absent()
    try:
        yield
    finally:
        absent.leave()
