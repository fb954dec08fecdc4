"""Weight decay: pull weights towards zero. This module imports no torch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

from pegboard import Context, Facts, Ge, Problem, Regularizer, Trick, hookimpl


@dataclass(frozen=True)
class WeightDecay:
    """Pull weights towards zero, by the same share of each in every update.

    `decoupled` multiplies them by `1 - lr * value` before the update, whatever the optimizer does
    with gradients; `l2` adds `value / 2` times the sum of their squares to the loss. Under plain
    SGD the two are the same.
    """

    value: Annotated[float, Ge(0)] = 0.01  # strength; 0 is none
    mode: Literal["decoupled", "l2"] = "decoupled"  # on the weights themselves, or as a term of the loss
    bias: bool = False  # decay biases too
    norm: bool = False  # decay normalisation parameters and other vectors too
    embeddings: bool = True  # decay embeddings


def check(config: WeightDecay, facts: Facts) -> Iterator[Problem]:
    everything = config.bias and config.norm and config.embeddings
    lbfgs = facts.optimizer is not None and facts.optimizer.name == "lbfgs"
    if lbfgs and config.mode == "decoupled" and config.value > 0 and not everything:
        yield Problem(
            "lbfgs takes one parameter group, and decoupled decay needs a second for what does not decay",
            field="mode",
            expected="l2",
            hint="set mode: l2, which lbfgs sees as part of its loss",
        )


def build(config: WeightDecay, context: Context) -> Trick:
    from .trick import DecoupledDecay, L2Term

    return DecoupledDecay(config) if config.mode == "decoupled" else L2Term(config)


@hookimpl
def pegboard_regularizers() -> list[Regularizer[WeightDecay]]:
    stages = {"edit_groups": "decay", "edit_loss": "term"}
    return [Regularizer("weight_decay", WeightDecay, build, check=check, stages=stages)]
