"""A local plugin of the tests: a small convolutional network, and pictures of point sets."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from pegboard import Classes, Context, Dataset, DataSpec, Image, Model, Resident, Splits, hookimpl
from torch import nn

SHAPES = ("circle", "star", "cross", "stripes", "parabola")
SIDE = 8


@dataclass(frozen=True)
class PooledCnn:
    """One convolution, its maximum over the picture, and an affine map."""

    channels: int = 8  # of the convolution


def build_cnn(config: PooledCnn, context: Context) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, config.channels, 5),
        nn.ReLU(),
        nn.AdaptiveMaxPool2d(1),
        nn.Flatten(),
        nn.Linear(config.channels, context.outputs),
    )


@dataclass(frozen=True)
class PointSets:
    """How many points of a set of equal statistics are in each cell of a grid, and which shape they are."""

    samples: int = 40  # of each shape, in each split


def build_sets(config: PointSets, context: Context) -> Splits:
    from pegboard_datasets import curves

    generator = torch.Generator().manual_seed(context.seed)
    edges = [
        torch.linspace(m - 2.5 * s, m + 2.5 * s, SIDE + 1, dtype=torch.float64)[1:-1].contiguous()
        for m, s in zip(*curves.DOZEN[:2], strict=True)
    ]

    def picture(kind: str) -> torch.Tensor:
        x, y = curves.quartet(142, kind, generator=generator)
        cell = torch.bucketize(y[:, 0], edges[1]) * SIDE + torch.bucketize(x[:, 0], edges[0])
        return torch.bincount(cell, minlength=SIDE**2).reshape(1, SIDE, SIDE) / 10

    def split() -> Resident:
        y = torch.arange(len(SHAPES)).repeat(config.samples)
        return Resident([torch.stack([picture(SHAPES[k]) for k in y.tolist()])], y)

    spec = DataSpec((Image(1, SIDE, SIDE),), Classes(len(SHAPES), SHAPES), ("counts",))
    return Splits(spec=spec, train=split(), test=split())


@hookimpl
def pegboard_models():
    return [Model("pooled_cnn", PooledCnn, build_cnn, inputs=(Image,))]


@hookimpl
def pegboard_datasets():
    return [Dataset("point_sets", PointSets, build_sets)]
