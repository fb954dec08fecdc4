"""How far to go along a ray: line searches as functions of one number, without torch.

`along(t)` gives the loss and its slope at t; at 0 they are `value` and `slope`, which is below 0. A search
gives a t at which the loss is lower, or 0 where it found none.
"""

from __future__ import annotations

import math
from collections.abc import Callable

Along = Callable[[float], tuple[float, float]]

NARROW = 1e-12  # width of a bracket, as a share of its far end, that is not searched any further


def backtracking(
    along: Along,
    value: float,
    slope: float,
    armijo: float = 1e-4,
    shrink: float = 0.5,
    precision: float = 2e-16,
    most: int = 50,
) -> float:
    """The first of 1, shrink, shrink^2, ... where the loss falls by `armijo` of what the slope promises.

    Where a loss of this precision cannot tell such a fall from none, the slope there decides as it would
    for a parabola (Hager and Zhang, 2005).
    """
    noise = rounding(value, precision)
    blurred = abs(slope) <= 1000 * noise
    t = 1.0
    for _ in range(most):
        loss, rise = along(t)
        if loss <= value + armijo * t * slope and loss < value:
            return t
        if blurred and loss <= value + noise and rise <= (2 * armijo - 1) * slope:
            return t
        t *= shrink
    return 0.0


def rounding(value: float, precision: float) -> float:
    """By how much two losses of this size may differ for no reason."""
    return 4 * precision * abs(value)


def exact(along: Along, value: float, slope: float, precision: float = 2e-16, most: int = 50) -> float:
    """Where the slope is as flat as numbers of this precision can tell: of a parabola, the third point.

    Regula falsi with the Illinois rule between points that enclose a minimum, and halves where that is
    slow or a loss is higher than at the start.
    """
    flat, start = math.sqrt(precision), value + rounding(value, precision)
    low, at_low, high, at_high = 0.0, slope, math.inf, math.nan  # the ends of the bracket and their slopes
    best, lowest = 0.0, value
    t, kept = 1.0, 0  # kept: how often in a row the same end stayed, below 0 the low one
    for _ in range(most):
        loss, rise = along(t)
        if loss < lowest:
            best, lowest = t, loss
        if abs(rise) <= flat * abs(slope) and loss <= start:
            return t
        if rise < 0 and loss <= start:
            low, at_low, kept = t, rise, max(kept, 0) + 1
        else:  # too far: it rises, or there was a hill on the way
            high, kept = t, min(kept, 0) - 1
            at_high = rise if rise > 0 else math.nan
        if math.isinf(high):
            t = _ahead(t, at_low, slope)
            continue
        if high - low <= NARROW * high:
            break
        t = _between(low, at_low, high, at_high, kept)
    return best


def _ahead(t: float, rise: float, slope: float) -> float:
    """The next point while it still falls: where a parabola has its minimum, if that is not too far."""
    return t * slope / (slope - rise) if rise > 0.999 * slope else 1000 * t


def _between(low: float, at_low: float, high: float, at_high: float, kept: int) -> float:
    if math.isnan(at_high) or abs(kept) > 3:
        return (low + high) / 2
    # An end that stayed twice counts half, so that the other side moves too.
    left = at_low / 2 if kept < -1 else at_low
    right = at_high / 2 if kept > 1 else at_high
    t = low + (high - low) * left / (left - right)
    return t if low < t < high else (low + high) / 2
