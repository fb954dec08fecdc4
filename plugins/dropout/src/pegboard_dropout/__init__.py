"""Dropout: zero a random share of units in training. This module imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pegboard import Context, Ge, Length, Lt, Regularizer, Site, Trick, hookimpl


@dataclass(frozen=True)
class Dropout:
    """Zero a random share of units in training, and scale up the rest.

    `p` is the share that is dropped. What is kept is divided by `1 - p`, so that nothing is left
    to do in evaluation. The usual shares are 0.5 for hidden units and 0.2 for inputs.
    """

    p: Annotated[float, Ge(0), Lt(1)] = 0.5  # share dropped
    sites: Annotated[tuple[Site, ...], Length(1)] = ("hidden",)  # pegs it hangs on
    form: Literal["element", "feature"] = "element"  # drop single numbers, or whole features of a sample


def build(config: Dropout, context: Context) -> Trick:
    from .trick import DropoutTrick

    return DropoutTrick(config)


@hookimpl
def pegboard_regularizers() -> list[Regularizer[Dropout]]:
    stages, after = {"hang": "drop"}, ("batchnorm",)
    return [Regularizer("dropout", Dropout, build, stages=stages, after=after, neutral={"p": 0.0})]
