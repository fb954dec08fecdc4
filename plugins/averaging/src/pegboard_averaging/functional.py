"""Averages as functions of lists of weights, usable without the framework; they are changed in place."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

# One operation for all weights, which is private.
FOREACH: Callable[..., Any] | None = getattr(torch, "_foreach_lerp_", None)
if FOREACH is None:
    warnings.warn(
        f"torch {torch.__version__} has no torch._foreach_lerp_: weights are averaged one after the other",
        stacklevel=2,
    )


def one_by_one(averages: Sequence[Tensor], weights: Sequence[Tensor], weight: Any) -> None:
    """The same one after the other: averages go this share, or these, of the way to the weights."""
    paces = weight if isinstance(weight, list) else [weight] * len(averages)
    for average, end, pace in zip(averages, weights, paces, strict=True):
        average.lerp_(end, pace)


lerp = FOREACH or one_by_one


def ema(averages: Sequence[Tensor], weights: Sequence[Tensor], decay: float) -> None:
    """Let averages follow weights: a = decay a + (1 - decay) w."""
    lerp(averages, weights, weight=1 - decay)


def ema_warming_up(
    averages: Sequence[Tensor], weights: Sequence[Tensor], decay: float, updates: Tensor
) -> None:
    """The same with the decay min(decay, (1 + t) / (10 + t)), t the `updates` made before; counts them."""
    pace = (9 / (10 + updates)).clamp(min=1 - decay)
    lerp(averages, weights, [pace.to(a.dtype) for a in averages])
    updates.add_(1)
