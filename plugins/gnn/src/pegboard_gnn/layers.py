"""Graph convolutions: the layers of PyTorch Geometric, on a graph that was prepared before.

Each is called as `layer(x, structure)`. Parameters, names and initial weights are PyG's own. PyG's layers
prepare a graph inside, by masks whose shapes depend on numbers; here that is done once, outside, without.
"""

from __future__ import annotations

from typing import Any

import torch
from pegboard import Peg
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn import ChebConv, GATConv, GINConv, MessagePassing  # type: ignore[import-untyped]
from torch_geometric.nn import GCNConv as PygGcn
from torch_geometric.utils import softmax  # type: ignore[import-untyped]

from .activations import ACTIVATIONS
from .sparse import Csr
from .structure import Structure


class SparseRows:
    """Rows of features of which most are zero, as a sparse matrix with the values of this step."""

    def __init__(self, matrix: Csr, values: Tensor) -> None:
        self.matrix, self.values = matrix, values

    def __len__(self) -> int:
        return self.matrix.shape[0]

    def times(self, weight: Tensor) -> Tensor:
        """The product with a weight (outputs, features)."""
        return self.matrix.matmul(weight.t(), self.values)


Rows = Tensor | SparseRows


def linear(x: Rows, layer: Any) -> Tensor:
    """A linear layer without bias on dense or sparse rows."""
    if isinstance(x, SparseRows):
        return x.times(layer.weight)
    result: Tensor = layer(x)
    return result


def carry(layer: Any, x: Tensor, structure: Structure, **named: Any) -> Tensor:
    """The weighted sum of what lies at the sources of each node's edges."""
    if structure.matrix is not None:
        return structure.matrix.matmul(x)
    result: Tensor = layer.propagate(structure.edges, x=x, size=(structure.nodes, structure.nodes), **named)
    return result


class Gcn(PygGcn):  # type: ignore[misc]
    """A W, then the coupling of neighbours, then a bias."""

    def __init__(self, inputs: int, outputs: int, bias: bool = True) -> None:
        super().__init__(inputs, outputs, normalize=False, bias=bias)

    def forward(self, x: Rows, structure: Structure) -> Tensor:
        found = carry(self, linear(x, self.lin), structure, edge_weight=structure.weight)
        return found if self.bias is None else found + self.bias


class Cheb(ChebConv):  # type: ignore[misc]
    """A polynomial of the Laplacian for each pair of channels, in Chebyshev's basis or in powers."""

    def __init__(
        self, inputs: int, outputs: int, order: int, powers: bool = False, bias: bool = True
    ) -> None:
        super().__init__(inputs, outputs, order + 1, bias=bias)
        self.powers = powers

    def forward(self, x: Rows, structure: Structure) -> Tensor:
        if isinstance(x, SparseRows):
            # The operator and the weights commute, and what the weights leave is narrow.
            terms = [x.times(lin.weight) for lin in self.lins]
            found = self._clenshaw(terms, structure)
        else:
            found = self._ascending(x, structure)
        return found if self.bias is None else found + self.bias

    def _next(self, x: Tensor, structure: Structure) -> Tensor:
        return carry(self, x, structure, norm=structure.weight)

    def _ascending(self, x: Tensor, structure: Structure) -> Tensor:
        before, now = x, x
        found: Tensor = self.lins[0](x)
        for number, lin in enumerate(self.lins[1:]):
            following = self._next(now, structure)
            if number and not self.powers:
                following = 2 * following - before
            before, now = now, following
            found = found + lin(now)
        return found

    def _clenshaw(self, terms: list[Tensor], structure: Structure) -> Tensor:
        """The sum of T_k(L) terms[k] from the highest k down, or of powers by Horner's rule."""
        if self.powers:
            found = terms[-1]
            for term in reversed(terms[:-1]):
                found = term + self._next(found, structure)
            return found
        later = last = torch.zeros_like(terms[0])
        for term in reversed(terms[1:]):
            later, last = term + 2 * self._next(later, structure) - last, later
        return terms[0] + self._next(later, structure) - last if len(terms) > 1 else terms[0]


class Gat(GATConv):  # type: ignore[misc]
    """Attention over the neighbours of a node and itself."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        heads: int,
        join: bool,
        slope: float,
        edges: int | None,
        bias: bool = True,
    ) -> None:
        super().__init__(
            inputs, outputs, heads, concat=join, negative_slope=slope, add_self_loops=False, edge_dim=edges,
            bias=bias,
        )  # fmt: skip
        self.weights = Peg("attention", heads)

    def forward(self, x: Rows, structure: Structure) -> Tensor:
        values = linear(x, self.lin).view(-1, self.heads, self.out_channels)
        alpha = self.attend(values, structure)
        size = (structure.nodes, structure.nodes)
        found: Tensor = self.propagate(structure.edges, x=(values, values), alpha=alpha, size=size)
        found = found.flatten(1) if self.concat else found.mean(1)
        return found if self.bias is None else found + self.bias

    def attend(self, values: Tensor, structure: Structure) -> Tensor:
        """The attention of each edge (edges, heads); those that lead to a node sum up to 1."""
        source, target = structure.edges
        alpha = (values * self.att_src).sum(-1)[source] + (values * self.att_dst).sum(-1)[target]
        if structure.features is not None and self.lin_edge is not None:
            known = self.lin_edge(structure.features).view(-1, self.heads, self.out_channels)
            alpha = alpha + (known * self.att_edge).sum(-1)
        alpha = functional.leaky_relu(alpha, self.negative_slope)
        found: Tensor = self.weights(softmax(alpha, target, num_nodes=structure.nodes))
        return found


class Gin(GINConv):  # type: ignore[misc]
    """A small network on (1 + eps) x and the sum over the neighbours."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        activation: str,
        norm: nn.Module | None,
        learn_eps: bool,
        bias: bool = True,
    ) -> None:
        inner = nn.Sequential(
            nn.Linear(inputs, outputs, bias=bias),
            Peg("affine", outputs, norm=norm),
            ACTIVATIONS[activation](),
            nn.Linear(outputs, outputs, bias=bias),
        )
        super().__init__(inner, train_eps=learn_eps)

    def forward(self, x: Rows, structure: Structure) -> Tensor:
        assert isinstance(x, Tensor)
        if structure.matrix is not None:
            found = structure.matrix.matmul(x)
        else:
            found = self.propagate(structure.edges, x=(x, x), size=(structure.nodes, structure.nodes))
        result: Tensor = self.nn(found + (1 + self.eps) * x)
        return result


