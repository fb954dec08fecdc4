"""Averages of weights, which evaluation and checkpoints use."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pegboard import Context, Facts, Ge, Lt, Problem, Regularizer, Trick, hookimpl


@dataclass(frozen=True)
class Ema:
    """Exponential moving average of the weights (EMA), for evaluation and checkpoints."""

    decay: Annotated[float, Ge(0), Lt(1)] = 0.999  # share of the average that an update keeps
    warmup: bool = False  # begin with a small decay: at most (1 + t) / (10 + t) after t updates
    evaluate: Literal["average", "trained"] = "average"  # weights for evaluation and checkpoints


@dataclass(frozen=True)
class Swa:
    """Stochastic weight averaging (SWA): the mean of the weights at the ends of late epochs."""

    start: Annotated[int, Ge(0)]  # epochs before the first one whose end counts
    statistics: bool = True  # take statistics of batch normalisation anew for the average, after every epoch
    evaluate: Literal["average", "trained"] = "average"  # weights for evaluation and checkpoints


@dataclass(frozen=True)
class Lawa:
    """Latest weight averaging (LAWA): the mean of the weights at the ends of the last epochs."""

    epochs: Annotated[int, Ge(1)] = 5  # whose ends count
    statistics: bool = True  # take statistics of batch normalisation anew for the average, after every epoch
    evaluate: Literal["average", "trained"] = "average"  # weights for evaluation and checkpoints


def build_ema(config: Ema, context: Context) -> Trick:
    from .tricks import EmaTrick

    return EmaTrick(config)


def build_swa(config: Swa, context: Context) -> Trick:
    from .tricks import SwaTrick

    return SwaTrick(config)


def build_lawa(config: Lawa, context: Context) -> Trick:
    from .tricks import LawaTrick

    return LawaTrick(config)


def check_swa(config: Swa, facts: Facts) -> Iterable[Problem]:
    if facts.epochs is not None and config.start >= facts.epochs:
        message = f"the run has {facts.epochs} epochs: nothing would be averaged"
        yield Problem(message, "start", f"a number below {facts.epochs}")


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
        ),
        Regularizer(
            "swa",
            Swa,
            build_swa,
            check=check_swa,
            stages={"eval_weights": "average"},
            trial=lambda folder: {"start": 0},
        ),
        Regularizer("lawa", Lawa, build_lawa, stages={"eval_weights": "average"}),
    ]
