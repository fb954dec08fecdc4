"""The ascent of SAM, for tensors; it needs nothing of the framework."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

TINY = 1e-12  # added to a norm, as the authors do, so that no gradient gives no ascent


def ascent(grads: Sequence[Tensor], radii: Sequence[float]) -> list[Tensor]:
    """The way to the worst point of a linear loss: gradients of joint length 1, each times its radius."""
    norm = torch.nn.utils.get_total_norm(list(grads)) + TINY
    return [g * (radius / norm) for g, radius in zip(grads, radii, strict=True)]


@contextmanager
def moved(params: Sequence[Tensor], by: Sequence[Tensor]) -> Iterator[None]:
    """Inside, parameters are moved; afterwards, whatever happened, they are where they were, to the bit."""
    before = [p.detach().clone() for p in params]
    with torch.no_grad():
        torch._foreach_add_(list(params), list(by))
    try:
        yield
    finally:
        with torch.no_grad():
            torch._foreach_copy_(list(params), before)
