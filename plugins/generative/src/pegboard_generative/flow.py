"""Normalising flows: invertible couplings with the exact likelihood of every sample."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from .functional import standard_log_density, wide
from .nets import Dense, activation

LIMIT = 3.0  # of the logarithm of a factor
LEAST = 1e-3  # of the width and height of a piece of a spline, and of its slope


class Coupling(nn.Module):
    """Changes the numbers that `mask` leaves free, by maps that the others decide.

    x: (batch, size). `forward` gives y and log |det dy/dx| (batch,), `inverse` x and log |det dx/dy|.
    """

    mask: Tensor

    def __init__(
        self, mask: Tensor, hidden: Sequence[int], act: str, kind: str, bins: int = 8, bound: float = 4.0
    ) -> None:
        super().__init__()
        self.register_buffer("mask", mask, persistent=False)  # 1 where a number is only read
        self.kind, self.bins, self.bound = kind, bins, bound
        size, numbers = len(mask), 2 if kind == "affine" else 3 * bins - 1
        self.net = Dense((size,), hidden, (size, numbers), lambda: activation(act))
        nn.init.zeros_(self.net.head.weight)  # it starts as the identity
        nn.init.zeros_(self.net.head.bias)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self._map(x, inverse=False)

    def inverse(self, y: Tensor) -> tuple[Tensor, Tensor]:
        return self._map(y, inverse=True)

    def _map(self, x: Tensor, inverse: bool) -> tuple[Tensor, Tensor]:
        free = 1 - self.mask
        given = wide(self.net(x * self.mask))
        if self.kind == "affine":
            log_scale, shift = LIMIT * torch.tanh(given[..., 0] / LIMIT), given[..., 1]
            if inverse:
                y, slopes = (x - shift) * (-log_scale).exp(), -log_scale
            else:
                y, slopes = x * log_scale.exp() + shift, log_scale
        else:
            y, slopes = spline(x, given, self.bound, inverse)
        return torch.where(free.bool(), y, x), (slopes * free).sum(1)


def spline(x: Tensor, given: Tensor, bound: float, inverse: bool = False) -> tuple[Tensor, Tensor]:
    """Monotone pieces of ratios of quadratics between -bound and bound, and the identity beyond.

    `given` (..., 3 bins - 1) holds widths, heights and inner slopes. Returns y and log dy/dx.
    """
    bins = (given.shape[-1] + 1) // 3
    widths, heights, slopes = torch.split(given, [bins, bins, bins - 1], -1)
    xs, ys = (_knots(part, bound) for part in (widths, heights))
    # Slopes of 1 at the ends join the identity; shifted, so that numbers of 0 give a slope of 1 inside too.
    inner = LEAST + functional.softplus(slopes + math.log(math.expm1(1 - LEAST)))
    ds = functional.pad(inner, (1, 1), value=1.0)
    inside = (x > -bound) & (x < bound)
    point = x.clamp(-bound, bound).unsqueeze(-1)
    edges = ys if inverse else xs
    place = (torch.searchsorted(edges.contiguous(), point.contiguous(), right=True) - 1).clamp(0, bins - 1)

    def at(values: Tensor, step: int = 0) -> Tensor:
        return values.gather(-1, place + step).squeeze(-1)

    x0, y0, d0, d1 = at(xs), at(ys), at(ds), at(ds, 1)
    width, height = at(xs, 1) - x0, at(ys, 1) - y0
    slope, point = height / width, point.squeeze(-1)
    if inverse:
        rise = point - y0
        a = height * (slope - d0) + rise * (d0 + d1 - 2 * slope)
        b = height * d0 - rise * (d0 + d1 - 2 * slope)
        c = -slope * rise
        t = 2 * c / (-b - (b.square() - 4 * a * c).clamp(min=0).sqrt())
        y = x0 + t * width
    else:
        t = (point - x0) / width
        y = y0 + height * (slope * t.square() + d0 * t * (1 - t)) / (
            slope + (d0 + d1 - 2 * slope) * t * (1 - t)
        )
    below = slope + (d0 + d1 - 2 * slope) * t * (1 - t)
    top = slope.square() * (d1 * t.square() + 2 * slope * t * (1 - t) + d0 * (1 - t).square())
    log_slope = top.log() - 2 * below.log()
    y = torch.where(inside, y, x)
    return y, torch.where(inside, -log_slope if inverse else log_slope, torch.zeros_like(y))


def _knots(given: Tensor, bound: float) -> Tensor:
    """Ends of pieces whose lengths fill the range: (..., bins + 1)."""
    bins = given.shape[-1]
    shares = LEAST + (1 - LEAST * bins) * given.softmax(-1)
    # Sums of the first 1, 2, ...: cumsum has no deterministic kernel on CUDA, and autocast rounds products.
    first = torch.ones(bins, bins, dtype=torch.bool, device=shares.device).tril()
    ends = functional.pad((shares.unsqueeze(-2) * first).sum(-1), (1, 0))
    return bound * (2 * ends / ends[..., -1:] - 1)


class Likely(NamedTuple):
    """What a flow gives."""

    log_likelihood: Tensor  # of each sample: (batch,)


class Flow(nn.Module):
    """Couplings that in turn read the even and change the odd numbers of a sample, or the reverse.

    `forward(x)` gives log p(x). Further arguments are the fields of the config `Flow`.
    """

    def __init__(
        self,
        shape: Sequence[int],
        layers: int = 8,
        hidden: Sequence[int] = (64, 64),
        activation: str = "relu",
        coupling: str = "affine",
        bins: int = 8,
        bound: float = 4.0,
    ) -> None:
        super().__init__()
        self.shape, size = tuple(shape), math.prod(shape)
        self.shift, self.log_scale = nn.Parameter(torch.zeros(size)), nn.Parameter(torch.zeros(size))
        even = (torch.arange(size) + 1) % 2
        masks = [even if k % 2 == 0 else 1 - even for k in range(layers)]
        self.layers = nn.ModuleList(
            Coupling(mask.float(), hidden, activation, coupling, bins, bound) for mask in masks
        )

    def transform(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Codes (batch, size) of samples, and log |det| of the derivative (batch,)."""
        z = (x.flatten(1) - self.shift) * (-self.log_scale).exp()
        total = -self.log_scale.sum().expand(len(x))
        for layer in self.layers:
            z, added = layer(z)
            total = total + added
        return z, total

    def forward(self, x: Tensor) -> Likely:
        z, total = self.transform(x)
        return Likely(standard_log_density(wide(z)) + total)

    def encode(self, x: Tensor) -> Tensor:
        return self.transform(x)[0]

    def decode(self, code: Tensor) -> Tensor:
        x = code
        for layer in reversed(self.layers):
            assert isinstance(layer, Coupling)
            x, _ = layer.inverse(x)
        return (x * self.log_scale.exp() + self.shift).reshape(-1, *self.shape)

    def latent(self, count: int, generator: torch.Generator | None = None) -> Tensor:
        """Normal codes."""
        return torch.randn(count, len(self.shift), generator=generator, device=self.shift.device)

    def sample(self, count: int, generator: torch.Generator | None = None) -> Tensor:
        """New samples."""
        return self.decode(self.latent(count, generator))
