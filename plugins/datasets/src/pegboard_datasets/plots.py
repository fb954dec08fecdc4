"""What data sets stand for, drawn where a picture by the spec alone would not show it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from pegboard import Classes, Source, Splits, Views
from torch import Tensor

from .curves import fourier_rows
from .labelling import HIDDEN
from .solids import seen

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FIRST, SECOND, GREY = "#4477aa", "#ee6677", "#bbbbbb"
SHOWN = 5  # pictures or signals in a row


def fraud(splits: Splits, figure: Figure) -> None:
    """Amounts against hours: the habits are clusters, fraud is beside them."""
    axes = figure.add_subplot()
    x, y = _raw(splits), _target(splits.train)
    _by_class(axes, x[:, [1, 0]], y, splits)
    axes.set(xlabel="hour", ylabel="amount", yscale="log")
    axes.legend()


def biased(splits: Splits, figure: Figure) -> None:
    """The two groups beside each other, each with its labels."""
    x, y = _raw(splits), _target(splits.train)
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    for group, axes in enumerate(panels):
        mine = x[:, 2].round() == group
        _by_class(axes, x[mine, :2], y[mine], splits)
        axes.set(title=f"group {group}: {int(mine.sum())} samples", xlabel="x0", ylabel="x1")
    panels[0].legend()


def objects(splits: Splits, figure: Figure) -> None:
    """Samples to train on above, samples of the test below."""
    sources = [s for s in (splits.train, splits.test) if s is not None]
    for row, source in enumerate(sources):
        target = _target(source)
        for column, image in enumerate(_inputs(source)[:SHOWN, 0]):
            name = _name(splits, int(target[column]))
            axes = figure.add_subplot(len(sources), SHOWN, row * SHOWN + column + 1)
            _image(axes, image, f"{('train', 'test')[row]}: {name}")


def solids(splits: Splits, figure: Figure) -> None:
    """What is seen of some samples, of each a column; below each other the sides of it, where there are."""
    x, target = _inputs(splits.train)[:SHOWN], _target(splits.train)
    sides = x[:, :, 0] if isinstance(splits.spec.inputs[0], Views) else seen(x)
    for column, sample in enumerate(sides[:, :SHOWN]):
        for row, picture in enumerate(sample):
            axes = figure.add_subplot(len(sample), SHOWN, row * SHOWN + column + 1)
            _image(axes, picture, "" if row else _name(splits, int(target[column])))


def cosine(splits: Splits, figure: Figure) -> None:
    """The samples and the curve that they were drawn around."""
    axes = figure.add_subplot()
    x, y = _raw(splits)[:, 0], _values(splits)
    grid = torch.linspace(0, 1, 200)
    axes.plot(grid.tolist(), (1.5 * torch.pi * grid).cos().tolist(), color=SECOND, label="cos(3/2 pi x)")
    axes.scatter(x.tolist(), y[:, 0].tolist(), color=FIRST, s=16, label="train")
    axes.set(xlabel="x", ylabel="y")
    axes.legend()


def quartet(splits: Splits, figure: Figure) -> None:
    """The pairs, their least squares line and the statistics that they share."""
    axes = figure.add_subplot()
    x, y = _raw(splits)[:, 0].double(), _values(splits)[:, 0].double()
    both = torch.stack([x, y])
    covariance, mean = torch.cov(both), both.mean(1)
    deviation = covariance.diagonal().sqrt()
    slope = covariance[0, 1] / covariance[0, 0]
    ends = torch.stack([x.min(), x.max()])
    axes.plot(ends.tolist(), (mean[1] + slope * (ends - mean[0])).tolist(), color=SECOND)
    axes.scatter(x.tolist(), y.tolist(), color=FIRST, s=16)
    correlation = covariance[0, 1] / deviation.prod()
    axes.set(xlabel="x", ylabel="y")
    axes.set_title(
        f"means {mean[0]:.2f} and {mean[1]:.2f}, deviations {deviation[0]:.2f} and {deviation[1]:.2f}, "
        f"correlation {correlation:.2f}",
        fontsize=9,
    )


def point_shapes(splits: Splits, figure: Figure) -> None:
    """The first sets, each with the name of its shape."""
    x, target = _inputs(splits.train), _target(splits.train)
    first = [int((target == k).nonzero()[0]) for k in sorted(set(target.tolist()))]
    panels = figure.subplots(1, len(first), sharex=True, sharey=True, squeeze=False)[0]
    for axes, row in zip(panels, first, strict=True):
        axes.scatter(*x[row].T.tolist(), color=FIRST, s=4)
        axes.set_title(_name(splits, int(target[row])), fontsize=9)


def swiss_roll(splits: Splits, figure: Figure) -> None:
    """The sheet in space, coloured along itself."""
    axes = figure.add_subplot(projection="3d")
    x, y = _raw(splits), _values(splits)
    axes.scatter(*x.T.tolist(), c=y[:, 0].tolist(), s=8, cmap="viridis")
    axes.set(xlabel="x0", ylabel="x1", zlabel="x2")
    axes.view_init(12, -75)  # along the sheet, so that it is seen rolled


def sparse_fourier(splits: Splits, figure: Figure) -> None:
    """Signals, and the smallest ones that give the same measurements."""
    truth, length = _values(splits)[:3], splits.spec.target.size if splits.spec.target else 0
    operator = fourier_rows(torch.tensor(splits.notes["frequencies"]), length or 0)
    smallest = _raw(splits)[:3].double() @ torch.linalg.pinv(operator).T
    panels = figure.subplots(len(truth), 1, sharex=True, squeeze=False)[:, 0]
    for axes, signal, guess in zip(panels, truth, smallest, strict=True):
        axes.plot(signal.tolist(), color=FIRST, label="signal")
        axes.plot(guess.tolist(), color=SECOND, label="smallest that explains the measurements")
    panels[0].legend(fontsize=8)


def squares_and_line(splits: Splits, figure: Figure) -> None:
    """The three shapes alone, the picture, and what no sum of the three can give of it."""
    layers = _raw(splits)[0]
    picture = _values(splits)[0].reshape(layers.shape[1:])
    basis = layers.flatten(1).T.double()
    weight = torch.linalg.lstsq(basis, picture.flatten()[:, None].double()).solution
    rest = picture - (basis @ weight).reshape(picture.shape)
    titles = ("grey square", "white square", "black line", "picture", "beyond any sum")
    for place, (image, title) in enumerate(zip((*layers, picture, rest), titles, strict=True)):
        _image(figure.add_subplot(1, 5, place + 1), image, title, (-1, 1))


def texture(splits: Splits, figure: Figure) -> None:
    """Patterns with the hole above, whole below."""
    images, inside = _raw(splits)[:SHOWN, 0], _values(splits)[:SHOWN]
    hole = round(inside.shape[1] ** 0.5)
    start = (images.shape[-1] - hole) // 2
    place = slice(start, start + hole)
    for column, (image, missing) in enumerate(zip(images, inside, strict=True)):
        whole = image.clone()
        whole[place, place] = missing.reshape(hole, hole)
        for row, shown in enumerate((image, whole)):
            axes = figure.add_subplot(2, SHOWN, row * SHOWN + column + 1)
            _image(axes, shown, ("input", "with its target")[row])


def _inputs(source: Source) -> Tensor:
    return source.gather(torch.arange(len(source))).inputs[0]


def _target(source: Source) -> Tensor:
    """The target, below 0 for a class that is hidden."""
    target = source.gather(torch.arange(len(source))).target
    return torch.full((len(source),), HIDDEN) if target is None else target


def _raw(splits: Splits) -> Tensor:
    """The training inputs as they were before they were normalised."""
    return _unscaled(_inputs(splits.train), splits, splits.spec.names[0])


def _values(splits: Splits) -> Tensor:
    return _unscaled(_target(splits.train), splits, "target")


def _unscaled(x: Tensor, splits: Splits, name: str) -> Tensor:
    notes = splits.notes["statistics"].get(name, {"normalize": "none"})
    if notes["normalize"] == "none":
        return x
    shift, scale = (torch.tensor(value) for value in list(notes.values())[1:3])
    shape = (-1, *[1] * (x.dim() - 2))
    return x * scale.reshape(shape) + shift.reshape(shape)


def _by_class(axes: Axes, points: Tensor, y: Tensor, splits: Splits) -> None:
    for k, colour in ((HIDDEN, GREY), (0, FIRST), (1, SECOND)):
        mine = points[y == k]
        if len(mine):
            x = mine.T.tolist()
            axes.scatter(x[0], x[1], s=8, color=colour, label=_name(splits, k))


def _name(splits: Splits, number: int) -> str:
    target = splits.spec.target
    return target.names[number] if isinstance(target, Classes) and number >= 0 else "unlabelled"


def _image(axes: Axes, image: Tensor, title: str, range: tuple[float, float] | None = None) -> None:
    low, high = range or (float(image.min()), float(image.max()))
    axes.imshow(image.tolist(), cmap="gray", vmin=low, vmax=high, interpolation="nearest")
    axes.set_title(title, fontsize=8)
    axes.set_axis_off()
