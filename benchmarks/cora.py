"""Cora, and the two-layer graph convolution that every framework trains on it.

The network holds the graph: features and normalised adjacency as sparse matrices. It is asked about nodes, so
that a framework sees what it sees of any other network: a tensor of numbers in, classes in the last axis out.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from networks import Network
from torch import Tensor, nn
from torch.nn import functional

UPDATES = 44  # an epoch, as of the other workloads; one full batch each
HIDDEN, CLASSES = 16, 7


class Graph(NamedTuple):
    """Papers, their words, and who cites whom."""

    x: Tensor  # (nodes, features), each row divided by its sum
    edges: Tensor  # (2, edges), both ways
    y: Tensor  # (nodes,) classes
    asked: Tensor  # (140,) the nodes of the public split that train


@lru_cache
def graph() -> Graph:
    """Cora as it is published: PEGBOARD_DATA/planetoid/Cora, else downloaded."""
    from pegboard_gnn.citations import read_planetoid
    from pegboard_gnn.data_configs import Planetoid

    x, edges, y, asked, _ = read_planetoid(Planetoid())
    return Graph(x / x.sum(1, keepdim=True).clamp(min=1), edges, y, asked)


def papers() -> tuple[Tensor, Tensor]:
    """Every row is the whole training set, so that a batch of one row is the full one: (rows, 140) twice."""
    _, _, y, asked = graph()
    return asked.repeat(UPDATES, 1), y[asked].repeat(UPDATES, 1)


def adjacency(edges: Tensor, nodes: int) -> Tensor:
    """D^-1/2 (A + I) D^-1/2, sparse."""
    edges = torch.cat((edges, torch.arange(nodes).expand(2, nodes)), 1)
    root = torch.bincount(edges[1], minlength=nodes).float().rsqrt()
    return torch.sparse_coo_tensor(edges.flip(0), root[edges[0]] * root[edges[1]], (nodes, nodes))


Rows = tuple[Tensor, Tensor, Tensor]  # where each row starts, and the column and value of each entry


def by_rows(matrix: Tensor) -> Rows:
    """Numbers of 32 bits, as the kernel reads them; no views of a matrix, which torch's compiler refuses."""
    rows = matrix.coalesce().to_sparse_csr()
    return rows.crow_indices().int(), rows.col_indices().int(), rows.values().clone()


@lru_cache
def matrices() -> tuple[tuple[Rows, Rows], ...]:
    """Features and normalised adjacency, each by rows and by columns, made once."""
    with torch.device("cpu"):  # whatever the device of the network that is being built
        x, edges, _, _ = graph()
        found = (x.to_sparse(), adjacency(edges, len(x)))
        return tuple((by_rows(matrix), by_rows(matrix.t())) for matrix in found)


# The product with a sparse matrix as an operation of its own: what torch calls in an eager step, and what its
# compiler, which has no sparse matrices, can leave as it is in a graph.
LIBRARY = torch.library.Library("bench", "DEF")
LIBRARY.define(
    "sparse_product(Tensor starts, Tensor columns, Tensor values, int width, Tensor dense) -> Tensor"
)


def _product(starts: Tensor, columns: Tensor, values: Tensor, width: int, dense: Tensor) -> Tensor:
    size = (len(starts) - 1, width)
    return torch.sparse_csr_tensor(starts, columns, values, size, check_invariants=False) @ dense


def _shape(starts: Tensor, columns: Tensor, values: Tensor, width: int, dense: Tensor) -> Tensor:
    return dense.new_empty(starts.shape[0] - 1, dense.shape[1])


LIBRARY.impl("sparse_product", _product, "CPU")
LIBRARY.impl("sparse_product", _shape, "Meta")
product = torch.ops.bench.sparse_product.default


class Product(torch.autograd.Function):
    """Sparse times dense. torch's own way back turns the matrix around in every step, which takes longer than
    all the rest; here it is given turned around."""

    @staticmethod
    def forward(
        ctx: Any, dense: Tensor, starts: Tensor, columns: Tensor, values: Tensor,
        back_starts: Tensor, back_columns: Tensor, back_values: Tensor,
    ) -> Tensor:  # fmt: skip
        ctx.save_for_backward(back_starts, back_columns, back_values)
        ctx.height = starts.shape[0] - 1
        return product(starts, columns, values, back_starts.shape[0] - 1, dense)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        starts, columns, values = ctx.saved_tensors
        found = product(starts, columns, values, ctx.height, grad.contiguous())
        return found, None, None, None, None, None, None


class Sparse(nn.Module):
    """A sparse matrix that stays the same: by rows, and by columns for the way back.

    It is data, so checkpoints are spared it.
    """

    def __init__(self, rows: Rows, columns: Rows) -> None:
        super().__init__()
        for side, parts in (("", rows), ("back_", columns)):
            for name, part in zip(("starts", "columns", "values"), parts, strict=True):
                self.register_buffer(side + name, part, persistent=False)

    def times(self, dense: Tensor) -> Tensor:
        return Product.apply(
            dense, self.starts, self.columns, self.values,
            self.back_starts, self.back_columns, self.back_values,
        )  # fmt: skip


class Gcn(nn.Module):
    """Two graph convolutions on one graph; nodes (..., asked) to classes (..., asked, classes)."""

    def __init__(self, words: Sparse, spread: Sparse, sizes: tuple[int, int, int]) -> None:
        super().__init__()
        self.words, self.spread = words, spread
        self.first, self.second = (
            nn.Parameter(nn.init.xavier_uniform_(torch.empty(pair))) for pair in pairwise(sizes)
        )
        self.first_bias, self.second_bias = (nn.Parameter(torch.zeros(size)) for size in sizes[1:])

    def forward(self, asked: Tensor) -> Tensor:
        hidden = (self.spread.times(self.words.times(self.first)) + self.first_bias).relu()
        found = self.spread.times(hidden @ self.second) + self.second_bias
        return functional.embedding(asked, found)


def gcn() -> Network:
    words, spread = (Sparse(*pair) for pair in matrices())
    return Network(Gcn(words, spread, (graph().x.shape[1], HIDDEN, CLASSES)))
