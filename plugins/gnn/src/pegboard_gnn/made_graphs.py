"""Graphs that are made: communities, cycles that look alike, and pixels on a grid."""

from __future__ import annotations

import torch
from pegboard import Classes, Context, DataSpec, Splits
from torch import Generator, Tensor
from torch_geometric.utils import stochastic_blockmodel_graph  # type: ignore[import-untyped]

from . import splitting
from .citations import node_splits
from .data_configs import Blocks, Cycles, Grids
from .graphs import Graph, GraphSet
from .specs import Bounds, EdgeFeatures, Edges, Nodes


def graph_splits(graphs: list[Graph], target: Tensor, classes: int, context: Context) -> Splits:
    """Splits of graphs, a fifth of which validates and a fifth tests."""
    train, val, test = splitting.parts(target, 0.2, 0.2, context)
    known = () if graphs[0].features is None else (EdgeFeatures(graphs[0].features.shape[1]),)
    spec = DataSpec((Nodes(graphs[0].x.shape[1]), Edges(), *known, Bounds()), Classes(classes))
    found = [GraphSet.join([graphs[i] for i in rows.tolist()], target[rows]) for rows in (train, val, test)]
    return Splits(spec=spec, train=found[0], val=found[1], test=found[2])


def blocks(config: Blocks, context: Context) -> Splits:
    """One graph of communities; its edges come from PyG, which draws from the global stream."""
    generator = torch.Generator().manual_seed(config.seed)
    sizes = [config.nodes // config.blocks + (b < config.nodes % config.blocks) for b in range(config.blocks)]
    y = torch.repeat_interleave(torch.arange(config.blocks), torch.tensor(sizes))
    chances = torch.full((config.blocks, config.blocks), config.between)
    chances.fill_diagonal_(config.inside)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        edges = stochastic_blockmodel_graph(sizes, chances)
    means = torch.randn(config.blocks, config.features, generator=generator)
    means = config.shift * means / means.norm(dim=1, keepdim=True)
    if config.blocks == 2:
        means[1] = -means[0]
    x = means[y] + torch.randn(config.nodes, config.features, generator=generator)
    order = splitting.even_order(y, config.seed)
    train, rest = order[: config.labelled], order[config.labelled :]
    count = max(round(config.val * len(rest)), 1)
    numbers = (train, rest[:count], rest[count:])
    return node_splits(Graph(x, edges), y, numbers, config.blocks, config.fanouts, context.seed, {})


def undirected(pairs: Tensor) -> Tensor:
    """Edges (2, edges) in both directions."""
    return torch.cat((pairs, pairs.flip(0)), 1)


def ring(nodes: int, step: int = 1) -> Tensor:
    """Every node with the one so many steps further, in both directions."""
    one = torch.arange(nodes)
    return undirected(torch.stack((one, (one + step) % nodes)))


def skip_links(nodes: int, skip: int) -> Tensor:
    """A cycle whose nodes are joined with those a skip away too: every node has four neighbours."""
    found: Tensor = torch.unique(torch.cat((ring(nodes), ring(nodes, skip)), 1), dim=1)
    return found


def two_rings(nodes: int) -> Tensor:
    """Two cycles of half of the nodes each."""
    half = ring(nodes // 2)
    return torch.cat((half, half + nodes // 2), 1)


def triangles(edges: Tensor, nodes: int) -> Tensor:
    """How many triangles each node is a corner of: (nodes,)."""
    adjacency = torch.zeros(nodes, nodes)
    adjacency[edges[0], edges[1]] = 1
    return torch.diagonal(adjacency @ adjacency @ adjacency) / 2


def cycles(config: Cycles, context: Context) -> Splits:
    """Copies of a few graphs, each with its nodes in an order of its own."""
    generator = torch.Generator().manual_seed(config.seed)
    nodes = config.nodes
    kinds = [ring(nodes), two_rings(nodes)]
    if config.family == "skip_links":
        kinds = [skip_links(nodes, skip) for skip in config.skips]
    graphs, target = [], []
    for _ in range(config.copies):
        for number, edges in enumerate(kinds):
            renamed = torch.randperm(nodes, generator=generator)[edges]
            graphs.append(Graph(_known(config, renamed, generator), renamed))
            target.append(number)
    return graph_splits(graphs, torch.tensor(target), len(kinds), context)


def _known(config: Cycles, edges: Tensor, generator: Generator) -> Tensor:
    ones = torch.ones(config.nodes, 1)
    if config.features == "triangles":
        return torch.cat((ones, triangles(edges, config.nodes).unsqueeze(1)), 1)
    if config.features == "random":
        return torch.cat((ones, torch.randn(config.nodes, 8, generator=generator)), 1)
    return ones


def grid(height: int, width: int, diagonals: bool) -> tuple[Tensor, Tensor]:
    """Edges between pixels that touch, and for each the step (2,) from its target to its source.

    Pixels are counted line by line; steps are (down, right).
    """
    rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    places = torch.stack((rows.flatten(), columns.flatten()), 1)
    steps = [(-1, 0), (1, 0), (0, -1), (0, 1)]
    steps += [(-1, -1), (-1, 1), (1, -1), (1, 1)] if diagonals else []
    edges, offsets = [], []
    for down, right in steps:
        there = places + torch.tensor([down, right])
        inside = ((there >= 0) & (there < torch.tensor([height, width]))).all(1).nonzero()[:, 0]
        sources = there[inside] @ torch.tensor([width, 1])
        edges.append(torch.stack((sources, inside)))
        offsets.append(torch.tensor([[down, right]]).repeat(len(inside), 1))
    return torch.cat(edges, 1), torch.cat(offsets).float()


def grids(config: Grids, context: Context) -> Splits:
    """Waves that run in one of four directions, with noise; the graph of all is the same."""
    generator = torch.Generator().manual_seed(config.seed)
    size = config.size
    edges, offsets = grid(size, size, config.diagonals)
    target = torch.arange(config.graphs) % 4
    angles = target * torch.pi / 4
    rows, columns = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    along = angles.cos()[:, None] * columns.flatten() + angles.sin()[:, None] * rows.flatten()
    phase = 2 * torch.pi * torch.rand(config.graphs, 1, generator=generator)
    waves = torch.cos(2 * torch.pi * along / 4 + phase)
    pixels = waves + config.noise * torch.randn(waves.shape, generator=generator)
    graphs = [Graph(row.unsqueeze(1), edges, offsets) for row in pixels]
    return graph_splits(graphs, target, 4, context)
