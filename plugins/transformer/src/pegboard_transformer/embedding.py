"""How symbols, vectors and patches become the places of a sequence."""

from __future__ import annotations

import torch
from pegboard import Peg
from torch import Tensor, nn

from .positions import Learned, Positions, Rotary, Sinusoidal


class Embed(nn.Module):
    """What `read` makes of the input, (rows, length, width), with positions and perhaps a class token first.

    `read` is an `nn.Embedding`, an `nn.Linear` or `Patches`; `scale` multiplies what it gives. `positions`
    that are "learned" or "sinusoidal" are added here; "rotary" ones and "none" are not.
    """

    def __init__(
        self,
        read: nn.Module,
        width: int,
        length: int,
        positions: str,
        *,
        token: bool = False,
        scale: float = 1.0,
    ) -> None:
        super().__init__()
        self.read, self.scale = read, scale
        if token:
            self.token = nn.Parameter(torch.empty(width))
            nn.init.normal_(self.token, std=0.02)
        self.positions: Positions | None = None
        if positions == "learned":
            self.positions = Learned(length + token, width)
        elif positions == "sinusoidal":
            self.positions = Sinusoidal(length + token, width)
        elif positions not in ("rotary", "none"):
            raise ValueError(f"unknown positions {positions!r}: expected learned, sinusoidal, rotary or none")
        self.peg = Peg("embedding", width, "NLC")

    def forward(
        self, x: Tensor, lasts: Tensor | None = None, start: int = 0, shift: Tensor | None = None
    ) -> Tensor:
        """Places from `start` on. `lasts` (rows, length) has a column for the class token too, if any."""
        x = self.read(x)
        if self.scale != 1:
            x = x * self.scale
        token = self._parameters.get("token")
        if token is not None:
            x = torch.cat((token.to(x.dtype).expand(len(x), 1, -1), x), 1)
        if self.positions is not None:
            x = x + self.positions(x.shape[1], start, shift)
        return self.peg(x, lasts)


class Patches(nn.Module):
    """A picture (rows, channels, height, width) cut into squares, each mapped to a vector, row by row."""

    def __init__(self, channels: int, height: int, width: int, patch: int, features: int) -> None:
        super().__init__()
        if height % patch or width % patch:
            raise ValueError(f"patches of side {patch} do not divide a picture of {height} by {width}")
        self.count = (height // patch) * (width // patch)
        self.peg = Peg("input", channels, "NCHW")
        self.project = nn.Conv2d(channels, features, patch, stride=patch)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.project(self.peg(x))
        return y.flatten(2).transpose(1, 2)


def rotary(positions: str, length: int, width: int, heads: int) -> Rotary | None:
    """What turns queries and keys, where positions are told that way."""
    return Rotary(length, width // heads) if positions == "rotary" else None


def lasting(tokens: Tensor, padding: int) -> Tensor | None:
    """Where samples still last, (rows, length); None where nothing is padded."""
    return None if padding < 0 else tokens != padding
