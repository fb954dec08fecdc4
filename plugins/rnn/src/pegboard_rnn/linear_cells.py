"""Cells that are linear in their state, and so computed for all steps at once by a scan."""

from __future__ import annotations

import math

import torch
from pegboard import Peg
from torch import Tensor, nn
from torch.nn import functional

from .cells import Cell, State, set_gate
from .scan import scan

FORGOTTEN = 5.0  # nu with an absolute value of e^-148
EDGE = 1e-7  # how near to 0 and 1 the absolute value of an eigenvalue may come: float32 has 1 - 6e-8 below 1


def exact(x: Tensor) -> Tensor:
    """In float32 at least: a sum over a thousand steps has no digits left in a short format."""
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


class MinGru(Cell):
    """A GRU whose gate does not see the state: z_t = s_t z_{t-1} + (1 - s_t) V x_t, s_t = sigmoid(G x_t)."""

    def __init__(
        self,
        inputs: int,
        hidden: int,
        *,
        bias: bool = True,
        gate_bias: float | None = None,
        peg: bool = True,
    ) -> None:
        super().__init__()
        self.hidden = hidden
        self.input = nn.Linear(inputs, 2 * hidden, bias=bias)  # gate, then content
        self.affine = Peg("affine", 2 * hidden, "NLC") if peg else None
        if gate_bias is not None:
            set_gate(self.input.bias, 0, hidden, gate_bias)

    def forward(
        self, x: Tensor, state: State | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, State]:
        x = self.input(x)
        if self.affine is not None:
            x = self.affine(x, mask)
        gate, content = exact(x).chunk(2, -1)
        keep = torch.sigmoid(gate)
        out = scan(keep, (1 - keep) * content, None if state is None else state[0])
        return out, (out[:, -1],)


def eigenvalues(nu: Tensor, phase: Tensor) -> Tensor:
    """exp(-exp(nu) + i phase): inside the unit circle for every nu, though float32 would round it onto it.

    A nu so large that the value is 0 to many digits counts as the largest with a finite gradient.
    """
    return torch.polar(torch.exp(-torch.exp(nu.clamp(math.log(EDGE), FORGOTTEN))), phase)


def start_eigenvalues(
    count: int, radius: tuple[float, float], phase: float, generator: torch.Generator | None = None
) -> tuple[Tensor, Tensor]:
    """nu and phase of `count` eigenvalues, whose absolute values and angles are drawn evenly."""
    low, high = (min(max(r, EDGE), 1 - EDGE) for r in radius)
    drawn = low + (high - low) * torch.rand(count, generator=generator, dtype=torch.float64)
    angles = phase * torch.rand(count, generator=generator, dtype=torch.float64)
    return torch.log(-torch.log(drawn)), angles


class Lru(Cell):
    """A linear recurrent unit: h_t = lambda h_{t-1} + gamma B x_t with complex h, z_t = Re(C h_t) + D x_t.

    Every eigenvalue lambda = exp(-exp(nu) + i phase) is inside the unit circle; gamma starts as
    sqrt(1 - |lambda|^2), with which white noise stays as large as it is. Complex numbers are pairs of real
    ones wherever something is learned: B is `input`, C `output`, D `skip`.
    """

    def __init__(
        self,
        inputs: int,
        hidden: int,
        *,
        state: int | None = None,
        radius: tuple[float, float] = (0.9, 0.999),
        phase: float = 2 * torch.pi,
        bias: bool = True,
    ) -> None:
        super().__init__()
        count = hidden if state is None else state
        self.hidden = hidden
        nu, angles = start_eigenvalues(count, radius, phase)
        dtype = torch.get_default_dtype()
        self.nu, self.phase = nn.Parameter(nu.to(dtype)), nn.Parameter(angles.to(dtype))
        shrink = -torch.expm1(-2 * torch.exp(nu))  # 1 - |lambda|^2
        self.gamma = nn.Parameter(shrink.sqrt().to(dtype))
        self.input = nn.Linear(inputs, 2 * count, bias=False)
        self.output = nn.Linear(2 * count, hidden, bias=bias)
        # One number for each feature, where there are as many as outputs.
        self.skip = (
            nn.Parameter(torch.randn(hidden)) if inputs == hidden else nn.Linear(inputs, hidden, False)
        )
        nn.init.normal_(self.input.weight, std=(2 * inputs) ** -0.5)
        nn.init.normal_(self.output.weight, std=count**-0.5)

    def forward(
        self, x: Tensor, state: State | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, State]:
        # The scale of each number on both of its rows, which are fewer than the steps.
        weight = self.input.weight * self.gamma.repeat_interleave(2).unsqueeze(-1)
        driven = exact(functional.linear(x, weight)).view(*x.shape[:2], -1, 2)
        steps = eigenvalues(self.nu, self.phase).expand(1, x.shape[1], -1)
        h = scan(steps, torch.view_as_complex(driven), None if state is None else state[0])
        through = x * self.skip if isinstance(self.skip, Tensor) else self.skip(x)
        return self.output(torch.view_as_real(h).flatten(-2)) + through, (h[:, -1],)
