"""Counting the elementary operations of a computation, which do not depend on the machine."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from functools import reduce
from operator import add

import torch
from torch.utils.flop_counter import FlopCounterMode

OPERATIONS = ("add", "sub", "mul", "div", "exp", "compare")


class Counted:
    """A number that counts what is done with it: six operations, each of which counts one.

    A change of sign, an absolute value and a choice between numbers are none of them.
    """

    def __init__(self, value: float, counts: Counter[str]) -> None:
        self.value, self.counts = float(value), counts

    def _done(self, operation: str, value: float) -> Counted:
        self.counts[operation] += 1
        return Counted(value, self.counts)

    def __add__(self, other: Counted | float) -> Counted:
        return self._done("add", self.value + plain(other))

    def __sub__(self, other: Counted | float) -> Counted:
        return self._done("sub", self.value - plain(other))

    def __mul__(self, other: Counted | float) -> Counted:
        return self._done("mul", self.value * plain(other))

    def __truediv__(self, other: Counted | float) -> Counted:
        return self._done("div", self.value / plain(other))

    def __rmul__(self, other: float) -> Counted:
        return self * other

    def __lt__(self, other: Counted | float) -> bool:
        self.counts["compare"] += 1
        return self.value < plain(other)

    def __abs__(self) -> Counted:
        return Counted(abs(self.value), self.counts)

    def exp(self) -> Counted:
        return self._done("exp", math.exp(self.value))


def plain(number: Counted | float) -> float:
    return number.value if isinstance(number, Counted) else number


class Counting:
    """Makes counted numbers; `total` is what was done with all of them."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def number(self, value: float) -> Counted:
        return Counted(value, self.counts)

    def vector(self, values: Sequence[float] | torch.Tensor) -> list[Counted]:
        return [self.number(float(value)) for value in values]

    def matrix(self, values: torch.Tensor) -> list[list[Counted]]:
        return [self.vector(row) for row in values]

    @property
    def total(self) -> int:
        return sum(self.counts.values())


def dot(a: Sequence[Counted], b: Sequence[Counted]) -> Counted:
    return reduce(add, [x * y for x, y in zip(a, b, strict=True)])


def apply(matrix: Sequence[Sequence[Counted]], vector: Sequence[Counted]) -> list[Counted]:
    return [dot(row, vector) for row in matrix]


def product(a: Sequence[Sequence[Counted]], b: Sequence[Sequence[Counted]]) -> list[list[Counted]]:
    columns = list(zip(*b, strict=True))
    return [[dot(row, column) for column in columns] for row in a]


def multiplications(run: Callable[[], object]) -> int:
    """The multiplications in matrix products that torch makes while running: half of what it counts."""
    return flops(run) // 2


def flops(run: Callable[[], object]) -> int:
    counter = FlopCounterMode(display=False)
    with counter:
        run()
    return counter.get_total_flops()
