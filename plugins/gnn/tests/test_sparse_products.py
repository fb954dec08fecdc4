"""Products with sparse matrices: their derivatives, and that compiled steps hold on to them."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pegboard
import pytest
import torch
from graphs_at_hand import FEATURES, model, random_graph
from pegboard.testing.runs import cut_and_resumed, differences, lean, whole
from pegboard_gnn import network, sparse
from pegboard_gnn.sparse import Csr
from sweeps import first_of_each
from torch import Tensor
from torch.fx import GraphModule

MODELS = ["gcn", "cheb", "gin", "gat", "message_passing", "monet", "spectral"]
PRODUCT = torch.ops.pegboard_gnn.product.default


class Kept:
    """A compiler's backend that compiles nothing and keeps the graphs."""

    def __init__(self) -> None:
        self.graphs: list[GraphModule] = []

    def __call__(self, graph: GraphModule, inputs: Any, **options: Any) -> Any:
        self.graphs.append(graph)
        return graph

    def called(self) -> list[str]:
        """Names of the operations in all graphs."""
        nodes = [node for graph in self.graphs for node in graph.graph.nodes if node.op.startswith("call")]
        return [str(getattr(node.target, "__name__", node.target)) for node in nodes]


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[Kept]:
    torch._dynamo.reset()
    found = Kept()
    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx", found)
    yield found
    torch._dynamo.reset()


def matrix(dtype: torch.dtype = torch.float64) -> tuple[Csr, Tensor]:
    """A sparse matrix (4, 6) with an empty row and an empty column, and the same as a dense one."""
    full = torch.randn(4, 6, dtype=dtype)
    full[torch.rand(4, 6, generator=torch.Generator().manual_seed(0)) < 0.6] = 0
    full[2], full[:, 3] = 0, 0
    return Csr.of_dense(full), full


