"""The losses of supervised learning, each with its metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal

from pegboard import (
    Classes,
    Context,
    Facts,
    Ge,
    Gt,
    Labels,
    Length,
    Objective,
    ObjectivePart,
    ProbePart,
    Problem,
    Series,
    Spec,
    Tokens,
    Values,
    hookimpl,
)

from . import names
from .bleu_options import bleu_part
from .checks import (
    check_centres,
    check_class_weights,
    check_classes,
    check_metrics,
    check_missing,
    check_pos_weight,
    check_two_classes,
)
from .region_options import region_part
from .torchmetrics_names import Named

Positive = Annotated[float, Gt(0)]
Positives = Annotated[tuple[Positive, ...], Length(1)]
Power = Annotated[float, Ge(1)] | Literal["inf"]
Measure = Literal["r2", "mae", "rmse", "mse", "max_error", "lp"]
Score = Literal["accuracy", "topk", "f1", "auroc"]
Chance = Literal["accuracy", "topk", "f1", "auroc", "ece", "entropy"]
Surprise = Literal["accuracy", "topk", "f1", "auroc", "ece", "entropy", "perplexity"]
Each = Literal["accuracy", "f1", "auroc", "ece", "entropy"]
Either = Literal["r2", "mae", "rmse", "mse", "max_error", "lp", "accuracy", "topk", "f1", "auroc"]


@dataclass(frozen=True)
class CrossEntropy:
    """Cross entropy of a softmax over classes or tokens; targets are indices or distributions."""

    class_weights: tuple[Annotated[float, Ge(0)], ...] | None = None  # weight of each class; null: all alike
    metrics: tuple[Surprise | Named, ...] | None = None  # to measure; null: the usual
    k: Annotated[int, Ge(2)] = 5  # how many guesses topk allows


@dataclass(frozen=True)
class BinaryCrossEntropy:
    """Cross entropy of a sigmoid: one output for two classes, or one for each of several labels."""

    pos_weight: Positives | None = None  # weight of positive cases: one number, or one for each label
    missing: bool = False  # labels may be nan, which do not count; else nan ends the run
    metrics: tuple[Each | Named, ...] | None = None  # to measure; null: the usual


@dataclass(frozen=True)
class Brier:
    """Brier score: squared error of probabilities; bounded, and not convex in the logits."""

    missing: bool = False  # labels may be nan, which do not count; else nan ends the run
    metrics: tuple[Chance | Named, ...] | None = None  # to measure; null: the usual
    k: Annotated[int, Ge(2)] = 5  # how many guesses topk allows


@dataclass(frozen=True)
class Mse:
    """Mean squared error (MSE) of real values, or of class scores against one-hot targets."""

    features: Literal["mean", "sum"] = "mean"  # how the squares of one sample are put together
    half: bool = False  # take half of it, so that its gradient is the error itself
    missing: bool = False  # values may be nan, which do not count; else nan ends the run
    metrics: tuple[Either | Named, ...] | None = (
        None  # r2 to lp for values, others for classes; null: the usual
    )
    k: Annotated[int, Ge(2)] = 5  # how many guesses topk allows
    p: Power = 2.0  # power of the metric lp


@dataclass(frozen=True)
class L1:
    """L1 loss: absolute error of real values."""

    features: Literal["mean", "sum"] = "mean"  # how the errors of one sample are put together
    missing: bool = False  # values may be nan, which do not count; else nan ends the run
    metrics: tuple[Measure | Named, ...] | None = None  # to measure; null: the usual
    p: Power = 2.0  # power of the metric lp


@dataclass(frozen=True)
class Huber:
    """Huber loss: half the squared error of real values near the target, absolute error further off."""

    delta: Positive = 1.0  # error at which the square becomes a line
    features: Literal["mean", "sum"] = "mean"  # how the errors of one sample are put together
    missing: bool = False  # values may be nan, which do not count; else nan ends the run
    metrics: tuple[Measure | Named, ...] | None = None  # to measure; null: the usual
    p: Power = 2.0  # power of the metric lp


@dataclass(frozen=True)
class Lp:
    """Lp loss: the p-norm of the difference between a sample's outputs and its targets."""

    p: Power = 2.0  # the power, and that of the metric lp; inf is the largest error
    missing: bool = False  # values may be nan, which do not count; else nan ends the run
    metrics: tuple[Measure | Named, ...] | None = None  # to measure; null: the usual


@dataclass(frozen=True)
class Clusters:
    """Clustering (k-means) loss: squared distance to the nearest centre."""


@dataclass(frozen=True)
class Hinge:
    """Hinge loss of a support vector machine: one output for two classes, else a score for each."""

    squared: bool = False  # square the violation of the margin
    multiclass: Literal["crammer_singer", "weston_watkins"] = "crammer_singer"  # worst wrong class, or all
    metrics: tuple[Score | Named, ...] | None = None  # to measure; null: the usual
    k: Annotated[int, Ge(2)] = 5  # how many guesses topk allows


