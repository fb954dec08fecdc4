"""What cannot fit, found before anything is built. No torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pegboard import Facts, Image, Problem, Series, Spec, Tokens, Voxels

from .configs import DENSENETS, RESNETS, Cnn, DenseNet, ResNet
from .sizes import Layer, layers, lists


def only_input(facts: Facts) -> Spec | None:
    """The one input of the data, where it is known."""
    spec = facts.spec
    return spec.inputs[0] if spec is not None and len(spec.inputs) == 1 else None


def check_input(config: Any, facts: Facts) -> Iterator[Problem]:
    """A model of this plugin reads one tensor."""
    if facts.spec is not None and len(facts.spec.inputs) > 1:
        yield Problem(
            f"it reads one input, and the data gives {len(facts.spec.inputs)}: {facts.spec}",
            expected="data with one input",
        )


def shape_of(spec: Spec | None, embedding: int) -> tuple[int | None, ...] | None:
    """Channels, then sizes of what a convolution reads; None for anything else."""
    match spec:
        case Image(channels, height, width):
            return channels, height, width
        case Voxels(channels, depth, height, width):
            return channels, depth, height, width
        case Series(length, features):
            return features, length
        case Tokens(_, length):
            return embedding, length
    return None


def ends_early(spec: Spec | None) -> bool:
    """Whether samples may be shorter than the longest."""
    return (isinstance(spec, Tokens) and spec.padding >= 0) or (isinstance(spec, Series) and spec.padded)


def check_cnn(config: Cnn, facts: Facts) -> Iterable[Problem]:
    yield from check_input(config, facts)
    if config.padding == "none" and config.pad is not None:
        yield Problem(
            "padding is none, so no place is added",
            "pad",
            expected="padding: zero or circular",
            hint="leave pad out",
        )
    spec = only_input(facts)
    if ends_early(spec):
        yield from _check_ends(config)
    found = lists(config)
    if len({len(value) for value in found.values()}) > 1:
        first, count = next((name, len(value)) for name, value in found.items())
        for name, value in found.items():
            if len(value) != count:
                yield Problem(
                    f"{len(value)} numbers, and {first} has {count}",
                    name,
                    expected="a number for every layer, or one number for all",
                )
        return
    shape = shape_of(spec, config.embedding)
    stages = layers(config)
    yield from _check_groups(stages, None if shape is None else shape[0], config.branches)
    if shape is not None and None not in shape:
        yield from _check_sizes(stages, [n for n in shape[1:] if n is not None], config.branches)


def _check_ends(config: Cnn) -> Iterator[Problem]:
    if config.padding == "circular":
        yield Problem(
            "samples that end early have no opposite side",
            "padding",
            expected="zero or none for sequences of different lengths",
        )
    if config.bias == "place":
        yield Problem(
            "samples that end early do not all have the same places",
            "bias",
            expected="channel or none for sequences of different lengths",
        )


def _check_groups(stages: Sequence[Layer], inputs: int | None, branches: bool) -> Iterator[Problem]:
    first = inputs
    for at, layer in enumerate(stages, 1):
        for what, count in (("reads", inputs), ("gives", layer.channels)):
            if count is not None and count % layer.groups:
                yield Problem(
                    f"layer {at} {what} {count} channels, which {layer.groups} groups do not divide",
                    "groups",
                    expected=f"a divisor of {count}",
                )
        inputs = first if branches else layer.channels


def _check_sizes(stages: Sequence[Layer], sizes: Sequence[int], branches: bool) -> Iterator[Problem]:
    """The first layer that does not fit; of branches each that does not."""
    now = list(sizes)
    for at, layer in enumerate(stages, 1):
        now = list(sizes) if branches else now
        wrong = _misfit(layer, now, f"{'branch' if branches else 'layer'} {at}")
        if wrong is not None:
            yield wrong
            if not branches:
                return
        now = [layer.size(n) for n in now]


def _misfit(layer: Layer, sizes: Sequence[int], which: str) -> Problem | None:
    shown = _by(sizes)
    if layer.padding == "circular" and max(layer.margin) > min(sizes):
        return Problem(
            f"{which} adds {max(layer.margin)} places at a border, and it reads {shown}",
            "kernel" if layer.pad is None else "pad",
            expected=f"at most {min(sizes)} with circular padding",
        )
    added = sum(layer.margin)
    if min(sizes) + added < layer.span:
        dilated = f" (dilation {layer.dilation})" if layer.dilation > 1 else ""
        padded = f", with padding {_by([n + added for n in sizes])}" if added else ""
        return Problem(
            f"{which} has a kernel of {_by([layer.span] * len(sizes))}{dilated} and reads {shown}{padded}",
            "kernel",
            expected="a kernel no larger than what it reads",
            hint="take a smaller kernel, window or stride, fewer layers, or padding: zero",
        )
    left = [layer.convolved(n) for n in sizes]
    if min(left) < layer.window:
        return Problem(
            f"{which} has a window of {_by([layer.window] * len(sizes))} and pools {_by(left)}",
            "window",
            expected="a window no larger than what it pools",
            hint="take a smaller window (1 is no pooling), or fewer layers",
        )
    return None


def _by(sizes: Sequence[int]) -> str:
    return " x ".join(map(str, sizes)) + (" places" if len(sizes) == 1 else "")


def check_resnet(config: ResNet, facts: Facts) -> Iterable[Problem]:
    yield from check_input(config, facts)
    if config.form == "cifar":
        yield from _check_depth(config.depth, 2, 6)
    else:
        yield from _check_known(config.depth, RESNETS)


def check_densenet(config: DenseNet, facts: Facts) -> Iterable[Problem]:
    yield from check_input(config, facts)
    small = config.form == "cifar"
    if small:
        yield from _check_depth(config.depth, 4, 6 if config.bottleneck else 3)
    else:
        yield from _check_known(config.depth, DENSENETS)
    spec = only_input(facts)
    if not isinstance(spec, Image) or spec.height is None or spec.width is None:
        return
    large = config.stem == "large" or (config.stem is None and not small)
    least = (4 if small else 8) * 4 - 3 if large else (4 if small else 8)
    if min(spec.height, spec.width) < least:
        yield Problem(
            f"it halves a picture until nothing is left of {spec.height} x {spec.width}",
            "stem" if large else "form",
            expected=f"at least {least} x {least}",
            hint="stem: small" if large else "form: cifar",
        )


def _check_depth(depth: int, rest: int, each: int) -> Iterator[Problem]:
    """Three stages with the same number of layers."""
    if depth < rest + each or (depth - rest) % each:
        near = rest + each * max(1, round((depth - rest) / each))
        yield Problem(
            f"it is {depth}, which three equal stages cannot have",
            "depth",
            expected=f"{each}n + {rest}, as {rest + each}, {rest + 2 * each} or {rest + 3 * each}",
            hint=f"the nearest is {near}",
        )


def _check_known(depth: int, known: Iterable[int]) -> Iterator[Problem]:
    if depth not in known:
        yield Problem(
            f"there is no imagenet form of depth {depth}",
            "depth",
            expected=f"one of {', '.join(map(str, known))}",
            hint="form: cifar has other depths",
        )
