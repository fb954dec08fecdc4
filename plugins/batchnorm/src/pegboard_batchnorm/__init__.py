"""Batch normalisation: standardise features over a batch. This module imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pegboard import Context, Gt, Le, Length, Regularizer, Site, Trick, hookimpl


@dataclass(frozen=True)
class BatchNorm:
    """Batch normalization: standardise every feature over the batch, then scale and shift it.

    Training uses the mean and variance of the batch, evaluation running averages of them. The
    usual place is between a linear layer or convolution and its nonlinearity, the `affine` pegs.
    """

    eps: Annotated[float, Gt(0)] = 1e-5  # added to the variance
    momentum: Annotated[float, Gt(0), Le(1)] | None = 0.1  # share of a new batch in the averages; null: equal
    affine: bool = True  # learn a scale and a shift for each feature
    sites: Annotated[tuple[Site, ...], Length(1)] = ("affine",)  # pegs it hangs on


def build(config: BatchNorm, context: Context) -> Trick:
    from .trick import BatchNormTrick

    return BatchNormTrick(config)


@hookimpl
def pegboard_regularizers() -> list[Regularizer[BatchNorm]]:
    return [Regularizer("batchnorm", BatchNorm, build, stages={"hang": "normalize"})]
