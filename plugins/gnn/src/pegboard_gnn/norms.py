"""Batch normalisation as networks have it by themselves."""

from __future__ import annotations

from pegboard import PegboardError
from torch import Tensor, nn


class RowNorm(nn.BatchNorm1d):
    """Batch normalisation of rows (rows, features), which says what to do where a batch is a single row."""

    def forward(self, x: Tensor) -> Tensor:
        if self.training and len(x) == 1:
            raise PegboardError(
                "the model's own batch normalisation cannot train on a single node, point or set: "
                f"it got shape {tuple(x.shape)}. A last batch of one sample is the usual cause.\n"
                "  expected: data.drop_last: true, another data.batch_size, or another model.norm"
            )
        return super().forward(x)
