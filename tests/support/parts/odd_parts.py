"""A local plugin with parts that make a compiled step hard: state in Python, spare and frozen parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pegboard import (
    Batch,
    Classes,
    Context,
    Dataset,
    DataSpec,
    Image,
    Model,
    Regularizer,
    Splits,
    Stop,
    Trick,
    Vector,
    hookimpl,
)

if TYPE_CHECKING:
    from torch import Tensor, nn


@dataclass(frozen=True)
class Colours:
    """Small images of three channels, of which one is brightest."""


def build_colours(config: Colours, context: Context) -> Splits:
    import torch
    from pegboard import Resident

    x = torch.randn(48, 3, 6, 6, generator=torch.Generator().manual_seed(0))
    parts = [Resident([part], part.mean((2, 3)).argmax(1)) for part in x.split((32, 8, 8))]
    return Splits(spec=COLOURS, train=parts[0], val=parts[1], test=parts[2])


COLOURS = DataSpec((Image(3, 6, 6),), Classes(3))


@dataclass(frozen=True)
class Conv:
    """Two convolutions and a linear layer."""

    groups: bool = False  # whether groups of channels are normalised between them
    views: bool = False  # whether the linear layer gets a view, for which pictures must lie as usual


def build_conv(config: Conv, context: Context) -> nn.Module:
    from torch import nn

    image, outputs = context.spec.inputs[0], context.outputs or 1
    assert isinstance(image, Image)
    side = ((image.height or 3) - 1) // 2

    class View(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.view(len(x), -1)

    layers = [nn.Conv2d(image.channels or 1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 6, 3, stride=2)]
    layers += [nn.GroupNorm(2, 6)] if config.groups else []
    flat = View() if config.views else nn.Flatten()
    return nn.Sequential(*layers, nn.ReLU(), flat, nn.Linear(6 * side * side, outputs))


@dataclass(frozen=True)
class Spare:
    """A linear layer, and another that is never used or never trained."""

    spare: Literal["unused", "frozen"] = "unused"  # what becomes of the other


def build_spare(config: Spare, context: Context) -> nn.Module:
    import torch
    from torch import nn

    size, outputs = context.spec.inputs[0].size or 1, context.outputs or 1

    class Spared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(size, 5), nn.Linear(5, outputs)
            self.first.requires_grad_(config.spare == "unused")

        def forward(self, x: Tensor) -> Tensor:
            hidden = self.first(x) if config.spare == "frozen" else x[:, :1].expand(-1, 5)
            output: Tensor = self.last(torch.relu(hidden))
            return output

    return Spared()


@dataclass(frozen=True)
class Stateful:
    """Multiplies the loss by a factor that depends on how many updates there were."""

    how: Literal["counter", "toggle", "list", "deque", "tensors", "assigned", "in_place", "added"] = "counter"


class StatefulTrick(Trick):
    """Each kind of state that a trick may keep; the last three are tensors."""

    def __init__(self, config: Stateful) -> None:
        import collections

        import torch

        self.how = config.how
        self.count, self.on, self.factors = 0, False, [1, 1, 2]
        self.last = collections.deque([1, 1, 2], maxlen=3)
        one = torch.tensor(1.0)
        self.tensors, self.kept = [one, one, torch.tensor(2.0)], torch.zeros(())

    def edit_loss(self, loss: Tensor, output: Any, batch: Batch) -> Tensor:
        match self.how:
            case "counter":
                self.count += 1
                return loss * (1 + self.count % 5)
            case "toggle":
                self.on = not self.on
                return loss * 2 if self.on else loss
            case "list":
                self.factors.append(self.factors.pop(0))
                return loss * self.factors[0]
            case "deque":
                self.last.append(self.last[0])
                return loss * self.last[0]
            case "tensors":
                self.tensors.append(self.tensors.pop(0))
                return loss * self.tensors[0]
            case "assigned":
                self.kept = self.kept + 1
            case "in_place":
                self.kept.add_(1)
            case "added":
                self.kept += 1
        return loss * (1 + self.kept % 5)


@dataclass(frozen=True)
class Turning:
    """Changes its factor once, after an evaluation."""

    after: int = 2  # evaluations


class TurningTrick(Trick):
    def __init__(self, config: Turning) -> None:
        self.left, self.factor = config.after, 1.0

    def edit_loss(self, loss: Tensor, output: Any, batch: Batch) -> Tensor:
        return loss * self.factor

    def after_eval(self, metrics: Mapping[str, float]) -> Stop | None:
        self.left -= 1
        if self.left == 0:
            self.factor = 0.5
        return None


@dataclass(frozen=True)
class Overflow:
    """Makes the gradient nan in updates that see one sample, without a look at a number."""

    row: int = 0  # number of the sample


class OverflowTrick(Trick):
    def __init__(self, config: Overflow) -> None:
        self.row = config.row

    def edit_loss(self, loss: Tensor, output: Any, batch: Batch) -> Tensor:
        import torch

        assert batch.rows is not None
        return loss * torch.where((batch.rows == self.row).any(), float("nan"), 1.0)


@dataclass(frozen=True)
class Astir:
    """Moves every weight at the start by as much as one rounding of a number near 1."""


class AstirTrick(Trick):
    def edit_model(self, model: nn.Module) -> None:
        import torch

        for p in model.parameters():
            waves = torch.cos(torch.arange(p.numel(), device=p.device)).view_as(p)
            p.data.add_(waves, alpha=2**-24)


@hookimpl
def pegboard_datasets() -> list[Dataset[Any]]:
    return [Dataset("colours", Colours, build_colours, spec=lambda config: COLOURS)]


@hookimpl
def pegboard_models() -> list[Model[Any]]:
    return [
        Model("conv", Conv, build_conv, inputs=(Image,)),
        Model("spare", Spare, build_spare, inputs=(Vector,)),
    ]


@hookimpl
def pegboard_regularizers() -> list[Regularizer[Any]]:
    turning = {"edit_loss": "term", "after_eval": "stop"}
    return [
        Regularizer("astir", Astir, lambda c, x: AstirTrick(), stages={"edit_model": "initialize"}),
        Regularizer("stateful", Stateful, lambda c, x: StatefulTrick(c), stages={"edit_loss": "term"}),
        Regularizer("turning", Turning, lambda c, x: TurningTrick(c), stages=turning),
        Regularizer("overflow", Overflow, lambda c, x: OverflowTrick(c), stages={"edit_loss": "term"}),
    ]
