"""The optimizers `sam_sgd` and `sam_adamw`: sharpness-aware minimisation. Imports no torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from pegboard import Context, Ge, Lt, Optimizer, hookimpl

if TYPE_CHECKING:
    import torch

    Factory = Callable[[list[dict[str, Any]]], torch.optim.Optimizer]

Rate = Annotated[float, Ge(0)]
Share = Annotated[float, Ge(0), Lt(1)]


@dataclass(frozen=True)
class SamSgd:
    """SAM over SGD: steps by the gradient at the worst point near the weights."""

    lr: Rate = 0.01  # learning rate
    rho: Annotated[float, Ge(0)] = 0.05  # distance of the worst point; 0 is plain SGD
    momentum: Share = 0.9  # share of the last update that is kept


@dataclass(frozen=True)
class SamAdamW:
    """SAM over AdamW: steps by the gradient at the worst point near the weights."""

    lr: Rate = 1e-3  # learning rate
    rho: Annotated[float, Ge(0)] = 0.05  # distance of the worst point; 0 is plain AdamW
    betas: tuple[Share, Share] = (0.9, 0.999)  # memory of the mean and of the mean square
    eps: Annotated[float, Ge(0)] = 1e-8  # added to the root of the mean square


def build_sgd(config: SamSgd, context: Context) -> Factory:
    from .optimizer import over_sgd

    return partial(over_sgd, config)


def build_adamw(config: SamAdamW, context: Context) -> Factory:
    from .optimizer import over_adamw

    return partial(over_adamw, config)


@hookimpl
def pegboard_optimizers() -> list[Optimizer[Any]]:
    return [
        Optimizer("sam_sgd", SamSgd, build_sgd, closure=True),
        Optimizer("sam_adamw", SamAdamW, build_adamw, closure=True),
    ]
