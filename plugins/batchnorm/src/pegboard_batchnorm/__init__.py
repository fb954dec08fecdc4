"""Batch normalisation: standardise features over a batch. This module imports no torch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from pegboard import Context, Facts, Gt, Le, Length, Problem, Regularizer, Site, Trick, hookimpl


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


def check(config: BatchNorm, facts: Facts) -> Iterator[Problem]:
    """A batch of one sample has no variance, where a sample is one vector."""
    flat = [site for site in config.sites if facts.model is not None and site in facts.model.flat]
    if facts.smallest_batch == 1 and flat:
        yield Problem(
            f"a training batch has one sample, which has no variance at the pegs {', '.join(flat)}",
            "",
            "batches of two samples at least",
            "a larger data.batch_size; for a last batch of one sample: data.drop_last=true",
        )


def build(config: BatchNorm, context: Context) -> Trick:
    from .trick import BatchNormTrick

    return BatchNormTrick(config)


@hookimpl
def pegboard_regularizers() -> list[Regularizer[BatchNorm]]:
    return [Regularizer("batchnorm", BatchNorm, build, check=check, stages={"hang": "normalize"})]
