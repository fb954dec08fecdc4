"""The networks that every framework trains: ordinary modules, classes in the last axis of their output."""

from __future__ import annotations

import torch
from clock import CLOCK
from torch import Tensor, nn
from torch.nn import functional


class Network(nn.Module):
    """The same layers in every framework; a forward pass in training begins a step."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            CLOCK.tick()
        return self.layers(x)


def mlp() -> Network:
    return Network(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))


def cnn() -> Network:
    return Network(
        *(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(1600, 10)),
    )


class LastState(nn.Module):
    """An LSTM's output at the last place: (batch, length, features) to (batch, hidden)."""

    def __init__(self, features: int, hidden: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(features, hidden, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.lstm(x)[0][:, -1]


def lstm() -> Network:
    return Network(LastState(28, 64), nn.Linear(64, 10))


class Embedding(nn.Module):
    """Symbols and places as vectors: (batch, length) to (batch, length, width)."""

    def __init__(self, vocab: int, length: int, width: int) -> None:
        super().__init__()
        self.symbols = nn.Embedding(vocab, width)
        self.places = nn.Parameter(0.02 * torch.randn(length, width))

    def forward(self, x: Tensor) -> Tensor:
        return self.symbols(x) + self.places


class Block(nn.Module):
    """Attention to what came before, then a layer for each place; both added to what they read."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.read, self.write = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        rows, length, width = x.shape
        parts = self.read(self.first(x)).view(rows, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(*parts.unbind(), is_causal=True)
        x = x + self.write(seen.transpose(1, 2).reshape(rows, length, width))
        return x + self.feed(self.second(x))


def transformer(vocab: int, length: int, width: int = 64, heads: int = 4, layers: int = 2) -> Network:
    return Network(
        Embedding(vocab, length, width),
        *(Block(width, heads) for _ in range(layers)),
        *(nn.LayerNorm(width), nn.Linear(width, vocab)),
    )
