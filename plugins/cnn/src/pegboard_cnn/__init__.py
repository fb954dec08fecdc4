"""Convolutional networks for Pegboard. No torch at import."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from pegboard import (
    Classes,
    Context,
    Facts,
    Image,
    Labels,
    Model,
    PegboardError,
    ProbePart,
    Problem,
    Series,
    Site,
    Tokens,
    Values,
    Voxels,
    hookimpl,
)

from . import symmetry
from .checks import check_cnn, check_densenet, check_input, check_resnet, shape_of
from .configs import Cnn, DenseNet, LeNet, ResNet

if TYPE_CHECKING:
    from torch import nn

__all__ = ["Cnn", "DenseNet", "LeNet", "ResNet"]


Check = Callable[[Any, Facts], Iterable[Problem]]


def refuse(model: str, config: Any, context: Context, check: Check) -> None:
    """Raise what only the sizes of the data show, and the check before it was read could not."""
    inputs = context.spec.inputs
    found = check(config, Facts(spec=context.spec))
    wrong = [p.message + (f"; expected {p.expected}" if p.expected else "") for p in found]
    if len(inputs) == 1 and not inputs[0].known:
        wrong.append(f"it needs to know the sizes of a sample, and {inputs[0]} does not say them")
    if wrong:
        raise PegboardError("\n".join(f"{model}: {message}" for message in wrong))


def outputs_of(model: str, context: Context) -> int:
    """How many numbers the objective reads."""
    if context.outputs is None:
        raise PegboardError(
            f"{model} needs to know how many numbers to predict, and neither the objective nor the "
            f"target ({context.spec.target or 'nothing'}) says it.\n"
            "Name an objective that fits the data, or a data set whose target has a known size."
        )
    return context.outputs


def build_cnn(config: Cnn, context: Context) -> nn.Module:
    from . import modules

    refuse("cnn", config, context, check_cnn)
    outputs, (spec,) = outputs_of("cnn", context), context.spec.inputs
    shape = [n for n in shape_of(spec, config.embedding) or () if n is not None]
    match spec:
        case Tokens(vocab=int(vocab)):
            front: nn.Module = modules.Text(vocab, config.embedding, spec.padding)
        case Series(features=int(features)):
            front = modules.Line(features, spec.padded)
        case _:
            return modules.Cnn(shape, outputs, **vars(config))
    return modules.SequenceCnn(shape[1], shape[0], outputs, front=front, **vars(config))


def picture(model: str, config: Any, context: Context, check: Check) -> tuple[tuple[int, int, int], int]:
    """Channels, height and width of the one picture a sample has, and how many numbers to predict."""
    refuse(model, config, context, check)
    (spec,) = context.spec.inputs
    assert isinstance(spec, Image) and spec.channels and spec.height and spec.width
    return (spec.channels, spec.height, spec.width), outputs_of(model, context)


def build_lenet(config: LeNet, context: Context) -> nn.Module:
    from .lenet import LeNet as Module

    shape, outputs = picture("lenet", config, context, check_input)
    return Module(shape, outputs, **vars(config))


def build_resnet(config: ResNet, context: Context) -> nn.Module:
    from .residual import ResNet as Module

    shape, outputs = picture("resnet", config, context, check_resnet)
    return Module(shape[0], outputs, **vars(config))


def build_densenet(config: DenseNet, context: Context) -> nn.Module:
    from .dense import DenseNet as Module

    shape, outputs = picture("densenet", config, context, check_densenet)
    return Module(shape[0], outputs, **vars(config))


@hookimpl
def pegboard_models() -> list[Model[Any]]:
    targets = (Classes, Labels, Values)
    blocks: tuple[Site, ...] = ("input", "affine", "hidden", "residual", "pooled", "logits")
    return [
        Model(
            "cnn",
            Cnn,
            build_cnn,
            check=check_cnn,
            inputs=(Image, Voxels, Series, Tokens),
            targets=targets,
            pegs=("input", "embedding", "affine", "hidden", "pooled", "logits"),
            trial=lambda folder: {"channels": [4, 6], "hidden": [8]},
        ),
        Model(
            "lenet",
            LeNet,
            build_lenet,
            check=check_input,
            inputs=(Image,),
            targets=targets,
            pegs=("input", "affine", "hidden", "pooled", "logits"),
        ),
        Model(
            "resnet",
            ResNet,
            build_resnet,
            check=check_resnet,
            inputs=(Image,),
            targets=targets,
            pegs=blocks,
            trial=lambda folder: {"depth": 8, "width": 4},
        ),
        Model(
            "densenet",
            DenseNet,
            build_densenet,
            check=check_densenet,
            inputs=(Image,),
            targets=targets,
            pegs=blocks,
            trial=lambda folder: {"depth": 7, "growth": 4, "bottleneck": False},
        ),
        *symmetry.models(),
    ]


@hookimpl
def pegboard_probes() -> list[ProbePart[Any]]:
    return symmetry.probes()
