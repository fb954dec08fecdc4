"""Linear models, multi-layer perceptrons and their relatives. No torch at import."""

from __future__ import annotations

from math import comb
from typing import TYPE_CHECKING, Any

from pegboard import (
    Classes,
    Context,
    Image,
    Model,
    PegboardError,
    Points,
    Probe,
    ProbePart,
    Series,
    Site,
    Vector,
    hookimpl,
)

from .checks import check_input, check_mlp, check_polynomial, check_threshold
from .configs import (
    Activation,
    Form,
    Gradients,
    Linear,
    Mlp,
    Operations,
    Polynomial,
    Prototypes,
    SineTrend,
    Threshold,
)
from .reference_configs import probes

if TYPE_CHECKING:
    from torch import nn

__all__ = [
    "Activation",
    "Form",
    "Gradients",
    "Linear",
    "Mlp",
    "Operations",
    "Polynomial",
    "Prototypes",
    "SineTrend",
    "Threshold",
]


def input_size(model: str, context: Context) -> int:
    """How many numbers a sample has."""
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
    return inputs[0].size


def sizes(model: str, context: Context) -> tuple[int, int]:
    """How many numbers a sample has and how many the objective reads."""
    inputs = input_size(model, context)
    if context.outputs is None:
        raise PegboardError(
            f"{model} needs to know how many numbers to predict, and neither the objective nor the "
            f"target ({context.spec.target or 'nothing'}) says it.\n"
            "Name an objective that fits the data, or a data set whose target has a known size."
        )
    return inputs, context.outputs


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
        output=config.output,
        output_bias=config.output_bias,
    )


def build_polynomial(config: Polynomial, context: Context) -> nn.Module:
    from .bases import Polynomial as Module

    inputs, outputs = sizes("polynomial", context)
    count = comb(inputs + config.degree, config.degree) - (not config.bias)
    if config.unique and context.samples is not None and count > context.samples:
        of = f"{inputs} inputs" if inputs > 1 else "one input"
        raise PegboardError(
            f"model.degree is {config.degree}: a polynomial of that degree in {of} has {count} coefficients, "
            f"and {context.samples} training samples do not determine them.\n"
            "Lower model.degree, give more samples, or allow it: model.unique=false"
        )
    low, high = config.domain
    return Module(
        inputs,
        config.degree,
        outputs,
        basis=config.basis,
        domain=(low, high),
        bias=config.bias,
        init=config.init,
    )


def build_sine_trend(config: SineTrend, context: Context) -> nn.Module:
    from .bases import SineTrend as Module

    inputs, outputs = sizes("sine_trend", context)
    return Module(inputs, outputs, frequency=config.frequency, bias=config.bias, init=config.init)


def build_threshold(config: Threshold, context: Context) -> nn.Module:
    from . import units

    inputs, outputs = sizes("threshold", context)
    if config.readout:
        return units.ThresholdReadout(inputs, config.signs, config.thresholds, outputs)
    if outputs != len(config.thresholds):
        raise PegboardError(
            f"threshold has {len(config.thresholds)} units, and the objective reads {outputs} numbers.\n"
            "Give as many thresholds, name an objective that reads one number of two classes "
            "(binary_cross_entropy), or let an affine map read the units: model.readout=true"
        )
    return units.Threshold(inputs, config.signs, config.thresholds)


def build_prototypes(config: Prototypes, context: Context) -> nn.Module:
    from .units import Prototypes as Module

    inputs, count = input_size("prototypes", context), config.centres
    target = context.spec.target
    if count is None and context.outputs is None and isinstance(target, Classes):
        count = target.size  # where any number will do, that of the classes is the first guess
    if count is None:
        count = sizes("prototypes", context)[1]
    if context.outputs not in (None, count):
        raise PegboardError(
            f"model.centres is {count}, and the objective reads {context.outputs} numbers.\n"
            "Leave centres out, or name an objective that takes any number of them."
        )
    return Module(inputs, count, spread=config.spread)


def build_gradients(config: Gradients, context: Context) -> Probe:
    from .gradients import GradientProbe

    return GradientProbe(config.samples, config.double)


def build_operations(config: Operations, context: Context) -> Probe:
    from .operations import OperationProbe

    return OperationProbe(config.gradient)


@hookimpl
def pegboard_models() -> list[Model[Any]]:
    reads = (Vector, Image, Series)
    ends: tuple[Site, ...] = ("input", "logits")
    units: tuple[Site, ...] = ("input", "hidden", "logits")
    whole: tuple[Site, ...] = ("input", "affine", "hidden", "residual", "logits")
    return [
        Model("linear", Linear, build_linear, check=check_input, inputs=reads, pegs=ends, flat=ends[1:]),
        Model("mlp", Mlp, build_mlp, check=check_mlp, inputs=(*reads, Points), pegs=whole, flat=whole[1:]),
        Model(
            "polynomial",
            Polynomial,
            build_polynomial,
            check=check_polynomial,
            inputs=reads,
            pegs=units,
            flat=units[1:],
        ),
        Model(
            "sine_trend",
            SineTrend,
            build_sine_trend,
            check=check_input,
            inputs=reads,
            pegs=units,
            flat=units[1:],
        ),
        Model(
            "threshold",
            Threshold,
            build_threshold,
            check=check_threshold,
            inputs=reads,
            pegs=units,
            flat=units[1:],
            trial=lambda folder: {"readout": True, "thresholds": [1, 2, 3]},
        ),
        Model(
            "prototypes",
            Prototypes,
            build_prototypes,
            check=check_input,
            inputs=reads,
            pegs=ends,
            flat=ends[1:],
        ),
    ]


@hookimpl
def pegboard_probes() -> list[ProbePart[Any]]:
    return [
        ProbePart("gradients", Gradients, build_gradients),
        ProbePart("operation_counts", Operations, build_operations),
        *probes(),
    ]
