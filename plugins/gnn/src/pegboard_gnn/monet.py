"""Patches around nodes: neighbours weighed by learned functions of where they lie."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing  # type: ignore[import-untyped]

from .structure import Structure, degrees, inverse_root, with_loops


@dataclass(frozen=True)
class Located:
    """Edges with coordinates of the source as its target sees it, and each node at the origin of its own.

    Where edges have no features, the coordinates are 1 / sqrt(degree) of both ends.
    """

    features: bool

    def __call__(self, edges: Tensor, known: Tensor | None, nodes: int) -> Structure:
        looped = with_loops(edges, nodes)
        if self.features:
            assert known is not None
            return Structure(looped, None, torch.cat((known, known.new_zeros(nodes, known.shape[1]))), nodes)
        root = inverse_root(degrees(looped[1], None, nodes))
        return Structure(looped, None, torch.stack((root[looped[0]], root[looped[1]]), 1), nodes)


class Gaussians(nn.Module):
    """exp(-(u - mu)^T S^-1 (u - mu)) for each of so many mu and S, where S^-1 = B B^T is never negative."""

    def __init__(self, kernels: int, coordinates: int) -> None:
        super().__init__()
        self.mu = nn.Parameter(torch.empty(kernels, coordinates))
        nn.init.uniform_(self.mu, -1, 1)
        self.factor = nn.Parameter(torch.eye(coordinates).repeat(kernels, 1, 1))

    def forward(self, u: Tensor) -> Tensor:
        """Weights (edges, kernels) of coordinates (edges, coordinates)."""
        apart = u.unsqueeze(1) - self.mu
        away: Tensor = torch.einsum("ekc,kcd->ekd", apart, self.factor)
        found: Tensor = torch.exp(-away.square().sum(-1))
        return found


class Ball(nn.Module):
    """1 up to a distance and 0 beyond it: the neighbourhood as it is."""

    def __init__(self, radius: float) -> None:
        super().__init__()
        self.radius = radius

    def forward(self, u: Tensor) -> Tensor:
        away: Tensor = torch.linalg.vector_norm(u, dim=1, keepdim=True)
        return (away <= self.radius).to(u.dtype)


class PatchConv(MessagePassing):  # type: ignore[misc]
    """A linear map of the patch of every node: sums, or means, of its neighbours by each weight function.

    `weights` gives (edges, kernels) of coordinates (edges, coordinates).
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        weights: Callable[[Tensor], Tensor],
        kernels: int,
        mean: bool,
        bias: bool,
    ) -> None:
        super().__init__(aggr="add")
        self.weights, self.mean, self.kernels = weights, mean, kernels
        self.map = nn.Linear(kernels * inputs, outputs, bias=bias)

    def forward(self, x: Tensor, structure: Structure) -> Tensor:
        result: Tensor = self.map(self.patches(x, structure).flatten(1))
        return result

    def patches(self, x: Tensor, structure: Structure) -> Tensor:
        """What each weight function sees around every node: (nodes, kernels, features)."""
        assert structure.features is not None
        weight = self.weights(structure.features)
        size = (structure.nodes, structure.nodes)
        if not self.mean:
            found: Tensor = self.propagate(structure.edges, x=x, weight=weight, size=size)
            return found.view(-1, self.kernels, x.shape[1])
        ones = torch.cat((x, x.new_ones(len(x), 1)), 1)
        found = self.propagate(structure.edges, x=ones, weight=weight, size=size)
        found = found.view(-1, self.kernels, x.shape[1] + 1)
        return found[..., :-1] / found[..., -1:].clamp(min=1e-12)

    def message(self, x_j: Tensor, weight: Tensor) -> Tensor:
        return (weight.unsqueeze(2) * x_j.unsqueeze(1)).flatten(1)
