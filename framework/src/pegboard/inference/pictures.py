"""Pictures of data: what a data set's own function draws, or what its spec says the samples are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ..base.errors import PegboardError
from ..contract.drawing import draw_figure, plots
from ..contract.results import Batch, Source, Splits
from ..contract.specs import DataSpec, core_specs
from ..data import Resident

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FEWEST = 12  # samples of a split that are drawn, however large they are
MOST_ROWS = 5000  # samples of a split that are drawn
MOST_NUMBERS = 4_000_000  # numbers that are read for it


def draw_data(
    splits: Splits,
    path: Path,
    title: str,
    plot: Callable[[Splits, Figure], None] | None = None,
) -> list[str]:
    """Draw the splits and write the picture, in the format of its suffix; returns what was left out."""
    sources, kind = named(splits), next(iter(splits.spec.inputs), None)
    if plot is None and (kind is None or not kind.scattered):
        splits = replace(splits, val=None, test=None)  # a few samples tell what they are
    shown = cut(splits, kind.most_drawn if plot is None and kind is not None else MOST_ROWS)
    draw_figure(path, title, lambda figure: (plot or draw_by_spec)(shown, figure))
    return [
        f"only the first {len(drawn):,} of {len(sources[name]):,} {name} samples are drawn"
        for name, drawn in named(shown).items()
        if len(drawn) < len(sources[name])
    ]


def named(splits: Splits) -> dict[str, Source]:
    """The splits that there are."""
    found = {"train": splits.train, "val": splits.val, "test": splits.test}
    return {name: source for name, source in found.items() if source is not None and len(source)}


def cut(splits: Splits, most: int = MOST_ROWS) -> Splits:
    """Splits with the first samples of those that are large, in memory."""
    numbers = sum(entry.drawn_numbers for entry in splits.spec.inputs) or 1
    most = min(most, max(FEWEST, MOST_NUMBERS // numbers))
    changed: dict[str, Any] = {}
    for name, source in named(splits).items():
        if len(source) > most:
            batch = first(source, most)
            changed[name] = Resident(batch.inputs, batch.target, batch.weight)
    return replace(splits, **changed)


def first(source: Source, most: int) -> Batch:
    """The first samples of a split, on the CPU."""
    try:
        return source.to("cpu").gather(torch.arange(min(most, len(source))))
    finally:
        source.close()


def draw_by_spec(splits: Splits, figure: Figure) -> None:
    """What the spec of the data says the samples are."""
    spec = splits.spec
    if not drawn(spec):
        known = ", ".join(name for name, kind in core_specs().items() if kind.draws())
        raise PegboardError(
            f"the samples of the data set are {spec}, and the core draws {known}\n"
            "the record of a data set may bring its own picture: Dataset(..., plot=function); "
            "or the spec itself: draw(figure, batches, data)"
        )
    batches = {name: first(source, len(source)) for name, source in named(splits).items()}
    whole = spec.inputs[0].draw(figure, batches, spec)
    if len(spec.inputs) > 1 and not whole:
        name = f" ({spec.names[0]})" if spec.names else ""
        plots().remark(figure, f"input 1{name} of {len(spec.inputs)}")


def drawn(spec: DataSpec) -> bool:
    """Whether samples of this kind are drawn, by their first input."""
    return bool(spec.inputs) and spec.inputs[0].draws()
