"""A data set of points that a test writes down, for `plugins: {local: [points.__file__]}`.

All of them are the training split, and the test split once more, so that figures of a run are those of
the points themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pegboard import (
    Classes,
    Context,
    Dataset,
    DataSpec,
    Regularizer,
    Spec,
    Splits,
    Trick,
    Values,
    Vector,
    hookimpl,
)

if TYPE_CHECKING:
    from pegboard import Run
    from torch import nn


@dataclass(frozen=True)
class Points:
    """Given points, with a class or with values each, or with neither."""

    x: tuple[tuple[float, ...], ...]  # inputs, a row for each sample
    classes: tuple[int, ...] = ()  # the class of each sample
    values: tuple[tuple[float, ...], ...] = ()  # what each sample's values are, where there are no classes
    weights: tuple[float, ...] = ()  # the weight of each sample
    val: bool = False  # whether they are the val split too
    double: bool = False  # whether inputs and values have 64 bits, as regularizers: {double: {}} asks for


def spec(config: Points) -> DataSpec:
    target: Spec | None = Classes(max(config.classes) + 1) if config.classes else None
    if config.values:
        target = Values(len(config.values[0]))
    return DataSpec((Vector(len(config.x[0])),), target)


def build(config: Points, context: Context) -> Splits:
    import torch
    from pegboard import Resident

    real = torch.float64 if config.double else torch.float32
    y = torch.tensor(config.classes) if config.classes else None
    if config.values:
        y = torch.tensor(config.values, dtype=real)
    weight = torch.tensor(config.weights) if config.weights else None
    whole = Resident([torch.tensor(config.x, dtype=real)], y, weight)
    return Splits(spec=spec(config), train=whole, val=whole if config.val else None, test=whole)


@hookimpl
def pegboard_datasets() -> list[Dataset[Any]]:
    return [Dataset("points", Points, build, spec=spec)]


@dataclass(frozen=True)
class Double:
    """Weights of 64 bits."""


class DoubleTrick(Trick):
    def edit_model(self, model: nn.Module) -> None:
        model.double()


@hookimpl
def pegboard_regularizers() -> list[Regularizer[Any]]:
    return [Regularizer("double", Double, lambda c, x: DoubleTrick(), stages={"edit_model": "initialize"})]


def given(
    x: Any, classes: Any = None, values: Any = None, weights: Any = None, **nodes: Any
) -> dict[str, Any]:
    """A config that trains on the points of these tensors, all in one batch; `nodes` are its others."""
    named = {"classes": classes, "values": values, "weights": weights}
    target = {name: given.tolist() for name, given in named.items() if given is not None}
    base: dict[str, Any] = {
        "data": {"name": "points", "x": x.tolist(), **target, "batch_size": len(x)},
        "optimizer": {"name": "lbfgs", "line_search_fn": "strong_wolfe"},
        "trainer": {"epochs": 8, "eval_every": 8, "device": "cpu"},
        "plugins": {"local": [__file__]},
    }
    return base | nodes


def run(config: dict[str, Any], root: Path) -> Run:
    """Train without what a test does not look at: the plan's text, pictures, looking for plugins again."""
    import pegboard
    from pegboard.testing.runs import lean

    with lean():
        return pegboard.train(config, root=root, quiet=True)
