"""The trick: a thin class around the functions."""

from __future__ import annotations

from pegboard import Trick
from torch import Tensor, nn

from . import Clip
from .functional import clip_norm, clip_value


class ClipTrick(Trick):
    """Bounds the gradients of each player for itself."""

    def __init__(self, config: Clip) -> None:
        self.bound, self.clip = config.bound, clip_norm if config.by == "norm" else clip_value

    def edit_grads(self, grads: list[Tensor | None], params: list[nn.Parameter]) -> list[Tensor | None]:
        return self.clip(grads, self.bound)
