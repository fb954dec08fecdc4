"""Bounds on what an update may do: gradient clipping by norm or by value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pegboard import Context, Gt, Prefixed, Regularizer, Role, Trick, hookimpl

CLIP = Prefixed("constraints:clip")  # after tricks of others that clip: the bound holds for what is used


@dataclass(frozen=True)
class Clip:
    """Gradient clipping: bound the norm of the gradient of an update, or each of its numbers."""

    bound: Annotated[float, Gt(0)]  # largest norm over all parameters, or largest size of a number
    by: Literal["norm", "value"] = "norm"  # whether it bounds the norm of the gradient or each number


def build(config: Clip, context: Context) -> Trick:
    from .trick import ClipTrick

    return ClipTrick(config)


@hookimpl
def pegboard_regularizers() -> list[Regularizer[Any]]:
    return [
        Regularizer(
            "clip",
            Clip,
            build,
            stages={"edit_grads": CLIP},
            roles=(Role(CLIP, "edit_grads", after="clip"),),
            replaces={"trainer.clip": "bound", "trainer.clip_by": "by"},
            trial=lambda folder: {"bound": 0.1},
        )
    ]
