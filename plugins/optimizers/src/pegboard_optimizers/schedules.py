"""Learning rate schedules: fields, and pure functions of the step. No torch at import.

A schedule gives the factor of the learning rate for step 0, 1, ...; after its last step it stays
where it ended. `warm` puts a linear ramp before any of them.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal

from pegboard import Ge, Gt, Lt

Factor = Callable[[int], float]
Count = Annotated[int, Ge(0)]
Steps = Annotated[int, Ge(1)]


@dataclass(frozen=True)
class Constant:
    """Constant learning rate."""

    warmup: Count = 0  # steps of a linear ramp before it


@dataclass(frozen=True)
class Linear:
    """Linear decay from the full learning rate to `end`."""

    end: Annotated[float, Ge(0)] = 0.0  # factor at the end
    steps: Steps | None = None  # how many steps it takes after the ramp; None is the rest of the run
    warmup: Count = 0  # steps of a linear ramp before it


@dataclass(frozen=True)
class Step:
    """Step decay: multiplied by `gamma` at regular steps."""

    gamma: Annotated[float, Gt(0)] = 0.1  # factor of every drop
    every: Steps | None = None  # steps between drops; None is a third of the run after the ramp
    at: tuple[Steps, ...] = ()  # steps of the run's own count at which to drop, instead of `every`
    warmup: Count = 0  # steps of a linear ramp before it


@dataclass(frozen=True)
class Cosine:
    """Cosine annealing from the full learning rate to `end`."""

    end: Annotated[float, Ge(0)] = 0.0  # factor at the end
    steps: Steps | None = None  # how many steps it takes after the ramp; None is the rest of the run
    warmup: Count = 0  # steps of a linear ramp before it


@dataclass(frozen=True)
class Exponential:
    """Exponential decay: the same share of the learning rate lost in every step."""

    gamma: Annotated[float, Gt(0)] | None = None  # factor of every step; None ends the run at `end`
    end: Annotated[float, Gt(0)] = 0.01  # factor at the end of the run, where gamma does not say
    warmup: Count = 0  # steps of a linear ramp before it


@dataclass(frozen=True)
class InverseTime:
    """Inverse time decay: divided by `(1 + rate * step) ** power`."""

    rate: Annotated[float, Ge(0)] = 0.01  # how fast it falls
    power: Annotated[float, Gt(0)] = 1.0  # of the divisor
    recursive: bool = False  # divide anew in every step what the last one left: falls like 1 / step!
    warmup: Count = 0  # steps of a linear ramp before it


@dataclass(frozen=True)
class OneCycle:
    """One-cycle policy: up to the full learning rate and far down again, once in a run."""

    pct_start: Annotated[float, Ge(0), Lt(1)] = 0.3  # share of the steps on the way up
    anneal: Literal["cos", "linear"] = "cos"  # shape of both ways
    div_factor: Annotated[float, Ge(1)] = 25.0  # the first rate is the full one divided by this
    final_div_factor: Annotated[float, Ge(1)] = 1e4  # the last rate is the first divided by this
    warmup: Count = 0  # steps of a linear ramp before it


def constant(step: int) -> float:
    """1, always."""
    return 1.0


def linear(step: int, steps: int, end: float = 0.0) -> float:
    """From 1 at step 0 to `end` at step `steps`."""
    return 1 + (end - 1) * min(step / steps, 1)


def cosine(step: int, steps: int, end: float = 0.0) -> float:
    """From 1 at step 0 to `end` at step `steps`, flat at both."""
    return end + (1 - end) * (1 + math.cos(math.pi * min(step / steps, 1))) / 2


def drops(step: int, every: int, gamma: float = 0.1) -> float:
    """`gamma` to the power of how often `every` steps have passed."""
    return _power(gamma, step // every)


def drops_at(step: int, at: tuple[int, ...], gamma: float = 0.1) -> float:
    """`gamma` to the power of how many of the steps in `at`, smallest first, are reached."""
    return _power(gamma, bisect_right(at, step))


def exponential(step: int, gamma: float) -> float:
    """`gamma` to the power of the step."""
    return _power(gamma, step)


def _power(base: float, exponent: int) -> float:
    try:
        return float(base**exponent)
    except OverflowError:  # a rate that large ends the run by its loss, which names the step
        return math.inf


def inverse_time(step: int, rate: float, power: float = 1.0) -> float:
    """`1 / (1 + rate * step) ** power`."""
    return float((1 + rate * step) ** -power)


def recursive_inverse_time(step: int, rate: float, power: float = 1.0) -> float:
    """The product of `inverse_time` of all earlier steps: 1, 1, 1/2, 1/6, 1/24, ... for rate 1."""
    if rate == 0 or step == 0:
        return 1.0
    # The product of (1 + rate s) for 0 <= s < step, through the gamma function.
    if rate >= 1e-3:
        logarithm = step * math.log(rate) + math.lgamma(step + 1 / rate) - math.lgamma(1 / rate)
    else:  # whose logarithms are too large to be told apart here: the sum of log(1 + rate s) as an integral
        far = rate * step
        logarithm = ((1 + far) * math.log1p(far) - far) / rate - math.log1p(far) / 2
        logarithm -= rate * far / (1 + far) / 12
    return math.exp(-power * max(logarithm, 0.0))


def one_cycle(
    step: int,
    steps: int,
    pct_start: float = 0.3,
    anneal: str = "cos",
    div_factor: float = 25.0,
    final_div_factor: float = 1e4,
) -> float:
    """From `1 / div_factor` up to 1 and down to `1 / (div_factor * final_div_factor)` at step `steps - 1`."""
    first = 1 / div_factor
    top, bottom = max(pct_start * steps - 1, 0.0), steps - 1
    if step < top:
        start, end, share = first, 1.0, step / top
    else:
        start, end = 1.0, first / final_div_factor
        share = min((step - top) / (bottom - top), 1) if bottom > top else 0.0
    if anneal == "cos":
        return end + (start - end) * (1 + math.cos(math.pi * share)) / 2
    return start + (end - start) * share


def warm(factor: Factor, warmup: int) -> Factor:
    """`factor` after a linear ramp of `warmup` steps up to its first value."""
    if warmup == 0:
        return factor
    first = factor(0)

    def warmed(step: int) -> float:
        return first * (step + 1) / (warmup + 1) if step < warmup else factor(step - warmup)

    return warmed
