"""Graphs of PyTorch Geometric as sources, and batches as its data objects."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from pegboard import Batch
from torch import Tensor
from torch_geometric.data import Data  # type: ignore[import-untyped]
from torch_geometric.utils import remove_self_loops  # type: ignore[import-untyped]

from .graphs import Graph, GraphSet


def graph_of(data: Data) -> Graph:
    """A graph from PyG, without its edges from nodes to themselves; weights of edges become a feature."""
    features = data.edge_attr if data.edge_attr is not None else data.edge_weight
    edges, features = remove_self_loops(data.edge_index, features)
    if features is not None:
        features = features.float().flatten(1) if features.dim() > 1 else features.float().unsqueeze(1)
    x = torch.ones(data.num_nodes, 1) if data.x is None else data.x.float()
    return Graph(x, edges.contiguous(), features)


def graphs_of(data: Iterable[Data]) -> GraphSet:
    """Many graphs from PyG, with what each of them has as `y` as its target."""
    found = list(data)
    targets = [one.y.view(1, -1) for one in found if one.y is not None]
    target: Tensor | None = None
    if targets:
        joined = torch.cat(targets)
        classes = joined.shape[1] == 1 and not joined.is_floating_point()
        target = joined[:, 0] if classes else joined.float()
    return GraphSet.join([graph_of(one) for one in found], target)


def data_of(batch: Batch) -> Data:
    """A batch of graphs as PyG has it: `x`, `edge_index`, `edge_attr`, `ptr`, `batch` and `y`."""
    x, edges, *known, bounds = batch.inputs
    owner = torch.repeat_interleave(
        torch.arange(len(bounds) - 1, device=bounds.device), bounds[1:] - bounds[:-1], output_size=len(x)
    )
    features = known[0] if known else None
    return Data(x=x, edge_index=edges, edge_attr=features, y=batch.target, ptr=bounds, batch=owner)
