"""How large gradients are along the depth of a network."""

from __future__ import annotations

import copy

import torch
from pegboard import Probe, Splits
from torch import nn


class GradientProbe(Probe):
    """Norms of the gradient of the mean output, by the weights of the first and last layer and by the input.

    With `double` they are computed in float64, where numbers as small as 1e-300 are not zero.
    """

    def __init__(self, samples: int, double: bool = False) -> None:
        self.samples, self.dtype = samples, torch.float64 if double else torch.float32

    def measure(self, model: nn.Module, splits: Splits, device: torch.device) -> dict[str, float]:
        twin = copy.deepcopy(model).to("cpu", self.dtype).eval()
        rows = torch.arange(min(self.samples, len(splits.train)))
        inputs = [
            x.to(self.dtype, copy=True).requires_grad_() if x.is_floating_point() else x
            for x in splits.train.to("cpu").gather(rows).inputs
        ]
        weights = [p.requires_grad_() for p in twin.parameters() if p.ndim > 1]
        real = [x for x in inputs if x.requires_grad]
        with torch.enable_grad():
            mean = twin(*inputs).flatten(1).sum(1).mean()
        grads = torch.autograd.grad(mean, [*weights, *real], allow_unused=True)
        norms = [0.0 if g is None else float(g.norm()) for g in grads]
        layers = norms[: len(weights)]
        figures = {"first": layers[0], "last": layers[-1]} if layers else {}
        if layers and layers[-1]:
            figures["ratio"] = layers[0] / layers[-1]
        if real:
            # Of the mean over samples each has a share.
            figures["input"] = sum(n**2 for n in norms[len(weights) :]) ** 0.5 * len(rows) ** 0.5
        return figures
