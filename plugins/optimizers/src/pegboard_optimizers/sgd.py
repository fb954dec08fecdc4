"""Stochastic gradient descent where parameters get their first gradient in different steps."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class Sgd(torch.optim.SGD):
    """Torch's, whose fused kernel takes momentum from all parameters or from none.

    One that comes later gets the momentum by which its first step is that of the other kernels: along the
    gradient, of which dampening leaves nothing out.
    """

    def _init_group(
        self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor], momenta: list[Tensor | None]
    ) -> bool:
        sparse: bool = super()._init_group(group, params, grads, momenta)  # type: ignore[no-untyped-call]
        if group["fused"] and any(m is None for m in momenta) and not all(m is None for m in momenta):
            share = group["dampening"] / group["momentum"]
            for at, (p, g) in enumerate(zip(params, grads, strict=True)):
                if momenta[at] is None:
                    momenta[at] = torch.zeros_like(p).add_(g.add(p, alpha=group["weight_decay"]), alpha=share)
        return sparse
