"""A third party's plugin with sound types; `acme_wrong.py` is the same with mistakes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pegboard import (
    Batch,
    Classes,
    Context,
    Dataset,
    DataSpec,
    Facts,
    Model,
    Peg,
    Prefixed,
    Problem,
    Regularizer,
    Role,
    Site,
    Source,
    Splits,
    Tracker,
    TrackerPart,
    Trick,
    Vector,
    hookimpl,
)

if TYPE_CHECKING:
    from torch import Tensor, nn


@dataclass(frozen=True)
class Wide:
    """A wide model."""

    width: int = 8  # units


@dataclass(frozen=True)
class Deep:
    """A deep model."""

    depth: int = 2  # layers


@dataclass(frozen=True)
class Points:
    """Points in a plane."""

    count: int = 100  # how many


@dataclass(frozen=True)
class Still:
    """Changes nothing."""

    sites: tuple[Site, ...] = ("hidden", Prefixed("acme:gate"))  # pegs it would hang on


def build_wide(config: Wide, context: Context) -> nn.Module:
    from torch import nn

    return nn.Linear(context.spec.inputs[0].size or 1, config.width)


def build_deep(config: Deep, context: Context) -> nn.Sequential:
    from torch import nn

    return nn.Sequential(*(nn.Identity() for _ in range(config.depth)))


def check_deep(config: Deep, facts: Facts) -> Iterable[Problem]:
    if config.depth > 9:
        yield Problem("too deep", "depth")


def spec_points(config: Points) -> DataSpec:
    return DataSpec((Vector(2),), Classes(2))


class Derived(Source):
    """A source with the base class."""

    def __init__(self, x: Tensor) -> None:
        self.x = x
        self.target: Tensor = x[:, 0]

    def __len__(self) -> int:
        return len(self.x)

    def gather(self, index: Tensor) -> Batch:
        return Batch((self.x[index],), self.target[index], None, index)

    def to(self, device: str) -> Derived:
        return Derived(self.x.to(device))


class Structural:
    """A source without it."""

    def __init__(self, x: Tensor) -> None:
        self.x = x

    def __len__(self) -> int:
        return len(self.x)

    def gather(self, index: Tensor) -> Batch:
        return Batch((self.x[index],), None, None, index)

    def to(self, device: str) -> Structural:
        return Structural(self.x.to(device))


def build_points(config: Points, context: Context) -> Splits:
    import torch

    x = torch.zeros(config.count, 2)
    splits = Splits(spec=spec_points(config), train=Derived(x), val=Structural(x))
    splits.train.close()
    return splits


def build_still(config: Still, context: Context) -> Trick:
    return Trick()


def build_silent(config: Still, context: Context) -> Tracker:
    return Tracker()


def own_peg(features: int) -> Peg:
    return Peg(Prefixed("acme:gate"), features)


PRUNE = Role(Prefixed("acme:prune"), "hang", after="drop")


@hookimpl
def pegboard_models() -> list[Model[Any]]:
    return [
        Model("wide", Wide, build_wide, inputs=(Vector,), pegs=("hidden", Prefixed("acme:gate"))),
        Model("deep", Deep, build_deep, check=check_deep),
    ]


@hookimpl
def pegboard_datasets() -> list[Dataset[Any]]:
    return [Dataset("points", Points, build_points, spec=spec_points)]


@hookimpl
def pegboard_regularizers() -> list[Regularizer[Any]]:
    return [
        Regularizer("still", Still, build_still, stages={"hang": "drop"}, inputs=(Vector,)),
        Regularizer("mute", Still, build_still, stages={"hang": PRUNE.name}, roles=(PRUNE,)),
    ]


@hookimpl
def pegboard_trackers() -> list[TrackerPart[Any]]:
    return [TrackerPart("silent", Still, build_silent)]
