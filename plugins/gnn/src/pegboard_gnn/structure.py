"""What a network needs of a graph: its edges with weights, ready to carry messages.

Nothing here waits for a device or makes shapes that depend on numbers, but what is computed once for a graph
that stays the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from .memo import Memo
from .sparse import Csr


class Structure(NamedTuple):
    """Edges (2, edges), source to target, with a weight for each, and as a matrix where that is worth it."""

    edges: Tensor
    weight: Tensor | None  # (edges,)
    features: Tensor | None  # (edges, features)
    nodes: int
    matrix: Csr | None = None  # (targets, sources)


Prepare = Callable[[Tensor, Tensor | None, int], Structure]  # edges, features, nodes -> structure


def degrees(index: Tensor, weight: Tensor | None, nodes: int) -> Tensor:
    """The sum of weights, or the number, of edges at each node: (nodes,)."""
    ones = torch.ones(len(index), device=index.device) if weight is None else weight
    return ones.new_zeros(nodes).index_add(0, index, ones)


def inverse_root(numbers: Tensor) -> Tensor:
    """1 / sqrt of each number, 0 where it is 0."""
    return torch.where(numbers > 0, numbers.clamp(min=1e-30).rsqrt(), 0.0)


def edge_weights(features: Tensor | None) -> Tensor | None:
    """A single feature of an edge as its weight."""
    return None if features is None else features[:, 0]


def with_loops(edges: Tensor, nodes: int) -> Tensor:
    """The edges and one from each node to itself."""
    loops = torch.arange(nodes, device=edges.device).expand(2, nodes)
    return torch.cat((edges, loops), 1)


def coupled(edges: Tensor, features: Tensor | None, nodes: int) -> Structure:
    """The coupling of graph convolution: D^-1/2 (A + I) D^-1/2."""
    weight = edge_weights(features)
    ones = torch.ones(edges.shape[1], device=edges.device) if weight is None else weight
    weight = torch.cat((ones, ones.new_ones(nodes)))
    edges = with_loops(edges, nodes)
    root = inverse_root(degrees(edges[1], weight, nodes))
    return Structure(edges, root[edges[0]] * weight * root[edges[1]], None, nodes)


def plain(edges: Tensor, features: Tensor | None, nodes: int) -> Structure:
    """The edges as they are, each of weight 1."""
    return Structure(edges, None, features, nodes)


def looped(edges: Tensor, features: Tensor | None, nodes: int) -> Structure:
    """The edges and one from each node to itself, whose features are the mean of those that lead to it."""
    if features is not None:
        sums = features.new_zeros(nodes, features.shape[1]).index_add(0, edges[1], features)
        counts = degrees(edges[1], None, nodes).clamp(min=1).unsqueeze(1)
        features = torch.cat((features, sums / counts))
    return Structure(with_loops(edges, nodes), None, features, nodes)


@dataclass(frozen=True)
class ScaledLaplacian:
    """2 L / top - I as edges with weights, of the normalised Laplacian or of D - A."""

    top: float = 2.0
    normalised: bool = True

    def __call__(self, edges: Tensor, features: Tensor | None, nodes: int) -> Structure:
        found, weight = laplacian_edges(edges, edge_weights(features), nodes, self.normalised)
        weight = weight * (2 / self.top)
        loops = torch.cat((weight.new_zeros(len(weight) - nodes), weight.new_ones(nodes)))
        return Structure(found, weight - loops, None, nodes)


@dataclass(frozen=True)
class Laplacian:
    """The Laplacian as edges with weights."""

    normalised: bool = True

    def __call__(self, edges: Tensor, features: Tensor | None, nodes: int) -> Structure:
        return Structure(*laplacian_edges(edges, edge_weights(features), nodes, self.normalised), None, nodes)


def laplacian_edges(
    edges: Tensor, weight: Tensor | None, nodes: int, normalised: bool
) -> tuple[Tensor, Tensor]:
    """D - A, or I - D^-1/2 A D^-1/2, as edges and their weights; the last of them are the diagonal."""
    ones = torch.ones(edges.shape[1], device=edges.device) if weight is None else weight
    degree = degrees(edges[1], ones, nodes)
    if not normalised:
        return with_loops(edges, nodes), torch.cat((-ones, degree))
    root = inverse_root(degree)
    diagonal = torch.where(degree > 0, torch.ones_like(degree), 0.0)
    return with_loops(edges, nodes), torch.cat((-root[edges[0]] * ones * root[edges[1]], diagonal))


def dense(structure: Structure) -> Tensor:
    """The matrix (targets, sources) of edges and weights."""
    edges, nodes = structure.edges, structure.nodes
    weight = structure.weight
    ones = torch.ones(edges.shape[1], device=edges.device) if weight is None else weight
    flat = ones.new_zeros(nodes * nodes).index_add(0, edges[1] * nodes + edges[0], ones)
    return flat.view(nodes, nodes)


class Prepared:
    """Prepares the graph of every batch, once where it stays the same."""

    def __init__(self, prepare: Prepare, fixed: bool, matrix: bool = True) -> None:
        self.prepare, self.fixed, self.matrix = prepare, fixed, matrix
        self._memo: Memo[Structure] = Memo()

    def __call__(self, edges: Tensor, features: Tensor | None, nodes: int) -> Structure:
        # On the meta device there is nothing to keep.
        if not self.fixed or edges.is_meta or (features is not None and features.requires_grad):
            return self.prepare(edges, features, nodes)
        keys = (edges,) if features is None else (edges, features)
        if torch.compiler.is_compiling():
            return self._memo.kept(keys) or self.prepare(edges, features, nodes)
        return self._memo.get(keys, lambda: self._once(edges, features, nodes))

    def _once(self, edges: Tensor, features: Tensor | None, nodes: int) -> Structure:
        with torch.no_grad():
            found = self.prepare(edges, features, nodes)
            if not self.matrix:
                return found
            source, target = found.edges
            ones = torch.ones(len(source), device=source.device)
            weight = ones if found.weight is None else found.weight
            return found._replace(matrix=Csr.of(target, source, weight, (nodes, nodes)))
