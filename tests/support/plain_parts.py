"""A local plugin with the plainest part of every kind, to stand beside the one part under test."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pegboard import (
    Classes,
    Context,
    Dataset,
    DataSpec,
    Image,
    Labels,
    Model,
    Objective,
    ObjectivePart,
    Optimizer,
    Series,
    Spec,
    Splits,
    Tokens,
    Values,
    Vector,
    hookimpl,
)

if TYPE_CHECKING:
    import torch
    from torch import nn

INPUTS: dict[str, Spec] = {
    "vector": Vector(4),
    "image": Image(1, 8, 8),
    "series": Series(6, 3),
    "tokens": Tokens(7, 6),
}
TARGETS: dict[str, Spec] = {
    "classes": Classes(3),
    "two": Classes(2),
    "labels": Labels(3),
    "values": Values(1),
}


@dataclass(frozen=True)
class ToyData:
    """Normal numbers and a target that follows from them."""

    target: str = "classes"  # what is to be predicted
    inputs: str = "vector"  # what it is to be predicted from


def spec(config: ToyData) -> DataSpec:
    return DataSpec((INPUTS[config.inputs],), TARGETS[config.target])


def build_data(config: ToyData, context: Context) -> Splits:
    import torch
    from pegboard import Resident

    x = torch.randn(48, 4, generator=torch.Generator().manual_seed(0))
    y = {
        "classes": x[:, :3].argmax(1),
        "two": (x[:, 0] > 0).long(),
        "labels": (x[:, :3] > 0).float(),
        "values": x.sum(1, keepdim=True),
    }[config.target]
    match INPUTS[config.inputs]:
        case Tokens(vocab, length):
            read = (x.repeat(1, length or 0)[:, :length].abs() * 2).long().clamp(max=(vocab or 0) - 1)
        case entry:
            shape = entry.example(1, "meta").shape[1:]
            read = x.repeat(1, shape.numel())[:, : shape.numel()].reshape(-1, *shape)
    part = {name: Resident([read[a:b]], y[a:b]) for name, (a, b) in SPLITS.items()}
    return Splits(spec=spec(config), **part)


SPLITS = {"train": (0, 32), "val": (32, 40), "test": (40, 48)}


@dataclass(frozen=True)
class ToyNet:
    """One hidden layer with pegs, on whatever the inputs are, flattened."""


def build_net(config: ToyNet, context: Context) -> nn.Module:
    from pegboard import Peg
    from torch import nn

    (entry,) = context.spec.inputs
    inputs = entry.example(1, "meta").flatten(1).shape[1]
    layers = (nn.Flatten(), nn.Linear(inputs, 8), Peg("affine", 8), nn.ReLU(), Peg("hidden", 8))
    return nn.Sequential(*layers, nn.Linear(8, context.outputs or 1))


@dataclass(frozen=True)
class ToyDescent:
    """Plain gradient descent."""

    lr: float = 0.01  # length of a step


def build_descent(
    config: ToyDescent, context: Context
) -> Callable[[list[dict[str, Any]]], torch.optim.Optimizer]:
    import torch

    return lambda groups: torch.optim.SGD(groups, lr=config.lr)


@dataclass(frozen=True)
class ToyLoss:
    """Cross entropy, or squares where the target is values."""


def build_loss(config: ToyLoss, context: Context) -> Objective:
    from torch import Tensor
    from torch.nn import functional

    class Loss(Objective):
        def loss(self, output: Any, target: Tensor, weight: Tensor | None = None) -> Tensor:
            if isinstance(context.spec.target, Classes):
                return functional.cross_entropy(output, target)
            return functional.mse_loss(output, target)

    return Loss()


@hookimpl
def pegboard_datasets() -> list[Dataset[Any]]:
    return [Dataset("toy", ToyData, build_data, spec=spec)]


@hookimpl
def pegboard_models() -> list[Model[Any]]:
    return [Model("toy", ToyNet, build_net, inputs=(Vector, Image), pegs=("affine", "hidden"))]


@hookimpl
def pegboard_optimizers() -> list[Optimizer[Any]]:
    return [Optimizer("toy", ToyDescent, build_descent)]


@hookimpl
def pegboard_objectives() -> list[ObjectivePart[Any]]:
    return [ObjectivePart("toy", ToyLoss, build_loss, soft=True)]
