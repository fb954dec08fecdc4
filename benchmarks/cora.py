"""Cora, and the two-layer graph convolution that every framework trains on it.

The network holds the graph: features and normalised adjacency as sparse matrices. It is asked about nodes, so
that a framework sees what it sees of any other network: a tensor of numbers in, classes in the last axis out.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import torch
from networks import Network
from torch import Tensor, nn
from torch.nn import functional

if TYPE_CHECKING:
    from pegboard_gnn.sparse import Csr

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


@lru_cache
def matrices() -> tuple[Csr, Csr]:
    """Features and normalised adjacency, made once."""
    from pegboard_gnn.sparse import Csr
    from pegboard_gnn.structure import coupled

    with torch.device("cpu"):  # whatever the device of the network that is being built
        x, edges, _, _ = graph()
        (source, target), weight, *_ = coupled(edges, None, len(x))
        assert weight is not None
        return Csr.of_dense(x), Csr.of(target, source, weight, (len(x), len(x)))


class Sparse(nn.Module):
    """A sparse matrix that stays the same.

    It is data, so checkpoints are spared it.
    """

    def __init__(self, matrix: Csr) -> None:
        super().__init__()
        self.make, self.shape = type(matrix), matrix.shape
        for name, part in zip(matrix._fields, matrix[:-1], strict=False):
            self.register_buffer(name, part, persistent=False)

    def times(self, dense: Tensor) -> Tensor:
        matrix = self.make(
            self.starts, self.columns, self.values,
            self.column_starts, self.rows, self.turned, self.back, self.shape,
        )  # fmt: skip
        return matrix.matmul(dense)


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
    words, spread = map(Sparse, matrices())
    return Network(Gcn(words, spread, (graph().x.shape[1], HIDDEN, CLASSES)))
