"""Convolutional networks of any depth in 1, 2 and 3 dimensions, as ordinary modules."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from pegboard import Peg
from torch import Tensor, nn
from torch.nn import functional

from .configs import Cnn as Config
from .sizes import Layer, layers, readout

LAYOUTS = {1: "NCL", 2: "NCHW", 3: "NCDHW"}
CONVOLUTIONS: dict[int, Any] = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}


class AvgPool3d(nn.Module):
    """The mean of every cube of `window` places: torch's has a gradient that is not deterministic on CUDA."""

    def __init__(self, window: int) -> None:
        super().__init__()
        self.window = window

    def forward(self, x: Tensor) -> Tensor:
        for axis in (-1, -2, -3):
            count = x.shape[axis] // self.window
            whole = x.narrow(axis, 0, count * self.window)
            x = torch.unflatten(whole, axis, (count, self.window)).mean(axis)
        return x

    def extra_repr(self) -> str:
        return str(self.window)


_POOLS: dict[str, dict[int, Any]] = {
    "max": {1: nn.MaxPool1d, 2: nn.MaxPool2d, 3: nn.MaxPool3d},
    "average": {1: nn.AvgPool1d, 2: nn.AvgPool2d, 3: AvgPool3d},
}
PADS: dict[str, dict[int, Any]] = {
    "zero": {1: nn.ZeroPad1d, 2: nn.ZeroPad2d, 3: nn.ZeroPad3d},
    "circular": {1: nn.CircularPad1d, 2: nn.CircularPad2d, 3: nn.CircularPad3d},
}


class Abs(nn.Module):
    """The absolute value."""

    def forward(self, x: Tensor) -> Tensor:
        return x.abs()


_ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "abs": Abs,
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "identity": nn.Identity,
    "leaky_relu": nn.LeakyReLU,
    "mish": nn.Mish,
    "relu": nn.ReLU,
    "selu": nn.SELU,
    "sigmoid": nn.Sigmoid,
    "silu": nn.SiLU,
    "softplus": nn.Softplus,
    "tanh": nn.Tanh,
}


def activation(name: str) -> nn.Module:
    """A new activation module."""
    if name not in _ACTIVATIONS:
        raise ValueError(f"unknown activation {name!r}: expected one of {', '.join(_ACTIVATIONS)}")
    return _ACTIVATIONS[name]()


class PlaceBias(nn.Module):
    """Adds a number of its own to every channel at every place."""

    def __init__(self, channels: int, sizes: Sequence[int]) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(channels, *sizes))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.bias


