"""The torchmetrics behind the metrics: its own, and four that are computed here.

Those are accuracy and top-k without a one-hot copy of every output, AUROC from unbounded scores and
without the classes a split does not hold, R2 of small values and of a single sample.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.classification import (
    BinaryCalibrationError,
    MulticlassCalibrationError,
    MulticlassF1Score,
    MultilabelF1Score,
)
from torchmetrics.regression import MeanAbsoluteError, MeanSquaredError
from torchmetrics.utilities import dim_zero_cat

__all__ = [
    "R2",
    "Auroc",
    "BinaryCalibrationError",
    "MeanAbsoluteError",
    "MeanSquaredError",
    "MulticlassCalibrationError",
    "MulticlassF1Score",
    "MultilabelF1Score",
    "Share",
]


class Share(Metric):
    """The share of hits among what counts."""

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


class Auroc(Metric):
    """Area under the ROC curve of each column, averaged over the columns that have one.

    A column without a positive or without a negative case has none and is left out; where no
    column has one the result is nan.
    """

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


class R2(Metric):
    """Share of the variance explained, averaged over features; nan for fewer than two samples.

    A feature that never changes has 1 where it is met exactly and 0 elsewhere.
    """

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
