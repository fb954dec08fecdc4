"""What the partners build."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from pegboard import Classes, Objective, Peg, Spec


class Flat(nn.Module):
    """One hidden layer with pegs on all inputs, flattened and joined."""

    def __init__(self, inputs: int, width: int, outputs: int) -> None:
        super().__init__()
        layers = (Peg("input", inputs), nn.Linear(inputs, width), Peg("affine", width))
        self.body = nn.Sequential(*layers, nn.ReLU(), Peg("hidden", width))
        self.head = nn.Linear(width, outputs)

    def forward(self, *inputs: Tensor) -> Tensor:
        joined = torch.cat([x.flatten(1).float() for x in inputs], 1)
        output: Tensor = self.head(self.body(joined))
        return output


class Affine(nn.Module):
    """A fixed factor and summand."""

    def __init__(self, by: float, plus: float) -> None:
        super().__init__()
        self.by, self.plus = by, plus

    def forward(self, x: Tensor) -> Tensor:
        return x * self.by + self.plus


class PlainLoss(Objective):
    """Cross entropy for classes, else squares; `weight` weighs samples."""

    def __init__(self, target: Spec | None) -> None:
        self.classes = isinstance(target, Classes)
        self.formula = "-log softmax(f(x))[y]" if self.classes else "mean((f(x) - y)^2)"

    def loss(self, output: Any, target: Tensor, weight: Tensor | None = None) -> Tensor:
        if self.classes:
            each = functional.cross_entropy(output, target, reduction="none")
        else:
            each = functional.mse_loss(output, target, reduction="none").flatten(1).mean(1)
        return each.mean() if weight is None else (each * weight).sum() / weight.sum()


def momentum(optimizer: torch.optim.Optimizer) -> Any:
    """Descent with momentum 0.9 as a function that can be traced; None before the first step."""
    groups = [list(group["params"]) for group in optimizer.param_groups]
    buffers = [optimizer.state.get(p, {}).get("momentum_buffer") for params in groups for p in params]
    if any(buffer is None for buffer in buffers):
        return None

    def update(grads: Sequence[Tensor], rates: Sequence[float | Tensor]) -> None:
        at = 0
        for params, rate in zip(groups, rates, strict=True):
            for p in params:
                buffer = buffers[at]
                assert buffer is not None
                buffer.mul_(0.9).add_(grads[at])
                p.sub_(buffer * rate)
                at += 1

    return update
