"""What kind of point a descent has come to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

Kind = Literal["minimum", "maximum", "saddle", "degenerate", "not stationary"]


def stationary_point(
    function: Callable[[Tensor], Tensor], point: Tensor, tolerance: float = 1e-8, flat: float = 1e-9
) -> Kind:
    """The kind of a point (n,) of a function to one number, by the signs of the eigenvalues of its Hessian.

    A gradient longer than `tolerance` is "not stationary". Eigenvalues below `flat` of the largest count as
    0: where some are and the others agree in sign, second derivatives do not decide, which is "degenerate".
    """
    at = point.detach().clone().requires_grad_()
    (slope,) = torch.autograd.grad(function(at), at)
    if float(slope.norm()) > tolerance:
        return "not stationary"
    hessian: Tensor = torch.func.hessian(function)(point.detach())
    values = torch.linalg.eigvalsh(hessian.reshape(point.numel(), -1))
    none = flat * float(values.abs().max())
    up, down = bool((values > none).any()), bool((values < -none).any())
    if up and down:
        return "saddle"
    if bool((values.abs() <= none).any()):
        return "degenerate"
    return "minimum" if up else "maximum"
