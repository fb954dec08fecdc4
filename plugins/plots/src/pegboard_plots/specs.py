"""How the core's specs are drawn on a figure of matplotlib; neither is imported with this module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pegboard import Batch, Spec
    from torch import Tensor

MOST_IMAGES = 40
MOST_CLASSES = 12  # that get a colour and a marker of their own and a line in the legend
MOST_LINES = 12  # series drawn in a panel
MOST_TOKENS = 20
LEAST = 480  # pixels that a side of a grid has at least, by repeating each
GREY = "#bbbbbb"
COLOURS = {"train": "#4477aa", "val": "#ee6677", "test": "#228833", "samples": "#ee8866"}
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


def points_of(batches: Mapping[str, Batch]) -> list[Points]:
    """The first inputs of splits."""
    import torch

    def points(split: str, batch: Batch) -> Points:
        x, weight = batch.inputs[0], batch.weight
        labelled = torch.ones(len(x), dtype=torch.bool) if weight is None else weight != 0
        return Points(split, x, batch.target, labelled)

    return [points(split, batch) for split, batch in batches.items()]


def remark(figure: Figure, text: str) -> None:
    """A line below the title."""
    figure.suptitle(f"{figure.get_suptitle()}\n{text}")


# Vectors: numbers against what is to be predicted, planes, and what is flattened into one.
def draw_vectors(figure: Figure, points: list[Points], target: Spec) -> None:
    """Numbers against what is to be predicted, a plane, or the plane in which they vary most."""
    features = points[0].x.shape[1]
    if features == 1:
        _line(figure, points, target)
        return
    axes = figure.add_subplot()
    if features > 2:
        points, shares = _components(points)
        remark(figure, f"first two principal components of {features} features")
        labels = [f"component {i + 1}, {100 * share:.0f} % of the variance" for i, share in enumerate(shares)]
    else:
        labels = ["feature 1", "feature 2"]
    axes.set_xlabel(labels[0])
    axes.set_ylabel(labels[1])
    _plane(axes, points, target)
    axes.set_aspect("equal", adjustable="datalim")


def _components(points: list[Points]) -> tuple[list[Points], list[float]]:
    """Samples in the plane in which those of the first split vary most, and the share of each axis."""
    import torch

    train = points[0].x.double()
    middle = train.mean(0)
    _, scales, axes = torch.linalg.svd(train - middle, full_matrices=False)
    axes = axes[:2] * torch.sign(axes[:2].sum(1, keepdim=True) + 1e-12)  # the sign is arbitrary: fix it
    plane = torch.zeros(train.shape[1], 2, dtype=torch.double)
    plane[:, : len(axes)] = axes.T
    shares = torch.zeros(2, dtype=torch.double)
    shares[: len(scales)] = scales[:2].square() / scales.square().sum().clamp_min(1e-30)
    return [replace(p, x=(p.x.double() - middle) @ plane) for p in points], shares.tolist()


def _plane(axes: Axes, points: list[Points], target: Spec) -> None:
    """Points in a plane: classes by colour and marker, values by colour, held-out samples hollow."""
    for p in points:
        if not p.labelled.all():
            _dots(axes, p.x[~p.labelled], GREY, label="unlabelled")
    points = [p.only_labelled() for p in points if p.labelled.any()]
    targets = [p.target for p in points if p.target is not None]
    if (found := target.sort_out(targets) if targets else None) is not None:
        _by_class(axes, points, *found)
    elif (values := _graded(points, target)) is not None:
        _by_value(axes, points, [value[:, 0] for value in values], target.name_of(0))
    else:
        for p in points:
            _dots(axes, p.x, COLOURS[p.split], label=p.split)
    _legend(axes)


def _by_class(axes: Axes, points: list[Points], names: list[str], numbers: list[Tensor]) -> None:
    if len(names) > MOST_CLASSES:
        _by_value(axes, points, [number.double() for number in numbers], "class")
        return
    for place, name in enumerate(names):
        colour, marker = PALETTE[place], "o" if place < len(PALETTE) // 2 else "s"
        for p, number in zip(points, numbers, strict=True):
            filled = p.split == "train"
            _dots(axes, p.x[number == place], colour, filled=filled, label=name, marker=marker)
    _hollow(axes, points)


def _by_value(axes: Axes, points: list[Points], values: list[Tensor], label: str) -> None:
    least, most = min(float(v.min()) for v in values), max(float(v.max()) for v in values)
    for p, value in zip(points, values, strict=True):
        x, y = p.x.T.tolist()
        marks = axes.scatter(x, y, c=value.tolist(), s=_area(p.x), vmin=least, vmax=most, cmap="viridis")
    axes.figure.colorbar(marks, ax=axes, label=label)


def _graded(points: list[Points], target: Spec) -> list[Tensor] | None:
    """For each split numbers (batch, values) by which samples are coloured or placed, where there are any."""
    found = [value for p in points if p.target is not None and (value := target.grade(p.target)) is not None]
    return found if points and len(found) == len(points) else None


def _line(figure: Figure, points: list[Points], target: Spec) -> None:
    """One feature: against the values, a panel for each, or the classes; alone, how often it occurs."""
    targets = [p.target for p in points if p.target is not None]
    if (values := _graded(points, target)) is not None:
        for panel, axes in enumerate(figure.subplots(min(target.size or 1, 4), squeeze=False).flat):
            _against(axes, points, [value[:, panel] for value in values])
            axes.set_ylabel(target.name_of(panel))
    elif (found := target.sort_out(targets) if targets else None) is not None:
        names, numbers = found
        axes = figure.add_subplot()
        apart = [number - 0.06 * place for place, number in enumerate(numbers)]  # none hides another
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
    import torch

    for p, value in zip(points, values, strict=True):
        pairs = torch.stack([p.x.flatten().double(), value.double()], 1)
        _dots(axes, pairs[~p.labelled], GREY, label="unlabelled")
        _dots(axes, pairs[p.labelled], COLOURS[p.split], label=p.split)
    _legend(axes)


# Images, series, symbols.
def draw_images(figure: Figure, points: list[Points], target: Spec) -> None:
    """The first images of the first split in a grid, each with its label."""
    train = points[0]
    count = min(len(train.x), MOST_IMAGES)
    _grid(figure, train.x[:count], _captions(train, target)[:count], train.labelled, min(count, 8))


def draw_solids(figure: Figure, points: list[Points], target: Spec) -> None:
    """The first solids as if they were transparent: of every line along their depth the largest number."""
    draw_images(figure, [replace(points[0], x=points[0].x.amax(2))], target)
    remark(figure, "the largest number along the depth")


def draw_views(figure: Figure, points: list[Points], target: Spec) -> None:
    """The views of the first samples, a line for each sample."""
    train, views = points[0], points[0].x.shape[1]
    count = max(min(len(train.x), MOST_IMAGES // views, 6), 1)
    captions = [c if view == 0 else "" for c in _captions(train, target)[:count] for view in range(views)]
    labelled = train.labelled[:count].repeat_interleave(views)
    _grid(figure, train.x[:count].flatten(0, 1), captions, labelled, views)
    remark(figure, f"{views} views of each sample")


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


def _captions(points: Points, target: Spec) -> list[str]:
    """A few words for each sample; those of a class that is not known say so."""
    if points.target is None:
        return [""] * len(points.x)
    captions = target.caption(points.target)
    if target.sort_out([points.target]) is None:
        return captions
    return [c if known else "unlabelled" for c, known in zip(captions, points.labelled.tolist(), strict=True)]


def draw_series(figure: Figure, points: list[Points], target: Spec, dashed: bool) -> None:
    """The first series of the first split, a panel for each feature, colours by class.

    What is to be predicted step by step is `dashed`.
    """
    train = points[0]
    panels = min(train.x.shape[2], 4)
    count = min(len(train.x), MOST_LINES)
    classes = train.target is not None and train.target.dim() == 1 and target.sort_out([train.target])
    captions = _captions(train, target)[:count] if classes else [""] * count
    colours: dict[str, str] = {}
    for panel in range(panels):
        axes = figure.add_subplot(panels, 1, panel + 1)
        for sample, caption in enumerate(captions):
            new = caption not in colours
            colour = colours.setdefault(caption, PALETTE[len(colours) % len(PALETTE)])
            label = caption if new and caption else None
            axes.plot(train.x[sample, :, panel].tolist(), color=colour, alpha=0.8, lw=1, label=label)
            if dashed and train.target is not None and panel < train.target.shape[2]:
                axes.plot(train.target[sample, :, panel].tolist(), "--", color=colour, alpha=0.8, lw=1)
        axes.set_ylabel(f"feature {panel + 1}")
        axes.grid(alpha=0.25)
        _legend(axes)
    axes.set_xlabel("step")
    lines = ", and dashed what is to be predicted" if dashed else ""
    remark(figure, f"the first {count} series{lines}")


def draw_symbols(
    figure: Figure, inputs: Sequence[Tensor], padding: Sequence[int], names: Sequence[str]
) -> None:
    """How long samples are and which symbols are most frequent, a line for each input."""
    alone = len(inputs) == 1
    figure.set_size_inches(9, 4 if alone else 3.5 * len(inputs))
    panels = figure.subplots(len(inputs), 2, squeeze=False)
    for place, (x, pads) in enumerate(zip(inputs, padding, strict=True)):
        _symbols(panels[place][0], panels[place][1], x, x != pads)
        name = f", {names[place]}" if names else ""
        if not alone:
            panels[place][0].set_title(f"input {place + 1}{name}", fontsize=9)


def _symbols(left: Axes, right: Axes, x: Tensor, there: Tensor) -> None:
    import torch

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


# Samples of a model.
def raster(images: Tensor, columns: int | None = None, ends: tuple[float, float] | None = None) -> Tensor:
    """Pictures (count, channels, height, width) as one (height, width, 3) of bytes, from black to white.

    `ends` are the values that are black and white, by default the least and the most of all.
    """
    import torch

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