@dataclass(frozen=True)
class Perceptron:
    """Perceptron loss: how far a wrong decision is from right; one output for two classes."""

    metrics: tuple[Score | Named, ...] | None = None  # to measure; null: the usual
    k: Annotated[int, Ge(2)] = 5  # how many guesses topk allows


def _check_cross_entropy(config: CrossEntropy, facts: Facts) -> Iterator[Problem]:
    yield from check_classes(facts)
    yield from check_class_weights(config.class_weights, facts)
    yield from check_metrics(config.metrics, facts, config.k)


def _check_binary(config: BinaryCrossEntropy, facts: Facts) -> Iterator[Problem]:
    yield from check_two_classes(facts)
    yield from check_pos_weight(config.pos_weight, facts)
    yield from check_missing(config.missing, facts)
    yield from check_metrics(config.metrics, facts)


def _check_ranked(config: Mse | Brier | Hinge | Perceptron, facts: Facts) -> Iterator[Problem]:
    yield from check_classes(facts)
    yield from check_metrics(config.metrics, facts, config.k)


def _check_missing(config: Mse | Brier, facts: Facts) -> Iterator[Problem]:
    yield from _check_ranked(config, facts)
    yield from check_missing(config.missing, facts)


def _check_clustering(config: Clusters, facts: Facts) -> Iterator[Problem]:
    yield from check_centres(facts)


def _check_values(config: L1 | Huber | Lp, facts: Facts) -> Iterator[Problem]:
    yield from check_metrics(config.metrics, facts)


def _one_output(config: BinaryCrossEntropy, target: Spec) -> int | None:
    return target.size if isinstance(target, Labels) else 1


def _any_number(config: Clusters, target: Spec) -> None:
    """The model says how many centres there are, whatever the classes that they are compared with."""


def _one_for_two(config: Brier | Hinge | Perceptron, target: Spec) -> int | None:
    return 1 if isinstance(target, Classes) and target.size == 2 else target.size


def _build(name: str) -> Callable[[Any, Context], Objective]:
    """A build function that imports torch when it is called."""

    def build(config: Any, context: Context) -> Objective:
        from . import builders

        objective: Objective = getattr(builders, name)(config, context)
        return objective

    return build


@hookimpl
def pegboard_objectives() -> list[ObjectivePart[Any]]:
    return [
        ObjectivePart(
            "cross_entropy",
            CrossEntropy,
            _build("cross_entropy"),
            players=("model",),
            metrics=partial(names.supervised, False),
            check=_check_cross_entropy,
            targets=(Classes, Tokens),
            default_for=(Classes, Tokens),
            soft=True,
        ),
        ObjectivePart(
            "binary_cross_entropy",
            BinaryCrossEntropy,
            _build("binary_cross_entropy"),
            players=("model",),
            metrics=partial(names.supervised, False),
            check=_check_binary,
            targets=(Classes, Labels),
            default_for=(Labels,),
            outputs=_one_output,
            soft=True,
        ),
        ObjectivePart(
            "brier",
            Brier,
            _build("brier"),
            players=("model",),
            metrics=partial(names.supervised, False),
            check=_check_missing,
            targets=(Classes, Labels),
            outputs=_one_for_two,
            soft=True,
        ),
        ObjectivePart(
            "mse",
            Mse,
            _build("mse"),
            players=("model",),
            metrics=partial(names.supervised, True),
            check=_check_missing,
            targets=(Values, Classes, Series),
            default_for=(Values, Series),
            soft=True,
        ),
        ObjectivePart(
            "l1",
            L1,
            _build("l1"),
            players=("model",),
            metrics=partial(names.supervised, False),
            check=_check_values,
            targets=(Values, Series),
        ),
        ObjectivePart(
            "huber",
            Huber,
            _build("huber"),
            players=("model",),
            metrics=partial(names.supervised, False),
            check=_check_values,
            targets=(Values, Series),
        ),
        ObjectivePart(
            "lp",
            Lp,
            _build("lp"),
            players=("model",),
            metrics=partial(names.supervised, False),
            check=_check_values,
            targets=(Values, Series),
        ),
        ObjectivePart(
            "hinge",
            Hinge,
            _build(
                "hinge",
            ),
            players=("model",),
            metrics=partial(names.supervised, True),
            check=_check_ranked,
            targets=(Classes,),
            outputs=_one_for_two,
        ),
        ObjectivePart(
            "perceptron",
            Perceptron,
            _build("perceptron"),
            players=("model",),
            metrics=partial(names.supervised, True),
            check=_check_ranked,
            targets=(Classes,),
            outputs=_one_for_two,
        ),
        ObjectivePart(
            "clustering",
            Clusters,
            _build("clustering"),
            players=("model",),
            check=_check_clustering,
            metrics=names.clustering,
            outputs=_any_number,
        ),
    ]


@hookimpl
def pegboard_probes() -> list[ProbePart[Any]]:
    return [bleu_part(), region_part()]
