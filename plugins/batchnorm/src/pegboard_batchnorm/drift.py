"""How much the inputs of a layer change in training: internal covariate shift."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class InputDrift:
    """Mean and variance of each feature that a module receives, for every training pass, while it is open.

    Features are on the axis `axis` of the module's first input.
    """

    def __init__(self, module: nn.Module, axis: int = 1) -> None:
        self.axis = axis
        self.means: list[Tensor] = []  # (features,) of each pass
        self.variances: list[Tensor] = []
        self._handle = module.register_forward_pre_hook(self._read)

    def _read(self, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        if module.training:
            rows = inputs[0].detach().movedim(self.axis, 0).flatten(1)
            self.means.append(rows.mean(1))
            self.variances.append(rows.var(1, correction=0))

    def __enter__(self) -> InputDrift:
        return self

    def __exit__(self, *error: object) -> None:
        self._handle.remove()

    @property
    def mean_drift(self) -> float:
        """sum_t |mean_t - mean_(t-1)|, over all features."""
        return _changes(self.means)

    @property
    def variance_drift(self) -> float:
        """The same of the variances."""
        return _changes(self.variances)


def _changes(steps: list[Tensor]) -> float:
    return float(torch.stack(steps).diff(dim=0).abs().sum()) if steps else 0.0
