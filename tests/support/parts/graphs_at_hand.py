"""Small graphs that tests share."""

from __future__ import annotations

import functools
from typing import Any

import torch
from pegboard import Classes, Context, DataSpec
from pegboard.registry.discovery import Registry
from pegboard_gnn import Asked, Bounds, EdgeFeatures, Edges, Nodes
from torch import Tensor, nn

FEATURES = 5


def random_graph(nodes: int, seed: int = 0, share: float = 0.35) -> Tensor:
    """Undirected edges (2, edges), each in both directions."""
    upper = torch.triu(torch.rand(nodes, nodes, generator=torch.Generator().manual_seed(seed)) < share, 1)
    return (upper | upper.T).nonzero().T.contiguous()


def undirected(*pairs: tuple[int, int]) -> Tensor:
    edges = torch.tensor(pairs, dtype=torch.int64).T
    return torch.cat((edges, edges.flip(0)), 1)


def path(nodes: int) -> Tensor:
    return undirected(*((i, i + 1) for i in range(nodes - 1)))


def cycle(nodes: int, first: int = 0) -> Tensor:
    return undirected(*((first + i, first + (i + 1) % nodes) for i in range(nodes)))


def relabelled(x: Tensor, edges: Tensor, order: Tensor) -> tuple[Tensor, Tensor]:
    """The same graph where node i is called order[i]: P X and P A P^T."""
    moved = torch.empty_like(x)
    moved[order] = x
    return moved, order[edges]


@functools.cache
def entry(name: str) -> Any:
    """The record of a model."""
    return next(e.part for e in Registry.discover().entries("model") if e.part.name == name)


def model(
    name: str, *, graphs: bool = False, fixed: bool = False, nodes: int = 0, edges: int = 0, outputs: int = 3,
    features: int = FEATURES, seed: int = 0, **fields: Any,
) -> nn.Module:  # fmt: skip
    """A model with random weights for such data, in evaluation."""
    known = (EdgeFeatures(edges),) if edges else ()
    last = Bounds() if graphs else Asked()
    spec = DataSpec((Nodes(features, nodes), Edges(fixed), *known, last), Classes(outputs))
    part = entry(name)
    torch.manual_seed(seed)
    made: nn.Module = part.build(part.config(**fields), Context(spec=spec, outputs=outputs))
    return made.eval()
