"""Graphs as samples: nodes of one graph, many graphs, and neighbourhoods in a graph that is too large.

Batches are tensors in the convention of PyTorch Geometric: nodes (nodes, features), edges (2, edges) from
source to target, features of edges where there are any, then the nodes that are asked for or the bounds of
the graphs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from pegboard import Batch, Source, Stream
from torch import Tensor

_MIX = (-4658895280553007687, -7723592293110705685)  # factors of splitmix64


class Graph:
    """One graph: x (nodes, features), edges (2, edges) and, where it has them, features (edges, features).

    `to` gives the same object for the same device, so that all splits share one graph there too.
    """

    def __init__(self, x: Tensor, edges: Tensor, features: Tensor | None = None) -> None:
        self.x, self.edges, self.features = x, edges, features
        if edges.dim() != 2 or len(edges) != 2 or edges.dtype != torch.int64:
            raise ValueError(
                f"edges of shape {tuple(edges.shape)} in {edges.dtype}, expected (2, edges) in int64"
            )
        if features is not None and (features.dim() != 2 or len(features) != edges.shape[1]):
            raise ValueError(f"features of shape {tuple(features.shape)} for {edges.shape[1]} edges")
        if not edges.is_meta and edges.numel():
            if int(edges.min()) < 0 or int(edges.max()) >= len(x):
                raise ValueError(f"edges between nodes {int(edges.min())} to {int(edges.max())} of {len(x)}")
            if bool((edges[0] == edges[1]).any()):
                raise ValueError("an edge from a node to itself: models add such edges where they want them")
        self._moved: dict[str, Graph] = {}

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """What a model reads of it."""
        return (self.x, self.edges) if self.features is None else (self.x, self.edges, self.features)

    def to(self, device: str) -> Graph:
        if str(self.x.device) == device:
            return self
        if device not in self._moved:
            features = None if self.features is None else self.features.to(device)
            self._moved[device] = Graph(self.x.to(device), self.edges.to(device), features)
        return self._moved[device]


class WholeGraph(Source):
    """Nodes of one graph as samples: every batch is the whole graph, and says which nodes are asked for."""

    whole = True  # to answer some nodes takes as long as to answer all

    def __init__(
        self, graph: Graph, nodes: Tensor, target: Tensor | None = None, weight: Tensor | None = None
    ) -> None:
        self.graph, self.nodes = graph, nodes
        self.target: Tensor | None = target
        self.weight = weight
        sizes = {len(t) for t in (nodes, target, weight) if t is not None}
        if len(sizes) != 1:
            raise ValueError(f"nodes, target and weight differ in their number of samples: {sorted(sizes)}")

    def __len__(self) -> int:
        return len(self.nodes)

    def gather(self, index: Tensor) -> Batch:
        target = None if self.target is None else self.target[index]
        weight = None if self.weight is None else self.weight[index]
        return Batch((*self.graph.inputs, self.nodes[index]), target, weight, index)

    def to(self, device: str) -> WholeGraph:
        target = None if self.target is None else self.target.to(device)
        weight = None if self.weight is None else self.weight.to(device)
        return WholeGraph(self.graph.to(device), self.nodes.to(device), target, weight)

    @classmethod
    def picked(cls, parts: Sequence[WholeGraph], index: Tensor) -> WholeGraph:
        """The samples with these numbers, counted through parts of one graph."""
        if len({id(part.graph) for part in parts}) != 1:
            raise ValueError("nodes of different graphs cannot be cut together")
        return cls(parts[0].graph, *_columns(parts, [part.nodes for part in parts], index))

    @property
    def tensors(self) -> tuple[Tensor | None, ...]:
        """All that it holds."""
        return (*self.graph.inputs, self.nodes, self.target, self.weight)


class GraphSet(Source):
    """Many graphs, each a sample: a batch is the graphs that it is asked for, side by side as one.

    Nodes and edges of all graphs stand one after the other; `edges` counts the nodes of each graph from 0.
    How many each graph has stays on the CPU, so that nobody waits for a device to know how large a batch is.
    """

    varied = True  # batches differ in shape, and numbers come on the CPU

    def __init__(
        self,
        x: Tensor,  # (nodes, features)
        edges: Tensor,  # (2, edges)
        sizes: Tensor,  # (graphs, 2): nodes and edges of each
        target: Tensor | None = None,
        weight: Tensor | None = None,
        features: Tensor | None = None,  # (edges, features)
    ) -> None:
        self.x, self.edges, self.features = x, edges, features
        self.sizes = sizes.cpu().long()
        self.target: Tensor | None = target
        self.weight = weight
        nodes, pairs = self.sizes.sum(0).tolist()
        if (nodes, pairs) != (len(x), edges.shape[1]):
            raise ValueError(f"graphs of {nodes} nodes and {pairs} edges, for {len(x)} and {edges.shape[1]}")
        counts = {len(t) for t in (self.sizes, target, weight) if t is not None}
        if len(counts) != 1:
            raise ValueError(f"the tensors of a split differ in their number of graphs: {sorted(counts)}")
        device = x.device
        self._sizes = self.sizes.to(device)
        self._starts = (self.sizes.cumsum(0) - self.sizes).to(device)

    @classmethod
    def join(
        cls, graphs: Iterable[Graph], target: Tensor | None = None, weight: Tensor | None = None
    ) -> GraphSet:
        """The graphs of a list."""
        found = list(graphs)
        sizes = torch.tensor([[len(g.x), g.edges.shape[1]] for g in found], dtype=torch.int64)
        features = [g.features for g in found if g.features is not None]
        return cls(
            torch.cat([g.x for g in found]),
            torch.cat([g.edges for g in found], 1),
            sizes,
            target,
            weight,
            torch.cat(features) if features else None,
        )

    def __len__(self) -> int:
        return len(self.sizes)

    def gather(self, index: Tensor) -> Batch:
        numbers = index.cpu()
        nodes, pairs = self.sizes.index_select(0, numbers).sum(0).tolist()
        rows = numbers.to(self.x.device, non_blocking=True)
        sizes, starts = self._sizes.index_select(0, rows), self._starts.index_select(0, rows)
        ends = sizes.cumsum(0)
        before = ends - sizes  # (graphs, 2): nodes and edges of the batch before each graph
        repeat = torch.repeat_interleave
        places = torch.arange(max(nodes, pairs), device=rows.device)
        node = repeat(starts[:, 0] - before[:, 0], sizes[:, 0], output_size=nodes) + places[:nodes]
        edge = repeat(starts[:, 1] - before[:, 1], sizes[:, 1], output_size=pairs) + places[:pairs]
        edges = self.edges[:, edge] + repeat(before[:, 0], sizes[:, 1], output_size=pairs)
        bounds = torch.cat((before[:1, 0], ends[:, 0]))
        inputs = (self.x[node], edges, bounds)
        if self.features is not None:
            inputs = (self.x[node], edges, self.features[edge], bounds)  # type: ignore[assignment]
        target = None if self.target is None else self.target[rows]
        return Batch(inputs, target, None if self.weight is None else self.weight[rows], rows)

    def to(self, device: str) -> GraphSet:
        def move(t: Tensor | None) -> Tensor | None:
            return None if t is None else t.to(device)

        x, edges = self.x.to(device), self.edges.to(device)
        return GraphSet(x, edges, self.sizes, move(self.target), move(self.weight), move(self.features))

    @property
    def nbytes(self) -> int:
        """On the device."""
        held = (self.x, self.edges, self.features, self.target, self.weight, self._sizes, self._starts)
        return sum(t.numel() * t.element_size() for t in held if t is not None)

    @classmethod
    def picked(cls, parts: Sequence[GraphSet], index: Tensor) -> GraphSet:
        """The graphs with these numbers, counted through all parts."""
        features = [part.features for part in parts if part.features is not None]
        whole = cls(
            torch.cat([part.x for part in parts]),
            torch.cat([part.edges for part in parts], 1),
            torch.cat([part.sizes for part in parts]),
            features=torch.cat(features) if features else None,
        )
        inputs = whole.gather(index).inputs
        sizes, target, weight = _columns(parts, [part.sizes for part in parts], index)
        edges = inputs[1] - torch.repeat_interleave(inputs[-1][:-1], sizes[:, 1])
        return cls(inputs[0], edges, sizes, target, weight, inputs[2] if features else None)

    @property
    def tensors(self) -> tuple[Tensor | None, ...]:
        """All that it holds."""
        return (self.x, self.edges, self.features, self.sizes, self.target, self.weight)


def _columns(
    parts: Sequence[WholeGraph | GraphSet], column: Sequence[Tensor], index: Tensor
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Some samples of a column, their targets and weights."""
    targets = [part.target for part in parts if part.target is not None]
    weight = None
    if any(part.weight is not None for part in parts):
        weight = torch.cat([torch.ones(len(p)) if p.weight is None else p.weight for p in parts])[index]
    return torch.cat(list(column))[index], torch.cat(targets)[index] if targets else None, weight


