"""Networks on sets: (batch, points, features), where points that are not there are nan in every feature."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from pegboard import Peg
from torch import Tensor, nn

from .activations import ACTIVATIONS
from .norms import RowNorm

LOWEST = -3e38  # below every number that a feature has


def split(x: Tensor, padded: bool) -> tuple[Tensor, Tensor | None]:
    """The points, zero where none is, and where there is one: (batch, points), None where there always is."""
    if not padded:
        return x, None
    there = ~torch.isnan(x[..., 0])
    return torch.where(there.unsqueeze(-1), x, 0.0), there


def pool(x: Tensor, there: Tensor | None, how: str) -> Tensor:
    """The sum, mean or maximum over the points of each set: (batch, features)."""
    if there is None:
        return x.amax(1) if how == "max" else x.sum(1) if how == "sum" else x.mean(1)
    mask = there.unsqueeze(-1)
    if how == "max":
        most = torch.where(mask, x, LOWEST).amax(1)
        return torch.where(mask.any(1), most, 0.0)  # of a set that is empty, as the sum and the mean
    total = torch.where(mask, x, 0.0).sum(1)
    return total if how == "sum" else total / mask.sum(1).clamp(min=1)


class PointNorm(RowNorm):
    """Batch normalisation of every feature over all points that are there, whatever cloud they are in."""

    masked = True

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        flat = x.reshape(-1, x.shape[-1])
        if mask is None or not self.training:
            return super().forward(flat).view(x.shape)
        weight = mask.reshape(-1, 1).to(x.dtype)
        count = weight.sum().clamp(min=1)
        mean = (flat * weight).sum(0) / count
        variance = ((flat - mean).square() * weight).sum(0) / count
        assert self.running_mean is not None and self.running_var is not None
        with torch.no_grad():
            if self.num_batches_tracked is not None:
                self.num_batches_tracked.add_(1)
            rate = self.momentum or 0.1
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), rate)
            fair = variance * (count / (count - 1).clamp(min=1))
            self.running_var.lerp_(fair.to(self.running_var.dtype), rate)
        found = (flat - mean) * (variance + self.eps).rsqrt() * self.weight + self.bias
        return found.view(x.shape)


class Dense(nn.Module):
    """Linear layers with pegs on the last axis; every one but the last ends in a nonlinearity."""

    def __init__(
        self, inputs: int, widths: Sequence[int], outputs: int | None, activation: str, *,
        layout: str = "NC", norm: bool = False, end: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        sizes = [inputs, *widths]
        ends = [activation] * len(widths)
        if outputs is None and ends and end is not None:
            ends[-1] = end
        self.maps = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, widths, strict=False))
        norms = [_norm(width, layout) if norm else None for width in widths]
        self.affine = nn.ModuleList(
            Peg("affine", w, layout, norm=n) for w, n in zip(widths, norms, strict=True)
        )
        self.activations = nn.ModuleList(ACTIVATIONS[name]() for name in ends)
        self.hidden = nn.ModuleList(Peg("hidden", width, layout) for width in widths)
        self.last = None if outputs is None else nn.Linear(sizes[-1], outputs)
        self.width = sizes[-1] if outputs is None else outputs

    def forward(self, x: Tensor, there: Tensor | None = None) -> Tensor:
        layers = zip(self.maps, self.affine, self.activations, self.hidden, strict=True)
        for linear, affine, activation, hidden in layers:
            x = hidden(activation(affine(linear(x), there)), there)
        return x if self.last is None else self.last(x)


def _norm(width: int, layout: str) -> nn.Module:
    return RowNorm(width) if layout == "NC" else PointNorm(width)


class DeepSets(nn.Module):
    """rho(sum of phi(x)) for every set, or rho(x, sum of phi(x)) for every point where `each`."""

    def __init__(
        self, inputs: int, outputs: int, point: Sequence[int] = (64, 64), rest: Sequence[int] = (64,), *,
        pool: str = "sum", activation: str = "relu", end: str = "identity", each: bool = False,
        padded: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.how, self.each, self.padded = pool, each, padded
        self.input = Peg("input", inputs, "NLC")
        self.phi = Dense(inputs, point, None, activation, layout="NLC", end=end)
        self.pooled = Peg("pooled", self.phi.width)
        width = self.phi.width + (inputs if each else 0)
        self.rho = Dense(width, rest, outputs, activation, layout="NLC" if each else "NC")
        self.logits = Peg("logits", outputs, "NLC" if each else "NC")

    def forward(self, x: Tensor) -> Tensor:
        x, there = split(x, self.padded)
        x = self.input(x, there)
        whole = self.pooled(pool(self.phi(x, there), there, self.how))
        if not self.each:
            return self.logits(self.rho(whole))
        beside = whole.unsqueeze(1).expand(-1, x.shape[1], -1)
        return self.logits(self.rho(torch.cat((x, beside), -1), there), there)


class PermutationLinear(nn.Module):
    """The linear maps of R^n that every permutation commutes with, for any n: two numbers.

    `own` times a number, and `other` times each of the others.
    """

    def __init__(self, own: float = 1.0, other: float = 0.0) -> None:
        super().__init__()
        self.own, self.other = nn.Parameter(torch.tensor(own)), nn.Parameter(torch.tensor(other))

    def forward(self, x: Tensor) -> Tensor:
        return (self.own - self.other) * x + self.other * x.sum(-1, keepdim=True)


class SetLinear(nn.Module):
    """The same for points with several features: a matrix for a point, and one for all of them."""

    def __init__(self, inputs: int, outputs: int, pool: str = "mean", bias: bool = True) -> None:
        super().__init__()
        self.how = pool
        self.own = nn.Linear(inputs, outputs, bias=bias)
        self.whole = nn.Linear(inputs, outputs, bias=False)

    def forward(self, x: Tensor, there: Tensor | None = None) -> Tensor:
        result: Tensor = self.own(x) + self.whole(pool(x, there, self.how)).unsqueeze(1)
        return result


class Equivariant(nn.Module):
    """Layers that permutations commute with; an answer for every point, or the mean of them for the set."""

    def __init__(
        self, inputs: int, outputs: int, channels: Sequence[int] = (32, 32), *, pool: str = "mean",
        activation: str = "relu", bias: bool = True, each: bool = False, padded: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.each, self.padded = each, padded
        self.input = Peg("input", inputs, "NLC")
        sizes = [inputs, *channels, outputs]
        self.layers = nn.ModuleList(SetLinear(a, b, pool, bias) for a, b in pairwise(sizes))
        self.affine = nn.ModuleList(Peg("affine", width, "NLC") for width in channels)
        self.activation = ACTIVATIONS[activation]()
        self.hidden = nn.ModuleList(Peg("hidden", width, "NLC") for width in channels)
        self.pooled = None if each else Peg("pooled", outputs)
        self.logits = Peg("logits", outputs, "NLC" if each else "NC")

    def forward(self, x: Tensor) -> Tensor:
        x, there = split(x, self.padded)
        x = self.input(x, there)
        for layer, affine, hidden in zip(self.layers, self.affine, self.hidden, strict=False):
            x = hidden(self.activation(affine(layer(x, there), there)), there)
        x = self.layers[-1](x, there)
        if self.pooled is None:
            return self.logits(x, there)
        return self.logits(self.pooled(pool(x, there, "mean")))
