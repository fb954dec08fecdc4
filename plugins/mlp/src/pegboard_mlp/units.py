"""Threshold units, which learn nothing, and prototypes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pegboard import Peg
from torch import Tensor, nn

from .modules import LinearInParameters


class Units(nn.Module):
    """McCulloch-Pitts units: 1 where the sum of `signs * x` reaches the threshold, else 0; no gradient."""

    signs: Tensor
    thresholds: Tensor

    def __init__(self, inputs: int, signs: Sequence[Sequence[int]], thresholds: Sequence[float]) -> None:
        super().__init__()
        if not signs:
            signs = [[1] * inputs] * len(thresholds)
        if len(signs) != len(thresholds) or {len(row) for row in signs} != {inputs}:
            raise ValueError(
                f"{len(thresholds)} thresholds and signs of {[len(row) for row in signs]} inputs: expected a "
                f"row of {inputs} signs for each threshold"
            )
        self.register_buffer("signs", torch.tensor(signs, dtype=torch.get_default_dtype()))
        self.register_buffer("thresholds", torch.tensor(thresholds, dtype=torch.get_default_dtype()))

    def forward(self, x: Tensor) -> Tensor:
        return (nn.functional.linear(x, self.signs) >= self.thresholds).to(x.dtype)

    def extra_repr(self) -> str:
        return f"{len(self.thresholds)} units"


class Threshold(nn.Module):
    """Threshold units side by side: (batch, inputs) of zeros and ones to (batch, units) of zeros and ones."""

    def __init__(self, inputs: int, signs: Sequence[Sequence[int]], thresholds: Sequence[float]) -> None:
        super().__init__()
        self.input = Peg("input", inputs)
        self.units = Units(inputs, signs, thresholds)
        self.logits = Peg("logits", len(thresholds))

    def forward(self, x: Tensor) -> Tensor:
        return self.logits(self.units(self.input(x.flatten(1))))


class ThresholdReadout(LinearInParameters):
    """An affine map, which learns, of threshold units, which do not: Rosenblatt's first machine."""

    def __init__(
        self, inputs: int, signs: Sequence[Sequence[int]], thresholds: Sequence[float], outputs: int
    ) -> None:
        super().__init__(inputs, len(thresholds), outputs)
        self.units = Units(inputs, signs, thresholds)

    def expand(self, x: Tensor) -> Tensor:
        y: Tensor = self.units(x)
        return y


class Prototypes(nn.Module):
    """Minus the squared distance to each of some centres: (batch, inputs) to (batch, count).

    The greatest output is that of the nearest centre. `centres` (count, inputs) is all it learns.
    """

    def __init__(self, inputs: int, count: int, *, spread: float = 1.0) -> None:
        super().__init__()
        self.input = Peg("input", inputs)
        self.centres = nn.Parameter(spread * torch.randn(count, inputs))
        self.logits = Peg("logits", count)

    def forward(self, x: Tensor) -> Tensor:
        x = self.input(x.flatten(1))
        # Differences and not products: near a centre those would cancel.
        return self.logits(-(x[:, None] - self.centres).square().sum(-1))

    def extra_repr(self) -> str:
        return f"{len(self.centres)} centres"
