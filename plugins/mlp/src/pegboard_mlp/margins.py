"""What there is to say of a hyperplane between two classes: its margin, and how many others there are."""

from __future__ import annotations

import torch
from pegboard import Batch, Context, PegboardError, Probe, Splits
from torch import Tensor, nn

from .design import Design, design, head_of
from .reference_configs import Margin, VersionSpace
from .svm import hard_margin, margin

CHUNK = 2**22  # outputs that are in memory at a time


def training_data(splits: Splits) -> Batch:
    """All training samples, on the CPU."""
    return splits.train.to("cpu").gather(torch.arange(len(splits.train)))


def two_classes(model: nn.Module, splits: Splits, name: str) -> Design:
    """What the head of the model sees of the training samples of two classes."""
    data = design(model, training_data(splits), name)
    if data.outputs > 2:
        raise PegboardError(f"{name} looks at two classes, and the model has {data.outputs} outputs.")
    return data


class MarginProbe(Probe):
    """Margins of the model and of the best hyperplane, and how many mistakes a perceptron makes at most.

    `margin` is min y f(x) / ||w|| of the model, `widest` the largest there is. A perceptron sees a bias as
    one more feature that is always 1: `gamma` is the widest margin of samples extended so, of hyperplanes
    through the origin, `radius` the largest norm of one, and `bound` = (radius / gamma)^2. Data that nothing
    separates has neither widest margin nor bound.
    """

    def __init__(self, config: Margin, context: Context) -> None:
        pass

    def measure(self, model: nn.Module, splits: Splits, device: torch.device) -> dict[str, float]:
        data = two_classes(model, splits, "margin")
        y, seen = data.signs(), data.extended()
        figures = {"margin": margin(data, head_of(model, "margin")), "radius": float(seen.norm(dim=-1).max())}
        through_origin = hard_margin(seen, y, bias=False)
        figures["separable"] = float(through_origin is not None)
        if through_origin is None:
            return figures
        gamma = through_origin.width / 2
        both = bool((y != y[0]).any())
        if both and (widest := hard_margin(data.x, y, data.bias)) is not None:
            figures["widest"] = widest.width / 2
        return figures | {"gamma": gamma, "bound": (figures["radius"] / gamma) ** 2}


def share_that_separates(x: Tensor, y: Tensor, directions: Tensor) -> float:
    """The share of directions (samples, features) with y (w x) > 0 for every row of x."""
    z = y.unsqueeze(-1) * x
    rows = max(CHUNK // len(z), 1)
    counts = [int(((part @ z.T) > 0).all(-1).sum()) for part in torch.split(directions, rows)]
    return sum(counts) / len(directions)


def sphere(samples: int, size: int, generator: torch.Generator) -> Tensor:
    """Directions that are evenly spread: (samples, size), each of length 1."""
    drawn: Tensor = torch.randn(samples, size, generator=generator, dtype=torch.float64)
    length: Tensor = drawn.norm(dim=-1, keepdim=True)
    return drawn / length


class VersionSpaceProbe(Probe):
    """The hyperplanes that decide every training sample right: whether there are any, and how many.

    `separable` is exact. `volume` is the share of hyperplanes (w, b), drawn evenly from a sphere.
    """

    def __init__(self, config: VersionSpace, context: Context) -> None:
        self.samples, self.seed = config.samples, context.generator("directions", "cpu").initial_seed()

    def measure(self, model: nn.Module, splits: Splits, device: torch.device) -> dict[str, float]:
        data = two_classes(model, splits, "version_space")
        y, seen = data.signs(), data.extended()
        drawn = sphere(self.samples, seen.shape[1], torch.Generator().manual_seed(self.seed))
        return {
            "separable": float(hard_margin(seen, y, bias=False) is not None),
            "volume": share_that_separates(seen, y, drawn),
        }
