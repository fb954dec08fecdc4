"""Dropout of units and of weights as functions; they need nothing of the framework."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def dropout(x: Tensor, p: float = 0.5, *, training: bool = True, axis: int | None = None) -> Tensor:
    """Zero each number of `x` with probability `p` and divide the rest by `1 - p`.

    With `axis`, whole features are dropped: each index of that axis is kept or zeroed as one, for
    each sample (axis 0) on its own. Outside training, and for `p` 0, `x` itself is returned and no
    random number is drawn.
    """
    if not training or p == 0:
        return x
    if axis is None:
        return F.dropout(x, p)
    shape = [1] * x.dim()
    shape[0], shape[axis] = x.shape[0], x.shape[axis]
    return x * F.dropout(x.new_ones(shape), p)


def drop_connect(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, p: float = 0.5, *, training: bool = True
) -> Tensor:
    """A linear layer `x @ weight.T + bias` of which each weight is zero with probability `p`, for all of `x`.

    The other weights are divided by `1 - p`, so that the mean over masks is the whole layer.
    """
    return F.linear(x, dropout(weight, p, training=training), bias)
