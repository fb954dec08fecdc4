"""Sizes along one axis, layer by layer. No torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from .configs import Cnn

FIELDS = (
    "channels",
    "kernel",
    "stride",
    "dilation",
    "groups",
    "pad",
    "window",
)  # may have one for each layer


class Layer(NamedTuple):
    """One layer of a pyramid, with a number for every field."""

    channels: int
    kernel: int
    stride: int = 1
    dilation: int = 1
    groups: int = 1
    pad: int | None = None  # places added at every border; None keeps the size where the stride is 1
    window: int = 1
    padding: str = "zero"

    @property
    def span(self) -> int:
        """Places from the first to the last element of the kernel, both counted."""
        return self.dilation * (self.kernel - 1) + 1

    @property
    def margin(self) -> tuple[int, int]:
        """Places added before and after."""
        if self.padding == "none":
            return 0, 0
        if self.pad is not None:
            return self.pad, self.pad
        return (self.span - 1) // 2, self.span // 2

    def convolved(self, size: int) -> int:
        """How many places the convolution leaves."""
        return (size + sum(self.margin) - self.span) // self.stride + 1

    def size(self, size: int) -> int:
        """How many places convolution and pooling leave."""
        return self.convolved(size) // self.window

    def least(self, size: int) -> int:
        """How many places it needs to leave `size` of them."""
        return max(1, (size * self.window - 1) * self.stride + self.span - sum(self.margin))


def lists(config: Cnn) -> Mapping[str, Sequence[int]]:
    """The fields that have a number for each layer."""
    given = {name: getattr(config, name) for name in FIELDS}
    return {name: value for name, value in given.items() if isinstance(value, Sequence)}


def layers(config: Cnn) -> list[Layer]:
    """The layers, or the branches; lists of different lengths are a ValueError."""
    found = lists(config)
    counts = {len(value) for value in found.values()}
    if len(counts) > 1:
        said = ", ".join(f"{name} {len(value)}" for name, value in found.items())
        raise ValueError(f"lists for different numbers of layers: {said}")
    window = (1 if config.branches else 2) if config.window is None else config.window
    numbers = {name: getattr(config, name) for name in FIELDS} | {
        "window": 1 if config.pooling == "none" else window
    }

    def number(name: str, at: int) -> int:
        value = numbers[name]
        return value[at] if isinstance(value, Sequence) else value  # type: ignore[no-any-return]

    return [
        Layer(**{name: number(name, at) for name in FIELDS}, padding=config.padding)
        for at in range(counts.pop() if counts else 1)
    ]


def readout(config: Cnn) -> str:
    """How the places are put together."""
    return config.readout or ("max" if config.branches else "flatten")
