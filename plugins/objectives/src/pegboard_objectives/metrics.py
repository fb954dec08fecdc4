"""Running measurements on torchmetrics, each fed with raw outputs and the original targets.

torchmetrics keeps and reduces the states of all of them. Four are computed here: accuracy and
top-k without a one-hot copy of every output, AUROC from unbounded scores and without the classes
a split does not hold, R2 of small values and of a single sample.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torchmetrics
from pegboard import Metric
from torch import Tensor
from torchmetrics.classification import (
    BinaryCalibrationError,
    MulticlassCalibrationError,
    MulticlassF1Score,
    MultilabelF1Score,
)
from torchmetrics.regression import MeanAbsoluteError, MeanSquaredError
from torchmetrics.utilities import dim_zero_cat

from .functional import IGNORED

Flat = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]  # (output, target) -> what a metric reads


class Share(torchmetrics.Metric):
    """The share of hits among what counts."""

    higher_is_better = True
    hits: Tensor
    total: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("hits", torch.tensor(0), "sum")
        self.add_state("total", torch.tensor(0), "sum")

    def update(self, hit: Tensor, counts: Tensor) -> None:
        """`hit` and `counts` are booleans of one shape."""
        self.hits += (hit & counts).sum()
        self.total += counts.sum()

    def compute(self) -> Tensor:
        return self.hits / self.total


class Auroc(torchmetrics.Metric):
    """Area under the ROC curve of each column, averaged over the columns that have one.

    A column without a positive or without a negative case has none and is left out; where no
    column has one the result is nan.
    """

    higher_is_better = True
    scores: list[Tensor]
    positive: list[Tensor]

    def __init__(self) -> None:
        super().__init__()
        self.add_state("scores", [], "cat")
        self.add_state("positive", [], "cat")

    def update(self, scores: Tensor, positive: Tensor) -> None:
        """`scores` (samples, columns) of any size, `positive` booleans of the same shape."""
        self.scores.append(scores)
        self.positive.append(positive)

    def compute(self) -> Tensor:
        scores = dim_zero_cat(self.scores).float().T.contiguous()
        positive = dim_zero_cat(self.positive).T
        ordered = scores.sort(-1).values
        # Twice the rank, in whole numbers; equal scores share their ranks.
        ranks = torch.searchsorted(ordered, scores) + torch.searchsorted(ordered, scores, right=True) + 1
        many = positive.sum(-1)
        above = (ranks * positive).sum(-1) - many * (many + 1)
        return (above / (2 * many * (positive.shape[-1] - many))).nanmean()


class R2(torchmetrics.Metric):
    """Share of the variance explained, averaged over features; nan for fewer than two samples.

    A feature that never changes has 1 where it is met exactly and 0 elsewhere.
    """

    higher_is_better = True
    total: Tensor
    sums: Tensor
    squares: Tensor
    residuals: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("total", torch.tensor(0), "sum")
        for state in ("sums", "squares", "residuals"):
            self.add_state(state, torch.tensor(0.0), "sum")

    def update(self, output: Tensor, target: Tensor) -> None:
        """Both (samples, features)."""
        self.total = self.total + target.shape[0]
        self.sums = self.sums + target.sum(0)
        self.squares = self.squares + target.square().sum(0)
        self.residuals = self.residuals + (output - target).square().sum(0)

    def compute(self) -> Tensor:
        spread = self.squares - self.sums.square() / self.total
        # What rounding leaves of the spread of a constant.
        noise = self.squares * self.total * torch.finfo(self.squares.dtype).eps
        constant = spread <= noise
        exact = (self.residuals <= noise).to(spread.dtype)
        each = torch.where(constant, exact, 1 - self.residuals / torch.where(constant, 1, spread))
        return torch.where(self.total < 2, torch.nan, each.mean())


class Fed:
    """A torchmetrics metric behind a function that turns (output, target) into what it reads."""

    def __init__(self, metric: torchmetrics.Metric, read: Flat) -> None:
        self.metric, self.read = metric, read
        self.higher_is_better = metric.higher_is_better  # which checkpoint is best depends on it

    def update(self, preds: Tensor, target: Tensor) -> None:
        self.metric.update(*self.read(preds, target))

    def compute(self) -> Tensor:
        if not self.metric.update_called:
            return torch.tensor(torch.nan)
        # An undefined figure is nan or left out of a mean; saying so every epoch helps nobody.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value: Tensor = self.metric.compute()
        return value

    def reset(self) -> None:
        self.metric.reset()

    def to(self, device: str) -> Fed:
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
    made: dict[str, Callable[[], Fed]] = {
        "accuracy": lambda: Fed(Share(), hit),
        "topk": lambda: Fed(Share(), hit_k),
        "f1": lambda: Fed(MulticlassF1Score(classes, average="macro", **options), decisions),
        "auroc": lambda: Fed(Auroc(), ranking),
        "ece": lambda: Fed(MulticlassCalibrationError(classes, **options), probabilities),
    }
    return {f"top{k}" if name == "topk" else name: made[name]() for name in chosen}


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

    made: dict[str, Callable[[], Fed]] = {
        "accuracy": lambda: Fed(Share(), hit),
        "f1": lambda: Fed(MultilabelF1Score(labels, average="macro", validate_args=False), decisions),
        "auroc": lambda: Fed(Auroc(), ranking),
        "ece": lambda: Fed(BinaryCalibrationError(validate_args=False), probabilities),
    }
    return {name: made[name]() for name in chosen}


def regression(chosen: Sequence[str]) -> dict[str, Metric]:
    """Metrics of real values (batch, features)."""

    def precise(output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        # Sums of squares cancel; MPS has nothing finer than single precision.
        dtype = torch.float32 if output.device.type == "mps" else torch.float64
        rows = target.shape[0]
        return output.to(dtype).reshape(rows, -1), target.to(dtype).reshape(rows, -1)

    made: dict[str, Callable[[], Fed]] = {
        "r2": lambda: Fed(R2(), precise),
        "mae": lambda: Fed(MeanAbsoluteError(), precise),
        "rmse": lambda: Fed(MeanSquaredError(squared=False), precise),
        "mse": lambda: Fed(MeanSquaredError(), precise),
    }
    return {name: made[name]() for name in chosen}
