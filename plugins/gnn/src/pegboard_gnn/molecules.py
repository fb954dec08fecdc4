"""Collections of graphs as TU Dortmund publishes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from pegboard import Classes, Context, DataSpec, PegboardError, Spec, Splits, Values
from torch import Tensor
from torch.nn import functional
from torch_geometric.io import read_tu_data  # type: ignore[import-untyped]
from torch_geometric.utils import degree  # type: ignore[import-untyped]

from . import files, splitting
from .data_configs import TuDataset
from .graphs import GraphSet
from .specs import Bounds, EdgeFeatures, Edges, Nodes

ADDRESS = "https://www.chrsmrrs.com/graphkerneldatasets"
MOST = 128  # degrees that are told apart where nodes have no labels


def tudataset(config: TuDataset, context: Context) -> Splits:
    """Graphs by random splits with the classes' shares in each, or by folds of them."""
    whole, told = read(config)
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
        notes={"source": f"{ADDRESS}/{config.dataset}.zip", "features": told, "about": told},
    )


def read(config: TuDataset) -> tuple[GraphSet, str]:
    """All graphs of a collection, and in words what is known of a node."""
    name = config.dataset
    wanted = [f"{name}_A.txt", f"{name}_graph_indicator.txt"]
    folder = files.find("tudataset", config.root, name, wanted, [f"{ADDRESS}/{name}.zip"])
    try:
        data, slices, widths = read_tu_data(str(folder), name)
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
        x, told = _nodes(config, data, widths, sizes, len(indicator))
        features = data.edge_attr.float() if config.edge_labels and data.edge_attr is not None else None
        if config.edge_labels and features is None:
            raise PegboardError(f"data.edge_labels: {name} has no labels of edges")
        classes = data.y.dim() == 1 and not data.y.is_floating_point()
        y = data.y if classes else data.y.float().view(len(sizes), -1)
        return GraphSet(x, data.edge_index, sizes, y, features=features), told
    except (ValueError, TypeError, AttributeError, LookupError, RuntimeError, OSError) as error:
        raise PegboardError(f"{folder} does not hold {name} as it is published: {error}") from None


def _nodes(
    config: TuDataset, data: Any, widths: Mapping[str, int], sizes: Tensor, count: int
) -> tuple[Tensor, str]:
    """What the config asks to be known of every node, (nodes, features), and that in words."""
    known = {"attributes": widths["num_node_attributes"], "labels": widths["num_node_labels"]}
    there = [name for name, width in known.items() if width]
    choice = config.features
    if choice == "auto":
        choice = "labels" if known["labels"] else "attributes" if known["attributes"] else "degrees"
    wanted = {"both": ["attributes", "labels"], "degrees": []}.get(choice, [choice])
    if not set(wanted) <= set(there):
        has = " and ".join(f"{name} ({known[name]} numbers)" for name in there)
        choices = ["auto", *there, *(["both"] if len(there) > 1 else []), "degrees"]
        raise PegboardError(
            f"data.features is {config.features}, but {config.dataset} has "
            f"{has + ' of nodes alone' if has else 'neither labels nor attributes of nodes'}\n"
            f"  expected: {', '.join(choices)}"
        )
    left = (
        f", not their {' and '.join(n for n in there if n not in wanted)}" if len(wanted) < len(there) else ""
    )
    if choice == "degrees":
        x = _degrees(data.edge_index, sizes, count)
        return x, f"nodes are known by their degrees ({x.shape[1]} numbers){left}"
    columns = dict(zip(known, torch.split(data.x.float(), [*known.values()], 1), strict=True))
    told = " and ".join(f"{name} ({known[name]} numbers)" for name in wanted)
    return torch.cat([columns[name] for name in wanted], 1), f"nodes are known by their {told}{left}"


def _degrees(edges: Tensor, sizes: Tensor, nodes: int) -> Tensor:
    """One-hot degrees, for nodes of which nothing else is known."""
    start = torch.repeat_interleave(sizes[:, 0].cumsum(0) - sizes[:, 0], sizes[:, 1])
    found = degree(edges[0] + start, nodes).long().clamp(max=MOST)
    return functional.one_hot(found).float()
