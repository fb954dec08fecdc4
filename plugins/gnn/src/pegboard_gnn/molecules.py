"""Collections of graphs as TU Dortmund publishes them."""

from __future__ import annotations

import torch
from pegboard import (
    Bounds,
    Classes,
    Context,
    DataSpec,
    EdgeFeatures,
    Edges,
    GraphSet,
    Nodes,
    PegboardError,
    Spec,
    Splits,
    Values,
)
from torch import Tensor
from torch.nn import functional
from torch_geometric.io import read_tu_data  # type: ignore[import-untyped]
from torch_geometric.utils import degree  # type: ignore[import-untyped]

from . import files, splitting
from .data_configs import TuDataset

ADDRESS = "https://www.chrsmrrs.com/graphkerneldatasets"
MOST = 128  # degrees that are told apart where nodes have no labels


def tudataset(config: TuDataset, context: Context) -> Splits:
    """Graphs by random splits with the classes' shares in each, or by folds of them."""
    whole = read(config)
    assert whole.target is not None
    values = whole.target.is_floating_point()
    even = torch.zeros(len(whole), dtype=torch.int64) if values else whole.target
    train, val, test = splitting.parts(even, config.val, config.test, context)
    target: Spec = Values(whole.target.shape[1]) if values else Classes(int(whole.target.max()) + 1)
    known = () if whole.features is None else (EdgeFeatures(whole.features.shape[1]),)
    spec = DataSpec((Nodes(whole.x.shape[1]), Edges(), *known, Bounds()), target)
    take = GraphSet.picked
    return Splits(
        spec=spec,
        train=take([whole], train),
        val=take([whole], val),
        test=take([whole], test) if len(test) else None,
        notes={"source": f"{ADDRESS}/{config.dataset}.zip"},
    )


def read(config: TuDataset) -> GraphSet:
    """All graphs of a collection."""
    name = config.dataset
    wanted = [f"{name}_A.txt", f"{name}_graph_indicator.txt"]
    folder = files.find("tudataset", config.root, name, wanted, [f"{ADDRESS}/{name}.zip"])
    try:
        data, slices, _ = read_tu_data(str(folder), name)
        if data.y is None:
            raise ValueError(f"neither {name}_graph_labels.txt nor {name}_graph_attributes.txt is there")
        indicator = torch.tensor(
            [int(line) for line in (folder / wanted[1]).read_text("ascii").split()], dtype=torch.int64
        )
        if bool((indicator.diff() < 0).any()):
            raise ValueError(f"the nodes of a graph do not stand together in {wanted[1]}")
        nodes = torch.bincount(indicator - 1, minlength=len(data.y))
        edges = slices["edge_index"].diff()  # PyG leaves out last graphs that have none
        sizes = torch.stack((nodes, functional.pad(edges, (0, len(nodes) - len(edges)))), 1)
        ends = torch.repeat_interleave(sizes[:, 0], sizes[:, 1])
        if bool(((data.edge_index < 0) | (data.edge_index >= ends)).any()):
            raise ValueError("an edge leads to a node of another graph, or to none")
        x: Tensor = _degrees(data.edge_index, sizes, len(indicator)) if data.x is None else data.x.float()
        features = data.edge_attr.float() if config.edge_labels and data.edge_attr is not None else None
        if config.edge_labels and features is None:
            raise PegboardError(f"data.edge_labels: {name} has no labels of edges")
        classes = data.y.dim() == 1 and not data.y.is_floating_point()
        y = data.y if classes else data.y.float().view(len(sizes), -1)
        return GraphSet(x, data.edge_index, sizes, y, features=features)
    except (ValueError, TypeError, AttributeError, LookupError, RuntimeError, OSError) as error:
        raise PegboardError(f"{folder} does not hold {name} as it is published: {error}") from None


def _degrees(edges: Tensor, sizes: Tensor, nodes: int) -> Tensor:
    """One-hot degrees, for nodes of which nothing else is known."""
    start = torch.repeat_interleave(sizes[:, 0].cumsum(0) - sizes[:, 0], sizes[:, 1])
    found = degree(edges[0] + start, nodes).long().clamp(max=MOST)
    return functional.one_hot(found).float()
