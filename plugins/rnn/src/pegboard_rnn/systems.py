"""Linear systems z_t = A z_{t-1} + B x_t, y_t = C z_t + D x_t, and the same in a basis that separates it."""

from __future__ import annotations

import warnings
from typing import NamedTuple

import torch
from pegboard import PegboardError
from torch import Tensor

from .linear_cells import EDGE, Lru

FRAGILE = 1e8  # condition of the eigenvectors beyond which half of the digits of float64 are lost


class Diagonal(NamedTuple):
    """A system in the basis of its eigenvectors: h_t = values h_{t-1} + inputs x_t, and z_t = basis h_t."""

    values: Tensor  # (state,), complex
    basis: Tensor  # (state, state): the eigenvectors, as columns
    inputs: Tensor  # (state, inputs)


def diagonalise(a: Tensor, b: Tensor) -> Diagonal:
    """The same system for A (state, state) and B (state, inputs), with a warning where digits are lost."""
    values, basis = torch.linalg.eig(a)
    condition = torch.linalg.cond(basis).item()
    if not condition <= FRAGILE:
        warnings.warn(
            f"the matrix hardly has enough eigenvectors: their condition is {condition:.1e}, and beyond "
            f"{FRAGILE:.0e} the diagonal system is another one",
            stacklevel=2,
        )
    return Diagonal(values, basis, torch.linalg.solve(basis, b.to(basis.dtype)))


def lru_of(a: Tensor, b: Tensor, c: Tensor, d: Tensor | None = None) -> Lru:
    """An LRU that computes the system: C (outputs, state) reads its state, D (outputs, inputs) its input."""
    values, basis, inputs = diagonalise(a, b)
    largest = values.abs().max().item()
    if largest >= 1 - EDGE:
        raise PegboardError(
            f"an LRU forgets, and this system does not: an eigenvalue has the absolute value {largest:g}, "
            "expected below 1"
        )
    outputs = c.to(basis.dtype) @ basis  # y = Re(outputs h)
    wide, narrow = len(c), b.shape[1]
    cell = Lru(narrow, wide, state=len(values), bias=False)
    through = torch.zeros(wide, narrow, dtype=a.dtype) if d is None else d
    if isinstance(cell.skip, Tensor):
        if not torch.equal(through, through.diag().diag()):
            raise PegboardError("with as many inputs as outputs D must be diagonal: an LRU has no other")
        through = through.diag()
    given = {
        "nu": torch.log(-torch.log(values.abs().clamp_min(EDGE))),
        "phase": values.angle(),
        "gamma": torch.ones_like(values.real),
        "input.weight": torch.view_as_real(inputs).transpose(1, 2).flatten(0, 1),
        "output.weight": torch.stack((outputs.real, -outputs.imag), -1).flatten(1),
        "skip" if isinstance(cell.skip, Tensor) else "skip.weight": through,
    }
    cell.to(a.dtype).load_state_dict(given)
    return cell
