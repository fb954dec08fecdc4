"""The update of Adafactor without a look at its numbers, so that it can be part of a graph.

Shazeer and Stern, "Adafactor: adaptive learning rates with sublinear memory cost", 2018, in the form of
`torch.optim.Adafactor`, which reads its step count and the size of the weights from the device.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def adafactor(
    params: Sequence[Tensor],
    grads: Sequence[Tensor],
    rows: Sequence[Tensor | None],
    columns: Sequence[Tensor | None],
    squares: Sequence[Tensor | None],
    steps: Sequence[Tensor],
    *,
    lr: float | Tensor,
    d: float,
    beta2_decay: float,
    weight_decay: float,
    eps1: float | None,
    eps2: float,
    maximize: bool,
) -> None:
    """One update in place: of the weights, their second moments and the counts of steps."""
    for p, g, row, column, square, step in zip(params, grads, rows, columns, squares, steps, strict=True):
        tiny = torch.finfo(p.dtype).eps if eps1 is None else eps1
        grad = -g if maximize else g
        step.add_(1)
        new = step**beta2_decay  # the weight of this gradient in the moments
        rate = torch.clamp(step.rsqrt(), max=lr)
        length = rate * torch.clamp(_root_mean_square(p), min=eps2)
        p.mul_(1 - lr * weight_decay)
        update = grad / _moment(grad, row, column, square, new, tiny).clamp(min=tiny**2).sqrt()
        p.sub_(update * (length / torch.clamp(_root_mean_square(update) / d, min=1.0)))


def _root_mean_square(x: Tensor) -> Tensor:
    return x.square().mean().sqrt()


def _moment(
    grad: Tensor, row: Tensor | None, column: Tensor | None, square: Tensor | None, new: Tensor, tiny: float
) -> Tensor:
    """The second moment of every number, for a matrix from the means of its rows and columns."""
    if square is not None:
        return square.lerp_(grad.square(), new)
    assert row is not None and column is not None
    row.lerp_(grad.square().mean(-1, keepdim=True), new)
    column.lerp_(grad.square().mean(-2, keepdim=True), new)
    return row @ column / row.mean(-2, keepdim=True).clamp(min=tiny)
