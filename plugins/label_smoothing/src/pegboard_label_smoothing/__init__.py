"""Label smoothing and label noise, tricks that soften what a model is told to predict."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

from pegboard import (
    Choices,
    Classes,
    Context,
    Facts,
    Ge,
    Labels,
    Lt,
    Problem,
    Regularizer,
    Spec,
    Trick,
    Values,
    hookimpl,
)

EPSILON = 0.1  # where a config says neither epsilon nor confusion
_ROUNDING = 1e-6  # by how much a row of a confusion matrix may miss one


@dataclass(frozen=True)
class LabelSmoothing:
    """Label smoothing: train towards a distribution over classes instead of a single one."""

    epsilon: Annotated[float, Ge(0), Lt(1)] | None = None  # share spread over all classes; 0.1 when null
    confusion: tuple[tuple[float, ...], ...] | None = None  # instead: a distribution for each true class


@dataclass(frozen=True)
class LabelNoise:
    """Label noise: add Gaussian noise to real targets, fresh in every step."""

    std: Annotated[float, Ge(0)] = 0.1  # standard deviation, in the units of the target


def strength(config: LabelSmoothing) -> float:
    """The epsilon in force: the config's own, or the default."""
    return EPSILON if config.epsilon is None else config.epsilon


def identity(confusion: tuple[tuple[float, ...], ...]) -> bool:
    """Whether the matrix confuses nothing."""
    return all(p == (i == j) for i, row in enumerate(confusion) for j, p in enumerate(row))


def check(config: LabelSmoothing, facts: Facts) -> Iterator[Problem]:
    """What the types of the fields cannot say; see `pegboard.Problem`."""
    if config.confusion is not None:
        if config.epsilon is not None:
            yield Problem(
                f"epsilon ({config.epsilon:g}) and confusion are both given",
                "epsilon",
                "one of the two",
                "remove epsilon, or set it to null, to use the confusion matrix",
            )
        yield from _check_confusion(config.confusion, facts)
        idle = identity(config.confusion)
    else:
        idle = strength(config) == 0
    if facts.objective is not None and not facts.objective.soft and not idle:
        labels = facts.spec is not None and isinstance(facts.spec.target, Labels)
        yield Problem(
            f"the objective {facts.objective.name!r} takes no soft targets, and label smoothing makes them",
            "",
            "an objective that takes distributions over classes",
            f"use objective: {{name: {'binary_cross_entropy' if labels else 'cross_entropy'}}}, "
            "or leave label smoothing out",
        )


def _check_confusion(confusion: tuple[tuple[float, ...], ...], facts: Facts) -> Iterator[Problem]:
    size = len(confusion)
    if not size:
        yield Problem("the confusion matrix has no rows", "confusion", "a row for each class")
    for number, row in enumerate(confusion):
        if len(row) != size:
            message = f"the confusion matrix has {size} rows, and row {number} has {len(row)} entries"
            yield Problem(message, "confusion", "as many entries in every row as there are rows")
        elif wrong := [p for p in row if not p >= 0]:
            message = f"row {number} of the confusion matrix has the entry {wrong[0]:g}"
            yield Problem(message, "confusion", "probabilities, from 0 to 1")
        elif not abs(sum(row) - 1) <= _ROUNDING:
            yield Problem(
                f"row {number} of the confusion matrix sums to {sum(row):g}",
                "confusion",
                "rows that sum to 1",
                f"row {number} is the distribution to train towards where the true class is {number}",
            )
    target = None if facts.spec is None else facts.spec.target
    if isinstance(target, Labels):
        expected, why = 2, "each label is on or off"
    elif target is not None and (count := choices(target)) is not None:
        expected, why = count, f"the target is {target}"
    else:
        return
    if size and size != expected:
        message = f"the confusion matrix is for {size} classes, and {why}"
        yield Problem(message, "confusion", f"{expected} rows of {expected} entries")


def choices(target: Spec) -> int | None:
    """How many classes or symbols a target is one of."""
    return target.choices if isinstance(target, Choices) else target.size


def build(config: LabelSmoothing, context: Context) -> Trick:
    from .trick import LabelSmoothingTrick

    return LabelSmoothingTrick(config, context.spec.target, context.device)


def build_noise(config: LabelNoise, context: Context) -> Trick:
    from .trick import LabelNoiseTrick

    return LabelNoiseTrick(config, context.generator())


@hookimpl
def pegboard_regularizers() -> list[Regularizer[Any]]:
    return [
        Regularizer(
            "label_smoothing",
            LabelSmoothing,
            build,
            check=check,
            stages={"edit_target": "smooth"},
            targets=(Classes, Labels, Choices),
            neutral={"epsilon": 0.0},
        ),
        Regularizer(
            "label_noise",
            LabelNoise,
            build_noise,
            stages={"edit_target": "smooth"},
            targets=(Values,),
            neutral={"std": 0.0},
        ),
    ]
