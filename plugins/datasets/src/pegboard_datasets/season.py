"""The season of series, by their autocorrelation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy
from numpy.typing import NDArray

Array = NDArray[Any]
LEAST = 0.2  # autocorrelation that a season has
ABOVE = 0.2  # and by so much more than half a season away
ALIKE = 0.9  # of the highest peak: an earlier one as high is the season, and the other a multiple of it
SERIES = 50  # that are looked at
LONGEST = 20_000  # last steps of each that are looked at


def find_season(parts: Sequence[Array]) -> tuple[int, float] | None:
    """The number of steps after which series (steps,) repeat, and their autocorrelation there; None: none.

    It is where their mean autocorrelation, without a linear trend, has its highest peak, of at least four
    seasons in a series.
    """
    long = sorted((part[-LONGEST:] for part in parts if len(part) >= 16), key=len, reverse=True)[:SERIES]
    if not long:
        return None
    lags = len(long[len(long) // 2]) // 2
    found = [(_autocorrelation(part, lags), len(part)) for part in long if len(part) // 2 >= lags]
    usable = [(r, size) for r, size in found if r is not None]
    if not usable:
        return None
    r = numpy.average([r for r, _ in usable], axis=0, weights=[size for _, size in usable])
    peaks = [lag for lag in range(2, lags // 2) if _is_peak(r, lag)]
    if not peaks:
        return None
    highest = max(r[lag] for lag in peaks)
    season = next(lag for lag in peaks if r[lag] >= ALIKE * highest)
    return season, float(r[season])


def _is_peak(r: Array, lag: int) -> bool:
    """Whether series repeat after so many steps, and again after twice as many, and not between."""
    if not (r[lag] > r[lag - 1] and r[lag] >= r[lag + 1] and r[lag] >= LEAST):
        return False
    low, later = r[1:lag].min(), r[lag + 1 : 2 * lag].min()
    again = r[2 * lag - 1 : 2 * lag + 2].max()
    return bool(r[lag] - low >= ABOVE and again - later >= ABOVE / 2 and again > 0)


def _autocorrelation(part: Array, lags: int) -> Array | None:
    """At every lag up to `lags`, of a series without its linear trend; None for a line."""
    steps = numpy.arange(len(part))
    rest = part - numpy.polyval(numpy.polyfit(steps, part, 1), steps)
    size = 1 << (2 * len(part) - 1).bit_length()
    spectrum = numpy.fft.rfft(rest, size)
    products = numpy.fft.irfft(spectrum * spectrum.conj(), size)[: lags + 1]
    if products[0] <= 1e-12 * max(float((part**2).sum()), 1e-300):
        return None
    # Fewer products at longer lags, so that a season far away is as high as one nearby.
    found: Array = products / products[0] * len(part) / (len(part) - numpy.arange(lags + 1))
    return found
