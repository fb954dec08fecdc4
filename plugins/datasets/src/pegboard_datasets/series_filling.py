"""Steps without a value: what stands in their place."""

from __future__ import annotations

from typing import Any

import numpy
from numpy.typing import NDArray

Array = NDArray[Any]


def last_known(values: Array, starts: Array) -> Array:
    """Every missing value becomes the last one before it in its series; before the first it stays nan.

    `values` (steps, channels) of series that begin at `starts`.
    """
    steps = numpy.arange(len(values))[:, None]
    seen = numpy.where(numpy.isnan(values), -1, steps)
    seen = numpy.maximum.accumulate(seen, 0) if len(values) else seen
    begin = numpy.zeros(len(values), numpy.int64)
    begin[starts[starts < len(values)]] = starts[starts < len(values)]
    begin = numpy.maximum.accumulate(begin) if len(values) else begin
    filled = numpy.take_along_axis(values, numpy.maximum(seen, 0), 0)
    return numpy.where(seen >= begin[:, None], filled, numpy.nan)


def between(values: Array, starts: Array) -> Array:
    """Every missing value lies on the line between its neighbours; at the ends it is that of the nearest."""
    filled = values.copy()
    for begin, end in zip(starts, [*starts[1:], len(values)], strict=True):
        for channel in range(values.shape[1]):
            part = values[begin:end, channel]
            known = numpy.flatnonzero(~numpy.isnan(part))
            if len(known) and len(known) < len(part):
                filled[begin:end, channel] = numpy.interp(numpy.arange(len(part)), known, part[known])
    return filled


def fill(values: Array, starts: Array, how: str) -> Array:
    """By this rule; what it has no value for, and all with `zero` or `mask`, stays nan."""
    if how == "forward":
        return last_known(values, starts)
    return between(values, starts) if how == "linear" else values
