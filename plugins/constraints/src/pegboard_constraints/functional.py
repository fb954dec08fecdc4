"""Clipping as functions of lists of gradients, usable without the framework; None in them stays None."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def clip_norm(grads: Sequence[Tensor | None], bound: float) -> list[Tensor | None]:
    """Gradients scaled to a joint norm of at most `bound`, by the arithmetic of torch's clip_grad_norm_."""
    present = [g for g in grads if g is not None]
    # The compiler joins norms of its own making, and cannot call torch's of a list from C++.
    norm = torch.nn.utils.get_total_norm(present, foreach=False if torch.compiler.is_compiling() else None)
    scale = torch.clamp(bound / (norm + 1e-6), max=1.0)
    # Beside longer numbers the norm is one of those, and a gradient without axes would become one too.
    return [None if g is None else g * scale if g.dim() else (g * scale).to(g.dtype) for g in grads]


def clip_value(grads: Sequence[Tensor | None], bound: float) -> list[Tensor | None]:
    """Gradients with every number between -bound and bound; one that is not finite becomes nan."""
    return [None if g is None else _clamp(g, bound) + g * 0 for g in grads]


def _clamp(g: Tensor, bound: float) -> Tensor:
    if not g.is_complex():
        return g.clamp(-bound, bound)
    return torch.view_as_complex(torch.view_as_real(g).clamp(-bound, bound))
