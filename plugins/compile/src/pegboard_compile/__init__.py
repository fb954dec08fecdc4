"""Whole training steps as compiled graphs. This module imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pegboard import Context, Ge, Le, Stepper, Stepping, hookimpl


@dataclass(frozen=True)
class Compiled:
    """Updates as compiled graphs: the whole step with its tricks, or the forward pass of the model."""

    # what becomes one graph; auto: whole steps, if that pays within the run
    compile: Literal["model", "step", "auto"] = "step"
    compile_mode: Literal["default", "reduce-overhead", "max-autotune"] = "default"  # as in torch.compile
    steps_per_call: Annotated[int, Ge(1), Le(64)] = 1  # updates in one call of a graph


def build(config: Compiled, context: Context) -> Stepping:
    from .stepping import CompiledStepping

    return CompiledStepping(config)


@hookimpl
def pegboard_steppers() -> list[Stepper[Any]]:
    return [Stepper("compiled", Compiled, build)]
