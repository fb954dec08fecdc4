"""A plugin for tests of diagnoses and references: polynomials fitted to noisy waves, in one exact step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import pegboard
from pegboard import Context, DataSpec, Ge, Probe, ProbePart, Reference, Splits, Values, Vector, hookimpl


@dataclass(frozen=True)
class Wave:
    """Points of cos(1.5 pi x) with noise, as polynomials that are orthonormal on the training points."""

    degree: Annotated[int, Ge(1)] = 4  # of the polynomial
    count: Annotated[int, Ge(2)] = 30  # training points
    noise: Annotated[float, Ge(0)] = 0.1  # standard deviation
    held_out: bool = True  # whether there is a test split


def wave_spec(config: Wave) -> DataSpec:
    return DataSpec((Vector(config.degree),), Values(1))


def wave(count: int, noise: float, generator: Any) -> tuple[Any, Any]:
    import torch

    x = torch.rand(count, generator=generator, dtype=torch.float64)
    return x, torch.cos(1.5 * torch.pi * x) + noise * torch.randn(
        count, generator=generator, dtype=torch.float64
    )


def powers(x: Any, degree: int) -> Any:
    """Legendre polynomials of degree 0 to `degree` on [0, 1]: (points, degree + 1)."""
    import torch

    found = [torch.ones_like(x), 2 * x - 1]
    for n in range(1, degree):
        found.append(((2 * n + 1) * (2 * x - 1) * found[n] - n * found[n - 1]) / (n + 1))
    return torch.stack(found[: degree + 1], 1)


def build_wave(config: Wave, context: Context) -> Splits:
    import torch
    from pegboard import Resident

    x, y = wave(config.count, config.noise, context.generator("train", "cpu"))
    other = wave(500, config.noise, context.generator("test", "cpu"))
    _, r = torch.linalg.qr(powers(x, config.degree))

    def split(x: Any, y: Any) -> Resident:
        orthonormal = torch.linalg.solve_triangular(r, powers(x, config.degree), upper=True, left=False)
        return Resident([(orthonormal[:, 1:] * config.count**0.5).float()], y[:, None].float())

    return Splits(spec=wave_spec(config), train=split(x, y), test=split(*other) if config.held_out else None)


@dataclass(frozen=True)
class Wide:
    """Fewer noisy samples than they have features, four of which matter."""

    count: Annotated[int, Ge(2)] = 20  # training samples
    features: Annotated[int, Ge(4)] = 30  # of a sample


def build_wide(config: Wide, context: Context) -> Splits:
    import torch
    from pegboard import Resident

    def split(count: int, purpose: str) -> Resident:
        generator = context.generator(purpose, "cpu")
        x = torch.randn(count, config.features, generator=generator)
        return Resident([x], x[:, :4].sum(1, keepdim=True) + torch.randn(count, 1, generator=generator))

    spec = DataSpec((Vector(config.features),), Values(1))
    train, val, test = split(config.count, "train"), split(300, "val"), split(300, "test")
    return Splits(spec=spec, train=train, val=val, test=test)


@dataclass(frozen=True)
class Bent:
    """A curve that is flat and noisy below 0, and bends without noise above."""

    count: Annotated[int, Ge(2)] = 60  # training points


def bend(x: Any) -> Any:
    import torch

    return torch.where(x > 0, (1 - torch.cos(12 * x)) / 2, 0.0)


def build_bent(config: Bent, context: Context) -> Splits:
    import torch
    from pegboard import Resident

    x = torch.linspace(-1, 1, config.count)[:, None]
    noise = torch.randn(config.count, 1, generator=context.generator("noise", "cpu"))
    fine = torch.linspace(-1, 1, 401)[:, None]
    return Splits(
        spec=DataSpec((Vector(1),), Values(1)),
        train=Resident([x], bend(x) + 0.3 * noise * (x < 0)),
        test=Resident([fine], bend(fine)),  # without noise
    )


@dataclass(frozen=True)
class Cubics:
    """Noisy values of polynomials of degree 3, one for each output; all of it is the val split too."""

    count: Annotated[int, Ge(2)] = 8192  # training points, uniform between -1 and 1
    outputs: Annotated[int, Ge(1)] = 64  # polynomials
    noise: Annotated[float, Ge(0)] = 0.5  # standard deviation


def cubics_spec(config: Cubics) -> DataSpec:
    return DataSpec((Vector(1),), Values(config.outputs))


def build_cubics(config: Cubics, context: Context) -> Splits:
    import torch
    from pegboard import Resident

    generator = context.generator("points", "cpu")
    x = 2 * torch.rand(config.count, 1, generator=generator) - 1
    y = x ** torch.arange(4) @ torch.randn(4, config.outputs, generator=generator)
    whole = Resident([x], y + config.noise * torch.randn(y.shape, generator=generator))
    return Splits(spec=cubics_spec(config), train=whole, val=whole)


@dataclass(frozen=True)
class Line:
    """A linear model."""

    start: float = 0.0  # value of all weights


def build_line(config: Line, context: Context) -> Any:
    import torch

    size = context.spec.inputs[0].size
    assert size is not None
    model = torch.nn.Linear(size, 1)
    for parameter in model.parameters():
        torch.nn.init.constant_(parameter, config.start)
    return model


class Squares(pegboard.Objective):
    formula = "|f(x) - y|^2"

    def loss(self, output: Any, target: Any, weight: Any = None) -> Any:
        losses = (output - target).square().sum(-1)
        return losses.mean() if weight is None else (losses * weight).sum() / weight.sum()


@dataclass(frozen=True)
class Nothing:
    """Has no fields."""


@dataclass(frozen=True)
class Exact:
    """Least squares."""

    decay: Annotated[float, Ge(0)] = 0.0  # factor of the squared weights
    broken: bool = False  # whether it fails


class ExactReference(Reference):
    def __init__(self, config: Exact) -> None:
        self.config = config
        self.formula = f"mean |f(x) - y|^2 + {config.decay:g} |w|^2"

    def solve(self, model: Any, train: Any) -> Any:
        import copy

        import torch

        if self.config.broken:
            raise pegboard.PegboardError("the model is not linear")
        (x,), y, n = train.inputs, train.target, len(train.target)
        x = torch.cat([x, torch.ones(n, 1)], 1).double()
        ridge = torch.eye(x.shape[1]).double() * self.config.decay * n
        ridge[-1, -1] = 0
        w = torch.linalg.solve(x.T @ x + ridge, x.T @ y.double())
        best = copy.deepcopy(model)
        with torch.no_grad():
            best.weight.copy_(w[:-1].T)
            best.bias.copy_(w[-1])
        return best

    def value(self, model: Any, train: Any) -> float:
        (x,), y = train.inputs, train.target
        w, b = model.weight.detach().double(), model.bias.detach().double()
        error = (x.double() @ w.T + b - y.double()).square().mean()
        return float(error + self.config.decay * w.square().sum())


class Width(Probe):
    def measure(self, model: Any, splits: Splits, device: Any) -> dict[str, float]:
        return {"width": float(model.in_features)}


@dataclass(frozen=True)
class Squared:
    """Adds the squared weights to the loss."""

    by: Annotated[float, Ge(0)] = 0.1  # factor


class SquaredTrick(pegboard.Trick):
    def __init__(self, config: Squared) -> None:
        self.by = config.by
        self.weight: Any = None

    def edit_model(self, model: Any) -> None:
        self.weight = model.weight

    def edit_loss(self, loss: Any, output: Any, batch: Any) -> Any:
        return loss + self.by * self.weight.square().sum()


@hookimpl
def pegboard_regularizers() -> list[pegboard.Regularizer[Any]]:
    stages = {"edit_model": "initialize", "edit_loss": "term"}
    return [pegboard.Regularizer("squared", Squared, lambda c, x: SquaredTrick(c), stages=stages)]


@hookimpl
def pegboard_datasets() -> list[pegboard.Dataset[Any]]:
    return [
        pegboard.Dataset("wave", Wave, build_wave, spec=wave_spec),
        pegboard.Dataset("wide", Wide, build_wide),
        pegboard.Dataset("bent", Bent, build_bent),
        pegboard.Dataset("cubics", Cubics, build_cubics, spec=cubics_spec),
    ]


@hookimpl
def pegboard_models() -> list[pegboard.Model[Any]]:
    return [pegboard.Model("line", Line, build_line, inputs=(Vector,))]


@hookimpl
def pegboard_objectives() -> list[pegboard.ObjectivePart[Any]]:
    return [pegboard.ObjectivePart("squares", Nothing, lambda c, x: Squares(), targets=(Values,))]


@hookimpl
def pegboard_probes() -> list[ProbePart[Any]]:
    return [
        ProbePart("exact", Exact, lambda c, x: ExactReference(c), reference=True),
        ProbePart("width", Nothing, lambda c, x: Width()),
    ]
