"""A network that gives the same wherever things are, by construction."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from pegboard import Peg
from torch import Tensor, nn
from torch.nn import functional

from .modules import CONVOLUTIONS, LAYOUTS, PADS
from .modules import activation as make_activation


class Ground(nn.Module):
    """Adds `margin` places at every border, as empty as the first corner is; zeros before the first layer."""

    def __init__(self, axes: int, margin: int, *, first: bool) -> None:
        super().__init__()
        self.margins, self.first = [margin] * (2 * axes), first

    def forward(self, x: Tensor) -> Tensor:
        if self.first:
            return functional.pad(x, self.margins)
        # A layer before this one had a margin of its kernel: its corner has seen nothing but ground.
        ground = x
        for axis in range(2, x.ndim):
            ground = ground.narrow(axis, 0, 1)
        return functional.pad(x - ground, self.margins) + ground


class InvariantCnn(nn.Module):
    """Convolutions, and one pool over all places: (batch, *shape) to (batch, outputs).

    `shape` is (channels, *sizes) with one to three sizes. With `padding` circular a layer moves with its
    input, and the pool does not mind. With zero every layer adds as many places as its kernel spans, so that
    it sees all of a thing that stands on a ground of zeros, wherever that is, and the ground around it.
    `series` says that inputs are (batch, length, features).
    """

    def __init__(
        self,
        shape: Sequence[int],
        outputs: int,
        *,
        padding: str = "zero",
        channels: Sequence[int] = (16, 32),
        kernel: int | Sequence[int] = 5,
        bias: bool = True,
        activation: str = "relu",
        pool: str = "max",
        series: bool = False,
    ) -> None:
        super().__init__()
        inputs, *sizes = shape
        axes, widths = len(sizes), [*channels, outputs]
        spans = [kernel] * len(widths) if isinstance(kernel, int) else list(kernel)
        if len(spans) != len(widths):
            raise ValueError(f"{len(spans)} kernels for {len(widths)} layers: {len(channels)} and the last")
        self.pool, self.series, self.circular = pool, series, padding == "circular"
        layers: list[nn.Module] = []
        for at, ((a, b), span) in enumerate(zip(pairwise([inputs, *widths]), spans, strict=True)):
            # The ground is added before anything that hangs on the peg can make it uneven.
            if not self.circular:
                layers.append(Ground(axes, span, first=not at))
            layers.append(Peg("hidden" if at else "input", a, LAYOUTS[axes]))
            if self.circular:
                layers.append(PADS["circular"][axes](((span - 1) // 2, span // 2) * axes))
            layers.append(CONVOLUTIONS[axes](a, b, span, bias=bias))
            if at < len(channels):
                layers += [Peg("affine", b, LAYOUTS[axes]), make_activation(activation)]
        self.body = nn.Sequential(*layers)
        self.logits = Peg("logits", outputs)

    def places(self, x: Tensor) -> Tensor:
        """A number for each output at every place: (batch, outputs, *sizes)."""
        y: Tensor = self.body(x.transpose(1, 2) if self.series else x)
        return y

    def forward(self, x: Tensor) -> Tensor:
        found = self.places(x).flatten(2)
        match self.pool:
            case "max":
                return self.logits(found.amax(2))
            case "average":
                return self.logits(found.mean(2))
        return self.logits(found.sum(2))
