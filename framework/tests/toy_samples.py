"""Toy parts that generate: a model of samples, its objective of one or two players, data without a target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from pegboard import (
    Batch,
    Context,
    Dataset,
    DataSpec,
    Image,
    Labels,
    Model,
    Objective,
    ObjectivePart,
    PegboardError,
    Player,
    Splits,
    Vector,
    hookimpl,
)

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Bare:
    """Points or pictures without anything to predict."""

    pictures: bool = False  # of 4 x 4, else points in the plane
    low: float = 0.0  # added to all numbers
    tables: bool = True  # whether it reads tables that a person wrote


def bare_spec(config: Bare) -> DataSpec:
    return DataSpec((Image(1, 4, 4) if config.pictures else Vector(2),))


def build_bare(config: Bare, context: Context) -> Splits:
    import torch
    from pegboard import Resident

    shape = (1, 4, 4) if config.pictures else (2,)

    def split(count: int, purpose: str) -> Resident:
        generator = context.generator(purpose, "cpu")
        return Resident([torch.rand(count, *shape, generator=generator) * 2 + config.low])

    return Splits(
        spec=bare_spec(config),
        train=split(48, "train"),
        val=split(16, "val"),
        test=split(16, "test"),
        encode=(lambda columns: (torch.tensor([columns["x"], columns["y"]]).T,)) if config.tables else None,
        columns=("x", "y"),
        invert=lambda x: (x - config.low) / 2,
    )


class Drawn(NamedTuple):
    error: torch.Tensor
    code: torch.Tensor


@dataclass(frozen=True)
class Cloud:
    """Learns a mean, through codes to which noise is added."""

    codes: bool = True  # whether it makes codes of samples


def build_cloud(config: Cloud, context: Context) -> Any:
    import torch
    from pegboard import Peg
    from torch import nn

    shape = context.spec.inputs[0].example(1, "meta").shape[1:]

    class Plain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Sequential(nn.Linear(shape.numel(), 3), Peg("hidden", 3))
            self.second = nn.Sequential(nn.Linear(3, shape.numel()), Peg("hidden", shape.numel()))

        def forward(self, x: torch.Tensor) -> Drawn:
            code = self.first(x.flatten(1))
            made = self.decode(code + 0.1 * torch.randn_like(code))
            return Drawn((made - x).square().flatten(1).mean(1), code)

        def decode(self, code: torch.Tensor) -> torch.Tensor:
            return self.second(code).unflatten(1, shape)

        def sample(self, count: int, generator: torch.Generator | None = None) -> torch.Tensor:
            return self.decode(torch.randn(count, 3, generator=generator))

    class Coded(Plain):
        def encode(self, x: torch.Tensor) -> torch.Tensor:
            return self.first(x.flatten(1))

    return Coded() if config.codes else Plain()


@dataclass(frozen=True)
class Near:
    """The error of what a cloud makes of samples."""

    players: int = 1  # 2: each half of the cloud is one
    told: bool = False  # whether the players learn labels of their own


class NearLoss(Objective):
    formula = "|f(x) - x|^2"

    def __init__(self, config: Near) -> None:
        self.count, self.told = config.players, config.told

    def evaluate(self, model: Any, batch: Batch) -> tuple[Any, Any]:
        output = model(*batch.inputs)
        loss = output.error.mean()
        if self.told and model.training:
            assert batch.target is not None and batch.target.shape == (len(batch.inputs[0]), 1)
            loss = loss * batch.target.mean()
        return loss, output

    def look(self, splits: Splits) -> None:
        import torch

        if float(splits.train.gather(torch.arange(4)).inputs[0].min()) < -50:
            raise PegboardError("the cloud sees no numbers below -50: data.low=0")

    def predict(self, output: Any) -> dict[str, Any]:
        return {"error": output.error} if self.count == 1 else {}

    def players(self, model: Any) -> list[Player]:
        (only,) = super().players(model)
        target = (lambda batch: batch.inputs[0].new_ones(len(batch.inputs[0]), 1)) if self.told else None
        if self.count == 1:
            only.target = target
            return [only]
        halves = ([p for p in only.parameters if p[0].startswith(name)] for name in ("first", "second"))
        return [
            Player(name, half, only.loss, 1, target)
            for name, half in zip(("one", "two"), halves, strict=True)
        ]


@hookimpl
def pegboard_datasets() -> list[Dataset[Any]]:
    return [Dataset("bare", Bare, build_bare, spec=bare_spec)]


@hookimpl
def pegboard_models() -> list[Model[Any]]:
    return [Model("cloud", Cloud, build_cloud, pegs=("hidden",), samples=True, objective="near")]


@hookimpl
def pegboard_objectives() -> list[ObjectivePart[Any]]:
    def build(config: Near, context: Context) -> Objective:
        return NearLoss(config)

    return [
        ObjectivePart("near", Near, build),
        ObjectivePart("near_told", Near, build, soft=True, target=Labels(1)),
    ]
