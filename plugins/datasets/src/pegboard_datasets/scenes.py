"""Pictures made by a formula: pure functions that draw from the generator they are given alone.

Pictures are float32 (samples, channels, size, size).
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Generator, Tensor

from .made import Points

Pattern = Literal["periodic", "noise"]
# Two objects of nine pixels each: their brightness does not tell them apart.
PLUS = ("..#..", "..#..", "#####", "..#..", "..#..")
TIMES = ("#...#", ".#.#.", "..#..", ".#.#.", "#...#")
GREY, WHITE, BLACK = 0.5, 1.0, -1.0  # against a background of 0


def shifted(samples: int, size: int = 28, *, generator: Generator) -> Points:
    """An upright or a slanted cross at a random place in the left half of an empty canvas."""
    objects = torch.tensor([[[c == "#" for c in row] for row in shape] for shape in (PLUS, TIMES)]).float()
    y = torch.arange(samples) % 2
    top = torch.randint(size - 4, (samples,), generator=generator)
    left = torch.randint(size // 2 - 4, (samples,), generator=generator)
    rows = (top[:, None] + torch.arange(5))[:, :, None]
    columns = (left[:, None] + torch.arange(5))[:, None, :]
    x = torch.zeros(samples, 1, size, size)
    x[torch.arange(samples)[:, None, None], 0, rows, columns] = objects[y]
    return Points(x, y)


def stacked(samples: int, size: int = 28, *, generator: Generator) -> Points:
    """Zeros in the upper half, zeros in the lower half, and sums of the two, which are eights (class 1).

    The first third is upper ones, the second lower ones, and the last the sums of both in their order.
    """
    third = -(-samples // 3)
    halves = []
    for half in range(2):
        tall, wide, aside = torch.rand(3, third, 1, 1, generator=generator)
        tall, wide = size * (0.15 + 0.07 * tall), size * (0.12 + 0.1 * wide)  # half axes of an ellipse
        row = torch.arange(size)[:, None] + 0.5 - size * (0.25 + 0.5 * half)
        column = torch.arange(size) + 0.5 - size * (0.45 + 0.1 * aside)
        radius = ((row / tall) ** 2 + (column / wide) ** 2).sqrt()
        ring = (1 - ((radius - 1).abs() * wide - 0.5).clamp(min=0)).clamp(min=0)
        own = row.abs() < size / 4  # nothing of it in the other half
        halves.append((ring * own).unsqueeze(1))
    x = torch.cat([*halves, halves[0] + halves[1]])
    y = torch.tensor([0, 0, 1]).repeat_interleave(third)
    return Points(x[:samples], y[:samples])


class Scenes(NamedTuple):
    """Pictures with real targets."""

    x: Tensor  # (samples, channels, size, size)
    y: Tensor  # (samples, outputs)


def squares_and_line(samples: int, size: int = 16, *, generator: Generator) -> Scenes:
    """A large grey square, a smaller white one and a black line, each alone, and the picture of all three.

    The three channels are what is seen of each by itself; the target is `painted` from them, pixel by pixel.
    """
    place = torch.arange(size)

    def square(side: int, low: int, high: int) -> Tensor:
        top, left = torch.randint(low, high + 1, (2, samples, 1), generator=generator)
        rows, columns = ((place >= start) & (place < start + side) for start in (top, left))
        inside: Tensor = rows[:, :, None] & columns[:, None, :]
        return inside.float()

    large, small = size * 5 // 8, size * 3 // 8
    grey = square(large, 1, size - large - 1) * GREY
    white = square(small, size // 4, size - small - size // 4) * WHITE
    row = torch.randint(size * 3 // 8, size * 5 // 8, (samples, 1), generator=generator)
    black = (place == row)[:, :, None].expand(-1, -1, size) * BLACK
    layers = torch.stack([grey, white, black], 1)
    return Scenes(layers, painted(layers).flatten(1))


def painted(layers: Tensor) -> Tensor:
    """Layers (samples, layers, size, size) over each other: the last one that is not empty is seen."""
    seen = torch.zeros_like(layers[:, 0])
    for layer in layers.unbind(1):
        seen = torch.where(layer != 0, layer, seen)
    return seen


def texture(
    samples: int,
    size: int = 16,
    period: int = 4,
    hole: int = 4,
    pattern: Pattern = "periodic",
    *,
    generator: Generator,
) -> Scenes:
    """A pattern with a hole of zeros in its middle, and what was in the hole.

    `periodic` repeats a tile of normal numbers, another in every sample; `noise` repeats nothing.
    """
    side = period if pattern == "periodic" else size
    tile = torch.randn(samples, side, side, generator=generator)
    place = torch.arange(size) % side
    whole = tile[:, place[:, None], place]
    start = (size - hole) // 2
    inside = slice(start, start + hole)
    x = whole.clone()
    x[:, inside, inside] = 0
    return Scenes(x.unsqueeze(1), whole[:, inside, inside].flatten(1))


def relighting(samples: int, size: int = 12, shadows: bool = True, *, generator: Generator) -> Scenes:
    """A matt ball under a distant light, and the light: its position and its intensity.

    A pixel is intensity / distance^2 times the cosine between the surface and the light; with `shadows`
    it is 0 where the light is behind the surface, without them it goes below 0.
    """
    direction = torch.randn(samples, 3, generator=generator)
    direction = direction / direction.norm(dim=1, keepdim=True)
    distance, intensity = 1 + torch.rand(2, samples, 1, generator=generator)
    pixels = ball(size).reshape(-1, 3) @ (direction * intensity / distance**2).T
    x = (pixels.clamp(min=0) if shadows else pixels).T.reshape(samples, 1, size, size)
    return Scenes(x, torch.cat([direction * distance, intensity], 1))


def ball(size: int) -> Tensor:
    """The normals of a unit ball as it is seen from above: (size, size, 3), zeros beside it."""
    place = (torch.arange(size) + 0.5) * (2 / size) - 1
    y, x = torch.meshgrid(-place, place, indexing="ij")
    z = (1 - x**2 - y**2).clamp(min=0).sqrt()
    return torch.stack([x, y, z], 2) * (z > 0).unsqueeze(2)
