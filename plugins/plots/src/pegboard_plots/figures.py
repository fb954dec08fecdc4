"""Figures in files: the curves of a run, and whatever is drawn on an empty figure."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pegboard.contract.drawing import CHART

from .specs import COLOURS

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import Tensor

UNDATED = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}  # the same picture is the same file


def draw_curves(
    rows: Sequence[Mapping[str, Any]], path: Path, title: str, tricks: Sequence[str] = ()
) -> Path:
    """Loss and metrics against the step, one panel for each name, its splits together.

    `tricks` act on the training loss alone, which its panel says.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    series: dict[str, dict[str, list[tuple[int, float]]]] = {}
    for row in rows:
        for key, value in row.items():
            split, _, name = key.partition("/")
            if name and isinstance(value, int | float):
                series.setdefault(name, {}).setdefault(split, []).append((row["step"], value))
    names = sorted(series, key=lambda n: (n != "loss", n))[:6]
    columns = min(len(names), 3) or 1
    lines = -(-len(names) // columns) or 1
    figure = Figure(figsize=(4.2 * columns, 3.0 * lines), layout="constrained")
    FigureCanvasAgg(figure)
    for place, name in enumerate(names):
        axes = figure.add_subplot(lines, columns, place + 1)
        for split, points in series[name].items():
            style = "o" if len(points) == 1 else "-"
            steps, values = zip(*points, strict=True)
            axes.plot(steps, values, style, label=split, linewidth=1.2, color=COLOURS.get(split))
        axes.set_title(name, fontsize=10)
        beside = name == "loss" and "train" in series[name] and len(series[name]) > 1
        axes.set_xlabel("step", fontsize=8)
        if beside:
            axes.set_xlabel(f"step\n{about_losses(tricks)}", fontsize=7)
        axes.tick_params(labelsize=8)
        axes.grid(alpha=0.25)
        axes.legend(loc="best", fontsize=8, frameon=False)  # as by default, where slowness is a warning
    figure.suptitle(title, fontsize=11)
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=110)
    return path


def about_losses(tricks: Sequence[str]) -> str:
    """Why the training loss and the held-out one are not the same measure."""
    told = f" with {', '.join(tricks)}" if tricks else ""
    about = f"train: as in training{told}; others: the objective alone"
    return "\n".join(textwrap.wrap(about, 56, max_lines=3, placeholder=" ..."))


def draw_figure(path: Path, title: str, draw: Callable[[Figure], None]) -> Path:
    """Write what `draw` puts on an empty figure, in the format of the suffix; a title it gives comes last."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 5.2), layout="constrained")
    FigureCanvasAgg(figure)
    draw(figure)
    figure.suptitle(f"{title}{figure.get_suptitle()}", fontsize=10)
    notes: Mapping[str, str | None] | None = UNDATED.get(path.suffix.lower())
    if path.suffix.lower() == ".png" and not any(axes.images for axes in figure.axes):
        notes = {"Comment": CHART}
    with matplotlib.rc_context({"svg.hashsalt": "pegboard"}):  # as UNDATED
        figure.savefig(path, dpi=130, metadata=notes)
    return path


def show_pixels(figure: Figure, pixels: Tensor) -> None:
    """A picture (height, width, 3) that fills the figure."""
    axes = figure.add_subplot()
    axes.imshow(pixels.numpy(), interpolation="nearest")
    axes.set_axis_off()


def save_pixels(pixels: Tensor, path: Path) -> None:
    """Write a picture (height, width, 3) of bytes as it is."""
    from matplotlib.image import imsave

    imsave(path, pixels.numpy(), metadata={"Software": "pegboard"} if path.suffix == ".png" else None)
