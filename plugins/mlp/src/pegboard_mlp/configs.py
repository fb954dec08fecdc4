"""Configs of the models. No torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pegboard import Ge, Gt, Length

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
Output = Literal["identity", "relu", "sigmoid", "softmax", "softplus", "tanh"]
Start = Literal["default", "zeros"]

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
    """Linear model of the flattened input: linear, logistic or softmax regression, or SVM, by objective."""

    bias: bool = True  # add a constant to every output
    init: Start = "default"  # start from torch's random weights, or from zero


@dataclass(frozen=True)
class Mlp:
    """Multi-layer perceptron (MLP) on the flattened input."""

    hidden: tuple[Annotated[int, Ge(1)], ...] = (128,)  # widths of the hidden layers; none is a linear model
    activation: Activation = "relu"  # nonlinearity after every hidden layer
    bias: bool = True  # add a constant in every layer
    form: Form = "plain"  # residual adds each layer's input to its output, dense appends it
    alpha: float | None = None  # number of an activation that has one, as leaky_relu's slope; None is torch's
    polynomial: Annotated[tuple[float, ...], Length(1)] = (0.0, 0.0, 1.0)  # its coefficients, constant first
    output: Output = "identity"  # function of the outputs, where their range is bounded
    output_bias: bool | None = None  # a constant in the last layer; None is as bias says


MONOMIALS = 100_000  # above this a polynomial is a mistake rather than a wish


@dataclass(frozen=True)
class Polynomial:
    """Polynomial regression: every monomial of the flattened input up to a degree."""

    degree: Annotated[int, Ge(1)] = 2  # of the highest monomials
    basis: Literal["monomial", "chebyshev", "legendre"] = "monomial"  # polynomials whose sum it is
    domain: Annotated[tuple[float, ...], Length(2, 2)] = (-1.0, 1.0)  # of the inputs, moved to -1 and 1 first
    unique: bool = True  # refuse more coefficients of an output than there are training samples
    bias: bool = True  # have a constant
    init: Start = "default"  # start from torch's random weights, or from zero


@dataclass(frozen=True)
class SineTrend:
    """Sine with a linear trend, a sin(frequency x) + b x + c, linear in its parameters."""

    frequency: Annotated[float, Gt(0)] = 1.0  # of the sine, in radians for each unit of the input
    bias: bool = True  # have the constant c
    init: Start = "default"  # start from torch's random weights, or from zero


@dataclass(frozen=True)
class Threshold:
    """McCulloch-Pitts units: 1 where signed binary inputs reach a threshold, else 0. They learn nothing."""

    thresholds: Annotated[tuple[float, ...], Length(1)] = (
        1.0,
    )  # what the signed sum must reach, for each unit
    signs: tuple[tuple[Literal[-1, 1], ...], ...] = ()  # of the inputs, a row for each unit; empty is all 1
    readout: bool = False  # an affine map of the units, which learns


@dataclass(frozen=True)
class Prototypes:
    """Prototypes: nearest-centre classification and k-means; outputs are minus squared distances."""

    centres: Annotated[int, Ge(1)] | None = None  # how many; None is one for each output that is asked for
    spread: Annotated[float, Ge(0)] = 1.0  # standard deviation of the normal numbers where they start


@dataclass(frozen=True)
class Gradients:
    """Vanishing gradients: norms of the mean output's gradient by first and last weights and input."""

    samples: Annotated[int, Ge(1)] = 256  # training samples it is the mean of
    double: bool = False  # in float64, where what has nearly vanished is not yet zero


@dataclass(frozen=True)
class Operations:
    """How many additions, subtractions, products, quotients, exponentials and comparisons a sample costs."""

    gradient: bool = False  # count the gradient by the parameters too, not only the outputs
