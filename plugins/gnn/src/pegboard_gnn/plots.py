"""Pictures of graphs and sets."""

from __future__ import annotations

from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from pegboard import Splits, Vector
from torch import Tensor

from .graphs import WholeGraph
from .specs import Asked, Nodes
from .spectral import spectrum

SHOWN = 6  # graphs or clouds
MOST = 400  # nodes that an eye can follow


def place(edges: Tensor, nodes: int) -> Tensor:
    """Where nodes are drawn (nodes, 2): by the smoothest signals on their graph, a little spread out."""
    if nodes < 3:
        return torch.arange(nodes).float().unsqueeze(1).expand(nodes, 2)
    found = spectrum(edges, None, nodes, True, 3).vectors[:, 1:].float()
    rank = found.argsort(0).argsort(0) / (nodes - 1) - 0.5
    return found / found.abs().amax(0).clamp(min=1e-9) + rank


def draw_graph(axes: Axes, edges: Tensor, at: Tensor, colour: Any = None) -> None:
    """Nodes at their places, and lines between them."""
    lines = at[edges[:, edges[0] < edges[1]].T]
    axes.add_collection(LineCollection(lines.tolist(), colors="0.75", linewidths=0.6, zorder=1))
    named = {"color": "tab:blue"} if colour is None else {"c": colour, "cmap": "tab10"}
    axes.scatter(at[:, 0].tolist(), at[:, 1].tolist(), s=18, zorder=2, **named)
    axes.set_axis_off()


def plot(splits: Splits, figure: Figure) -> None:
    """The nodes of one graph by class, or a few graphs or clouds with theirs."""
    first = splits.spec.inputs[0]
    if isinstance(first, Vector):  # nodes without their graph
        batch = splits.train.gather(torch.arange(len(splits.train)))
        assert batch.target is not None
        counts = torch.bincount(batch.target).tolist()
        axes = figure.add_subplot()
        axes.bar(range(len(counts)), counts)
        axes.set(xlabel="class", ylabel="samples that train")
    elif not isinstance(first, Nodes):
        _clouds(splits, figure)
    elif isinstance(splits.spec.inputs[-1], Asked):
        _nodes(splits, figure)
    else:
        _graphs(splits, figure)


def _nodes(splits: Splits, figure: Figure) -> None:
    """The graph, or what of it is near the first nodes that train; the classes of all splits are known."""
    count = min(len(splits.train), MOST)
    x, edges, *_, asked = splits.train.gather(torch.arange(count)).inputs
    known = torch.full((len(x),), -1)
    for source in (splits.train, splits.val, splits.test):
        if isinstance(source, WholeGraph) and source.graph.x is x and source.target is not None:
            known[source.nodes] = source.target
    if len(x) > MOST:
        near = torch.unique(torch.cat((asked, edges[0, torch.isin(edges[1], asked)])))[:MOST]
        new = torch.full((len(x),), -1)
        new[near] = torch.arange(len(near))
        edges = new[edges]
        edges, known = edges[:, (edges >= 0).all(0)], known[near]
    axes = figure.add_subplot()
    draw_graph(axes, edges, place(edges, len(known)), known.tolist())


def _graphs(splits: Splits, figure: Figure) -> None:
    for number in range(min(SHOWN, len(splits.train))):
        batch = splits.train.gather(torch.tensor([number]))
        x, edges = batch.inputs[:2]
        axes = figure.add_subplot(2, 3, number + 1)
        solid = len(batch.inputs) == 4 and x.shape[1] == 3  # corners of a body
        draw_graph(axes, edges, x[:, :2] if solid else place(edges, len(x)))
        if batch.target is not None:
            axes.set_title(str(batch.target[0].tolist()), fontsize=8)


def _clouds(splits: Splits, figure: Figure) -> None:
    batch = splits.train.gather(torch.arange(min(SHOWN, len(splits.train))))
    assert batch.target is not None
    for number, (x, target) in enumerate(zip(batch.inputs[0], batch.target, strict=True)):
        there = x[~torch.isnan(x[:, 0])]
        axes = figure.add_subplot(2, 3, number + 1)
        if x.shape[1] in (1, 10):  # digits
            value = (9 * there[:, 0]).round() if x.shape[1] == 1 else there.argmax(1)
            axes.text(0.5, 0.5, " ".join(str(int(v)) for v in value), ha="center", va="center", wrap=True)
            axes.plot([0, 1], [0, 0], color="0.75")
        else:
            colour = target.tolist() if target.dim() else there[:, 2].tolist()
            axes.scatter(there[:, 0].tolist(), there[:, 1].tolist(), c=colour, cmap="viridis", s=8)
            axes.set_aspect("equal")
        axes.set_axis_off()
        if target.dim() == 0 or target.numel() == 1:
            axes.set_title(str(target.tolist()), fontsize=8)
