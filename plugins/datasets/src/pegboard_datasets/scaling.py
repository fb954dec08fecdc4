"""Normalisation by the statistics of the training split."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .options import Normalize


@dataclass(frozen=True)
class Scaler:
    """x -> (x - shift) / scale, with shapes that broadcast against a batch."""

    how: Normalize
    shift: Tensor
    scale: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        if self.how == "none":
            return x.float()
        return ((x.double() - self.shift) / self.scale).float()

    def inverse(self, x: Tensor) -> Tensor:
        """What was scaled to x."""
        return (x.double() * self.scale + self.shift).float()

    def notes(self) -> dict[str, Any]:
        """The statistics, for people and files."""
        if self.how == "none":
            return {"normalize": "none"}
        names = {"standard": ("mean", "std"), "minmax": ("min", "range")}[self.how]
        values = (self.shift.flatten().tolist(), self.scale.flatten().tolist())
        return {"normalize": self.how, **dict(zip(names, values, strict=True))}

    def state(self) -> dict[str, Any]:
        """All of it, as JSON holds it to the last bit."""
        return {"normalize": self.how, "shift": self.shift.tolist(), "scale": self.scale.tolist()}

    @classmethod
    def load(cls, state: Mapping[str, Any]) -> Scaler:
        """The one that `state` described."""
        shift, scale = (torch.tensor(state[key], dtype=torch.float64) for key in ("shift", "scale"))
        return cls(state["normalize"], shift, scale)


def fit(x: Tensor, how: Normalize, axes: tuple[int, ...] = (0,)) -> Scaler:
    """A scaler by the statistics of x over `axes`; what is constant is only shifted."""
    if how == "none":
        return Scaler(how, torch.zeros(()), torch.ones(()))
    x = x.double()
    low, high = x.amin(axes, keepdim=True), x.amax(axes, keepdim=True)
    if how == "minmax":
        shift, scale = low, high - low
    else:
        scale, shift = torch.std_mean(x, axes, correction=0, keepdim=True)
    # Rounding gives a constant a tiny deviation, so equality of its ends decides.
    constant = low == high
    shift, scale = torch.where(constant, low, shift), torch.where(constant, 1.0, scale)
    return Scaler(how, shift[0], scale[0])


def fit_parts(parts: Iterable[Tensor], how: Normalize) -> Scaler:
    """As `fit` over the rows of all parts, with one part in memory at a time."""
    if how == "none":
        return Scaler(how, torch.zeros(()), torch.ones(()))
    parts = iter(parts)
    start = list(itertools.islice(parts, 2))
    if len(start) == 1:
        return fit(start[0], how)
    count = 0
    mean, squares = torch.zeros(2, *start[0].shape[1:], dtype=torch.float64)
    low, high = start[0][0].double(), start[0][0].double()
    for x in map(torch.Tensor.double, itertools.chain(start, parts)):
        # Sums of squares around the means of two sets make that of both (Chan et al. 1979).
        spread, middle = torch.var_mean(x, 0, correction=0)
        total, away = count + len(x), middle - mean
        mean = mean + away * (len(x) / total)
        squares = squares + spread * len(x) + away**2 * (count * len(x) / total)
        count = total
        low, high = torch.minimum(low, x.amin(0)), torch.maximum(high, x.amax(0))
    shift, scale = (low, high - low) if how == "minmax" else (mean, (squares / count).sqrt())
    constant = low == high
    return Scaler(how, torch.where(constant, low, shift), torch.where(constant, 1.0, scale))


def fit_pixels(parts: Iterable[Tensor], how: Normalize) -> Scaler:
    """A scaler for pictures in [0, 1] from uint8 ones (n, channels, height, width), by channel.

    Counting the 256 values makes the statistics exact, and the same on any number of threads.
    """
    if how == "none":
        return Scaler(how, torch.zeros(()), torch.ones(()))
    table: Tensor | None = None  # (channels, 256)
    for pixels in parts:
        found = torch.stack([torch.bincount(p.flatten().int(), minlength=256) for p in pixels.unbind(1)])
        table = found if table is None else table + found
    assert table is not None
    shift, scale = torch.zeros(2, len(table), 1, 1, dtype=torch.float64)
    for c, counts in enumerate(table):
        seen = counts.nonzero()[:, 0]
        value, share = seen.double() / 255, counts[seen].double() / counts.sum()
        mean = (share * value).sum()
        deviation = (share * (value - mean) ** 2).sum().sqrt()
        one = len(seen) == 1
        shift[c] = value[0] if how == "minmax" or one else mean
        scale[c] = 1.0 if one else (value[-1] - value[0] if how == "minmax" else deviation)
    return Scaler(how, shift, scale)


def scale_pixels(pixels: Tensor, scaler: Scaler) -> Tensor:
    """uint8 pictures -> float32 ones, as the scaler says; no double copy of them is made."""
    x = pixels.float().div_(255)
    if scaler.how == "none":
        return x
    return x.sub_(scaler.shift.float()).div_(scaler.scale.float())
