"""Pictures of data: what a data set's own function draws, or what its spec says the samples are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..base.errors import PegboardError
from ..contract.results import Batch, Source, Splits
from ..contract.specs import (
    Classes,
    DataSpec,
    Image,
    Labels,
    Series,
    Spec,
    Tokens,
    Values,
    Vector,
    Views,
    Voxels,
)
from ..data import Resident
from ..report.curves import COLOURS, draw_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_ROWS = 5000  # samples of a split that are drawn
MOST_NUMBERS = 4_000_000  # numbers that are read for it
MOST_IMAGES = 40
MOST_CLASSES = 12  # that get a colour and a marker of their own and a line in the legend
MOST_LINES = 12  # series drawn in a panel
MOST_TOKENS = 20
GREY = "#bbbbbb"
# Colours that stay apart for the colour-blind; those of the second row have another marker too.
PALETTE = (
    *("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377"),
    *("#332288", "#ee8866", "#44aa99", "#882255", "#999933", "#000000"),
)


@dataclass(frozen=True)
class Points:
    """Samples of one split as they are drawn."""

    split: str
    x: Tensor  # the first input
    target: Tensor | None
    labelled: Tensor  # (batch,) False where the weight is 0

    def only_labelled(self) -> Points:
        target = None if self.target is None else self.target[self.labelled]
        return replace(self, x=self.x[self.labelled], target=target, labelled=self.labelled[self.labelled])


Draw = Callable[["Figure", list[Points], Any, Spec | None], None]


def draw_data(
    splits: Splits,
    path: Path,
    title: str,
    plot: Callable[[Splits, Figure], None] | None = None,
) -> list[str]:
    """Draw the splits and write the picture, in the format of its suffix; returns what was left out."""
    sources, kind = named(splits), next(iter(splits.spec.inputs), None)
    if plot is None and not isinstance(kind, Vector):
        splits = replace(splits, val=None, test=None)  # a few samples tell what they are
    shown = cut(
        splits, MOST_IMAGES if plot is None and isinstance(kind, Image | Voxels | Views) else MOST_ROWS
    )
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
    numbers = sum((s.size or 1) for s in splits.spec.inputs if not isinstance(s, Tokens)) or 1
    most = min(most, max(MOST_LINES, MOST_NUMBERS // numbers))
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
        getattr(source, "close", lambda: None)()


def draw_by_spec(splits: Splits, figure: Figure) -> None:
    """What the spec of the data says the samples are."""
    spec = splits.spec
    draw = drawn(spec)
    if draw is None:
        raise PegboardError(
            f"the samples of the data set are {spec}, and the core draws "
            f"{', '.join(kind.__name__ for kind in _DRAWN)}\n"
            "the record of a data set may bring its own picture: Dataset(..., plot=function)"
        )
    batches = {name: first(source, len(source)) for name, source in named(splits).items()}
    if len(spec.inputs) > 1 and all(isinstance(entry, Tokens) for entry in spec.inputs):
        _texts(figure, next(iter(batches.values())).inputs, spec)
        return
    draw(figure, [_points(name, batch) for name, batch in batches.items()], spec.inputs[0], spec.target)
    if len(spec.inputs) > 1:
        name = f" ({spec.names[0]})" if spec.names else ""
        _remark(figure, f"input 1{name} of {len(spec.inputs)}")


def drawn(spec: DataSpec) -> Draw | None:
    """What draws samples of this kind, by their first input; None where nothing does."""
    kinds = [draw for kind, draw in _DRAWN.items() if spec.inputs and isinstance(spec.inputs[0], kind)]
    return kinds[0] if kinds else None


def _points(split: str, batch: Batch) -> Points:
    x = batch.inputs[0]
    labelled = torch.ones(len(x), dtype=torch.bool) if batch.weight is None else batch.weight != 0
    return Points(split, x, batch.target, labelled)


def _remark(figure: Figure, text: str) -> None:
    """A line below the title."""
    figure.suptitle(f"{figure.get_suptitle()}\n{text}")


# Vectors: numbers against what is to be predicted, planes, and what is flattened into one.
def _vectors(figure: Figure, points: list[Points], spec: Spec, target: Spec | None) -> None:
    features = points[0].x.shape[1]
    if features == 1:
        _line(figure, points, target)
        return
    axes = figure.add_subplot()
    if features > 2:
        points, shares = _components(points)
        _remark(figure, f"first two principal components of {features} features")
        labels = [f"component {i + 1}, {100 * share:.0f} % of the variance" for i, share in enumerate(shares)]
    else:
        labels = ["feature 1", "feature 2"]
    axes.set_xlabel(labels[0])
    axes.set_ylabel(labels[1])
    _plane(axes, points, target)
    axes.set_aspect("equal", adjustable="datalim")


def _components(points: list[Points]) -> tuple[list[Points], list[float]]:
    """Samples in the plane in which those of the first split vary most, and the share of each axis."""
    train = points[0].x.double()
    middle = train.mean(0)
    _, scales, axes = torch.linalg.svd(train - middle, full_matrices=False)
    axes = axes[:2] * torch.sign(axes[:2].sum(1, keepdim=True) + 1e-12)  # the sign is arbitrary: fix it
    plane = torch.zeros(train.shape[1], 2, dtype=torch.double)
    plane[:, : len(axes)] = axes.T
    shares = torch.zeros(2, dtype=torch.double)
    shares[: len(scales)] = scales[:2].square() / scales.square().sum().clamp_min(1e-30)
    return [replace(p, x=(p.x.double() - middle) @ plane) for p in points], shares.tolist()


def _plane(axes: Axes, points: list[Points], target: Spec | None) -> None:
    """Points in a plane: classes by colour and marker, values by colour, held-out samples hollow."""
    for p in points:
        if not p.labelled.all():
            _dots(axes, p.x[~p.labelled], GREY, label="unlabelled")
    points = [p.only_labelled() for p in points if p.labelled.any()]
    if points and isinstance(target, Classes | Labels):
        _by_class(axes, points, target)
    elif points and isinstance(target, Values):
        _by_value(axes, points, target)
    else:
        for p in points:
            _dots(axes, p.x, COLOURS[p.split], label=p.split)
    _legend(axes)


def _by_class(axes: Axes, points: list[Points], target: Classes | Labels) -> None:
    names, numbers = _classes(points, target)
    if len(names) > MOST_CLASSES:
        _by_value(axes, [replace(p, target=n.double()) for p, n in zip(points, numbers, strict=True)], None)
        return
    for place, name in enumerate(names):
        colour, marker = PALETTE[place], "o" if place < len(PALETTE) // 2 else "s"
        for p, number in zip(points, numbers, strict=True):
            filled = p.split == "train"
            _dots(axes, p.x[number == place], colour, filled=filled, label=name, marker=marker)
    _hollow(axes, points)


def _by_value(axes: Axes, points: list[Points], target: Values | None) -> None:
    """Colours by the first value; without a spec the values are numbers of classes."""
    values = [_column(p, 0) for p in points]
    least, most = min(float(v.min()) for v in values), max(float(v.max()) for v in values)
    for p, value in zip(points, values, strict=True):
        x, y = p.x.T.tolist()
        marks = axes.scatter(x, y, c=value.tolist(), s=_area(p.x), vmin=least, vmax=most, cmap="viridis")
    label = "class" if target is None else _name(target, 0)
    axes.figure.colorbar(marks, ax=axes, label=label)


def _classes(points: list[Points], target: Classes | Labels) -> tuple[list[str], list[Tensor]]:
    """Names of the classes, and the number of its class for each sample; a set of labels is a class."""
    targets = [p.target for p in points if p.target is not None]
    if isinstance(target, Labels):
        rows = [[tuple(row.nonzero().flatten().tolist()) for row in t] for t in targets]
        found = sorted({row for split in rows for row in split}, key=lambda row: (len(row), row))
        place = {row: i for i, row in enumerate(found)}
        names = [" + ".join(_name(target, i) for i in row) or "none" for row in found]
        return names, [torch.tensor([place[row] for row in split]) for split in rows]
    numbers = [t.argmax(-1) if t.is_floating_point() and t.dim() > 1 else t.long().flatten() for t in targets]
    count = target.count or max(int(n.max()) for n in numbers) + 1
    return [_name(target, i) for i in range(count)], numbers


def _name(target: Any, place: int) -> str:
    kind = "value" if isinstance(target, Values) else "class" if isinstance(target, Classes) else "label"
    return target.names[place] if place < len(target.names) else f"{kind} {place}"


def _line(figure: Figure, points: list[Points], target: Spec | None) -> None:
    """One feature: against the values, a panel for each, or the classes; alone, how often it occurs."""
    if isinstance(target, Values):
        for panel, axes in enumerate(figure.subplots(min(target.size or 1, 4), squeeze=False).flat):
            _against(axes, points, [_column(p, panel) for p in points])
            axes.set_ylabel(_name(target, panel))
    elif isinstance(target, Classes | Labels):
        names, numbers = _classes(points, target)
        axes = figure.add_subplot()
        apart = [
            number - 0.06 * place for place, number in enumerate(numbers)
        ]  # splits do not hide each other
        _against(axes, points, apart)
        axes.set_yticks(range(len(names)), names)
        axes.margins(y=0.3)
    else:
        axes = figure.add_subplot()
        for p in points:
            axes.hist(p.x.flatten().tolist(), bins=40, alpha=0.6, color=COLOURS[p.split], label=p.split)
        axes.set_ylabel("samples")
        _legend(axes)
    axes.set_xlabel("feature 1")


def _against(axes: Axes, points: list[Points], values: list[Tensor]) -> None:
    """Values against the only feature, colours by split."""
    for p, value in zip(points, values, strict=True):
        pairs = torch.stack([p.x.flatten().double(), value.double()], 1)
        _dots(axes, pairs[~p.labelled], GREY, label="unlabelled")
        _dots(axes, pairs[p.labelled], COLOURS[p.split], label=p.split)
    _legend(axes)


def draw_generated(figure: Figure, x: Tensor, real: Tensor | None = None) -> None:
    """Vectors that a model generates, over those of the data where there are some."""

    def points(split: str, values: Tensor) -> Points:
        return Points(split, values, None, torch.ones(len(values), dtype=torch.bool))

    both = [] if real is None else [points("train", real)]
    _vectors(figure, [*both, points("samples", x)], Vector(x.shape[1]), None)


# Images, series, symbols.
def _images(figure: Figure, points: list[Points], spec: Spec, target: Spec | None) -> None:
    """The first images of the first split in a grid, each with its label."""
    train = points[0]
    count = min(len(train.x), MOST_IMAGES)
    _grid(figure, train.x[:count], list(_captions(train, target))[:count], train.labelled, min(count, 8))


def _solids(figure: Figure, points: list[Points], spec: Spec, target: Spec | None) -> None:
    """The first solids as if they were transparent: of every line along their depth the largest number."""
    _images(figure, [replace(points[0], x=points[0].x.amax(2))], spec, target)
    _remark(figure, "the largest number along the depth")


def _views(figure: Figure, points: list[Points], spec: Spec, target: Spec | None) -> None:
    """The views of the first samples, a line for each sample."""
    train, views = points[0], points[0].x.shape[1]
    count = max(min(len(train.x), MOST_IMAGES // views, 6), 1)
    captions = [
        c if view == 0 else "" for c in list(_captions(train, target))[:count] for view in range(views)
    ]
    labelled = train.labelled[:count].repeat_interleave(views)
    _grid(figure, train.x[:count].flatten(0, 1), captions, labelled, views)
    _remark(figure, f"{views} views of each sample")


def _grid(figure: Figure, images: Tensor, captions: list[str], labelled: Tensor, columns: int) -> None:
    """Pictures (count, channels, height, width) side by side, all on one scale."""
    lines = -(-len(images) // columns)
    figure.set_size_inches(columns * 0.9 + 0.4, lines * 1.05 + 0.7)
    images = images.double()
    least, most = images.min(), images.max()
    images = ((images - least) / (most - least).clamp_min(1e-30)).permute(0, 2, 3, 1)
    for place, (image, caption) in enumerate(zip(images, captions, strict=True)):
        axes = figure.add_subplot(lines, columns, place + 1)
        shown = image[..., :3] if image.shape[-1] >= 3 else image[..., 0]
        axes.imshow(shown.tolist(), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        axes.set_title(caption, fontsize=8, pad=2, color="black" if labelled[place] else "#888888")
        axes.set_axis_off()


def _captions(points: Points, target: Spec | None) -> Iterator[str]:
    """A few words for each sample: its class, its labels or its value; none for several values."""
    several = isinstance(target, Values) and target.size not in (None, 1)
    if several or points.target is None or not isinstance(target, Classes | Labels | Values):
        yield from [""] * len(points.x)
    elif isinstance(target, Values):
        yield from (f"{value:.3g}" for value in _column(points, 0).tolist())
    else:
        names, (numbers,) = _classes([points], target)
        for number, known in zip(numbers.tolist(), points.labelled.tolist(), strict=True):
            yield names[number] if known else "unlabelled"


def _series(figure: Figure, points: list[Points], spec: Spec, target: Spec | None) -> None:
    """The first series of the first split, a panel for each feature, colours by class.

    What is to be predicted step by step is dashed.
    """
    train = points[0]
    panels = min(train.x.shape[2], 4)
    count = min(len(train.x), MOST_LINES)
    coloured = isinstance(target, Classes | Labels) and train.target is not None and train.target.dim() == 1
    captions = list(_captions(train, target))[:count] if coloured else [""] * count
    colours: dict[str, str] = {}
    for panel in range(panels):
        axes = figure.add_subplot(panels, 1, panel + 1)
        for sample, caption in enumerate(captions):
            new = caption not in colours
            colour = colours.setdefault(caption, PALETTE[len(colours) % len(PALETTE)])
            label = caption if new and caption else None
            axes.plot(train.x[sample, :, panel].tolist(), color=colour, alpha=0.8, lw=1, label=label)
            if isinstance(target, Series) and train.target is not None and panel < train.target.shape[2]:
                axes.plot(train.target[sample, :, panel].tolist(), "--", color=colour, alpha=0.8, lw=1)
        axes.set_ylabel(f"feature {panel + 1}")
        axes.grid(alpha=0.25)
        _legend(axes)
    axes.set_xlabel("step")
    dashed = ", and dashed what is to be predicted" if isinstance(target, Series) else ""
    _remark(figure, f"the first {count} series{dashed}")


def _tokens(figure: Figure, points: list[Points], spec: Spec, target: Spec | None) -> None:
    """How long the samples of the first split are, and which symbols are most frequent."""
    figure.set_size_inches(9, 4)
    left, right = figure.subplots(1, 2)
    _symbols(left, right, points[0].x, spec)


def _texts(figure: Figure, inputs: Sequence[Tensor], spec: DataSpec) -> None:
    """The same of several inputs, a line for each."""
    figure.set_size_inches(9, 3.5 * len(inputs))
    panels = figure.subplots(len(inputs), 2)
    for place, (x, entry) in enumerate(zip(inputs, spec.inputs, strict=True)):
        _symbols(panels[place][0], panels[place][1], x, entry)
        name = f", {spec.names[place]}" if spec.names else ""
        panels[place][0].set_title(f"input {place + 1}{name}", fontsize=9)


def _symbols(left: Axes, right: Axes, x: Tensor, spec: Spec) -> None:
    assert isinstance(spec, Tokens)
    there = x != spec.padding
    lengths = there.sum(1)
    least, most = int(lengths.min()), int(lengths.max())
    width = -(-(most - least + 1) // 40)  # whole lengths in a bar
    left.hist(lengths.tolist(), [n - 0.5 for n in range(least, most + width + 1, width)], color=PALETTE[0])
    left.set_xlabel("symbols in a sample")
    left.set_ylabel("samples")
    symbols, counts = torch.unique(x[there], return_counts=True)
    order = counts.argsort(descending=True, stable=True)[:MOST_TOKENS]
    right.bar([str(s) for s in symbols[order].tolist()], counts[order].tolist(), color=PALETTE[0])
    right.set_xlabel(f"the {len(order)} most frequent of {len(symbols)} symbols")
    right.set_ylabel("times")
    right.tick_params(axis="x", labelsize=8, rotation=90)


# Pieces.
def _column(points: Points, place: int) -> Tensor:
    assert points.target is not None
    return points.target.reshape(len(points.x), -1)[:, place]


def _dots(
    axes: Axes, xy: Tensor, colour: str, *, label: str | None, filled: bool = True, marker: str = "o"
) -> None:
    if not len(xy):
        return
    if label in axes.get_legend_handles_labels()[1]:
        label = None  # one line in the legend
    face = colour if filled else "none"
    x, y = xy.T.tolist()
    axes.scatter(
        x,
        y,
        s=_area(xy),
        facecolors=face,
        edgecolors=colour,
        linewidths=0.8,
        marker=marker,
        alpha=0.85,
        label=label,
    )


def _area(xy: Tensor) -> int:
    """Of a marker, in points: many samples get small ones."""
    return 22 if len(xy) < 200 else 12 if len(xy) < 1000 else 6


def _hollow(axes: Axes, points: list[Points]) -> None:
    """Say in the legend what hollow markers are."""
    if held_out := [p.split for p in points if p.split != "train"]:
        axes.scatter([], [], s=22, facecolors="none", edgecolors="black", label=" and ".join(held_out))


def _legend(axes: Axes) -> None:
    axes.grid(alpha=0.25)
    axes.set_axisbelow(True)
    handles, labels = axes.get_legend_handles_labels()
    if len(labels) > 1:
        side = {"loc": "upper left", "bbox_to_anchor": (1, 1)} if len(labels) > 5 else {"loc": "best"}
        axes.legend(handles, labels, fontsize=8, **side)


_DRAWN: Mapping[type[Spec], Draw] = {
    Vector: _vectors,
    Image: _images,
    Voxels: _solids,
    Views: _views,
    Series: _series,
    Tokens: _tokens,
}
