"""The network around graph convolutions: pegs, residual connections, jumping knowledge, norms and readout."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from pegboard import Peg
from torch import Tensor, nn
from torch_geometric.nn import JumpingKnowledge  # type: ignore[import-untyped]
from torch_geometric.nn.aggr import MaxAggregation, MeanAggregation, SumAggregation  # type: ignore[import-untyped]

from .activations import ACTIVATIONS
from .layers import Rows, SparseRows
from .memo import Memo
from .norms import RowNorm
from .sparse import Csr
from .spectral import Decomposed
from .structure import Prepared

Make = Callable[[int, int, bool], nn.Module]  # a convolution: inputs, outputs, whether it is the last
POOLS = {"sum": SumAggregation, "mean": MeanAggregation, "max": MaxAggregation}
SPARSE = 0.1  # share of features other than zero up to which they are multiplied as a sparse matrix
NORMS: dict[str, Callable[[int], nn.Module]] = {"batch": RowNorm, "layer": nn.LayerNorm}


def own_norm(norm: str, features: int) -> nn.Module | None:
    """The normalisation that a peg has by itself."""
    return NORMS[norm](features) if norm in NORMS else None


def owners(bounds: Tensor, nodes: int) -> Tensor:
    """The number of the graph that each node belongs to: (nodes,)."""
    numbers = torch.arange(len(bounds) - 1, device=bounds.device)
    return torch.repeat_interleave(numbers, bounds[1:] - bounds[:-1], output_size=nodes)


def pair_norm(x: Tensor, owner: Tensor | None, graphs: int, eps: float = 1e-5) -> Tensor:
    """Nodes moved to the mean 0 of their graph and scaled to a mean square length of 1.

    PyG's own looks for the number of graphs on the device, which waits for it.
    """
    if owner is None:
        x = x - x.mean(0)
        return x / (eps + x.square().sum(-1).mean()).sqrt()
    counts = x.new_zeros(graphs).index_add(0, owner, x.new_ones(len(owner))).clamp(min=1)
    x = x - (x.new_zeros(graphs, x.shape[1]).index_add(0, owner, x) / counts.unsqueeze(1))[owner]
    length = x.new_zeros(graphs).index_add(0, owner, x.square().sum(-1)) / counts
    return x / (eps + length).sqrt()[owner].unsqueeze(1)


class Block(nn.Module):
    """A convolution, a norm, a nonlinearity, and the way around them."""

    def __init__(
        self, conv: nn.Module, inputs: int, outputs: int, activation: str, norm: str, residual: bool
    ) -> None:
        super().__init__()
        self.conv, self.pairs = conv, norm == "pair"
        self.affine = Peg("affine", outputs, norm=own_norm(norm, outputs))
        self.activation = ACTIVATIONS[activation]()
        self.residual = Peg("residual", outputs) if residual else None
        self.around: nn.Module | None = None
        if residual and inputs != outputs:
            self.around = nn.Linear(inputs, outputs, bias=False)
        self.hidden = Peg("hidden", outputs)

    def forward(self, x: Rows, structure: Any, owner: Tensor | None, graphs: int) -> Tensor:
        y: Tensor = self.conv(x, structure)
        if self.pairs:
            y = pair_norm(y, owner, graphs)
        y = self.activation(self.affine(y))
        if self.residual is not None:
            assert isinstance(x, Tensor)
            y = self.residual(y) + (x if self.around is None else self.around(x))
        return self.hidden(y)


class GraphNetwork(nn.Module):
    """Convolutions on nodes, then an answer for the nodes that are asked for, or for every graph.

    It is called as (x, edges, asked) or, where `graphs`, (x, edges, bounds); features of edges stand between.
    With `jump`, what all layers gave is put together before the readout. Where nodes are asked for and
    nothing is put together, the last convolution gives the output; else a linear layer does.
    """

    def __init__(
        self,
        make: Make,
        prepare: Prepared | Decomposed,
        inputs: int,
        outputs: int,
        *,
        hidden: Sequence[int] = (16,),
        widths: Sequence[int] | None = None,  # of what each hidden layer gives, where it is another number
        activation: str = "relu",
        norm: str = "none",
        residual: bool = False,
        jump: str = "none",
        graphs: bool = False,
        readout: str = "sum",
        sparse: bool = False,  # the first convolution can read sparse rows
    ) -> None:
        super().__init__()
        self.prepare, self.graphs = prepare, graphs
        self.input = Peg("input", inputs)
        self.sparse = sparse and prepare.fixed and not residual
        self._rows: Memo[Csr | None] = Memo()
        wide = list(hidden if widths is None else widths)
        sizes = [inputs, *wide]
        self.blocks = nn.ModuleList(
            Block(make(a, b, False), a, c, activation, norm, residual)
            for a, b, c in zip(sizes, hidden, wide, strict=False)
        )
        self.jump: JumpingKnowledge | None = None
        width = sizes[-1]
        if jump != "none":
            self.jump = JumpingKnowledge(jump, width, len(wide)) if jump == "lstm" else JumpingKnowledge(jump)
            width = sum(wide) if jump == "cat" else width
        self.pool = POOLS[readout]() if graphs else None
        self.pooled = Peg("pooled", width) if graphs else None
        convolved = not graphs and jump == "none"
        self.last = make(width, outputs, True) if convolved else None
        self.head = None if convolved else nn.Linear(width, outputs)
        self.logits = Peg("logits", outputs)

    def forward(self, x: Tensor, edges: Tensor, *rest: Tensor) -> Tensor:
        features, last = rest[0] if len(rest) > 1 else None, rest[-1]
        structure = self.prepare(edges, features, len(x))
        owner = owners(last, len(x)) if self.graphs else None
        graphs = len(last) - 1 if self.graphs else 1
        rows: Rows = self._read(x)
        seen: list[Tensor] = []
        for block in self.blocks:
            rows = out = block(rows, structure, owner, graphs)
            seen.append(out)
        if self.jump is not None:
            rows = self.jump(seen)
        if self.last is not None:
            rows = self.last(rows, structure)
        assert isinstance(rows, Tensor)
        if self.pool is not None and self.pooled is not None:
            rows = self.pooled(self.pool(rows, owner, dim_size=graphs))
        else:
            rows = rows.index_select(0, last)
        return self.logits(rows if self.head is None else self.head(rows))

    def ready(self, x: Tensor, edges: Tensor, *rest: Tensor) -> None:
        """What is made once of a graph that stays the same, for a compiled step to hold on to."""
        self.prepare(edges, rest[0] if len(rest) > 1 else None, len(x))
        self._matrix(x)

    def _matrix(self, x: Tensor) -> Csr | None:
        """The features as a sparse matrix, where most are zero and nothing hangs on them but dropout."""
        if not self.sparse or x.is_meta or x.requires_grad:
            return None
        if any(type(module) is not nn.Dropout for module in self.input._modules.values()):
            return None
        if torch.compiler.is_compiling():
            return self._rows.kept((x,))
        return self._rows.get((x,), lambda: _sparse_rows(x))

    def _read(self, x: Tensor) -> Rows:
        matrix = self._matrix(x)
        if matrix is None:
            return self.input(x)
        # To drop a zero changes nothing, so dropout of the other numbers is dropout of all.
        return SparseRows(matrix, self.input(matrix.values.unsqueeze(1)).squeeze(1))


def _sparse_rows(x: Tensor) -> Csr | None:
    with torch.no_grad():
        return Csr.of_dense(x) if int(torch.count_nonzero(x)) <= SPARSE * x.numel() else None
