"""Pictures are drawn by another package: the core's specs, runs and commands reach it here alone.

It is the one that is installed with an entry point in the group `pegboard.drawing`: pegboard-plots.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.errors import PegboardError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CHART = "lines and points on white"  # noted in the file of a figure without pictures, which may be inverted
GROUP = "pegboard.drawing"
INSTALL = "pip install pegboard-plots"


class NoPlots(PegboardError):
    """A picture is asked for where the package that draws is not installed."""


@functools.cache
def plots() -> Any:
    """The package that draws; `NoPlots` says what to install."""
    for point in entry_points(group=GROUP):
        return point.load()
    raise NoPlots(f"pictures are drawn by pegboard-plots, which is not installed\n{INSTALL}")


def can_draw() -> bool:
    """Whether the package that draws is there."""
    try:
        plots()
    except NoPlots:
        return False
    return True


def draw_curves(
    rows: Sequence[Mapping[str, Any]], path: Path, title: str, tricks: Sequence[str] = ()
) -> Path:
    """Loss and metrics against the step, one panel for each name, its splits together.

    `tricks` act on the training loss alone, which its panel says.
    """
    return Path(plots().draw_curves(rows, path, title, tricks))


def draw_figure(path: Path, title: str, draw: Callable[[Figure], None]) -> Path:
    """Write what `draw` puts on an empty figure, in the format of the suffix; a title it gives comes last."""
    return Path(plots().draw_figure(path, title, draw))
