"""A local plugin with parts that are rare and right: what they do to a step, few models and tricks do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pegboard import Batch, Context, Model, Regularizer, Trick, Vector, hookimpl

if TYPE_CHECKING:
    from torch import Tensor, nn


@dataclass(frozen=True)
class Rare:
    """Two linear layers, with something in them that most models do without."""

    has: Literal["complex", "sums", "lengths"] = "complex"


def build_rare(config: Rare, context: Context) -> nn.Module:
    import torch
    from torch import nn

    size, outputs, has = context.spec.inputs[0].size or 1, context.outputs or 1, config.has

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(size, 5), nn.Linear(5, outputs)
            if has == "complex":
                self.turn = nn.Parameter(torch.randn(5, 5, dtype=torch.complex64) / 5)
            if has == "sums":
                self.scales = nn.Parameter(torch.zeros(3))
            if has == "lengths":  # numbers of 32 bits, one of them without axes, beside numbers of 64
                self.last.double()
                self.scale = nn.Parameter(torch.ones(()))

        def forward(self, x: Tensor) -> Tensor:
            hidden = torch.relu(self.first(x))
            if has == "complex":
                turned = hidden.to(torch.complex64) @ self.turn
                hidden = turned.real + turned.imag.square()
            if has == "lengths":
                hidden = (hidden * self.scale).double()
            output: Tensor = self.last(hidden)
            return output * (1 + self.scales.sum()) if has == "sums" else output  # whose gradient is expanded

    return Network()


@dataclass(frozen=True)
class Bounded:
    """Keeps every weight between -0.1 and 0.1."""

    how: Literal["in_place", "data", "vector"] = "in_place"  # how it is written


class BoundedTrick(Trick):
    def __init__(self, config: Bounded) -> None:
        self.how = config.how

    def after_step(self, model: nn.Module) -> None:
        import torch
        from torch.nn.utils import parameters_to_vector, vector_to_parameters

        with torch.no_grad():
            if self.how == "vector":
                vector_to_parameters(
                    parameters_to_vector(model.parameters()).clamp(-0.1, 0.1), model.parameters()
                )
                return
            for p in model.parameters():
                if self.how == "data":
                    p.data = p.data.clamp(-0.1, 0.1)
                else:
                    p.clamp_(-0.1, 0.1)


@dataclass(frozen=True)
class Factor:
    """Multiplies the loss by a number that has an axis, or one that numpy draws."""

    drawn: bool = False  # whether it is drawn


class FactorTrick(Trick):
    def __init__(self, config: Factor) -> None:
        import numpy
        import torch

        self.drawn, self.factor = config.drawn, torch.full((1,), 0.5)
        numpy.random.seed(0)

    def edit_loss(self, loss: Tensor, output: Any, batch: Batch) -> Tensor:
        import numpy
        import torch

        return loss * (torch.from_numpy(numpy.random.rand(1)).float() if self.drawn else self.factor)


@dataclass(frozen=True)
class Steep:
    """Adds nothing to the loss, and to its gradient what is not finite: the slope of a root at 0."""


class SteepTrick(Trick):
    def edit_loss(self, loss: Tensor, output: Any, batch: Batch) -> Tensor:
        return loss + (output * 0).sum().sqrt()


@hookimpl
def pegboard_models() -> list[Model[Any]]:
    return [Model("rare", Rare, build_rare, inputs=(Vector,))]


@hookimpl
def pegboard_regularizers() -> list[Regularizer[Any]]:
    why = "numpy knows no device"
    return [
        Regularizer("steep", Steep, lambda c, x: SteepTrick(), stages={"edit_loss": "term"}),
        Regularizer("bounded", Bounded, lambda c, x: BoundedTrick(c), stages={"after_step": "constrain"}),
        Regularizer(
            "factor", Factor, lambda c, x: FactorTrick(c), stages={"edit_loss": "term"}, synchronizes=why
        ),
    ]
