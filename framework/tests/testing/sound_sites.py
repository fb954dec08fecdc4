"""Sound parts that meet at pegs, and an objective that goes with its own model alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from pegboard import (
    Batch,
    Classes,
    Context,
    Ge,
    Lt,
    Model,
    Objective,
    ObjectivePart,
    Probe,
    ProbePart,
    Regularizer,
    Series,
    Site,
    Splits,
    Stop,
    Trick,
    Vector,
    hookimpl,
)

if TYPE_CHECKING:
    from torch import Tensor, nn


@dataclass(frozen=True)
class SiteNet:
    """A convolution over time with pegs, normalisation and a shift that a softmax takes away again."""

    width: Annotated[int, Ge(1)] = 4  # channels
    gate: bool = False  # a second convolution, with a peg behind it


def build_net(config: SiteNet, context: Context) -> nn.Module:
    import torch
    from pegboard import Peg
    from torch import nn

    (spec,) = context.spec.inputs
    assert isinstance(spec, Series) and spec.features is not None

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.input = Peg("input", spec.features, "NLC")
            self.conv = nn.Conv1d(spec.features, config.width, 3, padding=1)  # its bias cancels
            self.affine = Peg("affine", config.width, "NCL")
            self.norm = nn.BatchNorm1d(config.width)
            self.hidden = Peg("hidden", config.width, "NCL")
            self.gate = nn.Conv1d(config.width, config.width, 1) if config.gate else None
            self.residual = Peg("residual", config.width, "NCL") if config.gate else None
            self.last = nn.Linear(config.width, context.outputs or 1)
            self.shift = nn.Parameter(torch.zeros(1))  # of all classes alike

        def forward(self, x: Tensor) -> Tensor:
            x = self.affine(self.conv(self.input(x).mT))
            x = self.hidden(self.norm(x).relu())
            if self.gate is not None and self.residual is not None:
                x = x + self.residual(self.gate(x))
            return self.last(x.mean(2)) + self.shift

    return Net()


@dataclass(frozen=True)
class SiteDrop:
    """Zero some units in training."""

    p: Annotated[float, Ge(0), Lt(1)] = 0.5  # share
    sites: tuple[Site, ...] = ("hidden",)  # pegs it hangs on


def build_drop(config: SiteDrop, context: Context) -> Trick:
    import torch
    from torch import nn

    class Drop(nn.Module):
        def __init__(self, features: int) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(features), persistent=config.p > 0)

        def forward(self, x: Tensor) -> Tensor:
            if not self.training or config.p == 0:
                return x
            self.seen.add_(1)
            return x * (torch.rand_like(x) >= config.p) / (1 - config.p)

    class DropTrick(Trick):
        def hang(self, peg: Any) -> nn.Module | None:
            return Drop(peg.features) if peg.site in config.sites else None

    return DropTrick()


@dataclass(frozen=True)
class SiteMix:
    """Mix every sample with the one before it."""

    share: Annotated[float, Ge(0), Lt(1)] = 0.1  # of the other sample


def build_mix(config: SiteMix, context: Context) -> Trick:
    class Mix(Trick):
        def edit_batch(self, batch: Batch) -> Batch:
            if not config.share:
                return batch
            return batch.replace(inputs=tuple(x.lerp(x.roll(1, 0), config.share) for x in batch.inputs))

        def edit_groups(self, groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
            return [{**group} for group in groups]

        def after_eval(self, metrics: Any) -> Stop | None:
            return None

    return Mix()


@dataclass(frozen=True)
class SitePair:
    """A network with two heads, which its own objective alone understands."""


def build_pair(config: SitePair, context: Context) -> nn.Module:
    from torch import nn

    size = context.spec.inputs[0].size or 1

    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(size, context.outputs or 1), nn.Linear(size, context.outputs or 1)

        def forward(self, x: Tensor) -> dict[str, Tensor]:
            return {"one": self.one(x), "two": self.two(x)}

    return Pair()


@dataclass(frozen=True)
class SiteBoth:
    """Cross entropy of both heads."""


class Weighed:
    """The share of right answers."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.right = self.all = 0.0

    def update(self, preds: Any, target: Tensor, weight: Tensor | None = None) -> None:
        hit = (preds["one"].argmax(-1) == target).float()
        weight = hit * 0 + 1 if weight is None else weight
        self.right, self.all = self.right + (hit * weight).sum(), self.all + weight.sum()

    def compute(self) -> Any:
        return self.right / self.all

    def to(self, device: str) -> Weighed:
        return self


def build_both(config: SiteBoth, context: Context) -> Objective:
    from torch.nn import functional

    class Both(Objective):
        def loss(self, output: Any, target: Tensor, weight: Tensor | None = None) -> Tensor:
            each = sum(functional.cross_entropy(o, target, reduction="none") for o in output.values())
            return each.mean() if weight is None else (each * weight).sum() / weight.sum()

        def metrics(self) -> dict[str, Any]:
            return {"right": Weighed()}

        def predict(self, output: Any) -> dict[str, Tensor]:
            return {"class": output["one"].argmax(-1)}

    return Both()


@dataclass(frozen=True)
class SiteAgree:
    """Let the two heads of the pair agree, until the evaluation is good."""

    by: Annotated[float, Ge(0)] = 0.01  # strength


def build_agree(config: SiteAgree, context: Context) -> Trick:
    class Agree(Trick):
        def edit_loss(self, loss: Tensor, output: Any, batch: Batch) -> Tensor:
            return loss + config.by * (output["one"] - output["two"]).square().mean()

        def after_eval(self, metrics: Any) -> Stop | None:
            return Stop("good") if metrics["val/loss"] < 0.001 else None

    return Agree()


@dataclass(frozen=True)
class SiteGap:
    """The difference between the two heads of the pair."""


def build_gap(config: SiteGap, context: Context) -> Probe:
    import torch

    class Gap(Probe):
        def measure(self, model: nn.Module, splits: Splits, device: torch.device) -> dict[str, float]:
            with torch.no_grad():
                output = model(*splits.train.gather(torch.arange(4)).inputs)
            return {"gap": float((output["one"] - output["two"]).abs().mean())}

    return Gap()


@hookimpl
def pegboard_models() -> list[Model[Any]]:
    return [
        Model(
            "site_net",
            SiteNet,
            build_net,
            inputs=(Series,),
            targets=(Classes,),
            pegs=("input", "affine", "hidden", "residual"),
        ),
        Model("site_pair", SitePair, build_pair, inputs=(Vector,), targets=(Classes,)),
    ]


@hookimpl
def pegboard_regularizers() -> list[Regularizer[Any]]:
    return [
        Regularizer("site_drop", SiteDrop, build_drop, stages={"hang": "drop"}, neutral={"p": 0.0}),
        Regularizer(
            "site_mix",
            SiteMix,
            build_mix,
            stages={"edit_batch": "mix", "edit_groups": "rate", "after_eval": "stop"},
            neutral={"share": 0.0},
        ),
        Regularizer("site_agree", SiteAgree, build_agree, stages={"edit_loss": "term", "after_eval": "stop"}),
    ]


@hookimpl
def pegboard_probes() -> list[ProbePart[Any]]:
    return [ProbePart("site_gap", SiteGap, build_gap)]


@hookimpl
def pegboard_objectives() -> list[ObjectivePart[Any]]:
    return [ObjectivePart("site_both", SiteBoth, build_both, targets=(Classes,))]
