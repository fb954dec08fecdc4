"""A quadratic program with bounds, by an interior point method: the core of an exact SVM."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

ITERATIONS = 100  # 10 to 30 is usual
SMALL = 1e-15  # mean product of a variable and its price at which an answer is as good as it gets
DENSE = 64  # variables up to which their own matrix is formed even where that of the features is smaller

Step = tuple[Tensor, Tensor, Tensor, Tensor]  # of x, low, high and prices


class Program:
    """Minimise ||root^T x||^2 / 2 + cost x where equations x = right and 0 <= x <= upper.

    `root` (variables, rank), `equations` (equations, variables). `solve` leaves the answer in `x`, what is
    left to its upper bounds in `room`, the prices of bounds in `low` and `high` and those of the equations in
    `prices`. Mehrotra's method: it looks where a step towards the answer would lead, and corrects it.
    """

    def __init__(
        self, root: Tensor, cost: Tensor, equations: Tensor, right: Tensor, upper: Tensor | None = None
    ) -> None:
        self.root, self.cost, self.equations, self.right = root, cost, equations, right
        self.bounded = upper is not None
        self.x = torch.full_like(cost, 0.5) if upper is None else upper / 2
        self.room = torch.ones_like(cost) if upper is None else upper / 2
        self.low = torch.ones_like(cost)
        self.high = torch.ones_like(cost) * self.bounded
        self.prices = torch.zeros_like(right)

    def solve(self) -> Program:
        for _ in range(ITERATIONS):
            dual = self.root @ (self.root.T @ self.x) + self.cost + self.equations.T @ self.prices
            dual += self.high - self.low
            primal = self.equations @ self.x - self.right
            mean = self._mean(self.x, self.low, self.room, self.high)
            exact = primal.abs().max() < 1e-12 if len(primal) else True
            if mean < SMALL and exact and float(dual.abs().max()) < 1e-10:
                break
            found = self._direction(mean, dual, primal)
            if not all(torch.isfinite(change).all() for change in found):
                break  # rounding allows no better answer
            far = min(1.0, 0.995 * self._reach(*found[:3]))
            dx, dlow, dhigh, dprices = (far * change for change in found)
            self.x, self.low, self.prices = self.x + dx, self.low + dlow, self.prices + dprices
            if self.bounded:
                self.room, self.high = self.room - dx, self.high + dhigh
        return self

    def _direction(self, mean: float, dual: Tensor, primal: Tensor) -> Step:
        """The next step, corrected by what a first one would leave."""
        x, low, room, high = self.x, self.low, self.room, self.high
        inverse = _inverse(self.root, low / x + high / room)
        columns = inverse(self.equations.T)
        square = self.equations @ columns

        def step(below: Tensor, above: Tensor) -> Step:
            free = inverse(below / x - above / room - dual)
            dprices, _ = torch.linalg.solve_ex(square, self.equations @ free + primal)
            dx = free - columns @ dprices
            return dx, (below - low * dx) / x, (above + high * dx) / room, dprices

        first = step(-x * low, -room * high)
        if not all(torch.isfinite(change).all() for change in first):
            return first
        dx, dlow, dhigh, _ = first
        far = min(1.0, self._reach(dx, dlow, dhigh))
        left = self._mean(x + far * dx, low + far * dlow, room - far * dx, high + far * dhigh)
        centre = mean * (left / mean) ** 3
        return step(centre - x * low - dx * dlow, (centre - room * high + dx * dhigh) * self.bounded)

    def _mean(self, x: Tensor, low: Tensor, room: Tensor, high: Tensor) -> float:
        """Of all products of a variable and its price, which are 0 at the answer."""
        return float(x @ low + room @ high) / (len(x) * (1 + self.bounded))

    def _reach(self, dx: Tensor, dlow: Tensor, dhigh: Tensor) -> float:
        """How far one may go before the first variable or price would be negative."""
        values, changes = torch.cat([self.x, self.low]), torch.cat([dx, dlow])
        if self.bounded:
            values, changes = torch.cat([values, self.room, self.high]), torch.cat([changes, -dx, dhigh])
        return float(torch.where(changes < 0, -values / changes, torch.inf).min().clamp(max=1e9))


def _inverse(root: Tensor, diagonal: Tensor) -> Callable[[Tensor], Tensor]:
    """(root root^T + diag(diagonal))^-1 as a function of columns, or of one."""
    whole = root.shape[0] <= max(root.shape[1], DENSE)
    divided = root / diagonal.unsqueeze(-1)
    # Of two equal forms the one with the smaller matrix.
    matrix = (
        root @ root.T + torch.diag(diagonal)
        if whole
        else torch.eye(root.shape[1]).to(root) + root.T @ divided
    )
    scale = matrix.diagonal().rsqrt().unsqueeze(-1)
    factor, pivots, _ = torch.linalg.lu_factor_ex(scale * matrix * scale.T)

    def inner(columns: Tensor) -> Tensor:
        solved: Tensor = torch.linalg.lu_solve(factor, pivots, scale * columns)
        return scale * solved

    def apply(right: Tensor) -> Tensor:
        columns = right.reshape(len(right), -1)
        if whole:
            return inner(columns).reshape(right.shape)
        first = columns / diagonal.unsqueeze(-1)
        return (first - divided @ inner(root.T @ first)).reshape(right.shape)

    return apply
