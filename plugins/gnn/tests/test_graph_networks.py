"""What every network on graphs keeps: no order of nodes, a horizon of its layers, and the limits it has."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from graphs_at_hand import FEATURES, cycle, model, path, random_graph, relabelled
from pegboard import PegboardError
from pegboard.config.check import check
from pegboard.planning.plan import assemble, make_plan
from pegboard_mlp.modules import Mlp
from torch import Tensor

PASSING: dict[str, dict[str, Any]] = {
    "gcn": {},
    "gat": {"heads": 2},
    "gin": {},
    "message_passing": {},
    "cheb": {"order": 1},
    "monet": {"kernels": 2},
}
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *PASSING.items(),
    ("cheb", {"order": 3, "basis": "powers"}),
    ("message_passing", {"message": "pair", "aggregation": "mean", "update": "mlp"}),
    ("message_passing", {"message": "gated", "aggregation": "max", "update": "gru"}),
    ("message_passing", {"aggregation": "std", "residual": True}),
    ("gcn", {"hidden": (8, 8, 8), "residual": True, "jump": "cat", "norm": "pair"}),
    ("gcn", {"hidden": (8, 8), "jump": "max", "norm": "batch"}),
    ("gcn", {"hidden": (8, 8), "jump": "lstm", "norm": "layer"}),
    ("gcn", {"hidden": ()}),
    ("monet", {"weight": "ball", "mean": False, "residual": True, "jump": "lstm"}),
    (
        "gat",
        {"heads": 3, "output_heads": 2, "hidden": (4, 4), "norm": "pair", "residual": True, "jump": "max"},
    ),
]
IDS = [f"{name}-{i}" for i, (name, _) in enumerate(VARIANTS)]


def orders(count: int, nodes: int) -> list[Tensor]:
    """A cycle of three nodes, whose inverse is another one, and random ones."""
    turned = torch.arange(nodes)
    turned[:3] = torch.tensor([1, 2, 0])
    generator = torch.Generator().manual_seed(1)
    return [turned, *(torch.randperm(nodes, generator=generator) for _ in range(count - 1))]


@pytest.mark.catalogue("S32", "S4-115", "S4-123", "S4-124", "S3-184")
@pytest.mark.parametrize(("name", "fields"), VARIANTS, ids=IDS)
@pytest.mark.parametrize("fixed", [False, True], ids=["batches", "fixed"])
def test_answers_for_nodes_follow_their_names(name: str, fields: dict[str, Any], fixed: bool) -> None:
    # What polynomials keep of a fixed graph is in single precision.
    single = fixed and name == "cheb"
    dtype, within = (torch.float32, 1e-5) if single else (torch.float64, 1e-6)
    x, edges, asked = torch.randn(12, FEATURES, dtype=dtype), random_graph(12), torch.arange(12)
    net = model(name, fixed=fixed, nodes=12 if fixed else 0, **fields).to(dtype)
    with torch.no_grad():
        before = net(x, edges, asked)
        for order in orders(20, 12):
            # f(PX, PAP^T) = P f(X, A): the node that is now called order[i] has the answer of node i.
            after = net(*relabelled(x, edges, order), asked)
            assert (after[order] - before).abs().max() < within


@pytest.mark.catalogue("S32", "S3-162", "S4-114", "S4-123")
@pytest.mark.parametrize(("name", "fields"), VARIANTS, ids=IDS)
def test_answers_for_graphs_know_no_names(name: str, fields: dict[str, Any]) -> None:
    x, edges, bounds = torch.randn(12, FEATURES), random_graph(12), torch.tensor([0, 12])
    net = model(name, graphs=True, **fields)
    with torch.no_grad():
        before = net(x, edges, bounds)
        for order in orders(20, 12):
            assert (net(*relabelled(x, edges, order), bounds) - before).abs().max() < 1e-5


@pytest.mark.parametrize(("name", "fields"), VARIANTS, ids=IDS)
def test_a_graph_does_not_see_those_beside_it_in_a_batch(name: str, fields: dict[str, Any]) -> None:
    x, net = torch.randn(12, FEATURES), model(name, graphs=True, **fields)
    first, second = random_graph(7, 1), random_graph(5, 2)
    with torch.no_grad():
        both = net(x, torch.cat((first, second + 7), 1), torch.tensor([0, 7, 12]))
        alone = net(x[7:], second, torch.tensor([0, 5]))
    assert (both[1] - alone[0]).abs().max() < 1e-5


@pytest.mark.parametrize(("name", "fields"), VARIANTS, ids=IDS)
def test_what_is_computed_once_for_a_fixed_graph_changes_no_answer_and_no_gradient(
    name: str, fields: dict[str, Any]
) -> None:
    x, edges, asked = torch.randn(12, FEATURES), random_graph(12), torch.tensor([3, 0, 7])
    x[torch.rand(12, FEATURES) < 0.95] = 0  # so few numbers that they are a sparse matrix
    once, anew = model(name, fixed=True, nodes=12, **fields), model(name, **fields)
    for net in (once, anew):
        net(x, edges, asked).square().sum().backward()
        net(x, edges, asked).square().sum().backward()  # which finds what the first has kept
    assert (once(x, edges, asked) - anew(x, edges, asked)).abs().max() < 1e-5
    for one, two in zip(once.parameters(), anew.parameters(), strict=True):
        assert one.grad is not None and two.grad is not None
        assert (one.grad - two.grad).abs().max() < 1e-4 * max(1, float(two.grad.abs().max()))


def test_another_graph_in_place_of_a_fixed_one_is_noticed() -> None:
    x, asked = torch.randn(12, FEATURES), torch.arange(12)
    once, anew = model("gcn", fixed=True, nodes=12), model("gcn")
    for seed in (1, 2, 1):
        edges = random_graph(12, seed)
        assert (once(x, edges, asked) - anew(x, edges, asked)).abs().max() < 1e-6
    x.mul_(2)  # the same tensor with other numbers
    assert (once(x, edges, asked) - anew(x, edges, asked)).abs().max() < 1e-6


@pytest.mark.catalogue("S33", "S4-132")
@pytest.mark.parametrize(("name", "fields"), VARIANTS, ids=IDS)
def test_one_cycle_of_six_and_two_triangles_look_the_same(name: str, fields: dict[str, Any]) -> None:
    x, bounds = torch.ones(6, FEATURES).double(), torch.tensor([0, 6])
    six, triangles = cycle(6), torch.cat((cycle(3), cycle(3, 3)), 1)
    for seed in range(20 if fields == PASSING.get(name) else 2):
        net = model(name, graphs=True, seed=seed, **fields).double()  # a norm of pairs magnifies rounding
        with torch.no_grad():
            one, two = net(x, six, bounds), net(x, triangles, bounds)
            other = net(x, path(6), bounds)
        assert (one - two).abs().max() < 1e-6 * max(1, float(one.abs().max()))
        if name in ("gcn", "gin", "message_passing") and fields == PASSING[name]:
            assert (one - other).abs().max() > 1e-6  # a path has ends

    def triangles_in(edges: Tensor) -> float:
        adjacency = torch.zeros(6, 6)
        adjacency[edges[0], edges[1]] = 1
        return float(torch.trace(adjacency.matrix_power(3))) / 6

    assert triangles_in(six) == 0 and triangles_in(triangles) == 2


@pytest.mark.catalogue("S32", "S3-184", "S4-124", "S4-128")
@pytest.mark.parametrize(("name", "fields"), PASSING.items(), ids=list(PASSING))
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_so_many_layers_see_so_many_hops_and_no_further(
    name: str, fields: dict[str, Any], layers: int
) -> None:
    net = model(name, hidden=(8,) * layers, activation="identity", graphs=False, jump="cat", **fields)
    x = torch.randn(8, FEATURES, requires_grad=True)
    output = net(x, path(8), torch.tensor([0]))
    (grad,) = torch.autograd.grad(output.sum(), x)
    seen = grad.abs().sum(1) != 0
    assert seen.tolist() == [i <= layers for i in range(8)]


@pytest.mark.catalogue("S4-124")
@pytest.mark.parametrize(("name", "fields"), PASSING.items(), ids=list(PASSING))
def test_a_node_without_neighbours_depends_on_itself_alone(name: str, fields: dict[str, Any]) -> None:
    x, net = torch.randn(4, FEATURES), model(name, **fields)
    edges = cycle(3)  # of nodes 0 to 2
    with torch.no_grad():
        before = net(x, edges, torch.tensor([3]))
        x[:3] = torch.randn(3, FEATURES)
        assert torch.equal(net(x, edges, torch.tensor([3])), before)
    assert torch.isfinite(before).all()


@pytest.mark.parametrize("name", list(PASSING))
def test_a_single_node_is_told_by_a_norm_over_nodes(name: str) -> None:
    net = model(name, graphs=True, norm="batch").train()
    with pytest.raises(PegboardError, match=r"cannot train on a single node.*\n.*data.drop_last"):
        net(torch.randn(1, FEATURES), random_graph(1), torch.tensor([0, 1]))


@pytest.mark.catalogue("S3-162")
def test_data_keeps_the_structure_of_a_graph_apart_from_the_signal_on_it() -> None:
    """Other features on the same edges, and the same graph under other numbers, of a batch of two graphs."""
    config = {
        "data": {"name": "cycles", "batch_size": 4},
        "model": {"name": "gin", "hidden": [8]},
        "optimizer": {"name": "sgd", "lr": 0.1},
    }
    assembly = assemble(make_plan(check(config), read=True), "cpu")
    splits = assembly.plan.splits
    assert splits is not None
    assert [type(spec).__name__ for spec in splits.spec.inputs] == ["Nodes", "Edges", "Bounds"]
    _, edges, bounds = splits.train.gather(torch.arange(2)).inputs
    count = int(bounds[-1])
    signal = torch.randn(count, 1)
    net = assembly.model.eval()
    with torch.no_grad():
        before = net(signal, edges, bounds)
        assert (net(2 * signal, edges, bounds) - before).abs().max() > 1e-3
        assert (net(signal, edges[:, ::2], bounds) - before).abs().max() > 1e-3
        generator = torch.Generator().manual_seed(0)
        for _ in range(5):  # other numbers for the nodes of each graph
            order = torch.cat(
                [a + torch.randperm(b - a, generator=generator) for a, b in pairwise(bounds.tolist())]
            )
            assert (net(*relabelled(signal, edges, order), bounds) - before).abs().max() < 1e-5


@pytest.mark.catalogue("S3-184")
@pytest.mark.parametrize(("name", "fields"), PASSING.items(), ids=list(PASSING))
def test_a_network_answers_graphs_of_any_size(name: str, fields: dict[str, Any]) -> None:
    net = model(name, graphs=True, **fields)
    for nodes in (1, 4, 30):
        edges = random_graph(nodes, nodes)
        assert net(torch.randn(nodes, FEATURES), edges, torch.tensor([0, nodes])).shape == (1, 3)


@pytest.mark.catalogue("S3-184")
def test_means_of_linear_messages_are_a_matrix_product() -> None:
    net: Any = model("message_passing", hidden=(), aggregation="mean")
    x, edges = torch.randn(9, FEATURES), random_graph(9)
    adjacency = torch.zeros(9, 9)
    adjacency[edges[1], edges[0]] = 1
    mean = adjacency / adjacency.sum(1, keepdim=True).clamp(min=1)
    layer = net.last
    expected = layer.combine.map(x) + mean @ x @ layer.send.map.weight.T
    assert (net(x, edges, torch.arange(9)) - expected).abs().max() < 1e-5


@pytest.mark.catalogue("S3-167")
def test_the_order_of_neighbours_matters_to_what_reads_them_in_order_alone() -> None:
    x, edges = torch.randn(9, FEATURES), random_graph(9)
    shuffled = edges[:, torch.randperm(edges.shape[1], generator=torch.Generator().manual_seed(0))]
    for aggregation in ("sum", "mean", "max"):
        net = model("message_passing", aggregation=aggregation)
        with torch.no_grad():
            one, two = (net(x, given, torch.arange(9)) for given in (edges, shuffled))
        assert (one - two).abs().max() < 1e-5
    around = edges[0, edges[1] == 0]
    assert len(around) >= 2
    reads_in_order = Mlp(len(around) * FEATURES, [16], 3)
    turned = around.roll(1)
    one, two = (reads_in_order(x[given].flatten()[None]) for given in (around, turned))
    assert (one - two).abs().max() > 1e-3


def test_features_of_edges_reach_the_networks_that_read_them() -> None:
    x, edges, asked = torch.randn(9, FEATURES), random_graph(9), torch.arange(9)
    known = torch.randn(edges.shape[1], 2)
    for name in ("gat", "message_passing"):
        net = model(name, edges=2)
        assert (net(x, edges, known, asked) - net(x, edges, 2 * known, asked)).abs().max() > 1e-4
    weights = known[:, :1].abs()
    for name in ("gcn", "cheb"):
        net = model(name, edges=1)
        assert (net(x, edges, weights, asked) - net(x, edges, weights**2, asked)).abs().max() > 1e-4


def test_layers_that_jump_together_keep_early_features() -> None:
    plain = model("gcn", hidden=(8,) * 6, norm="none")
    jumped: Any = model("gcn", hidden=(8,) * 6, jump="cat")
    assert jumped.head.in_features == 48 and not hasattr(plain.head, "in_features")
    assert [b.conv.lin.weight.shape[1] for b in jumped.blocks] == [FEATURES, 8, 8, 8, 8, 8]
    assert all(a.conv.lin.weight.shape[0] == b.conv.lin.weight.shape[1] for a, b in pairwise(jumped.blocks))


@pytest.mark.parametrize("name", ["gcn", "gat", "gin", "message_passing", "cheb", "monet", "spectral"])
def test_a_network_can_be_copied_and_sent_away_with_what_it_keeps_left_behind(name: str) -> None:
    import copy
    import pickle

    net = model(name, fixed=True, nodes=12)
    x, edges, asked = torch.randn(12, FEATURES), random_graph(12), torch.arange(12)
    before = net(x, edges, asked)
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert torch.equal(other(x, edges, asked), before)
    assert len(pickle.dumps(net)) < 20_000 + sum(p.numel() * 8 for p in net.parameters())
