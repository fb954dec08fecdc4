"""Filters on the eigenvectors of a graph's Laplacian, which is its Fourier transform."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from .memo import Memo
from .structure import Laplacian, Structure, dense

SAME = 1e-8  # eigenvalues so near each other are one, whose eigenvectors are any of a space


class Spectrum(NamedTuple):
    """Eigenvalues (modes,) from the lowest on, and eigenvectors (nodes, modes)."""

    values: Tensor
    vectors: Tensor


def spectrum(
    edges: Tensor, weight: Tensor | None, nodes: int, normalised: bool, modes: int | None
) -> Spectrum:
    """The eigen-decomposition of the Laplacian of an undirected graph, in double precision."""
    features = None if weight is None else weight.double().unsqueeze(1)
    structure = Laplacian(normalised)(edges, features, nodes)
    matrix = dense(structure._replace(weight=_required(structure.weight).double()))
    values, vectors = torch.linalg.eigh((matrix + matrix.T) / 2)
    return Spectrum(values[:modes], vectors[:, :modes])


def _required(weight: Tensor | None) -> Tensor:
    assert weight is not None
    return weight


def transform(x: Tensor, of: Spectrum) -> Tensor:
    """The graph Fourier transform: the share of each eigenvector in signals (nodes, features)."""
    return of.vectors.T @ x


def inverse(shares: Tensor, of: Spectrum) -> Tensor:
    """The signals (nodes, features) that such shares make."""
    return of.vectors @ shares


def convolve(x: Tensor, y: Tensor, of: Spectrum) -> Tensor:
    """The convolution of two signals: the product of their transforms, transformed back."""
    return inverse(transform(x, of) * transform(y, of), of)


def filtered(x: Tensor, factors: Tensor, of: Spectrum) -> Tensor:
    """Signals with every eigenvector scaled by a factor (modes,)."""
    return inverse(factors.unsqueeze(1) * transform(x, of), of)


def kernels(values: Tensor, count: int, kind: str, top: float | Tensor) -> Tensor:
    """Smooth functions of the eigenvalues from 0 to `top`: (modes, count).

    Gaussians of one width with centres at equal distances, or powers of the eigenvalue, as a share of `top`.
    """
    at = (values / top).unsqueeze(1)
    numbers = torch.arange(count, device=values.device, dtype=values.dtype)
    if kind == "polynomial":
        return at**numbers
    step = 1 / max(count - 1, 1)
    return torch.exp(-0.5 * ((at - numbers * step) / step).square())


class Fixed(NamedTuple):
    """What the layers of a network share of their graph."""

    spectrum: Spectrum
    basis: Tensor | None  # (modes, kernels) where filters are smooth
    tied: Tensor | None = None  # (modes,) else, where eigenvalues coincide: the number of each one's value


class Decomposed:
    """Prepares the eigenvectors of a graph, once."""

    def __init__(self, modes: int | None, normalised: bool, smooth: int | None, kind: str) -> None:
        self.modes, self.normalised, self.smooth, self.kind = modes, normalised, smooth, kind
        self.fixed = True
        self._memo: Memo[Fixed] = Memo()

    def __call__(self, edges: Tensor, features: Tensor | None, nodes: int) -> Fixed:
        if edges.is_meta:
            count = nodes if self.modes is None else self.modes
            empty = Spectrum(_empty(edges, count), _empty(edges, nodes, count))
            return Fixed(empty, None if self.smooth is None else _empty(edges, count, self.smooth))
        keys = (edges,) if features is None else (edges, features)
        if torch.compiler.is_compiling():
            return self._memo.kept(keys) or self._once(edges, features, nodes)
        return self._memo.get(keys, lambda: self._once(edges, features, nodes))

    @torch.no_grad()
    def _once(self, edges: Tensor, features: Tensor | None, nodes: int) -> Fixed:
        weight = None if features is None else features[:, 0]
        found = spectrum(edges, weight, nodes, self.normalised, self.modes)
        basis = tied = None
        if self.smooth is not None:
            top = torch.full_like(found.values[-1], 2.0) if self.normalised else found.values[-1]
            top = torch.where(top < SAME, torch.ones_like(top), top)  # all are 0 where no edge is
            basis = kernels(found.values, self.smooth, self.kind, top).float()
        else:
            apart = found.values.diff() > SAME * found.values[-1].clamp(min=1)
            if torch.compiler.is_compiling() or not bool(apart.all()):
                tied = functional.pad(apart.cumsum(0), (1, 0))
        return Fixed(Spectrum(found.values.float(), found.vectors.float()), basis, tied)


def _empty(like: Tensor, *shape: int) -> Tensor:
    return torch.zeros(shape, device=like.device)


def means(x: Tensor, owner: Tensor) -> Tensor:
    """Rows of x, each the mean of those with the same number in `owner` (rows,)."""
    counts = x.new_zeros(len(x)).index_add(0, owner, x.new_ones(len(x))).clamp(min=1)
    sums = torch.zeros_like(x).index_add(0, owner, x)
    return (sums / counts.view(-1, *[1] * (x.dim() - 1)))[owner]


class SpectralConv(nn.Module):
    """A filter for every pair of channels: a factor for each eigenvector, or weights of smooth kernels."""

    def __init__(self, inputs: int, outputs: int, factors: int, bias: bool = True) -> None:
        super().__init__()
        self.filters = nn.Parameter(torch.empty(factors, inputs, outputs))
        nn.init.uniform_(self.filters, -1, 1)
        with torch.no_grad():
            self.filters.mul_((3 / inputs) ** 0.5)
        self.bias = nn.Parameter(torch.zeros(outputs)) if bias else None

    def forward(self, x: Tensor, of: Any) -> Tensor:
        shares = transform(x, of.spectrum)  # (modes, inputs)
        if of.basis is None:
            # Which eigenvectors of one value were found is chance, which one factor for all makes nothing of.
            filters = self.filters if of.tied is None else means(self.filters, of.tied)
            mixed = torch.bmm(shares.unsqueeze(1), filters).squeeze(1)
        else:  # the kernels weigh what each of their matrices makes
            mixed = torch.einsum("mk,mi,kio->mo", of.basis, shares, self.filters)
        found = inverse(mixed, of.spectrum)
        return found if self.bias is None else found + self.bias


def polynomial(x: Tensor, coefficients: Tensor, structure: Structure) -> Tensor:
    """The sum of coefficients[k] L^k x by Horner's rule, without eigenvectors: exactly so many hops."""
    edges, weight = structure.edges, structure.weight
    ones = torch.ones(edges.shape[1], dtype=x.dtype, device=x.device) if weight is None else weight
    found = coefficients[-1] * x
    for coefficient in reversed(coefficients[:-1].unbind()):
        moved = torch.zeros_like(x).index_add(0, edges[1], ones.to(x.dtype).unsqueeze(1) * found[edges[0]])
        found = coefficient * x + moved
    return found
