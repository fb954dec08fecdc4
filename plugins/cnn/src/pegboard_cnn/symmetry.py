"""Records of the models that do not mind where things are or in which order they come, and of the probes that
measure it. No torch at import."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pegboard import (
    Classes,
    Context,
    DataSpec,
    Facts,
    Ge,
    Image,
    Labels,
    Model,
    Probe,
    ProbePart,
    Problem,
    Series,
    Values,
    Vector,
    Views,
    Voxels,
)

from .checks import check_cnn, check_input, ends_early, only_input, shape_of
from .configs import Activation, Cnn, Size, Sizes

if TYPE_CHECKING:
    from torch import nn

Split = Literal["train", "val", "test"]


@dataclass(frozen=True)
class Invariant:
    """Translation-invariant CNN: convolutions and one global pool; a shift does not change outputs."""

    padding: Literal["zero", "circular"] = "zero"  # things move on an empty ground of zeros, or around
    channels: tuple[Size, ...] = (16, 32)  # of the hidden layers; the last has one for each output
    kernel: Sizes = 5  # places it spans along every axis; a list has one for each layer, the last included
    bias: bool = True  # add a constant in every layer
    activation: Activation = "relu"  # nonlinearity after every hidden layer
    pool: Literal["max", "average", "sum"] = "max"  # of all places, for each output


@dataclass(frozen=True)
class Multiview(Cnn):
    """Multi-view CNN: the same convolutions on every view of an object, pooled over views."""

    views: Literal["max", "average"] = "max"  # how what was found in the views is put together


@dataclass(frozen=True)
class Equivariance:
    """Translation equivariance gap: how outputs and convolutions follow a shifted input."""

    shift: Annotated[int, Ge(1)] = 1  # places that every sample moves by, along one axis after the other
    border: Literal["circular", "zero"] = "circular"  # what comes in: what left at the other side, or zeros
    split: Split = "test"  # whose samples are moved
    samples: Annotated[int, Ge(1)] = 256  # of the split, the first


@dataclass(frozen=True)
class Filters:
    """First-layer filters: how much the kernels of the first convolution look like edge detectors."""

    picture: str = ""  # a file that they are drawn in, as filters.png


def kernels(config: Invariant) -> list[int]:
    """The kernel of each layer."""
    layers = len(config.channels) + 1
    return [config.kernel] * layers if isinstance(config.kernel, int) else list(config.kernel)


def check_invariant(config: Invariant, facts: Facts) -> Iterator[Problem]:
    yield from check_input(config, facts)
    spec = only_input(facts)
    if ends_early(spec):
        yield Problem(
            "samples that end early have no empty ground to move on",
            expected="sequences of one length",
            hint="cnn with readout: max reads sequences of different lengths",
        )
    found = kernels(config)
    if len(found) != len(config.channels) + 1:
        yield Problem(
            f"{len(found)} numbers for {len(config.channels) + 1} layers: "
            f"{len(config.channels)} hidden ones and the last",
            "kernel",
            expected="a number for every layer, or one number for all",
        )
    sizes = [n for n in (shape_of(spec, 0) or ())[1:] if n is not None]
    if config.padding == "circular" and sizes and max(found) // 2 > min(sizes):
        yield Problem(
            f"a kernel of {max(found)} goes around more than once on {' x '.join(map(str, sizes))}",
            "kernel",
            expected=f"at most {2 * min(sizes)} with circular padding",
        )


def check_multiview(config: Multiview, facts: Facts) -> Iterator[Problem]:
    """What `cnn` would say of one view."""
    match only_input(facts):
        case Views(_, channels, height, width):
            assert facts.spec is not None
            facts = replace(facts, spec=DataSpec((Image(channels, height, width),), facts.spec.target))
    yield from check_cnn(config, facts)


def check_equivariance(config: Equivariance, facts: Facts) -> Iterator[Problem]:
    if facts.spec is None:
        return
    spec = only_input(facts)
    if not isinstance(spec, Image | Voxels | Series | Views) or ends_early(spec):
        yield Problem(
            f"the data gives {facts.spec}, and nothing in it can move",
            expected="one picture, solid, set of views or series of one length",
        )


def check_filters(config: Filters, facts: Facts) -> Iterator[Problem]:
    if facts.spec is not None and not any(isinstance(s, Image | Views) for s in facts.spec.inputs):
        yield Problem(f"the data gives {facts.spec}, which has no edges", expected="pictures")
    model = facts.model
    if model is not None and (not model.inputs or Vector in model.inputs):
        yield Problem(
            f"{model.name} reads vectors too, so it does not convolve",
            expected="a run of a model of pictures alone",
        )


def build_invariant(config: Invariant, context: Context) -> nn.Module:
    from . import outputs_of, refuse
    from .invariant import InvariantCnn

    refuse("invariant", config, context, check_invariant)
    (spec,) = context.spec.inputs
    shape = [n for n in shape_of(spec, 0) or () if n is not None]
    outputs = outputs_of("invariant", context)
    return InvariantCnn(shape, outputs, series=isinstance(spec, Series), **vars(config))


def build_multiview(config: Multiview, context: Context) -> nn.Module:
    from . import outputs_of, refuse
    from .views import MultiviewCnn

    refuse("multiview", config, context, check_multiview)
    (spec,) = context.spec.inputs
    assert isinstance(spec, Views)
    shape = [n for n in (spec.channels, spec.height, spec.width) if n is not None]
    return MultiviewCnn(shape, outputs_of("multiview", context), **vars(config))


def build_equivariance(config: Equivariance, context: Context) -> Probe:
    from .shifts import EquivarianceProbe

    return EquivarianceProbe(config, context)


def build_filters(config: Filters, context: Context) -> Probe:
    from .filters import FilterProbe

    return FilterProbe(config, context)


def models() -> list[Model[Any]]:
    """The records of the models."""
    targets = (Classes, Labels, Values)
    return [
        Model(
            "invariant",
            Invariant,
            build_invariant,
            check=check_invariant,
            inputs=(Image, Voxels, Series),
            targets=targets,
            pegs=("input", "affine", "hidden", "logits"),
            trial=lambda folder: {"channels": [8], "kernel": 3},
        ),
        Model(
            "multiview",
            Multiview,
            build_multiview,
            check=check_multiview,
            inputs=(Views,),
            targets=targets,
            pegs=("input", "affine", "hidden", "pooled", "logits"),
            trial=lambda folder: {"channels": [8, 8], "hidden": [16]},
        ),
    ]


def probes() -> list[ProbePart[Any]]:
    """The records of the probes."""
    return [
        ProbePart("equivariance", Equivariance, build_equivariance, check=check_equivariance),
        ProbePart("filters", Filters, build_filters, check=check_filters),
    ]
