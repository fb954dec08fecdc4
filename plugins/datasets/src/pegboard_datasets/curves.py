"""Numbers with real targets: curves, sets of equal statistics, sheets in space, measured signals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy
import torch
from torch import Generator, Tensor

from .made import Points

Kind = Literal["anscombe", "cloud", "circle", "star", "cross", "stripes", "parabola", "dino"]
Embedding = Literal["roll", "flat", "cylinder", "fold"]
Prior = Literal["white", "spikes"]

X = (10, 8, 13, 9, 11, 14, 6, 4, 12, 7, 5)
ANSCOMBE = (
    (X, (8.04, 6.95, 7.58, 8.81, 8.33, 9.96, 7.24, 4.26, 10.84, 4.82, 5.68)),
    (X, (9.14, 8.14, 8.74, 8.77, 9.26, 8.10, 6.13, 3.10, 9.13, 7.26, 4.74)),
    (X, (7.46, 6.77, 12.74, 7.11, 7.81, 8.84, 6.08, 5.39, 8.15, 6.42, 5.73)),
    ((8, 8, 8, 8, 8, 8, 8, 19, 8, 8, 8), (6.58, 5.76, 7.71, 8.84, 8.47, 7.04, 5.25, 12.50, 5.56, 7.91, 6.89)),
)
# Means, deviations and correlation of Anscombe's sets and of the Datasaurus dozen.
QUARTET = ((9.0, 7.5), (math.sqrt(11), math.sqrt(4.125)), 0.8164)
DOZEN = ((54.26, 47.83), (16.76, 26.93), -0.06)
# The outline of a dinosaur on two legs: tail, back, head, arm, legs.
DINO = (
    (-1.0, -0.5), (-0.55, -0.3), (-0.1, -0.2), (0.2, 0.1), (0.35, 0.45), (0.45, 0.75), (0.8, 0.8),
    (1.0, 0.65), (1.0, 0.55), (0.7, 0.45), (0.65, 0.25), (0.7, 0.05), (0.9, 0.0), (0.7, -0.1), (0.6, -0.35),
    (0.7, -0.65), (0.5, -0.95), (0.75, -1.0), (0.35, -1.0), (0.3, -0.65), (0.05, -0.5), (-0.4, -0.55),
)  # fmt: skip
START, END, HEIGHT = 1.5 * math.pi, 4.5 * math.pi, 21.0  # of the Swiss roll


def cosine(samples: int, noise: float = 0.1, *, seed: int) -> Points:
    """x uniform in [0, 1], in order, and y = cos(3/2 pi x) + noise, from the numbers that numpy's seed gives.

    30 samples of seed 0 are those of scikit-learn's figure of under- and overfitting.
    """
    stream = numpy.random.RandomState(seed % 2**32)
    x = numpy.sort(stream.rand(samples))
    y = numpy.cos(1.5 * math.pi * x) + noise * stream.randn(samples)
    return Points(torch.from_numpy(x)[:, None], torch.from_numpy(y)[:, None])


def quartet(samples: int, kind: Kind = "anscombe", number: int = 1, *, generator: Generator) -> Points:
    """Pairs (x, y) in double precision whose means, deviations and correlation are those of their family.

    `anscombe` has four sets of 11 and takes no other number; `cloud` four normal ones without structure,
    with the same statistics to rounding; the shapes have those of the Datasaurus dozen.
    """
    if kind == "anscombe":
        pairs = torch.tensor(ANSCOMBE[number - 1], dtype=torch.float64).T
        return Points(pairs[:, :1], pairs[:, 1:])
    if kind == "cloud":
        drawn = [torch.randn(samples, 2, generator=generator, dtype=torch.float64) for _ in range(number)]
        pairs = matched(drawn[-1], *QUARTET)
    else:
        pairs = matched(_shape(samples, kind, generator), *DOZEN)
    return Points(pairs[:, :1], pairs[:, 1:])


def point_shapes(samples: int, points: int, kinds: Sequence[Kind], *, generator: Generator) -> Points:
    """Sets (samples, points, 2) with the statistics of the dozen, and which of the shapes each has."""
    y = torch.arange(samples) % len(kinds)
    sets = [torch.cat(quartet(points, kinds[k], generator=generator), 1) for k in y.tolist()]
    return Points(torch.stack(sets), y)


def matched(
    pairs: Tensor, mean: tuple[float, float], deviation: tuple[float, float], correlation: float
) -> Tensor:
    """The affine image of pairs (samples, 2) with these statistics; verticals stay vertical."""
    centred = pairs - pairs.mean(0)
    (a, b), r = deviation, correlation
    wanted = torch.tensor([[a * a, r * a * b], [r * a * b, b * b]], dtype=pairs.dtype)
    found = torch.linalg.cholesky(centred.T @ centred / (len(pairs) - 1))
    white = torch.linalg.solve_triangular(found, centred.T, upper=False)
    coloured: Tensor = torch.linalg.cholesky(wanted) @ white
    return coloured.T + torch.tensor(mean, dtype=pairs.dtype)


def _shape(samples: int, kind: Kind, generator: Generator) -> Tensor:
    """Points on the lines of a shape, a little beside them."""
    t = torch.rand(samples, generator=generator, dtype=torch.float64)
    beside = 0.02 * torch.randn(samples, 2, generator=generator, dtype=torch.float64)
    angle = 2 * math.pi * t
    if kind == "circle":
        x, y = angle.cos(), angle.sin()
    elif kind == "star":
        side = (5 * t).floor()  # every side goes on to the corner after the next
        ends = [0.4 * math.pi * (2 * (side + k)) + math.pi / 2 for k in (0, 1)]
        along = 5 * t - side
        x, y = ((1 - along) * f(ends[0]) + along * f(ends[1]) for f in (torch.cos, torch.sin))
    elif kind == "cross":
        x = 4 * (t % 0.5) - 1
        y = torch.where(t < 0.5, x, -x)
    elif kind == "stripes":
        x, y = 2 * (5 * t % 1) - 1, (5 * t).floor() / 2 - 1
    elif kind == "dino":
        x, y = _outline(torch.tensor(DINO, dtype=torch.float64), t).T
    else:
        x = 2 * t - 1
        y = x**2
    return torch.stack([x, y], 1) + beside


def _outline(corners: Tensor, t: Tensor) -> Tensor:
    """Where one is on a closed line (corners, 2) after the share `t` of its length."""
    sides = corners.roll(-1, 0) - corners
    lengths = sides.norm(dim=1)
    reached = lengths.cumsum(0)
    at = t * reached[-1]
    side = torch.searchsorted(reached, at).clamp(max=len(corners) - 1)
    along = (at - reached[side] + lengths[side]) / lengths[side]
    found: Tensor = corners[side] + along[:, None] * sides[side]
    return found


class Sheet(NamedTuple):
    """A sheet in space: where its points are, and where they are on it."""

    x: Tensor  # (samples, 3)
    y: Tensor  # (samples, 2): along the sheet and across it


def swiss_roll(
    samples: int, embedding: Embedding = "roll", noise: float = 0.0, *, generator: Generator
) -> Sheet:
    """Points even on a sheet, which lies in space without being stretched, plus noise.

    `roll` is (t cos t, h, t sin t) for t in [3/2 pi, 9/2 pi], `cylinder` nine tenths of one, `fold` bends the
    sheet to a right angle three times, `flat` leaves it.
    """
    least, most = (_arc(torch.tensor(t, dtype=torch.float64)) for t in (START, END))
    length = float(most - least)
    along, across = torch.rand(2, samples, generator=generator, dtype=torch.float64)
    along, across = along * length, across * HEIGHT
    if embedding == "roll":
        t = _turned(along + least)
        u, v = t * t.cos(), t * t.sin()
    elif embedding == "cylinder":
        radius = length / (1.8 * math.pi)
        u, v = radius * (along / radius).cos(), radius * (along / radius).sin()
    elif embedding == "fold":
        step = length / 4  # up the stairs: a tread, a riser, a tread, a riser
        piece = (along / step).floor().clamp(max=3)
        inside, odd, below = along - piece * step, piece % 2, (piece / 2).floor()
        u, v = step * (below + odd) + (1 - odd) * inside, step * below + odd * inside
    else:
        u, v = along, torch.zeros_like(along)
    x = torch.stack([u, across, v], 1)
    x = x + noise * torch.randn(x.shape, generator=generator, dtype=torch.float64)
    return Sheet(x, torch.stack([along, across], 1))


def _arc(t: Tensor) -> Tensor:
    """The length of the spiral (t cos t, t sin t) from its middle to t."""
    return (t * (1 + t**2).sqrt() + t.asinh()) / 2


def _turned(arc: Tensor) -> Tensor:
    """The t at which the spiral has this length, by Newton's method."""
    t = (2 * arc).sqrt()
    for _ in range(8):
        t = t - (_arc(t) - arc) / (1 + t**2).sqrt()
    return t


