"""Activations by name."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

PLAIN: dict[str, Callable[[], nn.Module]] = {
    "gelu": nn.GELU,
    "gelu_tanh": lambda: nn.GELU("tanh"),
    "glu": nn.GLU,
    "hardsigmoid": nn.Hardsigmoid,
    "hardswish": nn.Hardswish,
    "hardtanh": nn.Hardtanh,
    "identity": nn.Identity,
    "log_softmax": lambda: nn.LogSoftmax(-1),
    "logsigmoid": nn.LogSigmoid,
    "mish": nn.Mish,
    "relu": nn.ReLU,
    "relu6": nn.ReLU6,
    "rrelu": nn.RReLU,
    "selu": nn.SELU,
    "sigmoid": nn.Sigmoid,
    "silu": nn.SiLU,
    "softmax": lambda: nn.Softmax(-1),
    "softmin": lambda: nn.Softmin(-1),
    "softsign": nn.Softsign,
    "tanh": nn.Tanh,
    "tanhshrink": nn.Tanhshrink,
}

# Activations with a number of their own: how to make them, and torch's value of it.
WITH_ALPHA: dict[str, tuple[Callable[[float], nn.Module], float]] = {
    "celu": (nn.CELU, 1.0),
    "elu": (nn.ELU, 1.0),
    "hardshrink": (nn.Hardshrink, 0.5),
    "leaky_relu": (nn.LeakyReLU, 0.01),
    "prelu": (lambda start: nn.PReLU(init=start), 0.25),
    "softplus": (nn.Softplus, 1.0),
    "softshrink": (nn.Softshrink, 0.5),
    "threshold": (lambda least: nn.Threshold(least, 0.0), 0.0),
}


class Abs(nn.Module):
    """The absolute value."""

    def forward(self, x: Tensor) -> Tensor:
        return x.abs()


class Polynomial(nn.Module):
    """`c[0] + c[1] x + c[2] x^2 + ...` of every element."""

    def __init__(self, coefficients: Sequence[float]) -> None:
        super().__init__()
        if not coefficients:
            raise ValueError("a polynomial needs at least one coefficient")
        self.coefficients = tuple(float(c) for c in coefficients)

    def forward(self, x: Tensor) -> Tensor:
        *lower, leading = self.coefficients
        if not lower:
            return torch.full_like(x, leading)
        y = x if leading == 1 else leading * x
        for c in reversed(lower[1:]):
            y = (y + c if c else y) * x
        return y + lower[0] if lower[0] else y

    def extra_repr(self) -> str:
        return ", ".join(map(str, self.coefficients))


class Shift(nn.Module):
    """Adds a constant."""

    def __init__(self, by: float) -> None:
        super().__init__()
        self.by = by

    def forward(self, x: Tensor) -> Tensor:
        return x + self.by

    def extra_repr(self) -> str:
        return str(self.by)


def make(name: str, alpha: float | None = None, polynomial: Sequence[float] = (0.0, 0.0, 1.0)) -> nn.Module:
    """A new activation module; `alpha` is the number of one that has one (None: torch's own)."""
    if name == "abs":
        return Abs()
    if name == "polynomial":
        return Polynomial(polynomial)
    if name in WITH_ALPHA:
        build, default = WITH_ALPHA[name]
        return build(default if alpha is None else alpha)
    if name in PLAIN:
        return PLAIN[name]()
    known = sorted((*PLAIN, *WITH_ALPHA, "abs", "polynomial"))
    raise ValueError(f"unknown activation {name!r}: expected one of {', '.join(known)}")


def at_zero(
    name: str, width: int, alpha: float | None = None, polynomial: Sequence[float] = (0.0, 0.0, 1.0)
) -> float:
    """What the activation gives for a vector of `width` zeros."""
    if name in ("sigmoid", "hardsigmoid"):
        return 0.5
    if name == "softplus":
        return math.log(2) / (1.0 if alpha is None else alpha)
    if name == "logsigmoid":
        return -math.log(2)
    if name in ("softmax", "softmin"):
        return 1 / width
    if name == "log_softmax":
        return -math.log(width)
    return float(polynomial[0]) if name == "polynomial" else 0.0
