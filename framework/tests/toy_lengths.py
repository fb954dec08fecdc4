"""Parts that depend on how long a run is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pegboard import Context, Regularizer, Schedule, Trick, hookimpl


@dataclass(frozen=True)
class Down:
    """Down to 0 at the end of the run."""


def build_down(config: Down, context: Context) -> Callable[[int], float]:
    steps = context.steps or 1
    return lambda step: 1 - step / steps


@dataclass(frozen=True)
class LengthConfig:
    """Knows how long the run is."""


class Length(Trick):
    def __init__(self, steps: int | None) -> None:
        self.steps = steps

    def after_step(self, model: Any) -> None:
        pass


@hookimpl
def pegboard_optimizers() -> list[Schedule[Any]]:
    return [Schedule("down", Down, build_down)]


@hookimpl
def pegboard_regularizers() -> list[Regularizer[Any]]:
    return [
        Regularizer(
            "length",
            LengthConfig,
            lambda c, context: Length(context.epochs),
            stages={"after_step": "constrain"},
        )
    ]
