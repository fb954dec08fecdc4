"""What is computed once of tensors that stay the same from step to step."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")
VERSIONS = hasattr(Tensor, "_version")  # how often a tensor was written to; private
if not VERSIONS:
    warnings.warn(
        f"torch {torch.__version__} has no torch.Tensor._version: what is made of a graph once is made again "
        "in every step",
        stacklevel=2,
    )


class Memo(Generic[T]):
    """What was made of some tensors, as long as the same tensors, unchanged, are given again.

    It belongs to no state and no copy of a model: it is made again where it is lost.
    """

    def __init__(self) -> None:
        self._keys: tuple[Tensor, ...] | None = None
        self._versions: list[int] = []
        self._value: T | None = None

    def get(self, keys: tuple[Tensor, ...], make: Callable[[], T]) -> T:
        if VERSIONS and self.holds(keys):
            for key, version in zip(keys, self._versions, strict=True):
                if key._version != version:
                    break
            else:
                return self._value  # type: ignore[return-value]
        self._value = make()
        self._keys, self._versions = keys, [t._version for t in keys] if VERSIONS else []
        return self._value

    def holds(self, keys: tuple[Tensor, ...]) -> bool:
        """Whether something was made of these tensors, whatever may have been written to them since."""
        known = self._keys
        if known is None or len(known) != len(keys):
            return False
        return all(map(operator.is_, known, keys))

    def kept(self, keys: tuple[Tensor, ...]) -> T | None:
        """What a graph for the compiler may hold on to, which can make nothing that outlives it.

        None where it was not made before. The compiler looks itself whether the tensors are still the same.
        """
        return self._value if self.holds(keys) else None

    def __deepcopy__(self, memo: Any) -> Memo[T]:
        return Memo()

    def __reduce__(self) -> Any:
        return (Memo, ())