class Passing(MessagePassing):  # type: ignore[misc]
    """Messages along edges, an aggregation of those that arrive, and an update by it.

    `message(x_j, x_i, features)` gives (edges, channels) of the source, the target and the features of each
    edge, or None; `update(x, arrived)` the new nodes; `aggregation` is any that PyG knows.
    """

    def __init__(self, message: nn.Module, aggregation: str, update: nn.Module) -> None:
        super().__init__(aggr=aggregation)
        self.send, self.combine = message, update

    def forward(self, x: Rows, structure: Structure) -> Tensor:
        assert isinstance(x, Tensor)
        size = (structure.nodes, structure.nodes)
        arrived = self.propagate(structure.edges, x=x, features=structure.features, size=size)
        result: Tensor = self.combine(x, arrived)
        return result

    def message(self, x_j: Tensor, x_i: Tensor, features: Tensor | None) -> Tensor:
        result: Tensor = self.send(x_j, x_i, features)
        return result


class LinearMessage(nn.Module):
    """A linear map of the source, and of the features of the edge where it has some."""

    def __init__(self, inputs: int, outputs: int, edges: int) -> None:
        super().__init__()
        self.map = nn.Linear(inputs + edges, outputs, bias=False)

    def forward(self, x_j: Tensor, x_i: Tensor, features: Tensor | None) -> Tensor:
        result: Tensor = self.map(x_j if features is None else torch.cat((x_j, features), 1))
        return result


class PairMessage(nn.Module):
    """A network with one hidden layer of source, target and edge."""

    def __init__(self, inputs: int, outputs: int, edges: int, activation: str) -> None:
        super().__init__()
        width = 2 * inputs + edges
        layers = (nn.Linear(width, outputs), Peg("affine", outputs), ACTIVATIONS[activation]())
        self.map = nn.Sequential(*layers, nn.Linear(outputs, outputs))

    def forward(self, x_j: Tensor, x_i: Tensor, features: Tensor | None) -> Tensor:
        parts = (x_j, x_i) if features is None else (x_j, x_i, features)
        result: Tensor = self.map(torch.cat(parts, 1))
        return result


class GatedMessage(nn.Module):
    """A linear map of the source, let through as far as source, target and edge say."""

    def __init__(self, inputs: int, outputs: int, edges: int) -> None:
        super().__init__()
        self.map = nn.Linear(inputs, outputs, bias=False)
        self.gate = nn.Linear(2 * inputs + edges, outputs)

    def forward(self, x_j: Tensor, x_i: Tensor, features: Tensor | None) -> Tensor:
        parts = (x_j, x_i) if features is None else (x_j, x_i, features)
        result: Tensor = self.map(x_j) * torch.sigmoid(self.gate(torch.cat(parts, 1)))
        return result


class AddUpdate(nn.Module):
    """A linear map of the node, to which what arrived is added."""

    def __init__(self, inputs: int, outputs: int, bias: bool = True) -> None:
        super().__init__()
        self.map = nn.Linear(inputs, outputs, bias=bias)

    def forward(self, x: Tensor, arrived: Tensor) -> Tensor:
        result: Tensor = self.map(x) + arrived
        return result


class MlpUpdate(nn.Module):
    """A network with one hidden layer of the node and what arrived."""

    def __init__(self, inputs: int, outputs: int, activation: str) -> None:
        super().__init__()
        layers = (nn.Linear(inputs + outputs, outputs), Peg("affine", outputs), ACTIVATIONS[activation]())
        self.map = nn.Sequential(*layers, nn.Linear(outputs, outputs))

    def forward(self, x: Tensor, arrived: Tensor) -> Tensor:
        result: Tensor = self.map(torch.cat((x, arrived), 1))
        return result


class GruUpdate(nn.Module):
    """A gated recurrent cell: what arrived is its input, the node its state."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.state = nn.Linear(inputs, outputs, bias=False) if inputs != outputs else nn.Identity()
        self.cell = nn.GRUCell(outputs, outputs)

    def forward(self, x: Tensor, arrived: Tensor) -> Tensor:
        result: Tensor = self.cell(arrived, self.state(x))
        return result
