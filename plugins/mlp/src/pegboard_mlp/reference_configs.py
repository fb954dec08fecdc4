"""Configs and records of the references and other probes. No torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal

from pegboard import Classes, Context, Facts, Ge, Labels, Probe, ProbePart, Problem, Spec, Values

Strength = Annotated[float, Ge(0)]

HIDDEN = {"affine", "attention", "embedding", "residual"}  # pegs that a model has inside
# Models of this plugin that are linear in what they learn.
LINEAR = ("linear", "polynomial", "sine_trend", "threshold")
# The losses that are known here; another one is taken at its word.
LOSSES = (
    "cross_entropy", "binary_cross_entropy", "brier", "mse", "l1", "huber", "lp", "hinge", "perceptron",
    "clustering",
)  # fmt: skip
SQUARES = ("mse",)
LIKELIHOODS = ("cross_entropy", "binary_cross_entropy")
MARGINS = ("hinge", "perceptron")
DISTANCES = ("clustering",)


@dataclass(frozen=True)
class LeastSquares:
    """Least squares reference: the exact fit of a linear model; of several optima the one of least norm."""

    features: Literal["mean", "sum"] = "mean"  # how the squares of one sample are put together, as in mse


@dataclass(frozen=True)
class Ridge(LeastSquares):
    """Ridge regression reference: the exact fit of squares + value / 2 ||w||^2."""

    value: Strength = 0.01  # strength, as that of weight_decay
    bias: bool = False  # the bias decays too


@dataclass(frozen=True)
class Lasso(LeastSquares):
    """Lasso reference: the exact fit of squares + value ||w||_1."""

    value: Strength = 0.01  # strength; at 0 it is least squares


@dataclass(frozen=True)
class Logistic:
    """Logistic regression reference (softmax too): the exact fit of cross entropy + value / 2 ||w||^2."""

    value: Strength = 0.0  # strength of the decay of weights, as that of weight_decay; the bias has none


@dataclass(frozen=True)
class Svm:
    """Linear SVM reference: the exact fit of mean hinge + value ||w||^2, or the widest margin."""

    value: Strength = 0.0  # strength, half of weight_decay's; 0 is the hard margin, for separable classes


@dataclass(frozen=True)
class Kmeans:
    """k-means reference: the best prototypes of Lloyd's iterations, mean squared distance to the nearest."""

    restarts: Annotated[int, Ge(1)] = 20  # starts by k-means++, of which the best counts


@dataclass(frozen=True)
class Margin:
    """Margin between two classes, the widest one, and the bound on a perceptron's mistakes."""


@dataclass(frozen=True)
class VersionSpace:
    """Version space: whether a hyperplane separates two classes, and what share of all hyperplanes does."""

    samples: Annotated[int, Ge(1)] = 100_000  # hyperplanes that are drawn


def _model(facts: Facts, name: str, fitting: tuple[str, ...]) -> Iterable[Problem]:
    """A model of this plugin must be one that fits, and one of another has no layers that pegs tell of."""
    model = facts.model
    if model is None or model.name in fitting:
        return
    own = model.config.__module__.startswith("pegboard_mlp.")
    if own or HIDDEN & set(model.pegs):
        what = "linear in its parameters" if "linear" in fitting else "a set of points"
        yield Problem(
            f"{name} needs a model that is {what}, and the model is {model.name}",
            expected=f"the model {', '.join(fitting[:-1])} or {fitting[-1]}"
            if fitting[1:]
            else f"the model {fitting[0]}",
            hint="name such a model, or leave it out",
        )


def _loss(facts: Facts, name: str, fitting: tuple[str, ...]) -> Iterable[Problem]:
    objective, own = facts.objective, "" if facts.model is None else facts.model.objective
    known = objective is not None and (objective.name in LOSSES or objective.name == own)
    if objective is not None and known and objective.name not in fitting:
        others = [other for other, losses in OF_LOSS.items() if objective.name in losses]
        yield Problem(
            f"{name} is the optimum of {' or '.join(fitting)}, and the objective is {objective.name}",
            expected=f"the objective {' or '.join(fitting)}",
            hint=f"its own reference is {' or '.join(others)}" if others else "leave the reference out",
        )