@pytest.mark.parametrize("narrow", [True, False])
def test_a_product_is_that_of_the_dense_matrix_with_numbers_of_any_width(
    narrow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not narrow:
        monkeypatch.setattr(sparse, "NARROW", 5)  # the matrix has six columns
    found, full = matrix()
    wanted = torch.int32 if narrow else torch.int64
    assert {t.dtype for t in (found.starts, found.columns, found.column_starts, found.rows)} == {wanted}
    x = torch.randn(6, 3, dtype=torch.float64, requires_grad=True)
    y = found.matmul(x)
    (grad,) = torch.autograd.grad(y.square().sum(), x)
    assert torch.allclose(y, full @ x) and torch.allclose(grad, 2 * full.T @ (full @ x))


def test_a_product_can_be_differentiated_twice_by_the_matrix_and_by_the_values() -> None:
    found, _ = matrix()
    x = torch.randn(6, 3, dtype=torch.float64, requires_grad=True)
    values = torch.randn(len(found.values), dtype=torch.float64, requires_grad=True)
    for given in ((x,), (x, values), (x.detach(), values)):
        assert torch.autograd.gradcheck(found.matmul, given)
        assert torch.autograd.gradgradcheck(found.matmul, given)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_compiled_product_has_the_derivatives_of_the_other(backend: str) -> None:
    found, _ = matrix(torch.float32)
    x, values = torch.randn(6, 3, requires_grad=True), torch.randn(len(found.values), requires_grad=True)

    def both(x: Tensor, values: Tensor) -> Tensor:
        return found.matmul(x).tanh().sum() + found.matmul(x, values).square().sum()

    expected = torch.autograd.grad(both(x, values), (x, values))
    compiled = torch.compile(both, backend=backend, fullgraph=True)
    for one, two in zip(torch.autograd.grad(compiled(x, values), (x, values)), expected, strict=True):
        assert torch.allclose(one, two)


def test_the_compiler_is_told_the_shape_and_the_kind_of_a_product() -> None:
    found, _ = matrix(torch.float32)
    for dense in (torch.randn(6, 3), torch.randn(6, 3).bfloat16()):  # which is widened
        given = (found.starts, found.columns, found.values, 6, dense)
        torch.library.opcheck(torch.ops.pegboard_gnn.multiply, given, test_utils="test_faketensor")


@pytest.mark.parametrize("ready", first_of_each([True, False]))
@pytest.mark.parametrize("name", first_of_each(MODELS))
def test_a_compiled_network_holds_on_to_what_was_made_once(name: str, ready: bool, kept: Kept) -> None:
    x, edges, asked = torch.randn(12, FEATURES), random_graph(12), torch.tensor([3, 0, 7])
    x[torch.rand(12, FEATURES) < 0.95] = 0  # so few numbers that they are a sparse matrix
    net: Any = model(name, fixed=True, nodes=12)
    if ready:
        net.ready(x, edges, asked)
    compiled = torch.compile(net, backend=kept, fullgraph=True)
    answer = compiled(x, edges, asked)
    again = {"rsqrt", "linalg_eigh", "_linalg_eigh", "arange"}  # normalisation, eigenvectors, loops
    called = kept.called()
    if ready:
        assert not again & set(called)
        assert ("product.default" in called) == (name in ("gcn", "cheb", "gin", "gat"))
        assert name == "gat" or "index_add" not in called
    else:
        assert "product.default" not in called
    assert (answer - net(x, edges, asked)).abs().max() < 1e-5


def test_a_derivative_by_weights_of_edges_is_not_lost_to_what_is_made_once() -> None:
    x, edges, asked = torch.randn(12, FEATURES), random_graph(12), torch.arange(12)
    weight = torch.rand(edges.shape[1], 1, requires_grad=True)
    grads: list[Tensor] = []
    for fixed in (True, False):
        net = model("gcn", fixed=fixed, nodes=12, edges=1)
        grads += torch.autograd.grad(net(x, edges, weight, asked).square().sum(), weight)
    assert grads[0].abs().max() > 0 and torch.allclose(grads[0], grads[1], atol=1e-6)


def config(**nodes: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "seed": 1,
        "data": {"name": "karate", "batch_size": "all"},  # each node has a feature of its own, 1 of 34
        "model": {"name": "gcn", "hidden": [8]},
        "optimizer": {"name": "sgd", "lr": 0.02, "momentum": 0.9},
        "trainer": {"epochs": 6, "device": "cpu", "threads": 1},
    }
    return base | nodes


def apart(one: Any, two: Any) -> float:
    """The largest difference between the weights of two runs."""
    first, second = (pegboard.load(run, which="last").state_dict() for run in (one, two))
    return max(float((value - second[name]).abs().max()) for name, value in first.items())


def test_a_run_on_sparse_features_learns_what_one_on_dense_features_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The gradient of a weight that is used turned around lies in memory otherwise than the weight does.
    runs = []
    with lean():
        for share in (network.SPARSE, -1.0):
            monkeypatch.setattr(network, "SPARSE", share)
            runs.append(pegboard.train(config(), root=tmp_path / str(share), quiet=True))
    assert apart(*runs) < 1e-6


@pytest.mark.parametrize("precision", first_of_each(["fp32", "bf16"]))
def test_a_compiled_run_keeps_its_sparse_matrices_when_it_is_resumed_and_repeats_every_bit(
    precision: str, kept: Kept, tmp_path: Path
) -> None:
    trainer = {"epochs": 6, "device": "cpu", "threads": 1, "precision": precision}
    trainer |= {"save_every": 1, "eval_every": 6}  # nothing but a step comes first when it is resumed
    tricks = {"dropout": {"p": 0.5, "sites": ["input", "hidden"]}}
    given = config(regularizers=tricks, trainer={**trainer, "compile": "step"})
    with lean():
        reference, events = whole(given, tmp_path / "whole")
        first = len(kept.graphs)
        resumed = cut_and_resumed(given, tmp_path / "cut", events.index("train") + 3)
        eager = pegboard.train({**given, "trainer": trainer}, root=tmp_path / "eager", quiet=True)
    assert not differences(reference, resumed)
    assert first == 1 and len(kept.graphs) > 2
    for graph in kept.graphs:  # of the run, of the one that is cut, and of what is left of it
        assert operator.countOf((node.target for node in graph.graph.nodes), PRODUCT) == 3
    assert apart(reference, eager) < 1e-5
