"""The coupling of graph convolution, its norm and horizon, attention, and what depth does to nodes."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import points
import pytest
import torch
from graphs_at_hand import cycle, model, path, random_graph
from graphs_at_hand import undirected as both_ways
from pegboard import Context, Splits
from pegboard_gnn.citations import karate
from pegboard_gnn.data_configs import Blocks, Karate
from pegboard_gnn.layers import Gat, Gcn
from pegboard_gnn.made_graphs import blocks, undirected
from pegboard_gnn.smoothing import coupling, likeness, limit
from pegboard_gnn.sparse import Csr
from pegboard_gnn.structure import Structure, coupled, dense, looped, plain
from pegboard_gnn.symmetry import colours, refinement_differs
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GCNConv
from torch_geometric.nn.conv.gcn_conv import gcn_norm


def adjacency(edges: Tensor, nodes: int) -> Tensor:
    found = torch.zeros(nodes, nodes, dtype=torch.float64)
    found[edges[1], edges[0]] = 1
    return found


@pytest.mark.catalogue("S4-122")
@pytest.mark.parametrize(
    "made",
    [lambda: karate(Karate(), Context()), lambda: blocks(Blocks(), Context())],
    ids=["karate", "blocks"],
)
def test_an_undirected_graph_has_a_symmetric_matrix_of_zeros_and_ones(made: Callable[[], Splits]) -> None:
    train = made().train
    x, edges, _ = train.gather(torch.arange(len(train))).inputs  # the whole graph
    matrix = dense(plain(edges, None, len(x)))
    assert torch.equal(matrix, matrix.T) and set(matrix.unique().tolist()) == {0.0, 1.0}
    pairs = {tuple(sorted(edge)) for edge in edges.T.tolist()}
    assert matrix.sum() == edges.shape[1] == 2 * len(pairs) and not matrix.diagonal().any()
    # To the matrix and back it is the same list, and from one direction of each edge too.
    assert torch.equal(matrix.T.nonzero(), torch.unique(edges, dim=1).T)
    again = undirected(torch.tensor(sorted(pairs)).T)
    assert torch.equal(torch.unique(again, dim=1), torch.unique(edges, dim=1))
    if len(x) == 34:
        assert len(pairs) == 78  # Zachary's club


@pytest.mark.catalogue("S4-125")
def test_the_coupling_of_a_path_of_three() -> None:
    found = coupling(path(3), 3)
    expected = torch.tensor([[0.5, 0.408248, 0], [0.408248, 0.333333, 0.408248], [0, 0.408248, 0.5]])
    assert (found - expected).abs().max() < 1e-6
    assert (torch.linalg.eigvalsh(found) - torch.tensor([-1 / 6, 0.5, 1])).abs().max() < 1e-6


@pytest.mark.catalogue("S4-125")
def test_the_coupling_is_symmetric_keeps_root_degrees_and_is_that_of_torch_geometric() -> None:
    edges = torch.cat((random_graph(9), torch.zeros(2, 0, dtype=torch.int64)), 1)
    nodes = 10  # the last has no neighbour
    found = coupling(edges, nodes)
    root = (torch.bincount(edges[1], minlength=nodes) + 1).double().sqrt()
    assert (found - found.T).abs().max() < 1e-12 and (found @ root - root).abs().max() < 1e-6
    assert found[9, 9] == 1 and found[9].sum() == 1
    theirs, weight = gcn_norm(edges, None, nodes)
    full = torch.zeros(nodes, nodes)
    full[theirs[1], theirs[0]] = weight
    assert (full - found).abs().max() < 1e-6
    structure = coupled(edges, None, nodes)
    assert structure.weight is not None
    sparse = Csr.of(structure.edges[1], structure.edges[0], structure.weight, (nodes, nodes))
    x = torch.randn(nodes, 4)
    assert (sparse.matmul(x) - dense(structure) @ x).abs().max() < 1e-6


@pytest.mark.catalogue("S4-126")
def test_a_layer_is_that_of_torch_geometric_weights_and_all() -> None:
    ours, theirs = Gcn(5, 3), GCNConv(5, 3)
    ours.load_state_dict(theirs.state_dict())
    x, edges = torch.randn(9, 5), random_graph(9)
    assert (ours(x, coupled(edges, None, 9)) - theirs(x, edges)).abs().max() < 1e-6


@pytest.mark.catalogue("S4-126")
def test_without_edges_it_is_a_network_on_every_node() -> None:
    net: Any = model("gcn", bias=False)
    x, none = torch.randn(6, 5), torch.zeros(2, 0, dtype=torch.int64)
    by_hand = torch.relu(x @ net.blocks[0].conv.lin.weight.T) @ net.last.lin.weight.T
    found = net(x, none, torch.arange(6))
    assert (found - by_hand).abs().max() < 1e-6
    assert (found.softmax(1).sum(1) - 1).abs().max() < 1e-6


def found(folder: Path, seed: int, steps: int = 150, **fields: Any) -> float:
    """Test accuracy of a run on communities, of which 20 nodes are labelled."""
    config = {
        "seed": seed,
        "data": {"name": "block_model", "seed": seed, "batch_size": "all"},
        "model": {"hidden": [16], **fields},
        "optimizer": {"name": "adam", "lr": 0.01},
        "regularizers": {"weight_decay": {"value": 5e-4, "mode": "l2"}},
        "trainer": {"steps": steps, "eval_every": steps, "device": "cpu", "diagnose": False},
    }
    return points.run(config, folder).figures["test/accuracy"]


@pytest.mark.catalogue("S4-126", "S4-129")
def test_communities_are_found_with_the_graph_not_without_it_and_not_by_sixteen_layers(
    tmp_path: Path,
) -> None:
    shallow = [found(tmp_path, seed, name="gcn") for seed in range(3)]
    # A polynomial of degree 0 sees no neighbour: a network on every node.
    alone = [found(tmp_path, seed, name="cheb", order=0) for seed in range(3)]
    assert min(shallow) >= 0.93
    assert all(one >= other + 0.15 for one, other in zip(shallow, alone, strict=True))
    assert found(tmp_path, 0, 60, name="gcn", hidden=[16] * 15) < 0.7


@pytest.mark.catalogue("S4-129")
@pytest.mark.parametrize("fields", [{"residual": True}, {"jump": "cat"}, {"norm": "pair"}])
def test_sixteen_layers_find_communities_with_what_is_against_smoothing(
    fields: dict[str, Any], tmp_path: Path
) -> None:
    assert found(tmp_path, 0, 60, name="gcn", hidden=[16] * 15, **fields) >= 0.93


@pytest.mark.catalogue("S4-127")
def test_the_coupling_never_lengthens_signals() -> None:
    for seed in range(20):
        values = torch.linalg.eigvalsh(coupling(random_graph(12, seed), 12))
        assert abs(float(values.abs().max()) - 1) < 1e-6 and values.min() > -1
        x = torch.randn(12, 3, dtype=torch.float64)
        assert (coupling(random_graph(12, seed), 12) @ x).norm() <= x.norm() + 1e-9


@pytest.mark.catalogue("S4-128")
def test_what_is_nine_hops_away_needs_nine_couplings() -> None:
    matrix = coupling(path(10), 10)
    assert matrix.matrix_power(8)[0, 9] == 0
    assert abs(float(matrix.matrix_power(9)[0, 9]) - 7.6e-5) < 1e-6
    for layers, seen in ((8, False), (9, True)):
        net = model("gcn", hidden=(4,) * (layers - 1), activation="identity")
        x = torch.randn(10, 5, requires_grad=True)
        (grad,) = torch.autograd.grad(net(x, path(10), torch.tensor([0])).sum(), x)
        assert bool((grad[9] != 0).any()) == seen


@pytest.mark.catalogue("S4-129")
def test_nodes_become_alike_at_the_rate_of_the_second_eigenvalue() -> None:
    edges = random_graph(12, 3)
    assert len(set(colours(edges, 12))) > 1
    matrix = coupling(edges, 12)
    second = float(torch.linalg.eigvalsh(matrix).abs().sort().values[-2])
    assert second < 1  # it hangs together
    x = torch.randn(12, 4, dtype=torch.float64)
    across = (x - limit(edges, 12, x)).norm()
    for power in (1, 8, 32, 64):
        apart = (matrix.matrix_power(power) @ x - limit(edges, 12, x)).norm()
        assert apart <= second**power * across + 1e-9
    smooth = nn.functional.normalize(matrix.matrix_power(32) @ x)
    assert (smooth @ smooth.T).min() > 0.999
    assert likeness(smooth) > 0.999 > likeness(x)


@pytest.mark.catalogue("S4-130")
def test_a_leaf_of_a_tree_has_a_quarter_of_the_influence_at_every_level() -> None:
    def influence(depth: int) -> float:
        nodes = 2 ** (depth + 1) - 1
        edges = both_ways(*(((i - 1) // 2, i) for i in range(1, nodes)))
        return float(coupling(edges, nodes).matrix_power(depth)[0, nodes - 1])

    for depth, expected in ((2, 0.102), (4, 0.00638), (6, 3.99e-4)):
        assert influence(depth) == pytest.approx(expected, rel=5e-3)
    for depth in range(2, 7):
        slope = math.log(influence(depth + 1)) - math.log(influence(depth))
        assert slope == pytest.approx(-math.log(4), rel=0.05)


@pytest.mark.catalogue("S4-131")
def test_attention_is_of_neighbours_alone_and_sums_to_one() -> None:
    layer = Gat(5, 4, 2, True, 0.2, None)
    x, structure = torch.randn(9, 5), looped(random_graph(9), None, 9)
    alpha = layer.attend(layer.lin(x).view(-1, 2, 4), structure)
    full = torch.zeros(9, 9, 2)
    full[structure.edges[1], structure.edges[0]] = alpha
    assert (full.sum(1) - 1).abs().max() < 1e-6
    joined = adjacency(structure.edges, 9) > 0
    assert not full[~joined].any()
    layer(x, structure).square().sum().backward()
    for p in (layer.att_src, layer.att_dst, layer.lin.weight):
        assert p.grad is not None and p.grad.abs().max() > 0


@pytest.mark.catalogue("S4-131")
def test_attention_that_sees_nothing_is_the_mean_of_the_neighbours() -> None:
    layer = Gat(5, 4, 2, True, 0.2, None)
    nn.init.zeros_(layer.att_src), nn.init.zeros_(layer.att_dst)
    x, structure = torch.randn(9, 5), looped(random_graph(9), None, 9)
    matrix = adjacency(structure.edges, 9).float()
    mean = (matrix / matrix.sum(1, keepdim=True)) @ layer.lin(x)
    assert (layer(x, structure) - mean - layer.bias).abs().max() < 1e-6


@pytest.mark.catalogue("S4-131")
def test_attention_may_read_the_features_of_edges() -> None:
    edges = random_graph(9)
    x, known = torch.randn(9, 5), torch.randn(edges.shape[1], 2)
    theirs = GATConv(5, 4, 2, edge_dim=2, add_self_loops=False)
    ours = Gat(5, 4, 2, True, 0.2, 2)
    ours.load_state_dict(theirs.state_dict())
    structure = Structure(edges, None, known, 9)
    assert (ours(x, structure) - theirs(x, edges, known)).abs().max() < 1e-6
    alpha, without = (
        ours.attend(ours.lin(x).view(-1, 2, 4), s) for s in (structure, Structure(edges, None, None, 9))
    )
    assert (alpha - without).abs().max() > 1e-3
    sums = torch.zeros(9, 2).index_add(0, edges[1], alpha)
    assert (sums[edges[1].unique()] - 1).abs().max() < 1e-6
    for given in ((edges, x, known), (edges, x)):  # a model with features, and one without
        net: Any = model("gat", edges=2 if len(given) == 3 else 0, heads=2)
        out = net(x, edges, *given[2:], torch.arange(9))
        assert out.shape == (9, 3) and out.isfinite().all()
        if len(given) == 3:
            assert (out - net(x, edges, known.flip(0), torch.arange(9))).abs().max() > 1e-4


@pytest.mark.catalogue("S4-132", "S33")
def test_refinement_tells_a_path_from_a_cycle_but_not_cycles_from_each_other() -> None:
    triangles = torch.cat((cycle(3), cycle(3, 3)), 1)
    assert not refinement_differs(cycle(6), triangles, 6)
    assert refinement_differs(cycle(6), path(6), 6)
    net = model("gcn", graphs=True, features=2)
    ones, bounds = torch.ones(6, 1), torch.tensor([0, 6])
    from pegboard_gnn.made_graphs import triangles as count

    known = [torch.cat((ones, count(edges, 6).unsqueeze(1)), 1) for edges in (cycle(6), triangles)]
    assert known[0][:, 1].sum() == 0 and known[1][:, 1].sum() == 6  # three corners of each of two
    one, two = (net(x, edges, bounds) for x, edges in zip(known, (cycle(6), triangles), strict=True))
    assert (one - two).abs().max() > 1e-3
