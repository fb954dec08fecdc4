"""Three small networks. They stand for any package of modules: nothing here knows of Pegboard."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Highway(nn.Module):
    """Layers with gates that decide how much of their input passes unchanged: (batch, in_features)."""

    def __init__(
        self, in_features: int, num_classes: int, width: int = 64, depth: int = 2, gate_bias: float = -1.0
    ) -> None:
        super().__init__()
        self.stem = nn.Linear(in_features, width)
        self.changes = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.gates = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        for gate in self.gates:
            nn.init.constant_(gate.bias, gate_bias)  # type: ignore[arg-type]
        self.head = nn.Linear(width, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x.flatten(1))
        for change, gate in zip(self.changes, self.gates, strict=True):
            opened = torch.sigmoid(gate(x))
            x = opened * torch.relu(change(x)) + (1 - opened) * x
        logits: Tensor = self.head(x)
        return logits


class Mixer(nn.Module):
    """Pieces of a square picture, mixed across places and channels in turn: (batch, channels, side, side)."""

    def __init__(
        self,
        in_channels: int,
        image_size: int,
        num_classes: int,
        patch: int = 4,
        width: int = 32,
        depth: int = 2,
    ) -> None:
        super().__init__()
        self.patches = nn.Conv2d(in_channels, width, patch, stride=patch)
        places = (image_size // patch) ** 2
        self.blocks = nn.ModuleList(MixerBlock(places, width) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)  # (batch, places, width)
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(self.norm(x).mean(1))
        return logits


class MixerBlock(nn.Module):
    """One layer across places and one across channels, each added to what it is given."""

    def __init__(self, places: int, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.across_places = nn.Sequential(nn.Linear(places, width), nn.GELU(), nn.Linear(width, places))
        self.across_channels = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.across_places(self.norms[0](x).transpose(1, 2)).transpose(1, 2)
        mixed: Tensor = x + self.across_channels(self.norms[1](x))
        return mixed


class TemporalNet(nn.Module):
    """Convolutions over time that reach twice as far from layer to layer: (batch, time, channels)."""

    def __init__(
        self, channels: int, num_classes: int, widths: Sequence[int] = (32, 32), kernel: int = 3
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for place, width in enumerate(widths):
            reach = 2**place
            pad = reach * (kernel - 1) // 2
            layers += [nn.Conv1d(channels, width, kernel, padding=pad, dilation=reach), nn.ReLU()]
            channels = width
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(channels, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.body(x.transpose(1, 2)).mean(2))
        return logits
