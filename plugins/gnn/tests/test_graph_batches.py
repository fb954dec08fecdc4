"""Graphs as samples: the batches of their sources, folds, and neighbourhoods of a large graph."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from pegboard import Batch, Classes, DataSpec, Points, Resident, Splits
from pegboard.base.errors import PegboardError
from pegboard.data import cut_splits
from pegboard.registry.discovery import Registry
from pegboard.registry.spec_names import from_json, to_json
from pegboard_gnn import (
    Asked,
    Bounds,
    EdgeFeatures,
    Edges,
    Graph,
    GraphSet,
    Nodes,
    WholeGraph,
    sampled,
)
from pegboard_gnn.graphs import Neighbourhoods, mix
from torch import Tensor


def random_graph(nodes: int, seed: int, share: float = 0.3, features: int = 0) -> Graph:
    generator = torch.Generator().manual_seed(seed)
    upper = torch.triu(torch.rand(nodes, nodes, generator=generator) < share, 1)
    edges = (upper | upper.T).nonzero().T.contiguous()
    known = torch.rand(edges.shape[1], features, generator=generator) if features else None
    return Graph(torch.randn(nodes, 3, generator=generator), edges, known)


def graphs(count: int = 12, features: int = 0) -> list[Graph]:
    return [random_graph(3 + i % 5, i, 0.6, features) for i in range(count)]


@pytest.mark.parametrize("features", [0, 2])
def test_a_batch_of_graphs_is_that_of_torch_geometric(features: int) -> None:
    data = pytest.importorskip("torch_geometric.data")
    found = graphs(features=features)
    chosen = [7, 0, 3, 3, 11]
    batch = GraphSet.join(found, torch.arange(12)).gather(torch.tensor(chosen))
    parts = [data.Data(x=g.x, edge_index=g.edges, edge_attr=g.features) for g in found]
    theirs = data.Batch.from_data_list([parts[i] for i in chosen])
    assert torch.equal(batch.inputs[0], theirs.x)
    assert torch.equal(batch.inputs[1], theirs.edge_index)
    assert torch.equal(batch.inputs[-1], theirs.ptr)
    assert batch.target is not None and batch.target.tolist() == chosen
    if features:
        assert torch.equal(batch.inputs[2], theirs.edge_attr)


def test_graphs_without_nodes_or_edges_are_samples_too() -> None:
    none = Graph(torch.zeros(0, 3), torch.zeros(2, 0, dtype=torch.int64))
    alone = Graph(torch.ones(1, 3), torch.zeros(2, 0, dtype=torch.int64))
    batch = GraphSet.join([none, alone, *graphs(1)]).gather(torch.tensor([1, 0, 2]))
    assert batch.inputs[2].tolist() == [0, 1, 1, 4] and batch.inputs[0].shape == (4, 3)


def test_nodes_of_a_graph_come_with_the_whole_of_it() -> None:
    graph = random_graph(9, 1)
    source = WholeGraph(graph, torch.tensor([8, 2, 5]), torch.tensor([0, 1, 2]))
    batch = source.gather(torch.tensor([2, 0]))
    assert batch.inputs[0] is graph.x and batch.inputs[1] is graph.edges  # which a model may recognise
    assert batch.inputs[2].tolist() == [5, 8] and batch.target is not None and batch.target.tolist() == [2, 0]
    assert batch.samples == 2


def test_splits_of_a_graph_share_it_on_every_device() -> None:
    graph = random_graph(9, 1)
    one, two = (WholeGraph(graph, torch.arange(3)).to("meta") for _ in range(2))
    assert one.graph is two.graph and one.graph.x.is_meta
    assert WholeGraph(graph, torch.arange(3)).to("cpu").graph is graph


def test_a_batch_counts_its_samples_by_rows_then_by_target_then_by_its_first_input() -> None:
    x = torch.zeros(5, 2)
    assert Batch((x,)).samples == 5
    assert Batch((x,), torch.zeros(3)).samples == 3
    assert Batch((x,), torch.zeros(3), None, torch.zeros(2)).samples == 2


@pytest.mark.parametrize(
    ("edges", "said"),
    [
        (torch.zeros(3, 2, dtype=torch.int64), "expected \\(2, edges\\)"),
        (torch.zeros(2, 2), "in int64"),
        (torch.tensor([[0], [4]]), "nodes 0 to 4 of 4"),
        (torch.tensor([[1], [1]]), "to itself"),
    ],
)
def test_edges_that_cannot_be_are_refused(edges: Tensor, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Graph(torch.zeros(4, 1), edges)


def test_folds_of_graphs_hold_every_graph_once_with_its_own_nodes() -> None:
    spec = DataSpec((Nodes(3), Edges(), EdgeFeatures(2), Bounds()), Classes(12))
    found, target = graphs(features=2), torch.arange(12)
    splits = Splits(
        spec=spec, train=GraphSet.join(found[:8], target[:8]), val=GraphSet.join(found[8:], target[8:])
    )
    seen: list[int] = []
    for number in range(3):
        cut = cut_splits(splits, (number, 3))
        assert cut.val is not None
        for row in range(len(cut.val)):
            batch = cut.val.gather(torch.tensor([row]))
            assert batch.target is not None
            graph = found[int(batch.target)]
            assert torch.equal(batch.inputs[0], graph.x) and torch.equal(batch.inputs[1], graph.edges)
            assert graph.features is not None and torch.equal(batch.inputs[2], graph.features)
            seen.append(int(batch.target))
        assert len(cut.train) == 8
    assert sorted(seen) == list(range(12))


def test_folds_of_nodes_keep_the_graph_whole() -> None:
    graph, target = random_graph(12, 2), torch.arange(12)
    nodes = torch.arange(12)
    spec = DataSpec((Nodes(3, 12), Edges(True), Asked()), Classes(12))
    splits = Splits(
        spec=spec,
        train=WholeGraph(graph, nodes[:9], target[:9]),
        val=WholeGraph(graph, nodes[9:], target[9:]),
    )
    cut = cut_splits(splits, (0, 4))
    assert isinstance(cut.train, WholeGraph) and cut.train.graph is graph and len(cut.train) == 9
    assert cut.train.target is not None and torch.equal(cut.train.nodes, cut.train.target)


def test_folds_of_neighbourhoods_are_refused_with_the_reason() -> None:
    spec = DataSpec((Nodes(3), Edges(), Asked()), Classes(12))
    source = sampled(random_graph(12, 2), torch.arange(12), torch.arange(12), fanouts=[2])
    with pytest.raises(PegboardError, match="neighbourhoods in one graph"):
        cut_splits(Splits(spec=spec, train=source), (0, 3))


def test_examples_of_specs_fit_each_other() -> None:
    for last in (Asked(), Bounds()):
        specs = (Nodes(3), Edges(), EdgeFeatures(2), last)
        x, edges, known, where = (s.example(5, "cpu") for s in specs)
        Graph(x, edges, known)  # which looks at them
        assert int(where.max()) <= len(x) and len(where) == (5 if isinstance(last, Asked) else 6)
    assert Points(7, 3).example(5, "cpu").shape == (5, 7, 3)


def test_specs_of_graphs_survive_json() -> None:
    spec = DataSpec(
        (Nodes(3, 8), Edges(True), EdgeFeatures(2), Asked(), Bounds(), Points(4, 3, True)), Classes(2)
    )
    names = Registry.discover().specs
    written = to_json(spec, names.name)
    assert [s["type"] for s in written["inputs"][:2]] == ["pegboard-gnn:Nodes", "pegboard-gnn:Edges"]
    assert from_json(written, names.find) == spec
    for entry in written["inputs"]:  # as the core wrote it once
        entry["type"] = entry["type"].rpartition(":")[2]
    assert from_json(written, names.find) == spec
    assert (
        str(spec) == "Nodes(3), Edges(fixed), EdgeFeatures(2), Asked(), Bounds(), Points(4, 3) -> Classes(2)"
    )


def into(graph: Graph, node: int) -> set[int]:
    return set(graph.edges[0, graph.edges[1] == node].tolist())


def hops(graph: Graph, nodes: Sequence[int], count: int) -> set[int]:
    found = set(nodes)
    for _ in range(count):
        found |= {n for node in found for n in into(graph, node)}
    return found


def test_neighbourhoods_without_a_limit_are_all_that_a_model_of_so_many_layers_sees() -> None:
    graph = random_graph(40, 3, 0.06)
    source = sampled(graph, torch.arange(40), fanouts=[None, None])
    x, edges, asked = source.gather(torch.tensor([4, 17])).inputs
    names = [int((graph.x == row).all(1).nonzero()) for row in x]
    assert set(names) == hops(graph, [4, 17], 2)
    assert [names[i] for i in asked.tolist()] == [4, 17]
    kept = {(names[a], names[b]) for a, b in edges.T.tolist()}
    inner = hops(graph, [4, 17], 1)  # nodes whose edges are followed
    assert kept == {(a, b) for a, b in graph.edges.T.tolist() if b in inner}


def test_neighbourhoods_follow_so_many_edges_at_most_and_none_twice() -> None:
    graph = random_graph(60, 4, 0.3, 1)
    source = sampled(graph, torch.arange(60), torch.arange(60), fanouts=[3, 2], seed=7)
    batch = source.gather(torch.arange(0, 20))
    x, edges, known, asked = batch.inputs
    counts = torch.bincount(edges[1], minlength=len(x))
    assert counts[asked].max() == 3 and counts.max() == 3
    pairs = edges.T.tolist()
    assert len({tuple(pair) for pair in pairs}) == len(pairs) == len(known)
    assert batch.target is not None and batch.target.tolist() == list(range(20))


def test_what_is_sampled_depends_on_seed_epoch_and_node_alone() -> None:
    graph = random_graph(60, 5, 0.3)

    def neighbours(seed: int, epoch: int, rows: list[int]) -> set[int]:
        source = sampled(graph, torch.arange(60), fanouts=[3], seed=seed)
        source.begin([torch.tensor(rows)], 0, epoch)
        x, edges, asked = source.gather(torch.tensor(rows)).inputs
        return {int((graph.x == x[i]).all(1).nonzero()) for i in edges[0, edges[1] == asked[0]].tolist()}

    assert neighbours(1, 0, [9]) == neighbours(1, 0, [9, 3, 22])
    others = [neighbours(seed, epoch, [9]) for seed in (1, 2, 3) for epoch in (0, 1, 2)]
    assert len({frozenset(found) for found in others}) > 5


def test_every_neighbour_is_sampled_about_as_often() -> None:
    graph = random_graph(30, 6, 0.5)
    read = Neighbourhoods(graph, torch.arange(30), None, None, (2,))
    own = into(graph, 0)
    counts = torch.zeros(30)
    for key in range(600):
        x, edges, asked = read([0], key).inputs
        for i in edges[0, edges[1] == asked[0]].tolist():
            counts[int((graph.x == x[i]).all(1).nonzero())] += 1
    expected = 1200 / len(own)
    found = counts[sorted(own)]
    assert counts.sum() == 1200 and (found - expected).abs().max() < 5 * expected**0.5


def test_mixed_numbers_are_those_of_splitmix64() -> None:
    # The first three of the stream that begins at 0, as they are published with the algorithm.
    stream = mix(torch.arange(3) * -7046029254386353131)
    assert [n % 2**64 for n in stream.tolist()] == [
        0xE220A8397B1DCDAF,
        0x6E789E6AA1B965F4,
        0x06C45D188009454F,
    ]


def test_workers_read_the_same_neighbourhoods() -> None:
    graph = random_graph(60, 8, 0.2)
    order = list(torch.arange(60).split(16))

    def read(workers: int) -> list[Batch]:
        source = sampled(graph, torch.arange(60), torch.arange(60), fanouts=[2, 2], seed=3)
        source.begin(order, workers, 1)
        try:
            return [source.gather(index) for index in order]
        finally:
            source.close()

    for one, two in zip(read(0), read(2), strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one.inputs, two.inputs, strict=True))


def test_accumulated_batches_of_graphs_weigh_by_graphs_not_by_nodes() -> None:
    from pegboard.contract.results import Objective

    batch = GraphSet.join(graphs(), torch.arange(12)).gather(torch.arange(5))
    assert Objective().mass(batch) == 5
    assert Objective().mass(Resident([torch.zeros(7, 2)]).gather(torch.arange(3))) == 3


def test_nodes_of_one_graph_are_evaluated_at_once() -> None:
    from pegboard.data import in_batches

    graph = random_graph(12, 2)
    source = WholeGraph(graph, torch.arange(12), torch.arange(12))
    assert [len(batch) for batch in in_batches(source, torch.arange(12), 5)] == [12]
    plain = Resident([torch.zeros(12, 1)])
    assert [len(batch) for batch in in_batches(plain, torch.arange(12), 5)] == [5, 5, 2]


def test_numbers_of_graphs_come_on_the_cpu() -> None:
    from pegboard.engine.evaluate import reading_order

    assert reading_order(GraphSet.join(graphs()), "meta").device.type == "cpu"
    assert reading_order(WholeGraph(graphs()[0], torch.arange(2)), "meta").device.type == "meta"


def test_to_repeat_so_many_waits_for_nothing_where_the_sum_is_said() -> None:
    from pegboard.preview.sync_lint import Waits, looking

    numbers, counts = torch.arange(3, device="meta"), torch.ones(3, dtype=torch.int64, device="meta")
    with looking():
        assert torch.repeat_interleave(numbers, counts, output_size=7).shape == (7,)
        with pytest.raises(Waits):
            torch.repeat_interleave(numbers, counts)
