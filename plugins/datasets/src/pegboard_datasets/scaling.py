"""Normalisation by the statistics of the training split."""

from __future__ import annotations

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


def fit_pixels(pixels: Tensor, how: Normalize) -> Scaler:
    """A scaler for pictures in [0, 1] from uint8 ones (n, channels, height, width), by channel.

    Counting the 256 values makes the statistics exact, and the same on any number of threads.
    """
    if how == "none":
        return Scaler(how, torch.zeros(()), torch.ones(()))
    channels = pixels.shape[1]
    shift, scale = torch.zeros(2, channels, 1, 1, dtype=torch.float64)
    for c in range(channels):
        counts = torch.zeros(256, dtype=torch.int64)
        for chunk in torch.split(pixels[:, c], 4096):
            counts += torch.bincount(chunk.flatten().int(), minlength=256)
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
