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
    mask: Tensor | None = None,
) -> Tensor:
    """`weight * (x - mean) / sqrt(var + eps) + bias`, with statistics over all axes but `axis`.

    In training they are those of `x`, the variance with divisor n, and the running averages, where
    given, move towards them in place by `momentum` (the variance with divisor n - 1, as in torch).
    A tensor as `momentum` stays on its device. Outside training the running averages are used.
    With a `mask` (batch, length) only the places where it is true make the statistics.
    """
    if mask is not None and training:
        return _masked(x, mask, weight, bias, running_mean, running_var, momentum, eps, axis)
    if training and x.numel() == x.shape[axis]:
        raise ValueError(f"one value for each feature has no variance: shape {tuple(x.shape)}, axis {axis}")
    if axis in (1, 1 - x.dim()):
        return _normalize(x, weight, bias, running_mean, running_var, training, momentum, eps)
    rows = x.movedim(axis, -1)
    flat = rows.reshape(-1, rows.shape[-1])  # a view where the features are last already
    y = _normalize(flat, weight, bias, running_mean, running_var, training, momentum, eps)
    return y.view(rows.shape).movedim(-1, axis)


def _masked(
    x: Tensor,
    mask: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    momentum: float | Tensor,
    eps: float,
    axis: int,
) -> Tensor:
    rows = x.movedim(axis, -1)  # (batch, length, features)
    counts = mask.unsqueeze(-1)
    wide = rows.to(torch.promote_types(x.dtype, torch.float32))
    kept = wide.masked_fill(~counts, 0.0)  # what is left out may be nan
    total = counts.sum().clamp(min=1).to(wide.dtype)
    mean = kept.sum((0, 1)) / total
    var = (kept - mean).masked_fill(~counts, 0.0).square().sum((0, 1)) / total
    if running_mean is not None and running_var is not None:
        with torch.no_grad():
            running_mean.lerp_(mean.to(running_mean.dtype), momentum)
            fair = var * (total / (total - 1).clamp(min=1))
            running_var.lerp_(fair.to(running_var.dtype), momentum)
    scale = (var + eps).rsqrt() if weight is None else (var + eps).rsqrt() * weight
    y = (kept - mean) * scale
    y = y if bias is None else y + bias
    return y.to(x.dtype).movedim(-1, axis)


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