class Measured(NamedTuple):
    """Signals, and what an instrument measures of them."""

    x: Tensor  # (samples, 2 measured): real, then imaginary parts
    y: Tensor  # (samples, length): the signals
    frequencies: Tensor  # (measured,)


def sparse_fourier(
    samples: int, length: int = 64, measured: int = 12, prior: Prior = "spikes", *, generator: Generator
) -> Measured:
    """Signals, and their Fourier coefficients at some frequencies, the same for all: fewer than they need.

    `white` signals are normal noise; `spikes` are three bumps of any height and place.
    """
    frequencies = torch.randperm(length, generator=generator)[:measured].sort().values
    if prior == "white":
        signals = torch.randn(samples, length, generator=generator, dtype=torch.float64)
    else:
        place, height = torch.rand(2, samples, 3, 1, generator=generator, dtype=torch.float64)
        away = (torch.arange(length) - place * length + length / 2) % length - length / 2
        signals = ((0.5 + height) * torch.exp(-(away**2) / 4)).sum(1)
    return Measured(signals @ fourier_rows(frequencies, length).T, signals, frequencies)


def fourier_rows(frequencies: Tensor, length: int) -> Tensor:
    """The measurement as a real matrix (2 measured, length): cosines, then sines, of unitary size."""
    angle = 2 * math.pi / length * (frequencies[:, None] * torch.arange(length) % length).double()
    return torch.cat([angle.cos(), -angle.sin()]) / math.sqrt(length)
