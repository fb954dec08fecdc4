"""AutoClip in a training step."""

from __future__ import annotations

from typing import Any

from pegboard import Trick
from torch import Tensor, nn

from . import AutoClip
from .functional import autoclip, no_norms


class AutoClipTrick(Trick):
    """Clips the gradients of every update, and remembers their norms on the device."""

    def __init__(self, config: AutoClip, device: str) -> None:
        self.percentile = config.percentile
        self.norms = no_norms(config.window, device)

    def edit_grads(self, grads: list[Tensor | None], params: list[nn.Parameter]) -> list[Tensor | None]:
        clipped = iter(autoclip([g for g in grads if g is not None], self.norms, self.percentile))
        return [None if g is None else next(clipped) for g in grads]

    def state_dict(self) -> dict[str, Tensor | int | float | str]:
        return {"norms": self.norms}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        # Into the tensor that is there: it is on the right device, and a compiled step knows it.
        self.norms.copy_(state["norms"])
