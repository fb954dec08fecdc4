"""Where a symbol stands in its sequence: sinusoidal, learned and rotary positions."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def frequencies(width: int, base: float = 10_000.0) -> Tensor:
    """Radians for each step of the `width // 2` pairs of features, in double precision: 1 down to 1/base."""
    even = torch.arange(0, width - width % 2, 2, dtype=torch.float64, device="cpu")
    return base ** -(even / width)


def _angles(count: int, width: int, base: float) -> Tensor:
    # On the CPU, whatever device models are being built on: numbers in double precision everywhere.
    places = torch.arange(count, dtype=torch.float64, device="cpu")
    return places.unsqueeze(1) * frequencies(width, base)


def sinusoid(count: int, width: int, base: float = 10_000.0) -> Tensor:
    """Encodings (count, width) of places 0, 1, ...: pairs of a sine and a cosine of one frequency."""
    if width % 2:
        raise ValueError(f"sinusoidal positions need an even width, and it is {width}")
    angles = _angles(count, width, base)
    return torch.stack((angles.sin(), angles.cos()), -1).flatten(1).float()


class Positions(nn.Module):
    """A table with a row for each place. Called, it gives rows of `count` places from `start` on.

    `shift` (rows,) says for each sample how many places before its first symbol are empty: the result then
    has a table for each sample.
    """

    def __init__(self, length: int) -> None:
        super().__init__()
        self.length = length

    def table(self, end: int) -> Tensor:
        """Rows of at least `end` places."""
        raise NotImplementedError

    def forward(self, count: int, start: int = 0, shift: Tensor | None = None) -> Tensor:
        table = self.table(start + count)
        if shift is None:
            return table[start : start + count]
        places = torch.arange(start, start + count, device=table.device) - shift.unsqueeze(1)
        return table[places.clamp(min=0)]

    def extra_repr(self) -> str:
        return f"length={self.length}"


class Learned(Positions):
    """A vector for each of `length` places, which training finds. There are none beyond."""

    def __init__(self, length: int, width: int, std: float = 0.02) -> None:
        super().__init__(length)
        self.weight = nn.Parameter(torch.empty(length, width))
        nn.init.normal_(self.weight, std=std)

    def table(self, end: int) -> Tensor:
        if end > self.length:
            raise ValueError(f"there are {self.length} learned positions, and a sequence has {end} places")
        return self.weight


class _Fixed(Positions):
    """A table that is computed, and grows with the longest sequence."""

    rows: Tensor

    def __init__(self, length: int) -> None:
        super().__init__(length)
        like = torch.empty(0)  # on the device that models are being built on
        self.register_buffer("rows", self.make(length).to(like), persistent=False)

    def make(self, count: int) -> Tensor:
        raise NotImplementedError

    def table(self, end: int) -> Tensor:
        if end > len(self.rows):
            self.rows = self.make(2 * end).to(self.rows)
        return self.rows


class Sinusoidal(_Fixed):
    """Sines and cosines of frequencies that fall geometrically, (places, width). Nothing is learned."""

    def __init__(self, length: int, width: int, base: float = 10_000.0) -> None:
        self.width, self.base = width, base
        super().__init__(length)

    def make(self, count: int) -> Tensor:
        return sinusoid(count, self.width, self.base)


class Rotary(_Fixed):
    """Cosines and sines by which `rotate` turns queries and keys, (places, 2, width / 2).

    `width` is that of a head. The product of a turned query and a turned key depends on their distance alone.
    """

    def __init__(self, length: int, width: int, base: float = 10_000.0) -> None:
        if width % 2:
            raise ValueError(f"rotary positions need an even width of each head, and it is {width}")
        self.width, self.base = width, base
        super().__init__(length)

    def make(self, count: int) -> Tensor:
        angles = _angles(count, self.width, self.base)
        return torch.stack((angles.cos(), angles.sin()), 1).float()


def rotate(x: Tensor, rotation: Tensor) -> Tensor:
    """`x` (..., rows, heads, length, width) turned by the angles of `Rotary`.

    Feature i of the first half makes a pair with feature i of the second.
    """
    if rotation.dim() == 4:  # a table for each sample: the same for all heads
        rotation = rotation.unsqueeze(1)
    cos, sin = rotation.to(x.dtype).unbind(-2)
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)
