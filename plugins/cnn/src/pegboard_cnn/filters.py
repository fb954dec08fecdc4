"""What convolutions look for: kernels of the first layer beside edges, and pictures that please a channel."""

from __future__ import annotations

import math
from pathlib import Path

import torch
from pegboard import Context, PegboardError, Probe, Splits
from pegboard.contract.drawing import plots
from torch import Tensor, nn

from .symmetry import Filters

TURNS, PHASES, WAVES = 12, 4, (1.0, 1.5, 2.0)  # of the edges; waves in lengths of a kernel


def first_kernels(model: nn.Module) -> Tensor:
    """Kernels of the first convolution over pictures: (kernels, channels, height, width)."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            return module.weight.detach().cpu()
    raise PegboardError(
        f"{type(model).__name__} has no convolution over pictures, so it has no kernels to look at\n"
        "Name a run of a convolutional network."
    )


def edges(height: int, width: int) -> Tensor:
    """Gabor functions: waves under a bell, of every direction, phase and a few lengths, mean 0 and norm 1.

    (edges, height, width). A bar and an edge are such waves in different phases.
    """
    row, column = (torch.arange(n, dtype=torch.float64) - (n - 1) / 2 for n in (height, width))
    size = max(height, width)
    bell = torch.exp(-(row[:, None] ** 2 + column**2) / (2 * (0.4 * size) ** 2))
    found = []
    for turn in range(TURNS):
        angle = math.pi * turn / TURNS
        along = column * math.cos(angle) + row[:, None] * math.sin(angle)
        for wave in WAVES:
            for phase in range(PHASES):
                found.append(bell * torch.cos(2 * math.pi * along / (wave * size) + math.pi * phase / PHASES))
    return standard(torch.stack(found))


def standard(kernels: Tensor) -> Tensor:
    """Kernels (..., height, width) with mean 0 and norm 1; constant ones become 0."""
    centred = kernels - kernels.mean((-2, -1), keepdim=True)
    norm: Tensor = torch.linalg.matrix_norm(centred, keepdim=True)
    return centred / norm.clamp(min=1e-12)


def likeness(kernels: Tensor) -> Tensor:
    """The correlation of each kernel (kernels, channels, height, width) with the edge it is most like."""
    flat = standard(kernels.double().mean(1))
    return (flat.flatten(1) @ edges(*flat.shape[1:]).flatten(1).T).abs().amax(1)


def preferred(
    model: nn.Module,
    layer: str,
    channel: int,
    shape: tuple[int, ...],
    *,
    norm: float = 1.0,
    steps: int = 50,
    generator: torch.Generator,
) -> Tensor:
    """A picture of this norm for which a channel of a layer answers most: (*shape), by gradient ascent.

    The answer is the largest of all places. The model stays as it is.
    """
    kept: list[Tensor] = []
    hook = model.get_submodule(layer).register_forward_hook(lambda module, x, y: kept.append(y))
    x = torch.randn(1, *shape, generator=generator)
    try:
        for step in range(steps):
            x = (x * (norm / x.norm())).requires_grad_()
            model(x)
            answer = kept.pop()[0, channel].amax()
            (slope,) = torch.autograd.grad(answer, x)
            # Steps become smaller, so that the ascent settles.
            x = x.detach() + (1 - step / steps) * norm * slope / slope.norm().clamp(min=1e-12)
    finally:
        hook.remove()
    found: Tensor = x * (norm / x.norm())
    return found[0]


def draw(kernels: Tensor, path: Path) -> None:
    """Kernels beside each other, as grey pictures or, of three channels, as colours."""
    plots()  # says what to install, where matplotlib is not there
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = math.ceil(math.sqrt(len(kernels)))
    rows = -(-len(kernels) // columns)
    figure = Figure(figsize=(columns * 0.8 + 0.2, rows * 0.8 + 0.2), layout="constrained")
    FigureCanvasAgg(figure)
    shown = kernels if kernels.shape[1] == 3 else kernels.mean(1, keepdim=True)
    most = shown.abs().flatten(1).amax(1).clamp(min=1e-12)  # each in its own range, 0 in its middle
    shown = (shown / (2 * most[:, None, None, None]) + 0.5).permute(0, 2, 3, 1)
    for place, kernel in enumerate(shown):
        axes = figure.add_subplot(rows, columns, place + 1)
        axes.imshow(kernel.squeeze(-1).tolist(), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        axes.set_axis_off()
    figure.savefig(path, dpi=130)


class FilterProbe(Probe):
    """`edge_likeness` is the mean, over the kernels of the first convolution, of the correlation with the
    edge or bar that each is most like, `edge_likeness_min` the least, and `edge_likeness_chance` the mean of
    kernels of that size that are noise."""

    def __init__(self, config: Filters, context: Context) -> None:
        self.path, self.seed = config.picture, context.generator("noise", "cpu").initial_seed()

    def measure(self, model: nn.Module, splits: Splits, device: torch.device) -> dict[str, float]:
        kernels = first_kernels(model)
        found = likeness(kernels)
        noise = torch.randn(500, 1, *kernels.shape[2:], generator=torch.Generator().manual_seed(self.seed))
        if self.path:
            try:
                draw(kernels, Path(self.path))
            except (OSError, ValueError) as error:
                raise PegboardError(f"cannot draw the kernels in {self.path!r}: {error}") from None
        return {
            "edge_likeness": float(found.mean()),
            "edge_likeness_min": float(found.min()),
            "edge_likeness_chance": float(likeness(noise).mean()),
        }
