"""Averages of weights, which evaluation and checkpoints use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pegboard import Context, Ge, Lt, Regularizer, Trick, hookimpl


@dataclass(frozen=True)
class Ema:
    """Exponential moving average of the weights (EMA), for evaluation and checkpoints."""

    decay: Annotated[float, Ge(0), Lt(1)] = 0.999  # share of the average that an update keeps
    warmup: bool = False  # begin with a small decay: at most (1 + t) / (10 + t) after t updates
    evaluate: Literal["average", "trained"] = "average"  # weights for evaluation and checkpoints


def build_ema(config: Ema, context: Context) -> Trick:
    from .tricks import EmaTrick

    return EmaTrick(config)


@hookimpl
def pegboard_regularizers() -> list[Regularizer[Any]]:
    return [
        Regularizer(
            "ema",
            Ema,
            build_ema,
            stages={"eval_weights": "average"},
            neutral={"decay": 0.0},
            replaces={"trainer.ema": "decay"},
        )
    ]
