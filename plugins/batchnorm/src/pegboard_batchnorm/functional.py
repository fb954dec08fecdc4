"""Batch normalisation as a function; needs nothing of the framework."""

from __future__ import annotations

import torch
from torch import Tensor


def batch_norm(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    *,
    training: bool = True,
    momentum: float | Tensor = 0.1,
    eps: float = 1e-5,
    axis: int = 1,
) -> Tensor:
    """`weight * (x - mean) / sqrt(var + eps) + bias`, with statistics over all axes but `axis`.

    In training they are those of `x`, the variance with divisor n, and the running averages, where
    given, move towards them in place by `momentum` (the variance with divisor n - 1, as in torch).
    A tensor as `momentum` stays on its device. Outside training the running averages are used.
    """
    if training and x.numel() == x.shape[axis]:
        raise ValueError(f"one value for each feature has no variance: shape {tuple(x.shape)}, axis {axis}")
    if axis in (1, 1 - x.dim()):
        return _normalize(x, weight, bias, running_mean, running_var, training, momentum, eps)
    rows = x.movedim(axis, -1)
    flat = rows.reshape(-1, rows.shape[-1])  # a view where the features are last already
    y = _normalize(flat, weight, bias, running_mean, running_var, training, momentum, eps)
    return y.view(rows.shape).movedim(-1, axis)


def _normalize(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor | None,
    var: Tensor | None,
    training: bool,
    momentum: float | Tensor,
    eps: float,
) -> Tensor:
    cudnn = torch.backends.cudnn.enabled
    if not isinstance(momentum, Tensor) or not training or mean is None or var is None:
        rate = 0.0 if isinstance(momentum, Tensor) else momentum
        return torch.batch_norm(x, weight, bias, mean, var, training, rate, eps, cudnn)
    # The kernel takes a number only, and reading one would wait for the device.
    now_mean, now_var = torch.zeros_like(mean), torch.zeros_like(var)
    y = torch.batch_norm(x, weight, bias, now_mean, now_var, training, 1.0, eps, cudnn)
    mean.lerp_(now_mean, momentum)
    var.lerp_(now_var, momentum)
    return y
