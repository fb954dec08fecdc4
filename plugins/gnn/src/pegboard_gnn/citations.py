"""Nodes of one known graph: papers that cite each other, members of a club."""

from __future__ import annotations

from typing import Any

import torch
from pegboard import Classes, Context, DataSpec, PegboardError, Resident, Source, Splits, Vector
from torch import Tensor
from torch_geometric.utils import coalesce, remove_self_loops, to_undirected  # type: ignore[import-untyped]

from . import files, unpickling
from .data_configs import Karate, Planetoid
from .graphs import Graph, WholeGraph, sampled
from .specs import Asked, Edges, Nodes

ADDRESS = "https://github.com/kimiyoung/planetoid/raw/master/data"
NAMES = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
VALIDATED = 500  # papers after those that train


def planetoid(config: Planetoid, context: Context) -> Splits:
    """The splits that were published with the data."""
    x, edges, y, train, test = read_planetoid(config)
    if config.normalize:
        x = x / x.sum(1, keepdim=True).clamp(min=1)
    val = torch.arange(len(train), len(train) + VALIDATED)
    classes = int(y.max()) + 1
    notes = {"source": ADDRESS, "nodes": len(x), "edges": edges.shape[1]}
    if not config.graph:
        found = [Resident([x[nodes]], y[nodes]) for nodes in (train, val, test)]
        spec = DataSpec((Vector(x.shape[1]),), Classes(classes))
        return Splits(spec=spec, train=found[0], val=found[1], test=found[2], notes=notes)
    return node_splits(Graph(x, edges), y, (train, val, test), classes, config.fanouts, context.seed, notes)


def node_splits(
    graph: Graph,
    y: Tensor,
    numbers: tuple[Tensor, Tensor, Tensor],
    classes: int,
    fanouts: tuple[int, ...] | None,
    seed: int,
    notes: dict[str, object],
) -> Splits:
    """Splits of nodes, of the whole graph or of sampled neighbourhoods; evaluations follow all edges.

    So they answer as on the whole graph, of a network that has as many layers as there are fan-outs.
    """
    sources: list[Source] = []
    for number, nodes in enumerate(numbers):
        if fanouts is None:
            sources.append(WholeGraph(graph, nodes, y[nodes]))
        else:
            # A hop more, so that the nodes at the rim have the degrees by which they are normalised.
            followed = [None] * (len(fanouts) + 1) if number else list(fanouts)
            sources.append(sampled(graph, nodes, y[nodes], fanouts=followed, seed=seed))
    whole = fanouts is None
    nodes_spec = Nodes(graph.x.shape[1], len(graph.x) if whole else 0)
    spec = DataSpec((nodes_spec, Edges(whole), Asked()), Classes(classes))
    if fanouts is not None:
        notes = notes | {"memory": f"neighbourhoods of {' x '.join(map(str, fanouts))} edges are sampled"}
    return Splits(spec=spec, train=sources[0], val=sources[1], test=sources[2], notes=notes)


def read_planetoid(config: Planetoid) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Features, edges, classes, and the papers that train and test, in the published order."""
    prefix = config.dataset.lower()
    wanted = [f"ind.{prefix}.{name}" for name in NAMES]
    folder = files.find(
        "planetoid", config.root, config.dataset, wanted, [f"{ADDRESS}/{name}" for name in wanted]
    )
    held = {name: unpickling.load(folder / f"ind.{prefix}.{name}") for name in NAMES[:-1]}
    try:
        lines = (folder / f"ind.{prefix}.test.index").read_text("ascii").split()
        tested = torch.tensor([int(line) for line in lines], dtype=torch.int64)
        allx, tx = _rows(held["allx"]), _rows(held["tx"])
        ally, ty = torch.as_tensor(held["ally"]).float(), torch.as_tensor(held["ty"]).float()
        _fit(len(tested) > 0 and bool((tested >= 0).all()), "no numbers of papers in test.index")
        _fit(len(allx) == len(ally), f"{len(allx)} rows of allx and {len(ally)} of ally")
        _fit(len(tx) == len(ty) == len(tested), f"{len(tx)}, {len(ty)}, {len(tested)} rows of the test")
        # The rows of the test stand in the order of the file; of CiteSeer some are missing and are zero.
        count = max(int(tested.max()) + 1, len(allx) + len(tx))
        x, y = torch.zeros(count, allx.shape[1]), torch.zeros(count, ally.shape[1])
        x[: len(allx)], y[: len(ally)] = allx, ally
        x[tested], y[tested] = tx, ty
        pairs = [(a, b) for a, others in held["graph"].items() for b in others]
        cited = torch.tensor(pairs, dtype=torch.int64).view(-1, 2).T
        inside = bool(((cited >= 0) & (cited < count)).all())
        _fit(inside, f"the graph names papers beyond the {count} that there are")
        edges, _ = remove_self_loops(cited)
        edges = coalesce(to_undirected(edges, num_nodes=count), num_nodes=count)
        train = torch.arange(len(held["y"]))
        _fit(len(train) + VALIDATED <= count, f"{count} papers, of which {len(train)} train and 500 validate")
    except (ValueError, TypeError, AttributeError, LookupError, RuntimeError, MemoryError) as error:
        raise PegboardError(f"{folder} does not hold {config.dataset} as it is published: {error}") from None
    return x, edges, y.argmax(1), train, tested


def _fit(right: bool, found: str) -> None:
    if not right:
        raise ValueError(found)


def _rows(found: Any) -> Tensor:
    """A sparse matrix as a dense one."""
    if not isinstance(found, unpickling.SparseRows):
        return torch.as_tensor(found).float()
    state = vars(found)
    size = tuple(int(n) for n in state["_shape"])
    starts, columns = torch.as_tensor(state["indptr"]).long(), torch.as_tensor(state["indices"]).long()
    rows = torch.repeat_interleave(torch.arange(size[0]), starts[1:] - starts[:-1])
    dense = torch.zeros(*size)
    dense[rows, columns] = torch.as_tensor(state["data"]).float()
    return dense


def karate(config: Karate, context: Context) -> Splits:
    """The club as PyG has it; the first members of each group train, half of the others validate."""
    from torch_geometric.datasets import KarateClub  # type: ignore[import-untyped]

    data = KarateClub()[0]
    x, edges, y = torch.eye(34), data.edge_index, data.y
    chosen = torch.cat([(y == group).nonzero()[: config.labelled, 0] for group in range(4)]).sort().values
    rest = torch.tensor(sorted(set(range(34)) - set(chosen.tolist())))
    notes: dict[str, object] = {"source": "Zachary 1977, by torch_geometric"}
    return node_splits(Graph(x, edges), y, (chosen, rest[::2], rest[1::2]), 4, None, context.seed, notes)
