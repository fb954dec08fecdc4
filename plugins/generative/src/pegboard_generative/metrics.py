"""Running means of what an output says of samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class Mean:
    """The mean of numbers (batch,) that a function reads from an output, by weight."""

    def __init__(self, read: Callable[[Any], Tensor], higher: bool | None = None) -> None:
        self.read, self.higher_is_better, self.device = read, higher, "cpu"
        self.reset()

    def reset(self) -> None:
        self.total = torch.zeros((), device=self.device)
        self.count = torch.zeros((), device=self.device)

    def update(self, preds: Any, target: Tensor | None, weight: Tensor | None = None) -> None:
        each = self.read(preds).detach().float()
        weight = torch.ones_like(each) if weight is None else weight
        self.total = self.total + (each * weight).sum()
        self.count = self.count + weight.sum()

    def compute(self) -> Tensor:
        return self.total / self.count

    def to(self, device: str) -> Mean:
        self.device = device
        self.reset()
        return self


class Several(Mean):
    """The mean over batches of one number that a function reads from all outputs of a batch.

    Batches count by their samples, or all alike where the number is no mean over samples.
    """

    def __init__(
        self, read: Callable[[Any], Tensor], higher: bool | None = None, *, alike: bool = False
    ) -> None:
        super().__init__(read, higher)
        self.alike = alike

    def update(self, preds: Any, target: Tensor | None, weight: Tensor | None = None) -> None:
        mass = 1 if self.alike else len(preds[0])
        self.total = self.total + self.read(preds).detach().float() * mass
        self.count = self.count + mass
