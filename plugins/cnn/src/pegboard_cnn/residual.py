"""Residual networks as ordinary modules."""

from __future__ import annotations

from collections.abc import Mapping

from pegboard import Peg
from torch import Tensor, nn
from torch.nn import functional

from .configs import RESNETS
from .foreign import adopt

RULES = (
    (r"^module\.", ""),
    (r"(^|\.)bn(\d)\.", r"\1norm\2."),
    (r"^fc\.", "head."),
)


def affine(channels: int, norm: str) -> Peg:
    """The place after a convolution, with the normalisation that the network has there."""
    return Peg("affine", channels, "NCHW", norm=nn.BatchNorm2d(channels) if norm == "batch" else None)


def conv(inputs: int, channels: int, kernel: int, stride: int, norm: str) -> nn.Conv2d:
    """A convolution that keeps the size at stride 1; where a normalisation follows, without bias."""
    return nn.Conv2d(inputs, channels, kernel, stride, kernel // 2, bias=norm == "none")


class Identity(nn.Module):
    """Every `stride`-th place, with channels of zeros around: a shortcut without weights."""

    def __init__(self, inputs: int, channels: int, stride: int) -> None:
        super().__init__()
        more = channels - inputs
        self.stride, self.border = stride, (0, 0, 0, 0, more // 2, more - more // 2)

    def forward(self, x: Tensor) -> Tensor:
        return functional.pad(x[:, :, :: self.stride, :: self.stride], self.border)


class Block(nn.Module):
    """relu(x + branch(x)), with two convolutions in the branch; `downsample` where the shape changes."""

    expansion = 1  # how many times `width` channels it gives

    def __init__(self, inputs: int, width: int, stride: int, shortcut: str, norm: str) -> None:
        super().__init__()
        self.conv1 = conv(inputs, width, 3, stride, norm)
        self.norm1 = affine(width, norm)
        self.relu = nn.ReLU()
        self.hidden1 = Peg("hidden", width, "NCHW")
        self.conv2 = conv(width, width, 3, 1, norm)
        self.norm2 = affine(width, norm)
        self.residual = Peg("residual", width, "NCHW")
        self.downsample = reshape(inputs, width, stride, shortcut, norm)

    def forward(self, x: Tensor) -> Tensor:
        y = self.hidden1(self.relu(self.norm1(self.conv1(x))))
        y = self.residual(self.norm2(self.conv2(y)))
        down = self.downsample
        return self.relu(y + (x if down is None else down(x)))  # type: ignore[no-any-return]

    @property
    def last(self) -> tuple[Peg, nn.Conv2d]:
        return self.norm2, self.conv2


class Bottleneck(nn.Module):
    """The same with convolutions of 1, 3 and 1: to `width`, there, and to four times as many channels."""

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int, shortcut: str, norm: str) -> None:
        super().__init__()
        self.conv1 = conv(inputs, width, 1, 1, norm)
        self.norm1 = affine(width, norm)
        self.relu = nn.ReLU()
        self.hidden1 = Peg("hidden", width, "NCHW")
        self.conv2 = conv(width, width, 3, stride, norm)
        self.norm2 = affine(width, norm)
        self.hidden2 = Peg("hidden", width, "NCHW")
        self.conv3 = conv(width, 4 * width, 1, 1, norm)
        self.norm3 = affine(4 * width, norm)
        self.residual = Peg("residual", 4 * width, "NCHW")
        self.downsample = reshape(inputs, 4 * width, stride, shortcut, norm)

    def forward(self, x: Tensor) -> Tensor:
        y = self.hidden1(self.relu(self.norm1(self.conv1(x))))
        y = self.hidden2(self.relu(self.norm2(self.conv2(y))))
        y = self.residual(self.norm3(self.conv3(y)))
        down = self.downsample
        return self.relu(y + (x if down is None else down(x)))  # type: ignore[no-any-return]

    @property
    def last(self) -> tuple[Peg, nn.Conv2d]:
        return self.norm3, self.conv3


def reshape(inputs: int, channels: int, stride: int, shortcut: str, norm: str) -> nn.Module | None:
    """What a block's input goes through before the branch is added; None where nothing is to be done."""
    if stride == 1 and inputs == channels:
        return None
    if shortcut == "identity":
        return Identity(inputs, channels, stride)
    return nn.Sequential(conv(inputs, channels, 1, stride, norm), affine(channels, norm))


class ResNet(nn.Module):
    """A residual network: pictures (batch, channels, height, width) to (batch, outputs).

    `form` "cifar" has three stages of (depth - 2) / 6 blocks and shortcuts without weights, "imagenet" four
    stages of 18, 34, 50, 101 or 152 layers with projections; from 50 on the blocks are bottlenecks. What is
    None is as the form has it.
    """

    def __init__(
        self,
        channels: int,
        outputs: int,
        *,
        form: str = "cifar",
        depth: int = 20,
        width: int | None = None,
        stem: str | None = None,
        shortcut: str | None = None,
        norm: str = "batch",
        zero_init: bool = False,
    ) -> None:
        super().__init__()
        small = form == "cifar"
        blocks = ((depth - 2) // 6,) * 3 if small else RESNETS.get(depth, ())
        if not blocks or (small and (depth < 8 or depth % 6 != 2)):
            known = "6n + 2" if small else ", ".join(map(str, RESNETS))
            raise ValueError(f"depth {depth} of the form {form}: expected {known}")
        width = width or (16 if small else 64)
        self.input = Peg("input", channels, "NCHW")
        self.stem = stem or ("small" if small else "large")
        self._stem(channels, width, norm)
        block = Block if small or depth < 50 else Bottleneck
        shortcut = shortcut or ("identity" if small else "projection")
        inputs = width
        for at, count in enumerate(blocks):
            stage = nn.Sequential()
            for n in range(count):
                stage.append(block(inputs, 2**at * width, 2 if at and not n else 1, shortcut, norm))
                inputs = 2**at * width * block.expansion
            self.add_module(f"layer{at + 1}", stage)
        self.stages = tuple(f"layer{at + 1}" for at in range(len(blocks)))
        self.pooled = Peg("pooled", inputs)
        self.head = nn.Linear(inputs, outputs)
        self.logits = Peg("logits", outputs)
        self._start(zero_init)

    def _stem(self, channels: int, width: int, norm: str) -> None:
        large = self.stem == "large"
        self.conv1 = conv(channels, width, 7 if large else 3, 2 if large else 1, norm)
        self.norm1 = affine(width, norm)
        self.relu = nn.ReLU()
        self.pool = nn.MaxPool2d(3, 2, 1) if large else None

    def _start(self, zero_init: bool) -> None:
        """Weights of convolutions by He's rule; with `zero_init` the end of each branch at zero."""
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        for module in self.modules() if zero_init else ():
            if isinstance(module, (Block, Bottleneck)):
                peg, last = module.last
                scale = getattr(peg, "norm", last).weight
                nn.init.zeros_(scale)

    def features(self, x: Tensor) -> Tensor:
        """What the head reads: (batch, features)."""
        x = self.relu(self.norm1(self.conv1(self.input(x))))
        if self.pool is not None:
            x = self.pool(x)
        for name in self.stages:
            x = self._modules[name](x)  # type: ignore[misc]
        return self.pooled(x.mean((2, 3)))

    def forward(self, x: Tensor) -> Tensor:
        return self.logits(self.head(self.features(x)))

    def adopt(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Weights of torchvision or timm under the names they have here."""
        return adopt(self, state, RULES)
