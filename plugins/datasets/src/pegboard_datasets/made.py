"""Samples made by a formula: pure functions that draw from the generator they are given alone.

Points come as a float32 tensor x (samples, features) and int64 classes y (samples,), ordered by
class; teachers give real targets (samples, outputs).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations_with_replacement
from typing import NamedTuple

import torch
from torch import Generator, Tensor


class Points(NamedTuple):
    """Points with classes."""

    x: Tensor  # (samples, features)
    y: Tensor  # (samples,)


class Lesson(NamedTuple):
    """Points with the values a teacher gives them, and the teacher."""

    x: Tensor  # (samples, features)
    y: Tensor  # (samples, outputs)
    weight: Tensor  # (terms, outputs); y = terms(x) @ weight + bias + noise
    bias: Tensor  # (outputs,)


def xor(samples: int, bits: int = 2, noise: float = 0.1, *, generator: Generator) -> Points:
    """Corners of the cube {0, 1}^bits plus noise; the class is the parity of the corner's ones.

    Where there are enough samples every corner is visited in turn, else corners are drawn.
    """
    if samples >= 2**bits:
        corner = torch.arange(samples) % 2**bits
    else:
        corner = torch.randint(2**bits, (samples,), generator=generator)
    ones = (corner[:, None] >> torch.arange(bits - 1, -1, -1)) & 1
    return Points(_noisy(ones.float(), noise, generator), ones.sum(1) % 2)


def moons(samples: int, noise: float = 0.1, *, generator: Generator) -> Points:
    """Half circles (cos t, sin t) and (1 - cos t, 1/2 - sin t) for even t in [0, pi], plus noise."""
    upper, lower = _shares(samples, 2)
    t, s = (torch.linspace(0, math.pi, n, dtype=torch.float64) for n in (upper, lower))
    x = torch.cat([_pairs(t.cos(), t.sin()), _pairs(1 - s.cos(), 0.5 - s.sin())])
    return Points(_noisy(x.float(), noise, generator), _classes([upper, lower]))


def circles(samples: int, noise: float = 0.05, factor: float = 0.5, *, generator: Generator) -> Points:
    """Circles of radius 1 and `factor` around 0, at even angles, plus noise."""
    counts = _shares(samples, 2)
    rings = []
    for radius, n in zip((1.0, factor), counts, strict=True):
        t = torch.arange(n, dtype=torch.float64) * (2 * math.pi / n)
        rings.append(radius * _pairs(t.cos(), t.sin()))
    return Points(_noisy(torch.cat(rings).float(), noise, generator), _classes(counts))


def spirals(
    samples: int, classes: int = 2, turns: float = 1.0, noise: float = 0.02, *, generator: Generator
) -> Points:
    """Arm k has radius t at the angle 2 pi (turns t + k / classes), for even t in [0.05, 1], plus noise."""
    counts = _shares(samples, classes)
    arms = []
    for k, n in enumerate(counts):
        t = torch.linspace(0.05, 1, n, dtype=torch.float64)
        angle = 2 * math.pi * (turns * t + k / classes)
        arms.append(t[:, None] * _pairs(angle.cos(), angle.sin()))
    return Points(_noisy(torch.cat(arms).float(), noise, generator), _classes(counts))


def blobs(
    samples: int,
    classes: int = 3,
    features: int = 2,
    noise: float = 1.0,
    box: float = 10.0,
    *,
    generator: Generator,
) -> Points:
    """Normal clouds of deviation `noise` around centres that are uniform in [-box, box]^features."""
    centres = (2 * torch.rand(classes, features, generator=generator) - 1) * box
    y = _classes(_shares(samples, classes))
    return Points(_noisy(centres[y], noise, generator), y)


def ring(
    samples: int, modes: int = 8, radius: float = 2.0, noise: float = 0.02, *, generator: Generator
) -> Points:
    """Normal clouds of deviation `noise` around `ring_centres`, drawn with equal chances."""
    return _clouds(samples, ring_centres(modes, radius), noise, generator)


def ring_centres(modes: int, radius: float) -> Tensor:
    """Points at even angles of a circle, the first to the right: (modes, 2)."""
    t = torch.arange(modes, dtype=torch.float64) * (2 * math.pi / modes)
    return (radius * _pairs(t.cos(), t.sin())).float()


def mixture(
    samples: int, side: int = 5, spacing: float = 2.0, noise: float = 0.05, *, generator: Generator
) -> Points:
    """Normal clouds of deviation `noise` around `mixture_centres`, drawn with equal chances."""
    return _clouds(samples, mixture_centres(side, spacing), noise, generator)


def mixture_centres(side: int, spacing: float) -> Tensor:
    """Points of a square grid around 0, line by line: (side^2, 2)."""
    places = (torch.arange(side, dtype=torch.float64) - (side - 1) / 2) * spacing
    return torch.cartesian_prod(places, places).float()


def checkerboard(samples: int, cells: int = 4, size: float = 4.0, *, generator: Generator) -> Points:
    """Points that are uniform on the dark cells of a board around 0, a class for each cell."""
    dark = torch.tensor([(i, j) for i in range(cells) for j in range(cells) if (i + j) % 2 == 0])
    y = torch.randint(len(dark), (samples,), generator=generator)
    places = dark[y] + torch.rand(samples, 2, generator=generator)
    return Points((places / cells - 0.5) * size, y)


def _clouds(samples: int, centres: Tensor, noise: float, generator: Generator) -> Points:
    y = torch.randint(len(centres), (samples,), generator=generator)
    return Points(_noisy(centres[y], noise, generator), y)


def linear_teacher(
    samples: int, features: int = 10, outputs: int = 1, noise: float = 0.1, *, generator: Generator
) -> Lesson:
    """Normal x and y = x W + b + noise, with W of variance 1 / features and b of variance 1."""
    weight = torch.randn(features, outputs, generator=generator) / math.sqrt(features)
    bias = torch.randn(outputs, generator=generator)
    x = torch.randn(samples, features, generator=generator)
    return Lesson(x, _noisy(x @ weight + bias, noise, generator), weight, bias)


def polynomial_teacher(
    samples: int,
    features: int = 1,
    degree: int = 3,
    outputs: int = 1,
    coefficients: Sequence[float] | None = None,
    noise: float = 0.1,
    *,
    generator: Generator,
) -> Lesson:
    """x uniform in [-1, 1]^features and y = monomials(x) W + noise; the bias is in W's first row.

    `coefficients` holds W row by row: monomial by monomial, every output of each.
    """
    terms = math.comb(features + degree, degree)
    if coefficients is None:
        weight = torch.randn(terms, outputs, generator=generator)
    else:
        weight = torch.tensor(coefficients, dtype=torch.float32).reshape(terms, outputs)
    x = 2 * torch.rand(samples, features, generator=generator) - 1
    y = monomials(x, degree) @ weight
    return Lesson(x, _noisy(y, noise, generator), weight, torch.zeros(outputs))


def monomials(x: Tensor, degree: int) -> Tensor:
    """1, x_0, x_1, ..., x_0 x_0, x_0 x_1, ... up to `degree`: (samples, C(features + degree, degree))."""
    columns = [x.new_ones(len(x))]
    for d in range(1, degree + 1):
        for chosen in combinations_with_replacement(range(x.shape[1]), d):
            columns.append(x[:, list(chosen)].prod(1))
    return torch.stack(columns, 1)


def _noisy(x: Tensor, noise: float, generator: Generator) -> Tensor:
    # Drawn even for noise 0, so that the noise does not decide what a shared generator gives next.
    return x + noise * torch.randn(x.shape, generator=generator)


def _shares(samples: int, classes: int) -> list[int]:
    return [samples // classes + (k < samples % classes) for k in range(classes)]


def _classes(counts: Sequence[int]) -> Tensor:
    return torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))


def _pairs(x: Tensor, y: Tensor) -> Tensor:
    return torch.stack([x, y], 1)
