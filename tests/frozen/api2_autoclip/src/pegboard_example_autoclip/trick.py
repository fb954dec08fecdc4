"""AutoClip in a training step."""

from __future__ import annotations

from typing import Any

from pegboard import Trick
from torch import Tensor, nn

from . import AutoClip
from .functional import autoclip_, no_norms


class AutoClipTrick(Trick):
    """Clips the gradients of every update, and remembers their norms on the device."""

    def __init__(self, config: AutoClip, device: str) -> None:
        self.percentile = config.percentile
        self.norms = no_norms(config.window, device)

    def edit_grads(self, params: list[nn.Parameter]) -> None:
        autoclip_([p.grad for p in params if p.grad is not None], self.norms, self.percentile)

    def state_dict(self) -> dict[str, Tensor | int | float | str]:
        return {"norms": self.norms}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        # Into the tensor that is there: it is on the right device, and a compiled step knows it.
        self.norms.copy_(state["norms"])
