"""Averages as functions of lists of weights, usable without the framework; they are changed in place."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

# One operation for all weights, which is private.
FOREACH: Callable[..., Any] | None = getattr(torch, "_foreach_lerp_", None)
if FOREACH is None:
    warnings.warn(
        f"torch {torch.__version__} has no torch._foreach_lerp_: weights are averaged one after the other",
        stacklevel=2,
    )


def one_by_one(averages: Sequence[Tensor], weights: Sequence[Tensor], weight: Any) -> None:
    """The same one after the other: averages go this share, or these, of the way to the weights."""
    paces = weight if isinstance(weight, list) else [weight] * len(averages)
    for average, end, pace in zip(averages, weights, paces, strict=True):
        average.lerp_(end, pace)


lerp = FOREACH or one_by_one


def ema(averages: Sequence[Tensor], weights: Sequence[Tensor], decay: float) -> None:
    """Let averages follow weights: a = decay a + (1 - decay) w."""
    lerp(averages, weights, weight=1 - decay)


def ema_warming_up(
    averages: Sequence[Tensor], weights: Sequence[Tensor], decay: float, updates: Tensor
) -> None:
    """The same with the decay min(decay, (1 + t) / (10 + t)), t the `updates` made before; counts them."""
    pace = (9 / (10 + updates)).clamp(min=1 - decay)
    lerp(averages, weights, [pace.to(a.dtype) for a in averages])
    updates.add_(1)


def include(averages: Sequence[Tensor], weights: Sequence[Tensor], count: int) -> None:
    """Let averages, which are means of `count` sets of weights, be those of one more."""
    lerp(averages, weights, weight=1 / (count + 1))


def mean(averages: Sequence[Tensor], sets: Sequence[Sequence[Tensor]]) -> None:
    """Let averages be the means of sets of weights."""
    for average, same in zip(averages, zip(*sets, strict=True), strict=True):
        average.copy_(torch.stack(same).mean(0))


NORM: Any = nn.BatchNorm1d.__base__  # what those of torch have in common, under a private name


def norms(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The batch normalisations of a model that keep statistics, by name."""
    for name, module in model.named_modules():
        if isinstance(module, NORM) and module.running_mean is not None:
            yield name, module


@torch.no_grad()
def take_statistics(model: nn.Module, batches: Iterable[Sequence[Tensor]]) -> None:
    """Take the statistics of batch normalisations anew: their means over batches of inputs.

    As `torch.optim.swa_utils.update_bn`, but all other layers are in eval mode: nothing is dropped.
    """
    found: list[Any] = [module for _, module in norms(model)]
    modes, momenta = [(m, m.training) for m in model.modules()], [norm.momentum for norm in found]
    model.eval()
    for norm in found:
        norm.reset_running_stats()
        norm.momentum, norm.training = None, True
    try:
        for inputs in batches:
            model(*inputs)
    finally:
        for module, training in modes:
            module.training = training
        for norm, momentum in zip(found, momenta, strict=True):
            norm.momentum = momentum
