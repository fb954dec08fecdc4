"""Models that are linear in their parameters and not in their input: polynomials, a sine with a trend."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction

import torch
from torch import Tensor

from .modules import LinearInParameters

Monomial = tuple[int, ...]  # the inputs that are multiplied, in order: (0, 0, 2) is x0 x0 x2
Row = list[Fraction]


def monomials(inputs: int, degree: int) -> Iterator[Monomial]:
    """Every monomial of degree 0 to `degree`, lower degrees first."""
    for d in range(degree + 1):
        yield from itertools.combinations_with_replacement(range(inputs), d)


class Polynomial(LinearInParameters):
    """A polynomial of `inputs` numbers a sample, with every monomial up to `degree`.

    Features are products of polynomials of one input each, p(k, t) of degree k: t^k (monomial), T_k
    (chebyshev) or P_k (legendre), where t is the input with `domain` moved to [-1, 1]. All bases have the
    same span; `convert` goes from one to another. The constant is the bias of the head.
    """

    index: Tensor  # (factors, features): where the factors of a feature stand in the table of p(k, t)

    def __init__(
        self,
        inputs: int,
        degree: int,
        outputs: int,
        *,
        basis: str = "monomial",
        domain: tuple[float, float] = (-1.0, 1.0),
        bias: bool = True,
        init: str = "default",
    ) -> None:
        if basis not in ("monomial", "chebyshev", "legendre"):
            raise ValueError(f"unknown basis {basis!r}: expected monomial, chebyshev or legendre")
        if degree < 1 or not domain[0] < domain[1]:
            raise ValueError(f"degree {degree} and domain {domain}: expected at least 1, and low below high")
        count = math.comb(inputs + degree, degree) - 1
        super().__init__(inputs, count, outputs, bias=bias, init=init)
        self.inputs, self.degree, self.basis, self.domain = inputs, degree, basis, tuple(domain)
        factors = [list(Counter(m).items()) for m in monomials(inputs, degree) if m]
        most = min(inputs, degree)
        places = [[i * (degree + 1) + k for i, k in chosen] for chosen in factors]
        # Place 0 of the table is the constant 1, which fills up what has fewer factors.
        index = torch.tensor([row + [0] * (most - len(row)) for row in places]).T.contiguous()
        self.register_buffer("index", index, persistent=False)

    def expand(self, x: Tensor) -> Tensor:
        low, high = self.domain
        t = x if (low, high) == (-1, 1) else (x * 2 - (low + high)) / (high - low)
        table = [torch.ones_like(t), t]
        for k in range(2, self.degree + 1):
            if self.basis == "monomial":
                table.append(table[-1] * t)
            elif self.basis == "chebyshev":
                table.append(2 * t * table[-1] - table[-2])
            else:
                table.append(((2 * k - 1) * t * table[-1] - (k - 1) * table[-2]) / k)
        if self.inputs == 1:
            return torch.cat(table[1:], 1)
        flat = torch.stack(table, -1).flatten(1)
        y = flat.index_select(1, self.index[0])
        for places in self.index[1:]:
            y = y * flat.index_select(1, places)
        return y

    def extra_repr(self) -> str:
        return f"degree {self.degree}, {self.basis} on {list(self.domain)}"


class SineTrend(LinearInParameters):
    """`a sin(frequency x) + b x + c`, with numbers a and b for every input and output."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        *,
        frequency: float = 1.0,
        bias: bool = True,
        init: str = "default",
    ) -> None:
        super().__init__(inputs, 2 * inputs, outputs, bias=bias, init=init)
        self.frequency = frequency

    def expand(self, x: Tensor) -> Tensor:
        return torch.cat(((self.frequency * x).sin(), x), 1)

    def extra_repr(self) -> str:
        return f"frequency {self.frequency}"


def convert(
    model: Polynomial, basis: str = "monomial", domain: tuple[float, float] = (-1.0, 1.0)
) -> Polynomial:
    """The same polynomial in another basis: by default its coefficients of 1, x, x^2, ...

    The numbers that lead from one basis to the other are exact fractions; only weights are rounded.
    """
    rows = _change(model.degree, (model.basis, model.domain), (basis, domain))
    head, bias = model.head, model.head.bias
    made = Polynomial(
        model.inputs, model.degree, head.out_features, basis=basis, domain=domain, bias=bias is not None
    ).to(head.weight)
    place = {m: i for i, m in enumerate(monomials(model.inputs, model.degree))}
    old = torch.zeros(len(place), head.out_features, dtype=torch.float64)
    old[1:] = head.weight.detach().double().cpu().T
    if bias is not None:
        old[0] = bias.detach().double().cpu()
    new = torch.zeros_like(old)
    for monomial, at in place.items():
        for target, factor in _expanded(monomial, rows):
            new[place[target]] += factor * old[at]
    if bias is None and new[0].abs().max() > 0:
        raise ValueError("this polynomial has no bias, and in the other basis it needs one")
    with torch.no_grad():
        made.head.weight.copy_(new[1:].T)
        if bias is not None:
            made.head.bias.copy_(new[0])
    return made


def _expanded(monomial: Monomial, rows: Sequence[Row]) -> Iterator[tuple[Monomial, float]]:
    """A product of old basis polynomials as a sum of products of new ones."""
    powers = Counter(monomial)
    for chosen in itertools.product(*(range(k + 1) for k in powers.values())):
        factor = math.prod(
            (rows[k][j] for k, j in zip(powers.values(), chosen, strict=True)), start=Fraction(1)
        )
        if factor:
            yield tuple(i for i, j in zip(powers, chosen, strict=True) for _ in range(j)), float(factor)


def _change(
    degree: int, source: tuple[str, Sequence[float]], target: tuple[str, Sequence[float]]
) -> list[Row]:
    """Row k: polynomial k of the source basis as numbers of the target's, the constant's first."""
    new = _coefficients(degree, *target)
    rows = []
    for left in _coefficients(degree, *source):
        row = [Fraction(0)] * (degree + 1)
        for k in reversed(range(degree + 1)):
            row[k] = left[k] / new[k][k]
            left = [a - row[k] * b for a, b in zip(left, new[k], strict=True)]
        rows.append(row)
    return rows


def _coefficients(degree: int, basis: str, domain: Sequence[float]) -> list[Row]:
    """Row k: the coefficients of 1, x, x^2, ... of polynomial k of a basis."""
    low, high = map(Fraction, domain)
    slope, start = 2 / (high - low), -(low + high) / (high - low)

    def times_t(row: Row) -> Row:
        return [start * a + slope * b for a, b in zip(row, [Fraction(0), *row[:-1]], strict=True)]

    rows = [[Fraction(1), *[Fraction(0)] * degree]]
    rows.append(times_t(rows[0]))
    for k in range(2, degree + 1):
        ahead = times_t(rows[-1])
        if basis == "chebyshev":
            ahead = [2 * a - b for a, b in zip(ahead, rows[-2], strict=True)]
        elif basis == "legendre":
            ahead = [((2 * k - 1) * a - (k - 1) * b) / k for a, b in zip(ahead, rows[-2], strict=True)]
        rows.append(ahead)
    return rows
