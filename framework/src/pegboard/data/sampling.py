"""The order in which an epoch visits its samples, keyed by (seed, epoch)."""

from __future__ import annotations

import torch
from torch import Tensor

from ..rng import key_seed


def epoch_order(size: int, seed: int, epoch: int, shuffle: bool) -> Tensor:
    """Each number below `size` once; drawn from a generator of its own, never the global one."""
    if not shuffle:
        return torch.arange(size)
    generator = torch.Generator().manual_seed(key_seed(seed, "order", epoch))
    return torch.randperm(size, generator=generator)