class Stage(nn.Sequential):
    """One layer: (batch, inputs, *sizes) to (batch, channels, *smaller), by convolution and pooling."""

    def __init__(self, inputs: int, layer: Layer, sizes: Sequence[int], config: Config) -> None:
        super().__init__()
        axes, (before, after) = len(sizes), layer.margin
        circular, even = layer.padding == "circular", before == after
        if not even:  # a convolution of torch adds the same at both sides
            self.pad = PADS[layer.padding][axes]((before, after) * axes)
        self.conv = CONVOLUTIONS[axes](
            inputs,
            layer.channels,
            layer.kernel,
            layer.stride,
            before if even else 0,
            layer.dilation,
            layer.groups,
            bias=config.bias == "channel",
            padding_mode="circular" if circular and even else "zeros",
        )
        if config.bias == "place":
            self.place = PlaceBias(layer.channels, [layer.convolved(n) for n in sizes])
        self.affine = Peg("affine", layer.channels, LAYOUTS[axes])
        if config.activation != "identity":
            self.activation = activation(config.activation)
        if layer.window > 1:
            self.pool = _POOLS[config.pooling][axes](layer.window)
        self.hidden = Peg("hidden", layer.channels, LAYOUTS[axes])
        self.layer = layer

    def masked(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """The same for (batch, inputs, length) that is zero after each sample's end, and the new lengths."""
        pool = self._modules.get("pool")
        layer, mask = self.layer, None
        for name, module in self._modules.items():
            if name == "affine":
                lengths = lengths + (sum(layer.margin) - layer.span)
                lengths = lengths.div(layer.stride, rounding_mode="floor").add(1).clamp(min=1)
                mask = lasting(x, lengths)
                x = module(x, mask)
            elif name == "hidden":
                x = module(x, mask)
            elif module is pool:
                assert mask is not None
                x = pool(x.masked_fill(~mask.unsqueeze(1), 0))
                lengths = lengths.div(layer.window, rounding_mode="floor").clamp(min=1)
                mask = lasting(x, lengths)
            else:
                x = module(x)
        assert mask is not None
        return x.masked_fill(~mask.unsqueeze(1), 0), lengths


def lasting(x: Tensor, lengths: Tensor) -> Tensor:
    """A mask (batch, length), true where a sample of x (batch, channels, length) still lasts."""
    return torch.arange(x.shape[2], device=x.device) < lengths.unsqueeze(1)


class Cnn(nn.Module):
    """A pyramid of convolutions, then dense layers: (batch, *shape) to (batch, outputs).

    `shape` is (channels, *sizes) with one to three sizes; further arguments are the fields of the config
    `Cnn`. `features(x)` is what the dense layers read. `front` is what x goes through first, None a peg.
    """

    def __init__(
        self, shape: Sequence[int], outputs: int, *, front: nn.Module | None = None, **fields: Any
    ) -> None:
        super().__init__()
        config = Config(**fields)
        (inputs, *sizes), stages = shape, layers(config)
        self.readout, self.branches = readout(config), config.branches
        self.input = Peg("input", inputs, LAYOUTS[len(sizes)]) if front is None else front
        self.body: nn.Sequential | nn.ModuleList
        built, widths = [], []
        now, width = list(sizes), inputs
        for layer in stages:
            if config.branches:
                now, width = list(sizes), inputs
            built.append(Stage(width, layer, now, config))
            now, width = [layer.size(n) for n in now], layer.channels
            if min(now) < 1:
                raise ValueError(f"layer {len(built)} leaves nothing of the shape {tuple(shape)}: {layer}")
            widths.append(width * math.prod(now) if self.readout == "flatten" else width)
        self.body = nn.ModuleList(built) if config.branches else nn.Sequential(*built)
        width = sum(widths) if config.branches else widths[-1]
        self.pooled = Peg("pooled", width)
        dense: list[nn.Module] = []
        for b in config.hidden:
            dense += [nn.Linear(width, b), Peg("affine", b), activation(config.activation), Peg("hidden", b)]
            width = b
        self.dense = nn.Sequential(*dense)
        self.head = nn.Linear(width, outputs)
        self.logits = Peg("logits", outputs)

    def read_out(self, x: Tensor) -> Tensor:
        """All places of (batch, channels, *sizes) as one vector."""
        if self.readout == "flatten":
            return x.flatten(1)
        axes = tuple(range(2, x.ndim))
        return x.amax(axes) if self.readout == "max" else x.mean(axes)

    def places(self, x: Tensor) -> Tensor:
        """The vector of all places after the pyramid, or of all branches."""
        if self.branches:
            return torch.cat([self.read_out(branch(x)) for branch in self.body], 1)
        return self.read_out(self.body(x))

    def features(self, x: Tensor) -> Tensor:
        """What the dense layers read: (batch, features)."""
        return self.pooled(self.places(self.input(x)))

    def forward(self, x: Tensor) -> Tensor:
        return self.logits(self.head(self.dense(self.features(x))))


class Text(nn.Module):
    """Symbols (batch, length) as vectors (batch, features, length), and where they last; None: everywhere."""

    def __init__(self, vocab: int, features: int, padding: int = -1) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab, features)
        nn.init.normal_(self.embedding.weight, std=0.1)  # torch's are so large that rare words stay noise
        self.peg = Peg("embedding", features, "NLC")
        self.padding = padding

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor | None]:
        lasts = None if self.padding < 0 else tokens != self.padding
        return self.peg(self.embedding(tokens), lasts).transpose(1, 2), lasts


class Line(nn.Module):
    """Steps (batch, length, features) as (batch, features, length), and where they last; None: everywhere."""

    def __init__(self, features: int, padded: bool = False) -> None:
        super().__init__()
        self.peg = Peg("input", features, "NLC")
        self.padded = padded

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        lasts = None
        if self.padded:
            lasts = ~x.isnan().all(-1)
            x = x.masked_fill(~lasts.unsqueeze(-1), 0)
        return self.peg(x, lasts).transpose(1, 2), lasts


class SequenceCnn(Cnn):
    """The same for sequences that may end early: what lies after the end of a sample changes nothing.

    `front` gives (batch, features, length) and a mask, as `Text` and `Line` do. Places after the end are zero
    before each convolution, and no part of the readout. A sample shorter than a window is filled with zeros.
    """

    def __init__(self, length: int, features: int, outputs: int, *, front: nn.Module, **fields: Any) -> None:
        super().__init__((features, length), outputs, front=front, **fields)
        self.length = 1  # the least that the layers need
        if self.readout == "flatten":
            self.length = length
        elif self.branches:
            self.length = max(stage.layer.least(1) for stage in self.stages)
        else:
            for stage in reversed(self.stages):
                self.length = stage.layer.least(self.length)

    @property
    def stages(self) -> list[Stage]:
        return [stage for stage in self.body if isinstance(stage, Stage)]

    def read_out_masked(self, x: Tensor, lengths: Tensor) -> Tensor:
        if self.readout == "flatten":
            return x.flatten(1)
        if self.readout == "average":
            return x.sum(2) / lengths.unsqueeze(1)
        return x.masked_fill(~lasting(x, lengths).unsqueeze(1), -torch.inf).amax(2)

    def features(self, x: Tensor) -> Tensor:
        x, lasts = self.input(x)
        if lasts is None:
            return self.pooled(self.places(x))
        x = x.masked_fill(~lasts.unsqueeze(1), 0)
        x = functional.pad(x, (0, max(0, self.length - x.shape[2])))
        lengths = lasts.sum(1).clamp(min=1)
        if self.branches:
            found = [self.read_out_masked(*stage.masked(x, lengths)) for stage in self.stages]
            return self.pooled(torch.cat(found, 1))
        for stage in self.stages:
            x, lengths = stage.masked(x, lengths)
        return self.pooled(self.read_out_masked(x, lengths))
