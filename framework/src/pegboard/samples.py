"""What a trained model generates: samples, ways between two, reconstructions; as pictures and as numbers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from .contracts import Source
from .engine.evaluate import eval_mode
from .errors import PegboardError
from .planning import private_rng
from .report.curves import draw_figure
from .report.pictures import draw_generated
from .rng import key_seed
from .specs import Image, Spec, Vector

if TYPE_CHECKING:
    from .inference import Trained

LEAST = 480  # pixels that a side of a grid has at least, by repeating each
PICTURES = (".png", ".jpg", ".jpeg", ".svg", ".pdf")
NUMBERS = (".csv", ".json", ".npy")
KINDS = ("samples", "reconstruct", "interpolate", "traverse")
STEPS = 8  # pictures from one end of a line to the other
REACH = 3.0  # standard deviations that a traversal goes to both sides

Invert = Callable[[Tensor], Tensor]


def draw_samples(model: nn.Module, count: int, seed: int, device: str) -> Tensor:
    """Samples of a model, on the CPU: the same for the same seed."""
    sample: Any = model.sample
    with private_rng(seed, "sample", device=device), eval_mode(model):
        drawn: Tensor = sample(count, _generator(seed, device))
    return drawn.float().cpu()


def _generator(seed: int, device: str) -> torch.Generator:
    return torch.Generator(device).manual_seed(key_seed(seed, "sample"))


def some_inputs(source: Source, count: int) -> Tensor:
    """The first input of the first samples of a split, on the CPU."""
    from .report.pictures import first

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


class Generator:
    """A trained model that generates samples, by a seed; what cannot is refused when it is made."""

    def __init__(self, trained: Trained, seed: int = 0) -> None:
        self.trained, self.seed, self.model = trained, seed, trained.model
        part: Any = trained.plan.settings.model.entry.part
        self.part = part
        if not part.samples:
            raise PegboardError(f"the model {self.part.name!r} of {trained.ref} generates no samples")
        self.spec = trained.plan.spec.inputs[0]

    def make(self, kind: str, count: int, split: str = "test") -> tuple[Tensor, int | None]:
        """Samples of a kind, and how many stand in a line of a grid, where that has a meaning."""
        if kind == "samples":
            return draw_samples(self.model, count, self.seed, self.trained.device), None
        with private_rng(self.seed, "sample", device=self.trained.device), eval_mode(self.model):
            made = {"reconstruct": self._pairs, "interpolate": self._ways, "traverse": self._axes}
            x, columns = made[kind](count, split)
        return x.float().cpu(), columns

    def _need(self, kind: str, *names: str) -> list[Any]:
        found = [getattr(self.model, name, None) for name in names]
        if lacking := [name for name, method in zip(names, found, strict=True) if method is None]:
            raise PegboardError(
                f"--kind {kind} needs a model that has {' and '.join(names)}, and {self.part.name!r} has no "
                f"{' and no '.join(lacking)}\nexpected one that makes codes of samples, "
                "or --kind samples"
            )
        return found

    def _inputs(self, count: int, split: str) -> Tensor:
        return some_inputs(self.trained.source(split), count).to(self.trained.device)

    def _pairs(self, count: int, split: str) -> tuple[Tensor, int]:
        """Samples of the data, each line followed by what the model makes of them."""
        encode, decode = self._need("reconstruct", "encode", "decode")
        x = self._inputs(count, split)
        made, columns = decode(encode(x)), min(len(x), STEPS)
        lines = zip(torch.split(x, columns), torch.split(made, columns), strict=True)
        return torch.cat([part for line in lines for part in line]), columns

    def _codes(self, kind: str, count: int, split: str) -> tuple[Tensor, Any]:
        """Codes of samples of the data, or drawn ones where the model makes none of samples."""
        if hasattr(self.model, "encode"):
            encode, decode = self._need(kind, "encode", "decode")
            return encode(self._inputs(count, split)), decode
        latent, decode = self._need(kind, "latent", "decode")
        return latent(count, _generator(self.seed, self.trained.device)), decode

    def _ways(self, count: int, split: str) -> tuple[Tensor, int]:
        """A line for every pair of codes: what lies between them, evenly."""
        codes, decode = self._codes("interpolate", 2 * max(count // STEPS, 1), split)
        one, two = codes[0::2][: len(codes) // 2], codes[1::2]
        share = torch.linspace(0, 1, STEPS, device=codes.device).view(1, -1, *(1,) * (codes.dim() - 1))
        between = one.unsqueeze(1) * (1 - share) + two.unsqueeze(1) * share
        return decode(between.flatten(0, 1)), STEPS

    def _axes(self, count: int, split: str) -> tuple[Tensor, int]:
        """A line for every number of the code of one sample: that number from low to high."""
        codes, decode = self._codes("traverse", 1, split)
        if codes.dim() != 2:
            raise PegboardError(
                f"--kind traverse needs codes that are vectors, and those of {self.part.name!r} "
                f"have the shape {tuple(codes.shape[1:])}"
            )
        places = min(codes.shape[1], max(count // STEPS, 1))
        lines = codes.expand(places, STEPS, -1).clone()
        far = torch.linspace(-REACH, REACH, STEPS, device=codes.device)
        for place in range(places):
            lines[place, :, place] = far
        return decode(lines.flatten(0, 1)), STEPS

    def write(self, x: Tensor, path: Path, columns: int | None = None) -> None:
        """A picture or the numbers, by the suffix; numbers are those of the data before it was scaled."""
        suffix, codec = path.suffix.lower(), self.trained.codec
        invert = None if codec is None else codec.invert
        known = f"{', '.join(PICTURES)} for a picture, {', '.join(NUMBERS)} for numbers"
        if suffix in PICTURES:
            if not write_picture(x, self.spec, path, self.trained.plan.settings.name, invert, None, columns):
                raise PegboardError(f"samples that are {self.spec} have no picture: expected .npy or .csv")
        elif suffix in NUMBERS:
            self._numbers(x if invert is None else invert(x), path)
        else:
            raise PegboardError(f"{path}: found the suffix {suffix!r}, expected {known}")

    def _numbers(self, x: Tensor, path: Path) -> None:
        from .tables import write_table

        if path.suffix.lower() == ".npy":
            import numpy

            numpy.save(path, x.numpy())
            return
        flat = x.flatten(1)
        write_table({f"x{i}": flat[:, i].tolist() for i in range(flat.shape[1])}, path)
