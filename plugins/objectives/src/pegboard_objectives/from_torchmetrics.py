"""Metrics of torchmetrics behind the functions that give them what they read."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from pegboard import Spec
from torch import Tensor

from .torchmetrics_names import PREFIX, home_of

Read = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]  # (output, target) -> what is compared


class FromTorchmetrics:
    """A metric of torchmetrics, imported when it is first fed: that takes as long as to import torch.

    It counts every sample whose weight is not 0 alike.
    """

    def __init__(self, name: str, target: Spec | None, sizes: dict[str, int], read: Read) -> None:
        self.name, self.target, self.sizes, self.read = name.removeprefix(PREFIX), target, sizes, read
        self.device = "cpu"
        self.metric: Any = None

    @property
    def higher_is_better(self) -> bool | None:
        """As torchmetrics has it; which checkpoint is best depends on it."""
        better: bool | None = type(self._made()).higher_is_better
        return better

    def _made(self) -> Any:
        if self.metric is None:
            import torchmetrics

            module, begin = home_of(self.target)
            made = getattr(getattr(torchmetrics, module), begin + self.name)
            self.metric = made(**self.sizes).to(self.device)
        return self.metric

    def update(self, preds: Tensor, target: Tensor) -> None:
        self._made().update(*self.read(preds, target))

    def compute(self) -> Tensor:
        if self.metric is None or not self.metric.update_called:
            return torch.tensor(torch.nan)
        # An undefined figure is nan or left out of a mean; saying so every epoch helps nobody.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value: Tensor = self.metric.compute()
        return value

    def reset(self) -> None:
        if self.metric is not None:
            self.metric.reset()

    def to(self, device: str) -> FromTorchmetrics:
        self.device = device
        if self.metric is not None:
            self.metric.to(device)
        return self
