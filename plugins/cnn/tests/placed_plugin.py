"""Data sets of pictures for tests, for `plugins: {local: [...]}`: digits in some place, and noisy edges."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from pegboard import Classes, Context, Dataset, DataSpec, Image, Splits, hookimpl

# Ten digits of five by seven pixels, row by row in bits.
FONT = (
    (14, 17, 19, 21, 25, 17, 14), (4, 12, 4, 4, 4, 4, 14), (14, 17, 1, 2, 4, 8, 31), (31, 2, 4, 2, 1, 17, 14),
    (2, 6, 10, 18, 31, 2, 2), (31, 16, 30, 1, 1, 17, 14), (6, 8, 16, 30, 17, 17, 14), (31, 1, 2, 4, 8, 8, 8),
    (14, 17, 17, 14, 17, 17, 14), (14, 17, 17, 15, 1, 2, 12),
)  # fmt: skip


@dataclass(frozen=True)
class PlacedDigits:
    """Digits of a small font in random places, with noise."""

    size: int = 28  # height and width
    shift: int = 4  # places that a digit is away from the middle at most
    scale: int = 1  # pixels of a dot
    noise: float = 0.2  # standard deviation added to every pixel
    samples: int = 400  # to train on, and as many for the test


def digits_spec(config: PlacedDigits) -> DataSpec:
    return DataSpec((Image(1, config.size, config.size),), Classes(10))


def digits(config: PlacedDigits, context: Context) -> Splits:
    import torch
    from pegboard import Resident

    generator = Context(seed=context.seed, key="placed_digits").generator("samples", "cpu")
    glyphs = torch.tensor([[[row >> (4 - bit) & 1 for bit in range(5)] for row in glyph] for glyph in FONT])
    glyphs = glyphs.repeat_interleave(config.scale, 1).repeat_interleave(config.scale, 2).float()
    count, (high, wide) = 2 * config.samples, glyphs.shape[1:]
    y = torch.arange(count) % 10
    x = config.noise * torch.randn(count, 1, config.size, config.size, generator=generator)
    away = torch.randint(-config.shift, config.shift + 1, (count, 2), generator=generator)
    top, left = (away + torch.tensor([(config.size - high) // 2, (config.size - wide) // 2])).T
    rows = (top[:, None] + torch.arange(high))[:, :, None]
    columns = (left[:, None] + torch.arange(wide))[:, None, :]
    x[torch.arange(count)[:, None, None], 0, rows, columns] += glyphs[y]
    train, test = (Resident([x[half]], y[half]) for half in torch.arange(count).split(config.samples))
    return Splits(spec=digits_spec(config), train=train, test=test)


@dataclass(frozen=True)
class EdgePictures:
    """One edge each, and on which side it is bright: one of four."""

    size: int = 12  # height and width
    noise: float = 0.5  # standard deviation added to every pixel
    samples: int = 200  # to train on, and once more for the test


def edges_spec(config: EdgePictures) -> DataSpec:
    return DataSpec((Image(1, config.size, config.size),), Classes(4))


def edges(config: EdgePictures, context: Context) -> Splits:
    import torch
    from pegboard import Resident

    generator = Context(seed=context.seed, key="edge_pictures").generator("samples", "cpu")
    y = torch.arange(config.samples) % 4
    turn, away = torch.rand(2, config.samples, generator=generator) - 0.5
    angle = (y + 0.8 * turn) * math.pi / 2
    place = torch.arange(config.size) - (config.size - 1) / 2
    across = place * angle.cos()[:, None, None] + place[:, None] * angle.sin()[:, None, None]
    x = torch.tanh(2 * (across - away[:, None, None] * config.size / 2))
    x = x + config.noise * torch.randn(x.shape, generator=generator)
    whole = Resident([x.unsqueeze(1)], y)
    return Splits(spec=edges_spec(config), train=whole, test=whole)


@hookimpl
def pegboard_datasets() -> list[Dataset[Any]]:
    return [
        Dataset("placed_digits", PlacedDigits, digits, spec=digits_spec),
        Dataset("edge_pictures", EdgePictures, edges, spec=edges_spec),
    ]
