"""A plugin with specs of its own, as bare as a spec may be: no size, no example, nothing to draw."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pegboard import (
    Classes,
    Context,
    Dataset,
    DataSpec,
    Facts,
    Model,
    Objective,
    ObjectivePart,
    Optimizer,
    ProbePart,
    Problem,
    Spec,
    Splits,
    hookimpl,
)

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Video(Spec):
    """Moving pictures: a float tensor (batch, frames, channels, height, width)."""

    frames: int
    sides: tuple[int, int] = (6, 6)  # height and width


@dataclass(frozen=True)
class Track(Spec):
    """Where something is in every frame: a float tensor (batch, frames, 2)."""

    frames: int


@dataclass(frozen=True)
class Clips:
    """Clips of noise, brighter in one class."""

    track: bool = False  # what is to be predicted is a place in every frame
    stated: bool = True  # whether the spec is known without building
    count: int = 24  # samples of a split
    seen: tuple[str, ...] = field(default=())  # notes, which change nothing


def clips_spec(config: Clips) -> DataSpec | None:
    target = Track(4) if config.track else Classes(2, ("dark", "bright"))
    return DataSpec((Video(4),), target, ("clip",)) if config.stated else None


def build_clips(config: Clips, context: Context) -> Splits:
    import torch
    from pegboard import Resident

    def split(seed: int) -> Resident:
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(config.count, 4, 1, 6, 6, generator=generator)
        y = torch.arange(config.count) % 2
        return Resident([x + y.view(-1, 1, 1, 1, 1)], x[:, :, 0, 0, :2] if config.track else y)

    spec = clips_spec(Clips(config.track))
    assert spec is not None
    return Splits(spec=spec, train=split(1), val=split(2), test=split(3))


@dataclass(frozen=True)
class Net:
    """A linear map of all numbers of a clip."""


def build_net(config: Net, context: Context) -> nn.Module:
    import torch
    from torch import nn

    class Linear(nn.Sequential):
        def sample(self, count: int, generator: torch.Generator) -> torch.Tensor:
            return torch.rand(count, 4, 1, 6, 6, generator=generator)

    video, target = context.spec.inputs[0], context.spec.target
    assert isinstance(video, Video)
    numbers = video.frames * video.sides[0] * video.sides[1]
    if isinstance(target, Track):
        return Linear(
            nn.Flatten(), nn.Linear(numbers, 2 * target.frames), nn.Unflatten(1, (target.frames, 2))
        )
    assert isinstance(target, Classes) and target.count
    return Linear(nn.Flatten(), nn.Linear(numbers, target.count))


@dataclass(frozen=True)
class Guess:
    """Cross entropy, or the squared distance of tracks."""


def check_guess(config: Guess, facts: Facts) -> Iterable[Problem]:
    return ()


def build_guess(config: Guess, context: Context) -> Objective:
    import torch
    from torch.nn import functional

    tracked = isinstance(context.spec.target, Track)

    class Loss(Objective):
        def loss(self, output: Any, target: Any, weight: torch.Tensor | None = None) -> torch.Tensor:
            each = (
                (output - target).square().mean((1, 2))
                if tracked
                else functional.cross_entropy(output, target, reduction="none")
            )
            return each.mean() if weight is None else (each * weight).sum() / weight.sum()

        def predict(self, output: Any) -> dict[str, torch.Tensor]:
            return {"track": output} if tracked else {"class": output.argmax(-1)}

    return Loss()


@dataclass(frozen=True)
class Plain:
    """Gradient descent."""

    lr: float = 0.01


def build_plain(config: Plain, context: Context) -> Any:
    import torch

    return lambda groups: torch.optim.SGD(groups, lr=config.lr)


@dataclass(frozen=True)
class Brightness:
    """Mean of the training clips."""


def build_brightness(config: Brightness, context: Context) -> Any:
    import torch
    from pegboard import Probe

    class Mean(Probe):
        def measure(self, model: nn.Module, splits: Splits, device: torch.device) -> dict[str, float]:
            assert isinstance(splits.spec.inputs[0], Video)
            return {"mean": float(splits.train.gather(torch.arange(4)).inputs[0].mean())}

    return Mean()


@hookimpl
def pegboard_models() -> list[Model[Any]]:
    given: dict[str, Any] = {"inputs": (Video,), "targets": (Classes, Track)}
    return [
        Model("clip_net", Net, build_net, **given),
        Model("clip_maker", Net, build_net, **given, samples=True),
    ]


@hookimpl
def pegboard_datasets() -> list[Dataset[Any]]:
    return [Dataset("clips", Clips, build_clips, spec=clips_spec)]


@hookimpl
def pegboard_objectives() -> list[ObjectivePart[Any]]:
    return [ObjectivePart("clip_guess", Guess, build_guess, check=check_guess, targets=(Classes, Track))]


@hookimpl
def pegboard_optimizers() -> list[Optimizer[Any]]:
    return [Optimizer("clip_descent", Plain, build_plain)]


@hookimpl
def pegboard_probes() -> list[ProbePart[Any]]:
    return [ProbePart("brightness", Brightness, build_brightness)]
