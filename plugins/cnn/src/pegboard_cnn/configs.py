"""Configs of the models. No torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pegboard import Ge, Gt, Le, Length

Activation = Literal[
    "abs",
    "elu",
    "gelu",
    "identity",
    "leaky_relu",
    "mish",
    "relu",
    "selu",
    "sigmoid",
    "silu",
    "softplus",
    "tanh",
]
Bias = Literal["channel", "place", "none"]
Padding = Literal["zero", "circular", "none"]
Pooling = Literal["max", "average", "none"]
Readout = Literal["flatten", "max", "average"]
Norm = Literal["batch", "none"]
Size = Annotated[int, Ge(1)]
Sizes = Size | Annotated[tuple[Size, ...], Length(1)]  # one for every layer, or a list with one for each
Margins = Annotated[int, Ge(0)] | Annotated[tuple[Annotated[int, Ge(0)], ...], Length(1)]


@dataclass(frozen=True)
class Cnn:
    """Convolutional network (CNN): convolutions with pooling, then dense layers; in 1, 2 or 3 dimensions."""

    channels: Sizes = (32, 64)  # of each layer
    kernel: Sizes = 3  # places it spans along every axis; a number is for all layers, a list one for each
    stride: Sizes = 1  # places from one output to the next
    dilation: Sizes = 1  # places from one element of a kernel to the next
    groups: Sizes = 1  # channels are cut into so many, each with kernels of its own
    padding: Padding = "zero"  # what lies beyond the border: zeros, the opposite side, or no output there
    pad: Margins | None = None  # places added at every border; null keeps the size where the stride is 1
    bias: Bias = "channel"  # of a convolution: a number for each channel, for each channel and place, or none
    activation: Activation = "relu"  # nonlinearity after every hidden layer
    pooling: Pooling = "max"  # of windows that do not overlap, after each activation
    window: Sizes | None = None  # places a window spans along every axis, 1 is no pooling; null: 2
    readout: Readout | None = None  # all places side by side, their maximum or their mean; null: flatten
    hidden: tuple[Size, ...] = (128,)  # widths of the dense layers before the head
    branches: bool = False  # layers side by side on the input, joined after the readout; by null 1 and max
    embedding: Size = 128  # numbers that a symbol of a text becomes; other inputs have none


@dataclass(frozen=True)
class LeNet:
    """LeNet-5: two convolutions with pooling and three dense layers, for pictures of 32 x 32."""

    activation: Literal["tanh", "sigmoid", "relu"] = "tanh"  # nonlinearity; later ones have relu
    pooling: Literal["average", "max"] = "average"  # of windows of 2 x 2; later ones have max


Form = Literal["cifar", "imagenet"]
RESNETS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}
DENSENETS = {121: (6, 12, 24, 16), 161: (6, 12, 36, 24), 169: (6, 12, 32, 32), 201: (6, 12, 48, 32)}


@dataclass(frozen=True)
class ResNet:
    """Residual network (ResNet): blocks of convolutions with skip connections."""

    form: Form = "cifar"  # three stages for small pictures, or four for large ones
    depth: Annotated[int, Ge(8)] = 20  # layers with weights: 6n + 2 (cifar); 18, 34, 50, 101, 152 (imagenet)
    width: Size | None = None  # channels of the first stage, doubled by every other; null: 16 or 64, by form
    stem: Literal["small", "large"] | None = None  # 3 x 3, or 7 x 7 and pooling, each halving; null: by form
    shortcut: Literal["identity", "projection"] | None = None  # where the shape changes; null: by form
    norm: Norm = "batch"  # after each convolution
    zero_init: bool = False  # every block starts as the identity: the last scale of its branch is 0


@dataclass(frozen=True)
class DenseNet:
    """DenseNet: each layer reads the outputs of all layers of its block before it."""

    form: Form = "cifar"  # three blocks for small pictures, or four for large ones
    depth: Annotated[int, Ge(4)] = (
        100  # layers with weights: 6n + 4, 3n + 4 without bottleneck (cifar); 121, 161, 169, 201 (imagenet)
    )
    growth: Size | None = None  # channels that each layer adds; null: 12 (cifar), 32, or 48 at depth 161
    bottleneck: bool = True  # a convolution of 1 x 1 to 4 growths before each of 3 x 3
    compression: Annotated[float, Gt(0), Le(1)] = 0.5  # share of the channels that is kept between blocks
    stem: Literal["small", "large"] | None = None  # 3 x 3, or 7 x 7 and pooling, each halving; null: by form
    norm: Norm = "batch"  # before each activation
