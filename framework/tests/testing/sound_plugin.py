"""A plugin with one sound part of every kind; the tests of the kit break it in one place at a time."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pegboard import (
    Batch,
    Classes,
    Context,
    Dataset,
    DataSpec,
    Ge,
    Model,
    Objective,
    ObjectivePart,
    Optimizer,
    Probe,
    ProbePart,
    Reference,
    Regularizer,
    Schedule,
    Splits,
    Table,
    Tracker,
    TrackerPart,
    Trick,
    Vector,
    hookimpl,
)

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn


@dataclass(frozen=True)
class SoundNet:
    """A network that standardises its inputs by what it has seen."""

    width: Annotated[int, Ge(1)] = 4  # units of the hidden layer


def build_net(config: SoundNet, context: Context) -> nn.Module:
    import torch
    from torch import nn

    (spec,) = context.spec.inputs
    assert isinstance(spec, Vector) and spec.features is not None
    features = spec.features

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.zeros(features))
            self.first = nn.Linear(features, config.width)
            self.last = nn.Linear(config.width, context.outputs or 1)

        def forward(self, x: Tensor) -> Tensor:
            if self.training:
                self.mean.mul_(0.9).add_(x.mean(0).detach(), alpha=0.1)
            hidden = self.first(x - self.mean).tanh()
            return self.last(hidden)

        def sample(self, count: int, generator: torch.Generator | None = None) -> Tensor:
            return self.mean + torch.randn(count, features, generator=generator)

    return Net()


@dataclass(frozen=True)
class SoundDescent:
    """Gradient descent with momentum."""

    lr: Annotated[float, Ge(0)] = 0.01  # length of a step


def build_descent(config: SoundDescent, context: Context) -> Callable[..., torch.optim.Optimizer]:
    import torch

    class Descent(torch.optim.Optimizer):
        def __init__(self, groups: Any) -> None:
            super().__init__(groups, {"lr": config.lr})

        @torch.no_grad()
        def step(self, closure: Any = None) -> None:
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is None:
                        continue
                    state = self.state[p]
                    if "momentum_buffer" not in state:
                        state["momentum_buffer"] = torch.zeros_like(p)
                    state["momentum_buffer"].mul_(0.9).add_(p.grad)
                    p.sub_(group["lr"] * state["momentum_buffer"])

    return Descent


def descent_update(optimizer: torch.optim.Optimizer, traced: bool) -> Any:
    from pegboard.testing.modules import momentum

    return momentum(optimizer) if traced else None


@dataclass(frozen=True)
class SoundRate:
    """A rate that falls."""

    power: Annotated[float, Ge(0)] = 1.0  # how fast


def build_rate(config: SoundRate, context: Context) -> Callable[[int], float]:
    return lambda step: (1 + step) ** -config.power


@dataclass(frozen=True)
class SoundNoise:
    """Add noise to the gradients, less in every step."""

    std: Annotated[float, Ge(0)] = 0.1  # standard deviation of the first step


def build_noise(config: SoundNoise, context: Context) -> Trick:
    import torch

    class Noise(Trick):
        def __init__(self) -> None:
            self.step = torch.zeros((), device=context.device)

        def edit_grads(
            self, grads: list[torch.Tensor | None], params: list[nn.Parameter]
        ) -> list[torch.Tensor | None]:
            if config.std == 0:
                return grads
            self.step += 1
            scale = config.std / self.step
            waves = (torch.sin(37 * p.detach() + self.step) for p in params)
            return [None if g is None else g + scale * w for g, w in zip(grads, waves, strict=True)]

        def state_dict(self) -> dict[str, Any]:
            return {"step": self.step}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.step = state["step"].to(context.device)

    return Noise()


@dataclass(frozen=True)
class SoundData:
    """Points on two sides of a line."""

    count: Annotated[int, Ge(8)] = 40  # points


@dataclass(frozen=True)
class Triple(Vector):
    """Three real features: a spec of its own."""

    features: int | None = 3


def sound_spec(config: SoundData) -> DataSpec:
    return DataSpec((Triple(),), Classes(2))


class Points:
    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.y)

    def gather(self, index: Tensor) -> Any:
        from pegboard import Batch

        return Batch((self.x[index],), self.y[index], None, index)

    def to(self, device: str) -> Points:
        return Points(self.x.to(device), self.y.to(device))


def build_data(config: SoundData, context: Context) -> Splits:
    import torch

    x = torch.randn(config.count, 3, generator=torch.Generator().manual_seed(context.seed))
    y = (x.sum(1) > 0).long()
    third = config.count // 4
    return Splits(
        spec=sound_spec(config), train=Points(x[third:], y[third:]), val=Points(x[:third], y[:third])
    )


@dataclass(frozen=True)
class SoundLoss:
    """Cross entropy."""

    scale: Annotated[float, Ge(0)] = 1.0  # of the logits


def build_loss(config: SoundLoss, context: Context) -> Objective:
    from torch.nn import functional

    class Loss(Objective):
        formula = "cross_entropy(f(x), y)"

        def loss(self, output: Any, target: Tensor, weight: Tensor | None = None) -> Tensor:
            each = functional.cross_entropy(output * config.scale, target, reduction="none")
            return each.mean() if weight is None else (each * weight).sum() / weight.sum()

        def predict(self, output: Any) -> dict[str, Tensor]:
            return {"class": output.argmax(-1)}

    return Loss()


@dataclass(frozen=True)
class SoundTracker:
    """Counts rows."""

    unit: str = "rows"  # what they are called


class Counting(Tracker):
    def __init__(self) -> None:
        self.rows = 0

    def log(self, row: Mapping[str, Any]) -> None:
        self.rows += 1

    def table(self, name: str, table: Table) -> None:
        self.rows += len(table.rows)


@dataclass(frozen=True)
class SoundProbe:
    """The length of all weights."""

    power: Annotated[int, Ge(1)] = 2  # of the norm


class Length(Probe):
    def __init__(self, power: int) -> None:
        self.power = power

    def measure(self, model: nn.Module, splits: Splits, device: torch.device) -> dict[str, float]:
        return {"length": sum(float(p.detach().norm(self.power)) for p in model.parameters())}


@dataclass(frozen=True)
class SoundOptimum:
    """The least squared weights."""

    by: Annotated[float, Ge(0)] = 1.0  # factor


class Least(Reference):
    formula = "by |w|^2"

    def __init__(self, by: float) -> None:
        self.by = by

    def solve(self, model: nn.Module, train: Batch) -> nn.Module:
        best = copy.deepcopy(model)
        for parameter in best.parameters():
            parameter.detach().mul_(0)
        return best

    def value(self, model: nn.Module, train: Batch) -> float:
        return 1 + self.by * sum(float(p.detach().double().square().sum()) for p in model.parameters())


@hookimpl
def pegboard_models() -> list[Model[Any]]:
    return [Model("sound_net", SoundNet, build_net, inputs=(Vector,), samples=True)]


@hookimpl
def pegboard_optimizers() -> list[Optimizer[Any] | Schedule[Any]]:
    return [
        Optimizer("sound_descent", SoundDescent, build_descent, functional=descent_update),
        Schedule("sound_rate", SoundRate, build_rate),
    ]


@hookimpl
def pegboard_regularizers() -> list[Regularizer[Any]]:
    stages = {"edit_grads": "noise"}
    return [Regularizer("sound_noise", SoundNoise, build_noise, stages=stages, neutral={"std": 0.0})]


@hookimpl
def pegboard_datasets() -> Iterator[Dataset[Any]]:
    yield Dataset("sound_data", SoundData, build_data, spec=sound_spec, trial=sizes)


def sizes(folder: Path) -> dict[str, int]:
    return {"count": 48}


@hookimpl
def pegboard_objectives() -> list[ObjectivePart[Any]]:
    return [ObjectivePart("sound_loss", SoundLoss, build_loss, targets=(Classes,), players=("model",))]


@hookimpl
def pegboard_trackers() -> list[TrackerPart[Any]]:
    return [TrackerPart("sound_tracker", SoundTracker, lambda config, context: Counting())]


@hookimpl
def pegboard_probes() -> list[ProbePart[Any]]:
    return [
        ProbePart("sound_probe", SoundProbe, lambda config, context: Length(config.power)),
        ProbePart("sound_optimum", SoundOptimum, lambda config, context: Least(config.by), reference=True),
    ]
