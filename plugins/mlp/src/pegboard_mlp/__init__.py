"""Linear models and multi-layer perceptrons. No torch at import."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Literal

from pegboard import (
    Context,
    Facts,
    Ge,
    Image,
    Length,
    Model,
    PegboardError,
    Problem,
    Series,
    Vector,
    hookimpl,
)

if TYPE_CHECKING:
    from torch import nn

Activation = Literal[
    "abs",
    "celu",
    "elu",
    "gelu",
    "gelu_tanh",
    "glu",
    "hardshrink",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "identity",
    "leaky_relu",
    "log_softmax",
    "logsigmoid",
    "mish",
    "polynomial",
    "prelu",
    "relu",
    "relu6",
    "rrelu",
    "selu",
    "sigmoid",
    "silu",
    "softmax",
    "softmin",
    "softplus",
    "softshrink",
    "softsign",
    "tanh",
    "tanhshrink",
    "threshold",
]
Form = Literal["plain", "residual", "dense"]

# Activations that `alpha` sets the number of.
WITH_ALPHA = (
    "celu",
    "elu",
    "hardshrink",
    "leaky_relu",
    "prelu",
    "softplus",
    "softshrink",
    "threshold",
)
POSITIVE_ALPHA = ("celu", "hardshrink", "softplus", "softshrink")


@dataclass(frozen=True)
class Linear:
    """One affine map of the flattened input: regression, logistic, softmax, SVM by objective."""

    bias: bool = True  # add a constant to every output
    init: Literal["default", "zeros"] = "default"  # start from torch's random weights, or from zero


@dataclass(frozen=True)
class Mlp:
    """A multi-layer perceptron on the flattened input."""

    hidden: tuple[Annotated[int, Ge(1)], ...] = (128,)  # widths of the hidden layers; none is a linear model
    activation: Activation = "relu"  # nonlinearity after every hidden layer
    bias: bool = True  # add a constant in every layer
    form: Form = "plain"  # residual adds each layer's input to its output, dense appends it
    alpha: float | None = None  # number of an activation that has one, as leaky_relu's slope; None is torch's
    polynomial: Annotated[tuple[float, ...], Length(1)] = (0.0, 0.0, 1.0)  # its coefficients, constant first


def check_input(facts: Facts) -> Iterable[Problem]:
    """A model of this plugin reads one tensor."""
    if facts.spec is not None and len(facts.spec.inputs) > 1:
        yield Problem(
            f"it reads one input, and the data gives {len(facts.spec.inputs)}: {facts.spec}",
            expected="data with one input",
        )


def check_linear(config: Linear, facts: Facts) -> Iterable[Problem]:
    return check_input(facts)


def check_mlp(config: Mlp, facts: Facts) -> Iterable[Problem]:
    yield from check_input(facts)
    if config.alpha is not None and config.activation not in WITH_ALPHA:
        yield Problem(
            f"the activation {config.activation} has no alpha",
            "alpha",
            expected=f"one of {', '.join(WITH_ALPHA)} as activation",
            hint="leave alpha out",
        )
    elif config.alpha is not None and config.alpha <= 0 and config.activation in POSITIVE_ALPHA:
        yield Problem(
            f"the alpha of {config.activation} is {config.alpha}", "alpha", expected="a number above 0"
        )
    default = next(f.default for f in fields(Mlp) if f.name == "polynomial")
    if config.polynomial != default and config.activation != "polynomial":
        yield Problem(
            f"coefficients are given, but the activation is {config.activation}",
            "polynomial",
            expected="activation: polynomial",
            hint="leave polynomial out, or name that activation",
        )


def sizes(model: str, context: Context) -> tuple[int, int]:
    """How many numbers a sample has and how many the objective reads."""
    inputs = context.spec.inputs
    if len(inputs) != 1:
        raise PegboardError(
            f"{model} reads one input, and the data gives {len(inputs)}: {context.spec}\n"
            "Choose data with one input, or a model that reads several."
        )
    if inputs[0].size is None:
        raise PegboardError(
            f"{model} needs to know how many numbers a sample has, and {inputs[0]} does not say it.\n"
            "The data set must state its sizes, or be read before the model is built."
        )
    if context.outputs is None:
        raise PegboardError(
            f"{model} needs to know how many numbers to predict, and neither the objective nor the "
            f"target ({context.spec.target or 'nothing'}) says it.\n"
            "Name an objective that fits the data, or a data set whose target has a known size."
        )
    return inputs[0].size, context.outputs


def build_linear(config: Linear, context: Context) -> nn.Module:
    from .modules import LinearModel

    inputs, outputs = sizes("linear", context)
    return LinearModel(inputs, outputs, bias=config.bias, init=config.init)


def build_mlp(config: Mlp, context: Context) -> nn.Module:
    from .modules import Mlp as Module

    inputs, outputs = sizes("mlp", context)
    return Module(
        inputs,
        config.hidden,
        outputs,
        config.activation,
        bias=config.bias,
        form=config.form,
        alpha=config.alpha,
        polynomial=config.polynomial,
    )


@hookimpl
def pegboard_models() -> list[Model[Linear] | Model[Mlp]]:
    reads = (Vector, Image, Series)
    return [
        Model("linear", Linear, build_linear, check=check_linear, inputs=reads, pegs=("input", "logits")),
        Model(
            "mlp",
            Mlp,
            build_mlp,
            check=check_mlp,
            inputs=reads,
            pegs=("input", "affine", "hidden", "residual", "logits"),
        ),
    ]
