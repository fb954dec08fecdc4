"""Samples that a model generates, and pictures of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..base.random_keys import key_seed
from ..contract.drawing import draw_figure, plots
from ..contract.results import Source
from ..contract.specs import Spec
from ..engine.evaluate import eval_mode
from ..planning.plan import private_rng
from .pictures import first

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
    """Draw samples as their spec does; False where it has no picture of them."""
    if not spec.draws_samples():
        return False
    if invert is not None:
        x, real = invert(x), None if real is None else invert(real)
    pixels = spec.raster(x, columns, None if invert is None else (0.0, 1.0))
    if pixels is None:
        draw_figure(path, title, lambda figure: spec.draw_samples(figure, x, real))
    elif path.suffix.lower() in (".svg", ".pdf"):
        draw_figure(path, title, lambda figure: plots().show_pixels(figure, pixels))
    else:
        plots().save_pixels(pixels, path)
    return True
