"""Networks from samples to codes and back, dense or convolutional, with pegs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

from pegboard import Peg, PegboardError
from torch import Tensor, nn

_ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "leaky_relu": nn.LeakyReLU,
    "relu": nn.ReLU,
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


Act = Callable[[], nn.Module]


def _several(x: Tensor, training: bool) -> Tensor:
    """Refuse a batch whose features have one value each, which has no variance."""
    if training and x.numel() == x.shape[1]:
        raise PegboardError(
            f"model.norm batch needs more than one value of a feature, and a batch has the shape "
            f"{tuple(x.shape)}. A last batch of one sample is the usual cause: set data.drop_last: true, or "
            "another data.batch_size."
        )
    return x


class _Norm1d(nn.BatchNorm1d):
    def forward(self, input: Tensor) -> Tensor:
        return super().forward(_several(input, self.training))


class _Norm2d(nn.BatchNorm2d):
    def forward(self, input: Tensor) -> Tensor:
        return super().forward(_several(input, self.training))


class Dense(nn.Module):
    """Layers (batch, *shape) to (batch, outputs), or to (batch, *outputs) where that is a shape."""

    def __init__(
        self,
        shape: Sequence[int],
        hidden: Sequence[int],
        outputs: int | Sequence[int],
        act: Act,
        norm: bool = False,
    ) -> None:
        super().__init__()
        inputs = math.prod(shape)
        self.input = Peg("input", inputs)
        self.shape = (outputs,) if isinstance(outputs, int) else tuple(outputs)
        layers: list[nn.Module] = []
        for before, after in pairwise([inputs, *hidden]):
            own = _Norm1d(after) if norm else None
            layers += [nn.Linear(before, after), Peg("affine", after, norm=own), act(), Peg("hidden", after)]
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear([inputs, *hidden][-1], math.prod(self.shape))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.head(self.body(self.input(x.flatten(1))))
        return y if len(self.shape) == 1 else y.reshape(-1, *self.shape)


def halved(size: int, times: int) -> list[int]:
    """Places along an axis before each convolution of stride 2, and after the last."""
    sizes = [size]
    for _ in range(times):
        sizes.append(sizes[-1] // 2)
    return sizes


class Down(nn.Module):
    """Convolutions that each halve a picture (batch, *shape), then a linear map to (batch, outputs)."""

    def __init__(self, shape: Sequence[int], channels: Sequence[int], outputs: int, act: Act) -> None:
        super().__init__()
        self.input = Peg("input", shape[0], "NCHW")
        layers: list[nn.Module] = []
        for before, after in pairwise([shape[0], *channels]):
            convolution = nn.Conv2d(before, after, 4, 2, 1)
            layers += [convolution, Peg("affine", after, "NCHW"), act(), Peg("hidden", after, "NCHW")]
        self.body = nn.Sequential(*layers)
        places = math.prod(halved(n, len(channels))[-1] for n in shape[1:])
        self.head = nn.Linear(channels[-1] * places, outputs)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.head(self.body(self.input(x)).flatten(1))
        return y


class Up(nn.Module):
    """The way back: a linear map from (batch, inputs), then convolutions that each double a picture."""

    def __init__(
        self, inputs: int, channels: Sequence[int], shape: Sequence[int], act: Act, norm: bool = False
    ) -> None:
        super().__init__()
        sizes = [halved(n, len(channels)) for n in shape[1:]]
        self.start = (channels[-1], *(s[-1] for s in sizes))
        self.input = Peg("input", inputs)
        self.head = nn.Linear(inputs, math.prod(self.start))
        first = channels[-1]
        self.first = nn.Sequential(
            Peg("affine", first, "NCHW", _Norm2d(first) if norm else None),
            act(),
            Peg("hidden", first, "NCHW"),
        )
        layers: list[nn.Module] = []
        for level in range(len(channels) - 1, -1, -1):
            before, after = channels[level], channels[level - 1] if level else shape[0]
            height, width = (s[level] - 2 * s[level + 1] for s in sizes)  # what halving left over
            layers.append(nn.ConvTranspose2d(before, after, 4, 2, 1, (height, width)))
            if level:
                own = _Norm2d(after) if norm else None
                layers += [Peg("affine", after, "NCHW", own), act(), Peg("hidden", after, "NCHW")]
        self.body = nn.Sequential(*layers)

    def forward(self, code: Tensor) -> Tensor:
        y: Tensor = self.body(self.first(self.head(self.input(code)).reshape(-1, *self.start)))
        return y


def encoder(
    form: str, shape: Sequence[int], hidden: Sequence[int], channels: Sequence[int], outputs: int, act: str
) -> nn.Module:
    """A network from samples to `outputs` numbers."""
    if form == "dense":
        return Dense(shape, hidden, outputs, lambda: activation(act))
    return Down(shape, channels, outputs, lambda: activation(act))


def decoder(
    form: str,
    latent: int,
    hidden: Sequence[int],
    channels: Sequence[int],
    shape: Sequence[int],
    act: str,
    norm: bool = False,
) -> nn.Module:
    """A network from codes to samples; `hidden` and `channels` are those of the encoder."""
    if form == "dense":
        return Dense((latent,), hidden[::-1], shape, lambda: activation(act), norm)
    return Up(latent, channels, shape, lambda: activation(act), norm)
