"""Weight decay: pull weights towards zero. This module imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pegboard import Context, Ge, Regularizer, Trick, hookimpl


@dataclass(frozen=True)
class WeightDecay:
    """Weight decay: pull weights towards zero, by the same share of each in every update.

    `decoupled` multiplies them by `1 - lr * value` before the update, whatever the optimizer does
    with gradients; `l2` adds `value / 2` times the sum of their squares to the loss. Under plain
    SGD the two are the same. `l1` adds `value` times the sum of their absolute values, as the lasso
    does: every weight is pulled by the same amount, and small ones end at zero.
    """

    value: Annotated[float, Ge(0)] = 0.01  # strength; 0 is none
    mode: Literal["decoupled", "l2", "l1"] = "decoupled"  # on the weights themselves, or a term of the loss
    bias: bool = False  # decay biases too
    norm: bool = False  # decay normalisation parameters and other vectors too
    embeddings: bool = True  # decay embeddings
    only: tuple[str, ...] = ()  # names of the parameters that decay, with * for any text; empty is all


def build(config: WeightDecay, context: Context) -> Trick:
    from .trick import DecoupledDecay, Term

    return DecoupledDecay(config) if config.mode == "decoupled" else Term(config)


@hookimpl
def pegboard_regularizers() -> list[Regularizer[WeightDecay]]:
    return [
        Regularizer(
            "weight_decay",
            WeightDecay,
            build,
            stages={"edit_groups": "decay", "edit_loss": "term"},
            neutral={"value": 0.0},
        )
    ]
