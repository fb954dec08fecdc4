"""Running measurements on torchmetrics, each fed with raw outputs and the original targets.

torchmetrics keeps and reduces the states of all of them. Importing it takes about as long as importing
torch, and no training step needs it, so it waits for the first evaluation.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch
from pegboard import Metric
from torch import Tensor

from .functional import IGNORED

if TYPE_CHECKING:
    import torchmetrics

Flat = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]  # (output, target) -> what a metric reads
Make = Callable[[ModuleType], Any]  # the module `running` -> the metric


class Fed:
    """A torchmetrics metric, made when it is first fed, behind a function that gives it what it reads."""

    def __init__(self, make: Make, read: Flat, higher_is_better: bool) -> None:
        self.make, self.read = make, read
        self.higher_is_better = higher_is_better  # which checkpoint is best depends on it
        self.device = "cpu"
        self.metric: torchmetrics.Metric | None = None

    def update(self, preds: Tensor, target: Tensor) -> None:
        if self.metric is None:
            from . import running

            self.metric = self.make(running).to(self.device)
        self.metric.update(*self.read(preds, target))

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

    def to(self, device: str) -> Fed:
        self.device = device
        if self.metric is not None:
            self.metric.to(device)
        return self


def log_odds(logits: Tensor) -> Tensor:
    """log(p / (1 - p)) of each class: orders samples as the probability does, and never saturates."""
    first = logits.argmax(-1, keepdim=True)
    others = logits.scatter(-1, first, float("-inf")).logsumexp(-1, keepdim=True)
    p = logits.log_softmax(-1)
    # 1 - p is exact enough for every class but the likeliest.
    return (p - torch.log1p(-p.exp())).scatter(-1, first, logits.gather(-1, first) - others)


def classification(chosen: Sequence[str], classes: int, k: int, flat: Flat) -> dict[str, Metric]:
    """Metrics of one class a place; `flat` gives logits (places, classes) and indices (places,)."""

    def hit(output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        logits, index = flat(output, target)
        return logits.argmax(-1) == index, index != IGNORED

    def hit_k(output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        logits, index = flat(output, target)
        return (logits.topk(k, -1).indices == index.unsqueeze(-1)).any(-1), index != IGNORED

    def decisions(output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        logits, index = flat(output, target)
        return logits.argmax(-1), index

    def probabilities(output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        logits, index = flat(output, target)
        return logits.float().softmax(-1), index

    def ranking(output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        logits, index = flat(output, target)
        known = index != IGNORED
        logits, index = logits[known].float(), index[known]
        if classes == 2:  # the difference orders samples as the probability does, and never saturates
            return logits[:, 1:] - logits[:, :1], index.unsqueeze(-1) == 1
        return log_odds(logits), index.unsqueeze(-1) == torch.arange(classes, device=index.device)

    options: dict[str, Any] = {"ignore_index": IGNORED, "validate_args": False}
    made: dict[str, Fed] = {
        "accuracy": Fed(lambda m: m.Share(), hit, True),
        "topk": Fed(lambda m: m.Share(), hit_k, True),
        "f1": Fed(lambda m: m.MulticlassF1Score(classes, average="macro", **options), decisions, True),
        "auroc": Fed(lambda m: m.Auroc(), ranking, True),
        "ece": Fed(lambda m: m.MulticlassCalibrationError(classes, **options), probabilities, False),
    }
    return {f"top{k}" if name == "topk" else name: made[name] for name in chosen}


def label_set(chosen: Sequence[str], labels: int) -> dict[str, Metric]:
    """Metrics of logits (batch, labels) against zeros and ones of the same shape."""

    def hit(output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        right = (output > 0) == (target > 0.5)
        return right, torch.ones_like(right)

    def decisions(output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        return (output > 0).long(), (target > 0.5).long()

    def ranking(output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        return output, target > 0.5

    def probabilities(output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        return output.float().sigmoid().flatten(), (target > 0.5).long().flatten()

    made: dict[str, Fed] = {
        "accuracy": Fed(lambda m: m.Share(), hit, True),
        "f1": Fed(
            lambda m: m.MultilabelF1Score(labels, average="macro", validate_args=False), decisions, True
        ),
        "auroc": Fed(lambda m: m.Auroc(), ranking, True),
        "ece": Fed(lambda m: m.BinaryCalibrationError(validate_args=False), probabilities, False),
    }
    return {name: made[name] for name in chosen}


def regression(chosen: Sequence[str]) -> dict[str, Metric]:
    """Metrics of real values (batch, features)."""

    def precise(output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        # Sums of squares cancel; MPS has nothing finer than single precision.
        dtype = torch.float32 if output.device.type == "mps" else torch.float64
        rows = target.shape[0]
        return output.to(dtype).reshape(rows, -1), target.to(dtype).reshape(rows, -1)

    made: dict[str, Fed] = {
        "r2": Fed(lambda m: m.R2(), precise, True),
        "mae": Fed(lambda m: m.MeanAbsoluteError(), precise, False),
        "rmse": Fed(lambda m: m.MeanSquaredError(squared=False), precise, False),
        "mse": Fed(lambda m: m.MeanSquaredError(), precise, False),
    }
    return {name: made[name] for name in chosen}
