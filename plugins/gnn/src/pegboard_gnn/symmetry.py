"""How far functions are from not minding an order, or from following it; what refinement can tell apart."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from pegboard import Context, Probe, Splits
from torch import Tensor, nn

from .probe_configs import NodeOrder
from .specs import Asked, Nodes

Map = Callable[[Tensor], Tensor]


def invariance_gap(f: Map, moves: Iterable[Map], x: Tensor) -> float:
    """The largest |f(t(x)) - f(x)| over moves t: 0 where f is invariant."""
    before = f(x)
    return max(float((f(move(x)) - before).abs().max()) for move in moves)


def equivariance_gap(f: Map, moves: Iterable[Map], x: Tensor) -> float:
    """The largest |f(t(x)) - t(f(x))| over moves t: 0 where f commutes with them."""
    before = f(x)
    return max(float((f(move(x)) - move(before)).abs().max()) for move in moves)


def components(size: int, moves: Sequence[Callable[[int], int]]) -> list[set[int]]:
    """The connected components of the graph that joins x and t(x): where invariant functions are constant."""
    owner = list(range(size))

    def root(x: int) -> int:
        while owner[x] != x:
            x = owner[x]
        return x

    for move in moves:
        for x in range(size):
            owner[root(x)] = root(move(x))
    found: dict[int, set[int]] = {}
    for x in range(size):
        found.setdefault(root(x), set()).add(x)
    return list(found.values())


def generated(generators: Sequence[tuple[int, ...]]) -> set[tuple[int, ...]]:
    """All permutations that some of them make, one after the other."""
    found = {tuple(range(len(generators[0])))}
    fresh = list(found)
    while fresh:
        after = {tuple(one[i] for i in other) for one in fresh for other in generators}
        fresh = list(after - found)
        found |= after
    return found


def colours(edges: Tensor, nodes: int, rounds: int | None = None) -> list[int]:
    """Colours of nodes by refinement (Weisfeiler and Lehman): each round adds the colours of the neighbours.

    Different counts of colours show that graphs differ; equal ones show nothing. They are comparable between
    graphs that are refined side by side, as one.
    """
    around: list[list[int]] = [[] for _ in range(nodes)]
    for source, target in edges.T.tolist():
        around[target].append(source)
    found = [0] * nodes
    for _ in range(nodes if rounds is None else rounds):
        seen = [(found[i], tuple(sorted(found[j] for j in around[i]))) for i in range(nodes)]
        names = {one: number for number, one in enumerate(sorted(set(seen)))}
        refined = [names[one] for one in seen]
        if len(set(refined)) == len(set(found)):
            break
        found = refined
    return found


def refinement_differs(one: Tensor, two: Tensor, nodes: int) -> bool:
    """Whether refinement tells two graphs of so many nodes apart."""
    both = colours(torch.cat((one, two + nodes), 1), 2 * nodes)
    return sorted(both[:nodes]) != sorted(both[nodes:])


def distances(points: Tensor) -> Tensor:
    """Distances between all points (..., points, points): the same wherever a cloud is moved or turned to."""
    return torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist")


def orders(count: int, size: int, generator: torch.Generator) -> list[Tensor]:
    """A cycle of three, whose inverse is another one, and random permutations."""
    turned = torch.arange(size)
    turned[:3] = turned[:3].roll(1)
    return [turned, *(torch.randperm(size, generator=generator) for _ in range(count - 1))]


class NodeOrderProbe(Probe):
    """Gives the nodes or points of samples other names, and looks what of the answers changes."""

    def __init__(self, config: NodeOrder, context: Context) -> None:
        self.config, self.spec, self.seed = config, context.spec, context.seed

    @torch.no_grad()
    def measure(self, model: nn.Module, splits: Splits, device: torch.device) -> dict[str, float]:
        source = getattr(splits, self.config.split) or splits.train
        count = min(len(source), self.config.samples)
        inputs = source.gather(torch.arange(count, device="cpu")).inputs
        generator = torch.Generator().manual_seed(self.seed)
        move = self._nodes if isinstance(self.spec.inputs[0], Nodes) else self._points
        gap, scale = move(model.eval(), [x.to(device) for x in inputs], generator)
        return {"order_gap": gap, "order_gap_relative": gap / max(scale, 1e-30)}

    def _nodes(
        self, model: nn.Module, inputs: list[Tensor], generator: torch.Generator
    ) -> tuple[float, float]:
        x, edges, *more, last = inputs
        before, gap = model(*inputs), 0.0
        asked = isinstance(self.spec.inputs[-1], Asked)
        for order in self._inside(last, len(x), asked, generator):
            moved = torch.empty_like(x)
            moved[order] = x
            answers = model(moved, order[edges], *more, order[last] if asked else last)
            gap = max(gap, float((answers - before).abs().max()))
        return gap, float(before.abs().max())

    def _inside(self, last: Tensor, nodes: int, asked: bool, generator: torch.Generator) -> list[Tensor]:
        """New names of all nodes, which stay inside their graph."""
        if asked:
            return [order.to(last.device) for order in orders(self.config.orders, nodes, generator)]
        owner = torch.repeat_interleave(torch.arange(len(last) - 1), (last[1:] - last[:-1]).cpu())
        found = []
        for _ in range(self.config.orders):
            chance = torch.rand(nodes, generator=generator) + owner
            order = torch.empty(nodes, dtype=torch.int64)
            order[chance.argsort()] = torch.arange(nodes)
            found.append(order.to(last.device))
        return found

    def _points(
        self, model: nn.Module, inputs: list[Tensor], generator: torch.Generator
    ) -> tuple[float, float]:
        (x,) = inputs
        before, gap = model(x), 0.0
        for order in orders(self.config.orders, x.shape[1], generator):
            answers = model(x[:, order.to(x.device)])
            wanted = before if before.dim() == 2 else before[:, order.to(x.device)]
            gap = max(gap, float((answers - wanted).abs().max()))
        return gap, float(before.abs().max())
