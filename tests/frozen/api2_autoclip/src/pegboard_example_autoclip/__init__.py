"""The trick `autoclip`: gradients clipped by what their norms have been so far. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pegboard import Context, Ge, Le, Regularizer, Trick, hookimpl


@dataclass(frozen=True)
class AutoClip:
    """Clip gradients to a percentile of the norms that they have had so far."""

    percentile: Annotated[float, Ge(0), Le(100)] = 10.0  # percent of the norms that stay below the bound
    window: Annotated[int, Ge(1)] = 1000  # updates whose norms are remembered


def build(config: AutoClip, context: Context) -> Trick:
    from .trick import AutoClipTrick

    return AutoClipTrick(config, context.device)


@hookimpl
def pegboard_regularizers() -> list[Regularizer[AutoClip]]:
    return [
        Regularizer(
            "autoclip",
            AutoClip,
            build,
            stages={"edit_grads": "clip"},
            neutral={"percentile": 100.0},
        )
    ]
