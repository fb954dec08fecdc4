"""Samples that a model generates, and pictures of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..base.random_keys import key_seed
from ..contract.results import Source
from ..contract.specs import Image, Spec, Vector
from ..engine.evaluate import eval_mode
from ..inference.pictures import draw_generated
from ..planning.plan import private_rng
from ..report.curves import draw_figure

LEAST = 480  # pixels that a side of a grid has at least, by repeating each

Invert = Callable[[Tensor], Tensor]


def draw_samples(model: nn.Module, count: int, seed: int, device: str) -> Tensor:
    """Samples of a model, on the CPU: the same for the same seed."""
    sample: Any = model.sample
    with private_rng(seed, "sample", device=device), eval_mode(model):
        drawn: Tensor = sample(count, generator_of(seed, device))
    return drawn.float().cpu()


def generator_of(seed: int, device: str) -> torch.Generator:
    return torch.Generator(device).manual_seed(key_seed(seed, "sample"))


def some_inputs(source: Source, count: int) -> Tensor:
    """The first input of the first samples of a split, on the CPU."""
    from ..inference.pictures import first

    return first(source, count).inputs[0]


def write_picture(
    x: Tensor,
    spec: Spec,
    path: Path,
    title: str,
    invert: Invert | None = None,
    real: Tensor | None = None,
    columns: int | None = None,
) -> bool:
    """Draw samples, pictures in a grid and points in a plane; False where they are neither."""
    if invert is not None:
        x, real = invert(x), None if real is None else invert(real)
    if isinstance(spec, Image):
        pixels = grid(x, columns, None if invert is None else (0.0, 1.0))
        if path.suffix.lower() in (".svg", ".pdf"):
            draw_figure(path, title, lambda figure: _show(figure, pixels))
        else:
            _save(pixels, path)
        return True
    if isinstance(spec, Vector):
        draw_figure(path, title, lambda figure: draw_generated(figure, x, real))
        return True
    return False


def grid(images: Tensor, columns: int | None = None, ends: tuple[float, float] | None = None) -> Tensor:
    """Pictures (count, channels, height, width) as one (height, width, 3) of bytes, from black to white.

    `ends` are the values that are black and white, by default the least and the most of all.
    """
    count, channels, height, width = images.shape
    columns = columns or min(count, max(1, round(count**0.5)))
    lines = -(-count // columns)
    low, high = ends or (float(images.min()), float(images.max()))
    shown = ((images.double() - low) / max(high - low, 1e-30)).clamp(0, 1)
    shown = shown[:, :3] if channels >= 3 else shown[:, :1].expand(-1, 3, -1, -1)
    whole = torch.ones(3, lines * (height + 1) + 1, columns * (width + 1) + 1, dtype=torch.double)
    for place, image in enumerate(shown):
        y, x = 1 + place // columns * (height + 1), 1 + place % columns * (width + 1)
        whole[:, y : y + height, x : x + width] = image
    times = max(1, -(-LEAST // min(whole.shape[1:])))
    whole = whole.repeat_interleave(times, 1).repeat_interleave(times, 2)
    return (whole * 255).round().byte().permute(1, 2, 0)


def _save(pixels: Tensor, path: Path) -> None:
    from matplotlib.image import imsave

    imsave(path, pixels.numpy(), metadata={"Software": "pegboard"} if path.suffix == ".png" else None)


def _show(figure: Any, pixels: Tensor) -> None:
    axes = figure.add_subplot()
    axes.imshow(pixels.numpy(), interpolation="nearest")
    axes.set_axis_off()
