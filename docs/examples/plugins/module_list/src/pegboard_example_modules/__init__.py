"""Networks of the package `acme_networks` as models, by a list of names. No torch at import."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

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
    Site,
    Spec,
    Vector,
    hookimpl,
)

if TYPE_CHECKING:
    from torch import nn

Size = Annotated[int, Ge(1)]


@dataclass(frozen=True)
class Highway:
    """A highway network: layers with gates that may hand their input on unchanged."""

    width: Size = 64  # units of every layer
    depth: Size = 2  # layers with a gate
    gate_bias: float = -1.0  # where gates start; the lower, the more passes unchanged


@dataclass(frozen=True)
class Mixer:
    """An MLP-mixer: pieces of a square picture, mixed across places and channels in turn."""

    patch: Size = 4  # side of a piece in pixels; it divides the side of the picture
    width: Size = 32  # channels of a piece
    depth: Size = 2  # blocks


@dataclass(frozen=True)
class TemporalNet:
    """Convolutions over time, each reaching twice as far as the one before."""

    widths: Annotated[tuple[Size, ...], Length(1)] = (32, 32)  # channels of each convolution
    kernel: Size = 3  # steps of time that a convolution sees; an odd number


def no_rule(config: Any, facts: Facts) -> Iterable[Problem]:
    return ()


def check_mixer(config: Mixer, facts: Facts) -> Iterable[Problem]:
    """The pieces of a picture must cover it."""
    picture = facts.spec.inputs[0] if facts.spec and facts.spec.inputs else None
    if not isinstance(picture, Image) or picture.height is None or picture.width is None:
        return  # not known yet, or refused already
    if picture.height != picture.width:
        yield Problem(f"it reads square pictures, and the data gives {picture}")
    elif picture.height % config.patch:
        fitting = [str(n) for n in range(1, picture.height + 1) if picture.height % n == 0]
        yield Problem(
            f"pieces of {config.patch} pixels do not cover {picture.height}",
            "patch",
            expected=f"one of {', '.join(fitting)}",
        )


def check_temporal(config: TemporalNet, facts: Facts) -> Iterable[Problem]:
    if config.kernel % 2 == 0:
        yield Problem(f"a kernel of {config.kernel} has no middle", "kernel", expected="an odd number")


def flat_sizes(spec: Spec) -> dict[str, int | None]:
    return {"in_features": spec.size}


def picture_sizes(spec: Spec) -> dict[str, int | None]:
    assert isinstance(spec, Image)
    return {"in_channels": spec.channels, "image_size": spec.height}


def series_sizes(spec: Spec) -> dict[str, int | None]:
    assert isinstance(spec, Series)
    return {"channels": spec.features}


@dataclass(frozen=True)
class Listed:
    """A class of another package, and how it becomes a part."""

    part: str  # what configs call it
    config: type[Any]  # the arguments that a person chooses
    module: str  # where the class is; written here and nowhere else
    name: str
    sizes: Callable[[Spec], Mapping[str, int | None]]  # the arguments that follow from the input
    inputs: tuple[type[Spec], ...]
    rule: Callable[[Any, Facts], Iterable[Problem]] = no_rule

    def check(self, config: Any, facts: Facts) -> Iterable[Problem]:
        """All of them read one tensor; some have a rule of their own."""
        if facts.spec is not None and len(facts.spec.inputs) != 1:
            yield Problem(f"it reads one input, and the data gives {facts.spec}")
        else:
            yield from self.rule(config, facts)

    def build(self, config: Any, context: Context) -> nn.Module:
        """The module, with its sizes from the data, its other arguments from the config, and pegs."""
        from pegboard import pegs

        sizes = {**self.sizes(context.spec.inputs[0]), "num_classes": context.outputs}
        if unknown := [name for name, size in sizes.items() if size is None]:
            raise PegboardError(f"{self.part} needs {', '.join(unknown)}, and {context.spec} does not say it")
        network: nn.Module = getattr(importlib.import_module(self.module), self.name)(
            **sizes, **asdict(config)
        )
        return pegs.infer(network, *(spec.example(2, "meta") for spec in context.spec.inputs))


LISTED = (
    Listed("highway", Highway, "acme_networks", "Highway", flat_sizes, (Vector, Image, Series)),
    Listed("mixer", Mixer, "acme_networks", "Mixer", picture_sizes, (Image,), check_mixer),
    Listed("temporal", TemporalNet, "acme_networks", "TemporalNet", series_sizes, (Series,), check_temporal),
)


@hookimpl
def pegboard_models() -> list[Model[Any]]:
    sites: tuple[Site, ...] = ("input", "affine", "hidden")  # that `pegs.infer` finds
    return [
        Model(one.part, one.config, one.build, check=one.check, inputs=one.inputs, pegs=sites)
        for one in LISTED
    ]
