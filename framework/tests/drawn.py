"""A plugin with data of classes and weights that differ, for tests of how samples are drawn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from pegboard import (
    Batch,
    Classes,
    Context,
    Dataset,
    DataSpec,
    Objective,
    ObjectivePart,
    Optimizer,
    Splits,
    Values,
    Vector,
    hookimpl,
)


@dataclass(frozen=True)
class Drawn:
    """Points around a circle, all of the first class, then all of the next."""

    counts: tuple[int, ...] = (24, 24)  # samples of each class
    weights: tuple[float, ...] = ()  # of the training samples, over and over; empty: they have none
    kept: Literal["held", "streamed", "bare"] = "held"  # bare: a source that tells nothing but its batches
    values: bool = False  # whether the class is a number to predict


class Read:
    """Reads samples that are in memory."""

    def __init__(self, held: Any) -> None:
        self.held = held

    def __call__(self, rows: list[int]) -> Batch:
        import torch

        found: Batch = self.held.gather(torch.tensor(rows))
        return found._replace(rows=None)


class Bare:
    """A source with nothing but what it must have."""

    def __init__(self, held: Any) -> None:
        self._held = held

    def __len__(self) -> int:
        return len(self._held)

    def gather(self, index: Any) -> Batch:
        batch: Batch = self._held.gather(index)
        return batch

    def to(self, device: str) -> Bare:
        return Bare(self._held.to(device))


def build(config: Drawn, context: Context) -> Splits:
    import torch
    from pegboard import Resident, Stream

    def split(purpose: str, weights: tuple[float, ...]) -> Any:
        kinds = torch.arange(len(config.counts))
        target = torch.repeat_interleave(kinds, torch.tensor(config.counts))
        angle = 2 * torch.pi * target / len(kinds)
        middle = torch.stack([torch.cos(angle), torch.sin(angle)], 1)
        x = middle + 0.4 * torch.randn(len(target), 2, generator=context.generator(purpose, "cpu"))
        weight = None
        if weights:
            weight = torch.tensor(weights).repeat(-(-len(target) // len(weights)))[: len(target)]
        held = Resident([x], target[:, None].float() if config.values else target, weight)
        if config.kept == "bare":
            return Bare(held)
        return held if config.kept == "held" else Stream(Read(held), len(held))

    target = (
        Values(1) if config.values else Classes(len(config.counts), tuple("abcdefghij"[: len(config.counts)]))
    )
    spec = DataSpec((Vector(2),), target)
    return Splits(
        spec=spec, train=split("train", config.weights), val=split("val", ()), notes={"source": "made"}
    )


@dataclass(frozen=True)
class Nothing:
    """Has no fields."""


class Weighed(Objective):
    """Cross entropy, in the mean over the weights of the samples."""

    formula = "nll(f(x), y)"

    def loss(self, output: Any, target: Any, weight: Any = None) -> Any:
        from torch.nn import functional

        if target.is_floating_point():
            return functional.mse_loss(output, target)
        losses = functional.cross_entropy(output, target, reduction="none")
        return losses.mean() if weight is None else (losses * weight).sum() / weight.sum()


@dataclass(frozen=True)
class Ends:
    """Gradient descent that has an end."""

    after: int = 2  # epochs
    lr: float = 0.1  # step size


def build_ends(config: Ends, context: Context) -> Callable[..., Any]:
    import torch

    class Descent(torch.optim.SGD):
        def finished(self) -> str | None:
            group = self.param_groups[0]
            group["asked"] = group.get("asked", 0) + 1
            return f"asked {group['asked']} times" if group["asked"] >= config.after else None

    return lambda groups: Descent(groups, lr=config.lr)


@hookimpl
def pegboard_datasets() -> list[Dataset[Any]]:
    return [Dataset("drawn", Drawn, build)]


@hookimpl
def pegboard_optimizers() -> list[Any]:
    return [Optimizer("ends", Ends, build_ends)]


@hookimpl
def pegboard_objectives() -> list[ObjectivePart[Any]]:
    return [ObjectivePart("weighed", Nothing, lambda c, x: Weighed())]
