"""One network for all views of a thing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from .modules import Cnn


class MultiviewCnn(Cnn):
    """The pyramid of a `Cnn` on every view, the largest or mean feature of all views, then its dense layers.

    Reads (batch, views, *shape), any number of views in any order; `views` is max or average.
    """

    def __init__(self, shape: Sequence[int], outputs: int, *, views: str = "max", **fields: Any) -> None:
        super().__init__(shape, outputs, **fields)
        self.views = views

    def features(self, x: Tensor) -> Tensor:
        """What the dense layers read: (batch, features)."""
        each = self.places(self.input(x.flatten(0, 1)))
        each = each.reshape(*x.shape[:2], -1)
        return self.pooled(each.amax(1) if self.views == "max" else each.mean(1))
