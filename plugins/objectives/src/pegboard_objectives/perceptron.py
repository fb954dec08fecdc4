"""The perceptron's way to decide: by a sign, where 0 is undecided and so never right."""

from __future__ import annotations

from typing import Any

import torch
from pegboard import Metric
from torch import Tensor

from .functional import IGNORED
from .metrics import Fed
from .objective import Classification


def sign(x: Tensor) -> Tensor:
    """-1, 0 or +1: a perceptron is undecided at 0."""
    return torch.sign(x)


def decided(logits: Tensor, index: Tensor) -> Tensor:
    """Whether the right class is ahead of every other: `logits` (places, classes), `index` (places,)."""
    right = index.clamp(min=0).unsqueeze(-1)
    others = logits.scatter(-1, right, float("-inf")).max(-1).values
    return logits.gather(-1, right).squeeze(-1) > others


class PerceptronLoss(Classification):
    """An output exactly on the border belongs to no class: its sign is 0, and it counts as a mistake."""

    def metrics(self) -> dict[str, Metric]:
        made = super().metrics()
        if "accuracy" in made:
            made["accuracy"] = Fed(lambda m: m.Share(), self._hit, True)
        return made

    def _hit(self, output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        logits, index = self.flat(output, target)
        return decided(logits, index), index != IGNORED

    def predict(self, output: Any) -> dict[str, Tensor]:
        columns = super().predict(output)
        return columns | {"sign": sign(output.squeeze(-1)).long()} if self.single else columns
