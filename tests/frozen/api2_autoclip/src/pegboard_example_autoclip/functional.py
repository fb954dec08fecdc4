"""AutoClip as functions of tensors; they need nothing of the framework."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def no_norms(window: int, device: str = "cpu") -> Tensor:
    """A memory of `window` norms that holds none yet: nan in every place, (window,)."""
    return torch.full((window,), math.nan, device=device)


def autoclip_(grads: Sequence[Tensor], norms: Tensor, percentile: float) -> Tensor:
    """Scale gradients to a joint norm of at most the percentile of all norms so far; both change in place.

    `norms` (window,) holds the norms of earlier updates, the newest last, and nan where there was none. The
    norm of this one takes the place of the oldest, and is returned.
    """
    norm = torch.nn.utils.get_total_norm(list(grads)).to(norms)
    # A norm that is not finite becomes nan, so that one bad update leaves the bound alone.
    norms.copy_(torch.cat((norms[1:], (norm + norm * 0).reshape(1))))
    bound = torch.nanquantile(norms, percentile / 100)
    # fmin takes 1 where the quotient is nan: no gradient at all, or one that others must see as it is.
    torch._foreach_mul_(list(grads), torch.fmin(bound / norm, torch.ones_like(norm)))
    return norm
