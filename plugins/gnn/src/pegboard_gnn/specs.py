"""Specs of graphs. No torch at import."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from pegboard import Classes, DataSpec, Spec

if TYPE_CHECKING:
    import torch

_NODES, _EDGES = 4, 8  # of every graph of an example, a ring


def _zeros(spec: Spec, device: str, *shape: int | None) -> torch.Tensor:
    import torch

    if None in shape:
        raise ValueError(f"{spec} has sizes that are known only once the data is read")
    return torch.zeros(*(s for s in shape if s is not None), device=device)


@dataclass(frozen=True)
class Nodes(Spec):
    """The nodes of all graphs of a batch, one graph after the other: a float tensor (nodes, features)."""

    counted: ClassVar[bool] = False

    features: int | None = None
    count: int = 0  # how many there are, where every batch has the same graph; 0 where they differ

    @property
    def size(self) -> int | None:
        return self.features

    def example(self, rows: int, device: str) -> torch.Tensor:
        return _zeros(self, device, max(self.count, _NODES * rows), self.features)

    @classmethod
    def forms(cls) -> Mapping[str, DataSpec]:
        return {
            "nodes": DataSpec((cls(5, 192), Edges(True), Asked()), Classes(3)),
            "graphs": DataSpec((cls(5), Edges(), Bounds()), Classes(3)),
            "bonds": DataSpec((cls(5), Edges(), EdgeFeatures(2), Bounds()), Classes(3)),
        }

    @property
    def space(self) -> dict[str, Any]:
        """What a sample is a function on: the nodes of a graph."""
        return {"space": "graph", "shape": [self.count or None], "d": self.features}

    def __str__(self) -> str:
        return f"Nodes({'?' if self.features is None else self.features})"


@dataclass(frozen=True)
class Edges(Spec):
    """Directed edges: an int64 tensor (2, edges), the numbers of the nodes they lead from and to.

    No edge leads from a node to itself: a model that wants such edges adds them. An edge of an undirected
    graph is there in both directions.
    """

    counted: ClassVar[bool] = False

    fixed: bool = False  # the same graph in every batch, so that a model may compute once what it needs of it

    def example(self, rows: int, device: str) -> torch.Tensor:
        import torch

        nodes = torch.arange(_NODES * rows, device=device)
        after = nodes - nodes % _NODES + (nodes + 1) % _NODES
        return torch.stack((torch.cat((nodes, after)), torch.cat((after, nodes))))

    def __str__(self) -> str:
        return "Edges(fixed)" if self.fixed else "Edges()"


@dataclass(frozen=True)
class EdgeFeatures(Spec):
    """What is known of every edge: a float tensor (edges, features); a single feature is a weight."""

    counted: ClassVar[bool] = False

    features: int | None = None

    @property
    def size(self) -> int | None:
        return self.features

    def example(self, rows: int, device: str) -> torch.Tensor:
        return _zeros(self, device, _EDGES * rows, self.features)


@dataclass(frozen=True)
class Asked(Spec):
    """The nodes that are asked for: an int64 tensor (batch,) of their numbers in the batch.

    Outputs and targets are of these nodes, in this order.
    """

    def example(self, rows: int, device: str) -> torch.Tensor:
        import torch

        return _NODES * torch.arange(rows, device=device)

    def pieces(self, inputs: Sequence[torch.Tensor], rows: Sequence[int]) -> list[torch.Tensor]:
        return [inputs[0][inputs[-1][row]] for row in rows]


@dataclass(frozen=True)
class Bounds(Spec):
    """Where the nodes of each graph begin, and where the last ends: an int64 tensor (batch + 1,)."""

    counted: ClassVar[bool] = False

    def example(self, rows: int, device: str) -> torch.Tensor:
        import torch

        return _NODES * torch.arange(rows + 1, device=device)

    def pieces(self, inputs: Sequence[torch.Tensor], rows: Sequence[int]) -> list[torch.Tensor]:
        x, bounds = inputs[0], inputs[-1]
        return [x[bounds[row] : bounds[row + 1]] for row in rows]
