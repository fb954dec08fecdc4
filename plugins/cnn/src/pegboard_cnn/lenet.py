"""LeNet-5 as an ordinary module."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor
from torch.nn import functional

from .modules import Cnn

LEAST = 32  # height and width below which zeros are put around a picture


class LeNet(Cnn):
    """LeNet-5: pictures (batch, channels, height, width) to (batch, outputs).

    Two convolutions of 5 x 5 to 6 and 16 channels, each with its activation and a pooling of 2 x 2, then
    dense layers of 120 and 84. Smaller pictures get zeros around them up to 32 x 32, as those of 28 x 28 did.
    """

    def __init__(
        self, shape: Sequence[int], outputs: int, activation: str = "tanh", pooling: str = "average"
    ) -> None:
        channels, height, width = shape
        super().__init__(
            (channels, max(LEAST, height), max(LEAST, width)),
            outputs,
            channels=(6, 16),
            kernel=5,
            padding="none",
            activation=activation,
            pooling=pooling,
            hidden=(120, 84),
        )
        high, wide = max(0, LEAST - height), max(0, LEAST - width)
        self.border = (wide // 2, wide - wide // 2, high // 2, high - high // 2)

    def places(self, x: Tensor) -> Tensor:
        return super().places(functional.pad(x, self.border) if any(self.border) else x)