def sampled(
    graph: Graph,
    nodes: Tensor,
    target: Tensor | None = None,
    *,
    fanouts: Sequence[int | None],
    seed: int | None = None,
    weight: Tensor | None = None,
) -> Stream:
    """Nodes of a graph that is too large for a batch: each batch is the neighbourhood of its nodes.

    `fanouts` says for every hop how many edges into a node are followed at most, None: all of them. Which
    those are is decided by the seed, the epoch and the node alone, whatever the batch and whoever reads it.
    """
    read = Neighbourhoods(graph, nodes, target, weight, tuple(fanouts))
    return Stream(read, len(nodes), seed=0 if seed is None else seed, varied=True)


@dataclass
class Neighbourhoods:
    """Reads the neighbourhoods of nodes."""

    graph: Graph
    nodes: Tensor  # (samples,)
    target: Tensor | None
    weight: Tensor | None
    fanouts: tuple[int | None, ...]

    def __post_init__(self) -> None:
        # Edges by the node that they lead to.
        self.order = torch.argsort(self.graph.edges[1], stable=True)
        counts = torch.bincount(self.graph.edges[1], minlength=len(self.graph.x))
        self.ends = counts.cumsum(0)
        self.counts = counts

    def __call__(self, rows: list[int], key: int = 0) -> Batch:
        index = torch.tensor(rows, dtype=torch.int64)
        asked = self.nodes[index]
        found, edges = self._walk(torch.unique(asked), key)
        ids = self.order[edges]  # their numbers in the graph
        pairs = torch.searchsorted(found, self.graph.edges[:, ids].contiguous())
        more = () if self.graph.features is None else (self.graph.features[ids],)
        inputs = (self.graph.x[found], pairs, *more, torch.searchsorted(found, asked))
        target = None if self.target is None else self.target[index]
        return Batch(inputs, target, None if self.weight is None else self.weight[index])

    def targets(self) -> Tensor | None:
        """The target of all samples; of one without a weight a class that no loss counts."""
        if self.target is None or self.weight is None or self.target.is_floating_point():
            return self.target
        return self.target.where(self.weight != 0, -100)

    def _walk(self, asked: Tensor, key: int) -> tuple[Tensor, Tensor]:
        """The nodes that are reached, sorted, and the edges that are followed, as places in `order`."""
        found, frontier, followed = asked, asked, [torch.zeros(0, dtype=torch.int64)]
        for fanout in self.fanouts:
            taken = self._edges_into(frontier, fanout, key)
            followed.append(taken)
            reached = torch.unique(self.graph.edges[0, self.order[taken]])
            frontier = reached[~torch.isin(reached, found)]
            found = torch.unique(torch.cat((found, frontier)))
        # Sorted, so that sums round alike whatever the batch.
        return found, torch.unique(torch.cat(followed))

    def _edges_into(self, nodes: Tensor, fanout: int | None, key: int) -> Tensor:
        """Edges into nodes, at most so many into each: those of the least random numbers."""
        counts = self.counts[nodes]
        ends = counts.cumsum(0)
        places = torch.repeat_interleave(self.ends[nodes] - ends, counts) + torch.arange(int(counts.sum()))
        if fanout is None:
            return places
        # By node and then by a number that only key and edge decide; the first of each node are taken.
        chance = mix(places + mix(torch.tensor(key)))
        by_chance = torch.argsort(chance, stable=True)
        owner = torch.repeat_interleave(torch.arange(len(nodes)), counts)
        order = by_chance[torch.argsort(owner[by_chance], stable=True)]
        turn = torch.arange(len(order)) - torch.repeat_interleave(ends - counts, counts)
        return places[order[turn < fanout]]


def mix(numbers: Tensor) -> Tensor:
    """Numbers that look random and depend on the given ones alone (splitmix64): int64 -> int64."""
    z = numbers + -7046029254386353131
    for shift, factor in zip((30, 27), _MIX, strict=True):
        z = (z ^ (z >> shift & (1 << 64 - shift) - 1)) * factor
    return z ^ (z >> 31 & (1 << 33) - 1)