def _target(facts: Facts, name: str, fitting: tuple[type[Spec], ...], two: bool = False) -> Iterable[Problem]:
    target = facts.spec.target if facts.spec is not None else None
    if target is None:
        return
    if not isinstance(target, fitting):
        kinds = " or ".join(kind.__name__ for kind in fitting)
        yield Problem(
            f"{name} compares with {kinds}, and the target is {target}", expected=f"a target of {kinds}"
        )
    elif two and target.size not in (None, 2):
        yield Problem(
            f"{name} tells two classes apart, and the target is {target}",
            expected="a target of two classes",
            hint="keep two classes of the data, or leave it out",
        )


OF_LOSS = {
    "least_squares": SQUARES, "ridge": SQUARES, "lasso": SQUARES, "logistic": LIKELIHOODS, "svm": MARGINS,
    "kmeans": DISTANCES,
}  # fmt: skip
TARGETS: dict[str, tuple[type[Spec], ...]] = {
    "least_squares": (Values, Classes), "ridge": (Values, Classes), "lasso": (Values, Classes),
    "logistic": (Classes, Labels), "svm": (Classes,),
}  # fmt: skip


def check_fit(name: str, config: Any, facts: Facts) -> Iterable[Problem]:
    """A reference stands beside the loss, the target and the models that it is the optimum of."""
    yield from _model(facts, name, LINEAR)
    yield from _loss(facts, name, OF_LOSS[name])
    yield from _target(facts, name, TARGETS[name], two=name == "svm")


def check_kmeans(config: Kmeans, facts: Facts) -> Iterable[Problem]:
    yield from _model(facts, "kmeans", ("prototypes",))
    yield from _loss(facts, "kmeans", OF_LOSS["kmeans"])


def check_two(name: str, config: Any, facts: Facts) -> Iterable[Problem]:
    """A decision between two classes by a hyperplane."""
    yield from _model(facts, name, LINEAR)
    yield from _target(facts, name, (Classes,), two=True)


def _build(name: str) -> Callable[[Any, Context], Probe]:
    """The build function of a probe, which imports torch when it is called."""

    def build(config: Any, context: Context) -> Probe:
        from . import kmeans, logistic, margins, squares, svm

        probes: dict[str, Callable[[Any, Context], Probe]] = {
            "least_squares": squares.LeastSquaresReference,
            "ridge": squares.RidgeReference,
            "lasso": squares.LassoReference,
            "logistic": logistic.LogisticReference,
            "svm": svm.SvmReference,
            "kmeans": kmeans.KmeansReference,
            "margin": margins.MarginProbe,
            "version_space": margins.VersionSpaceProbe,
        }
        return probes[name](config, context)

    return build


def _reference(name: str, config: type[Any], **more: Any) -> ProbePart[Any]:
    check = more.pop("check", partial(check_fit, name))
    return ProbePart(name, config, _build(name), check=check, reference=True, **more)


def probes() -> list[ProbePart[Any]]:
    """Every probe of this plugin."""
    return [
        _reference("least_squares", LeastSquares),
        _reference("ridge", Ridge),
        _reference("lasso", Lasso),
        # Without decay classes that can be separated have no optimum, or one that only they have.
        _reference("logistic", Logistic, trial=lambda folder: {"value": 0.1}),
        _reference("svm", Svm, trial=lambda folder: {"value": 0.1}),
        _reference("kmeans", Kmeans, check=check_kmeans),
        ProbePart("margin", Margin, _build("margin"), check=partial(check_two, "margin")),
        ProbePart(
            "version_space",
            VersionSpace,
            _build("version_space"),
            check=partial(check_two, "version_space"),
        ),
    ]
