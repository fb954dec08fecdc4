"""Densely connected networks as ordinary modules."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

import torch
from pegboard import Peg
from torch import Tensor, nn

from .configs import DENSENETS
from .foreign import adopt
from .residual import affine

RULES = (
    (r"^module\.", ""),
    (r"(denselayer\d+)\.(norm|conv)\.([12])\.", r"\1.\2\3."),  # as the first weights were written
    (r"^features\.", "body."),
    (r"^classifier\.", "head."),
)


class DenseLayer(nn.Module):
    """The channels that one layer adds to those it reads."""

    def __init__(self, inputs: int, growth: int, bottleneck: bool, norm: str) -> None:
        super().__init__()
        width = 4 * growth if bottleneck else inputs
        self.norm1 = affine(inputs, norm)
        self.relu = nn.ReLU()
        self.hidden1 = Peg("hidden", inputs, "NCHW")
        if bottleneck:
            self.conv1 = nn.Conv2d(inputs, width, 1, bias=norm == "none")
            self.norm2 = affine(width, norm)
            self.hidden2 = Peg("hidden", width, "NCHW")
            self.conv2 = nn.Conv2d(width, growth, 3, padding=1, bias=norm == "none")
        else:
            self.conv1 = nn.Conv2d(inputs, growth, 3, padding=1, bias=norm == "none")
        self.bottleneck = bottleneck
        self.residual = Peg("residual", growth, "NCHW")

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv1(self.hidden1(self.relu(self.norm1(x))))
        if self.bottleneck:
            x = self.conv2(self.hidden2(self.relu(self.norm2(x))))
        return self.residual(x)


class DenseBlock(nn.ModuleDict):
    """Layers that each read the block's input and what all layers before gave, side by side."""

    def __init__(self, inputs: int, layers: int, growth: int, bottleneck: bool, norm: str) -> None:
        super().__init__(
            {
                f"denselayer{n + 1}": DenseLayer(inputs + n * growth, growth, bottleneck, norm)
                for n in range(layers)
            }
        )

    def forward(self, x: Tensor) -> Tensor:
        found = [x]
        for layer in self.values():
            found.append(layer(found[0] if len(found) == 1 else torch.cat(found, 1)))
        return torch.cat(found, 1)


def stem_of(channels: int, width: int, stem: str, norm: str) -> OrderedDict[str, nn.Module]:
    """The layers before the first block."""
    if stem == "small":
        return OrderedDict(conv0=nn.Conv2d(channels, width, 3, padding=1, bias=norm == "none"))
    return OrderedDict(
        conv0=nn.Conv2d(channels, width, 7, 2, 3, bias=norm == "none"),
        norm0=affine(width, norm),
        relu0=nn.ReLU(),
        pool0=nn.MaxPool2d(3, 2, 1),
    )


def transition(inputs: int, channels: int, norm: str) -> nn.Sequential:
    """Fewer channels, and half the size."""
    return nn.Sequential(
        OrderedDict(
            norm=affine(inputs, norm),
            relu=nn.ReLU(),
            conv=nn.Conv2d(inputs, channels, 1, bias=norm == "none"),
            pool=nn.AvgPool2d(2),
        )
    )


class DenseNet(nn.Module):
    """A densely connected network: pictures (batch, channels, height, width) to (batch, outputs).

    `form` "cifar" has three blocks of (depth - 4) / 3 convolutions, "imagenet" four with 121, 161, 169 or
    201 layers. Each layer adds `growth` channels. Between blocks a convolution keeps a share `compression` of
    the channels and an average halves the size. What is None is as the form has it.
    """

    def __init__(
        self,
        channels: int,
        outputs: int,
        *,
        form: str = "cifar",
        depth: int = 100,
        growth: int | None = None,
        bottleneck: bool = True,
        compression: float = 0.5,
        stem: str | None = None,
        norm: str = "batch",
    ) -> None:
        super().__init__()
        small, each = form == "cifar", 6 if bottleneck else 3
        blocks = ((depth - 4) // each,) * 3 if small else DENSENETS.get(depth, ())
        if not blocks or (small and (depth < 4 + each or (depth - 4) % each)):
            known = f"{each}n + 4" if small else ", ".join(map(str, DENSENETS))
            raise ValueError(f"depth {depth} of the form {form}: expected {known}")
        growth = growth or (12 if small else 48 if depth == 161 else 32)
        width = 2 * growth if bottleneck or not small else 16
        self.input = Peg("input", channels, "NCHW")
        parts = stem_of(channels, width, stem or ("small" if small else "large"), norm)
        for at, count in enumerate(blocks, 1):
            parts[f"denseblock{at}"] = DenseBlock(width, count, growth, bottleneck, norm)
            width += count * growth
            if at < len(blocks):
                kept = max(1, int(width * compression))
                parts[f"transition{at}"] = transition(width, kept, norm)
                width = kept
        parts.update(norm5=affine(width, norm), relu5=nn.ReLU())
        self.body = nn.Sequential(parts)
        self.pooled = Peg("pooled", width)
        self.head = nn.Linear(width, outputs)
        self.logits = Peg("logits", outputs)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        nn.init.zeros_(self.head.bias)

    def features(self, x: Tensor) -> Tensor:
        """What the head reads: (batch, features)."""
        return self.pooled(self.body(self.input(x)).mean((2, 3)))

    def forward(self, x: Tensor) -> Tensor:
        return self.logits(self.head(self.features(x)))

    def adopt(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Weights of torchvision or timm under the names they have here."""
        return adopt(self, state, RULES)
