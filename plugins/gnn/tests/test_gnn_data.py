"""The data sets: what they hold, what their files may hold, and what is said where something is wrong."""

from __future__ import annotations

import os
import pickle
import shutil
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest
import torch
from graphs_at_hand import model
from pegboard import Context, PegboardError, Resident, Stream
from pegboard_gnn import GraphSet, WholeGraph, files, unpickling
from pegboard_gnn.citations import karate, planetoid
from pegboard_gnn.data_configs import Blocks, Cycles, Grids, Karate, Planetoid, TuDataset
from pegboard_gnn.made_graphs import blocks, cycles, grids, skip_links, two_rings
from pegboard_gnn.molecules import read, tudataset
from pegboard_gnn.splitting import even_order
from pegboard_gnn.symmetry import refinement_differs
from pegboard_gnn.trials import write_citations, write_molecules


@pytest.fixture
def papers(tmp_path: Path) -> Path:
    write_citations(tmp_path / "Cora" / "raw")
    return tmp_path


@pytest.mark.data
def test_cora_is_as_published() -> None:
    splits: Any = planetoid(Planetoid(), Context())
    graph = splits.train.graph
    assert graph.x.shape == (2708, 1433) and graph.edges.shape == (2, 10556)
    assert [len(s) for s in (splits.train, splits.val, splits.test)] == [140, 500, 1000]
    assert torch.bincount(splits.train.target).tolist() == [20] * 7
    assert torch.bincount(splits.test.target).tolist() == [130, 91, 144, 319, 149, 103, 64]
    sums = graph.x.sum(1)
    assert ((sums - 1).abs() < 1e-5).all() and splits.val.graph is graph


@pytest.mark.data
def test_mutag_is_as_published() -> None:
    splits: Any = tudataset(TuDataset(test=0.0, edge_labels=True), Context())
    assert len(splits.train) + len(splits.val) == 188 and splits.test is None
    whole = torch.cat((splits.train.target, splits.val.target))
    assert torch.bincount(whole).tolist() == [63, 125]
    assert int(splits.train.sizes.sum(0)[0] + splits.val.sizes.sum(0)[0]) == 3371
    assert str(splits.spec) == "Nodes(7), Edges(), EdgeFeatures(4), Bounds() -> Classes(2)"


def test_papers_can_come_without_their_graph_and_by_sampled_neighbourhoods(papers: Path) -> None:
    alone = planetoid(Planetoid(root=str(papers), graph=False), Context())
    assert isinstance(alone.train, Resident) and str(alone.spec.inputs[0]) == "Vector(6)"
    whole = planetoid(Planetoid(root=str(papers)), Context())
    assert isinstance(whole.train, WholeGraph)
    assert torch.equal(alone.train.inputs[0], whole.train.graph.x[whole.train.nodes])
    some = planetoid(Planetoid(root=str(papers), fanouts=(2, 2)), Context())
    assert isinstance(some.train, Stream) and "2 x 2" in some.notes["memory"]
    assert str(some.spec.inputs[1]) == "Edges()"


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("gcn", {}),
        ("gat", {"heads": 2}),
        ("gin", {"hidden": (4, 4)}),
        ("message_passing", {"hidden": (4,)}),
        ("cheb", {"order": 1}),
        ("monet", {}),
    ],
)
def test_evaluations_by_neighbourhoods_answer_as_on_the_whole_graph(
    name: str, fields: dict[str, Any], papers: Path
) -> None:
    whole, some = (planetoid(Planetoid(root=str(papers), fanouts=f), Context()) for f in (None, (2, 1)))
    net, rows = model(name, features=6, **fields), torch.arange(0, 40, 7)
    assert whole.test is not None and some.test is not None
    inputs = some.test.gather(rows).inputs
    with torch.no_grad():
        gap = (net(*whole.test.gather(rows).inputs) - net(*inputs)).abs().max()
    assert gap < 1e-5 and len(inputs[0]) < 400  # of 640 papers


def test_rows_of_the_test_are_put_where_their_numbers_say(papers: Path) -> None:
    splits: Any = planetoid(Planetoid(root=str(papers), normalize=False), Context())
    raw = papers / "Cora" / "raw"
    numbers = [int(line) for line in (raw / "ind.cora.test.index").read_text().split()]
    held = pickle.loads((raw / "ind.cora.tx").read_bytes())
    for row in (0, 7, 39):
        assert splits.train.graph.x[numbers[row]].tolist() == held[row].tolist()
    assert splits.test.nodes.tolist() == numbers


class Evil:
    def __reduce__(self) -> Any:
        return (os.system, ("touch evil",))


@pytest.mark.parametrize("value", [Evil(), {"a": Evil()}, [print], Path("x")])
def test_a_pickle_that_wants_code_is_refused(
    value: Any, papers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(papers)
    (papers / "Cora" / "raw" / "ind.cora.graph").write_bytes(pickle.dumps(value))
    with pytest.raises(PegboardError, match="is not read: it wants .*, which data has no need of"):
        planetoid(Planetoid(root=str(papers)), Context())
    assert not (papers / "evil").exists()


def test_pickles_of_old_arrays_and_sparse_matrices_are_read() -> None:
    import numpy

    array = numpy.arange(6.0).reshape(2, 3)
    for protocol in (3, 4, 5):
        found = unpickling.Restricted(__import__("io").BytesIO(pickle.dumps(array, protocol))).load()
        assert (found == array).all()
    sparse = pytest.importorskip("scipy.sparse").csr_matrix(array)
    found = unpickling.Restricted(__import__("io").BytesIO(pickle.dumps(sparse))).load()
    assert isinstance(found, unpickling.SparseRows) and vars(found)["data"].tolist() == [1, 2, 3, 4, 5]


def test_files_that_are_missing_or_cut_short_are_told(papers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(address: str, path: Path) -> None:
        raise OSError("no network")

    monkeypatch.setattr(files, "_file", nowhere)
    raw = papers / "Cora" / "raw"
    whole = (raw / "ind.cora.allx").read_bytes()
    (raw / "ind.cora.allx").write_bytes(whole[:50])
    with pytest.raises(PegboardError, match="cannot read .*allx|allx is not read"):
        planetoid(Planetoid(root=str(papers)), Context())
    (raw / "ind.cora.allx").unlink()
    with pytest.raises(
        PegboardError, match=r"lacks ind.cora.allx, and they cannot be downloaded: no network"
    ):
        planetoid(Planetoid(root=str(papers)), Context())


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("graph", {0: [5000]}, "papers beyond the 640 that there are"),
        ("graph", {0: [-1]}, "papers beyond the 640"),
        ("graph", [1], "no attribute 'items'"),
        ("y", 5, "has no len"),
        ("y", [0] * 300, "of which 300 train and 500 validate"),
        ("ally", [[0.0, 1.0]] * 2, "600 rows of allx and 2 of ally"),
        ("tx", [[0.0] * 6], "1, 40, 40 rows of the test"),
        ("allx", None, "Could not infer"),
    ],
)
def test_files_that_hold_something_else_are_told(name: str, value: Any, said: str, papers: Path) -> None:
    (papers / "Cora" / "raw" / f"ind.cora.{name}").write_bytes(pickle.dumps(value, 4))
    with pytest.raises(PegboardError, match=f"does not hold Cora as it is published: .*{said}"):
        planetoid(Planetoid(root=str(papers)), Context())


def test_a_sparse_matrix_that_lacks_a_part_is_told(papers: Path) -> None:
    sparse = pytest.importorskip("scipy.sparse").csr_matrix([[1.0]])
    written = pickle.dumps(sparse, 4).replace(b"indptr", b"indptx")
    (papers / "Cora" / "raw" / "ind.cora.allx").write_bytes(written)
    with pytest.raises(PegboardError, match="as it is published: 'indptr'"):
        planetoid(Planetoid(root=str(papers)), Context())


@pytest.mark.parametrize(
    ("name", "edit", "said"),
    [
        ("graph_labels", lambda lines: lines[:-5], "number of graphs"),
        ("node_labels", lambda lines: lines[:-5], "graphs of 330 nodes"),
        ("graph_indicator", lambda lines: lines[::-1], "do not stand together"),
        ("A", lambda lines: ["1, 10", *lines[1:]], "node of another graph"),
        ("graph_labels", None, "neither MUTAG_graph_labels.txt nor"),
    ],
)
def test_files_of_molecules_that_do_not_fit_each_other_are_told(
    name: str, edit: Any, said: str, tmp_path: Path
) -> None:
    path = tmp_path / "MUTAG" / "raw" / f"MUTAG_{name}.txt"
    write_molecules(path.parent)
    if edit is None:
        path.unlink()
    else:
        path.write_text("\n".join(edit(path.read_text().splitlines())) + "\n")
    with pytest.raises(PegboardError, match=f"does not hold MUTAG as it is published: .*{said}"):
        tudataset(TuDataset(root=str(tmp_path)), Context())


def test_a_config_chooses_what_is_known_of_a_node(tmp_path: Path) -> None:
    raw = tmp_path / "MUTAG" / "raw"
    write_molecules(raw)
    labels = (raw / "MUTAG_node_labels.txt").read_text().split()
    (raw / "MUTAG_node_attributes.txt").write_text("".join(f"{i}.5, -{i}\n" for i in range(len(labels))))

    def nodes(**fields: Any) -> tuple[torch.Tensor, str]:
        graphs, told = read(TuDataset(root=str(tmp_path), **fields))
        splits = tudataset(TuDataset(root=str(tmp_path), **fields), Context())
        assert splits.spec.inputs[0].size == graphs.x.shape[1] and splits.notes["about"] == told
        return graphs.x, told

    (auto, told), (known, _), (values, _) = nodes(), nodes(features="labels"), nodes(features="attributes")
    assert torch.equal(auto, known) and told == (
        "nodes are known by their labels (3 numbers), not their attributes"
    )
    assert known.argmax(1).tolist() == [int(label) for label in labels]
    assert values[2].tolist() == [2.5, -2.0] and values.shape[1] == 2
    both, told = nodes(features="both")
    assert torch.equal(both, torch.cat((values, known), 1)) and "attributes (2 numbers) and labels" in told
    degrees, told = nodes(features="degrees")
    assert degrees.argmax(1).tolist() == [2] * len(labels) and "by their degrees" in told


@pytest.mark.parametrize(
    ("features", "said"),
    [
        ("attributes", r"MUTAG has labels \(3 numbers\) of nodes alone\n  expected: auto, labels, degrees"),
        ("both", r"MUTAG has labels \(3 numbers\) of nodes alone\n  expected: auto, labels, degrees"),
        ("labels", r"MUTAG has neither labels nor attributes of nodes\n  expected: auto, degrees"),
    ],
)
def test_what_a_collection_does_not_have_is_an_error_that_lists_what_it_has(
    features: Any, said: str, tmp_path: Path
) -> None:
    raw = tmp_path / "MUTAG" / "raw"
    write_molecules(raw)
    if features == "labels":
        (raw / "MUTAG_node_labels.txt").unlink()
    with pytest.raises(PegboardError, match=said):
        tudataset(TuDataset(root=str(tmp_path), features=features), Context())


def test_graphs_without_edges_are_read_wherever_they_stand(tmp_path: Path) -> None:
    raw = tmp_path / "MUTAG" / "raw"
    write_molecules(raw)
    for name, line in (("graph_indicator", "61"), ("graph_labels", "1"), ("node_labels", "0")):
        with (raw / f"MUTAG_{name}.txt").open("a") as file:
            file.write(f"{line}\n")
    whole, _ = read(TuDataset(root=str(tmp_path), edge_labels=True))
    assert len(whole) == 61 and whole.sizes[-1].tolist() == [1, 0]
    _, edges, known, bounds = whole.gather(torch.tensor([60, 0])).inputs
    assert bounds.tolist() == [0, 1, 5] and int(edges.min()) == 1 and len(known) == 8


@pytest.mark.parametrize("root", ["new/folder", "~nobody-of-this-name/data"])
def test_a_root_that_is_not_there_stays_so(
    root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nowhere(address: str, path: Path) -> None:
        raise HTTPException("URL can't contain control characters")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(files, "_file", nowhere)
    with pytest.raises(PegboardError, match="cannot be downloaded: URL"):
        planetoid(Planetoid(root=root), Context())
    assert not list(tmp_path.iterdir())


def test_missing_files_are_downloaded_beside_their_place(
    papers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = papers / "elsewhere"
    shutil.move(str(papers / "Cora" / "raw"), there)
    asked: list[str] = []

    def fetch(address: str, path: Path) -> None:
        asked.append(address)
        shutil.copy(there / path.name, path)

    monkeypatch.setattr(files, "_file", fetch)
    assert len(planetoid(Planetoid(root=str(papers)), Context()).train) == 20
    assert asked[0] == "https://github.com/kimiyoung/planetoid/raw/master/data/ind.cora.x" and len(asked) == 8


def test_an_archive_is_unpacked_into_its_folder_and_nowhere_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import zipfile

    write_molecules(tmp_path / "made")
    archive = tmp_path / "MUTAG.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for path in (tmp_path / "made").iterdir():
            file.write(path, f"MUTAG/{path.name}")
        file.writestr("../../out.txt", "no")
    monkeypatch.setattr(files, "_file", lambda address, path: shutil.copy(archive, path))
    splits = tudataset(TuDataset(root=str(tmp_path / "root")), Context())
    assert isinstance(splits.train, GraphSet) and len(splits.train) == 48
    assert not list(tmp_path.glob("**/../../out.txt")) and not (tmp_path / "out.txt").exists()


def test_folds_of_molecules_keep_the_shares_of_classes(tmp_path: Path) -> None:
    write_molecules(tmp_path / "MUTAG" / "raw")
    config, seen = TuDataset(root=str(tmp_path), test=0.0), []
    for number in range(5):
        splits: Any = tudataset(config, Context(fold=(number, 5)))
        assert len(splits.train) == 48 and len(splits.val) == 12
        seen.append(int(splits.val.target.sum()))
    assert max(seen) - min(seen) <= 1


def test_an_even_order_has_all_classes_in_every_stretch() -> None:
    target = torch.tensor([0] * 30 + [1] * 10)
    order = even_order(target, 3)
    assert sorted(order.tolist()) == list(range(40))
    assert {int(target[piece].sum()) for piece in order.split(8)} == {2}


def test_the_club_has_its_members_and_groups() -> None:
    splits: Any = karate(Karate(), Context())
    assert splits.train.graph.edges.shape == (2, 156) and splits.train.target.tolist() != [0] * 4
    assert sorted(splits.train.target.tolist()) == [0, 1, 2, 3]
    every = torch.cat([s.nodes for s in (splits.train, splits.val, splits.test)])
    assert sorted(every.tolist()) == list(range(34))


def test_communities_are_dense_inside_and_leave_the_global_stream_alone() -> None:
    state = torch.random.get_rng_state()
    splits: Any = blocks(Blocks(nodes=300, blocks=3), Context())
    assert torch.equal(state, torch.random.get_rng_state())
    y = torch.arange(3).repeat_interleave(100)
    edges = splits.train.graph.edges
    inside = (y[edges[0]] == y[edges[1]]).float().mean()
    assert 0.75 < float(inside) < 0.9  # 0.1 x 99 against 0.01 x 200
    assert len(splits.train) == 20 and set(splits.train.target.tolist()) == {0, 1, 2}


@pytest.mark.catalogue("S4-132")
def test_refinement_sees_no_difference_between_skip_links() -> None:
    kinds = [skip_links(41, skip) for skip in (2, 3, 4, 5, 6, 9, 11, 12, 13, 16)]
    assert all(edges.shape[1] == 4 * 41 for edges in kinds)  # four neighbours each
    assert not any(refinement_differs(kinds[0], edges, 41) for edges in kinds[1:])
    spectra = []
    for edges in kinds:
        matrix = torch.zeros(41, 41, dtype=torch.float64)
        matrix[edges[0], edges[1]] = 1
        spectra.append(torch.linalg.eigvalsh(matrix))
    apart = [float((a - b).abs().max()) for i, a in enumerate(spectra) for b in spectra[:i]]
    assert min(apart) > 1e-3  # and yet all are different graphs
    assert two_rings(6).shape == (2, 12)


def test_classes_of_cycles_are_copies_in_other_orders() -> None:
    splits: Any = cycles(Cycles(nodes=11, skips=(2, 3), copies=10), Context())
    assert len(splits.train) == 12 and len(splits.val) == len(splits.test) == 4
    one, two = (splits.train.gather(torch.tensor([i])).inputs[1] for i in range(2))
    assert one.shape == two.shape and not torch.equal(one, two)
    known: Any = cycles(Cycles(nodes=11, skips=(2, 3), copies=10, features="triangles"), Context())
    batch = known.train.gather(torch.arange(12))
    corner = batch.inputs[0][:, 1].view(12, 11)
    assert set(corner[batch.target == 0].flatten().tolist()) == {3.0}  # skips of 2 make triangles
    assert set(corner[batch.target == 1].flatten().tolist()) == {0.0}


def test_stripes_run_along_their_class() -> None:
    splits: Any = grids(Grids(size=8, graphs=40, noise=0.0), Context())
    batch = splits.train.gather(torch.arange(len(splits.train)))
    pictures = batch.inputs[0].view(-1, 8, 8)
    upright = pictures[batch.target == 0]  # waves run to the right: columns are constant
    level = pictures[batch.target == 2]
    assert upright.std(1).max() < 1e-5 and level.std(2).max() < 1e-5
    assert batch.inputs[2].abs().max() == 1


def test_papers_without_their_graph_are_drawn_by_class(papers: Path) -> None:
    from matplotlib.figure import Figure
    from pegboard_gnn.plots import plot

    for config in (Planetoid(root=str(papers), graph=False), Planetoid(root=str(papers), fanouts=(2, 2))):
        figure = Figure()
        plot(planetoid(config, Context()), figure)
        assert figure.axes[0].has_data()


def test_graphs_of_torch_geometric_go_there_and_back() -> None:
    from pegboard_gnn.conversion import data_of, graph_of, graphs_of
    from torch_geometric.data import Batch, Data

    parts = [
        Data(
            x=torch.randn(n, 3),
            edge_index=torch.tensor([[0, 1, 1], [1, 0, 1]]),
            edge_attr=torch.tensor([0.5, 0.25, 9.0]),
            y=torch.tensor([n % 2]),
        )
        for n in (2, 3, 4)
    ]
    one = graph_of(parts[0])
    assert one.edges.tolist() == [[0, 1], [1, 0]] and one.features is not None  # no edge to itself
    assert one.features.tolist() == [[0.5], [0.25]]
    none = Data(x=torch.zeros(1, 3), edge_index=torch.zeros(2, 0, dtype=torch.int64))
    none.edge_attr = torch.zeros(0, 2)
    assert graph_of(none).inputs[2].shape == (0, 2)  # nor any edge
    source = graphs_of(parts)
    assert source.target is not None and source.target.tolist() == [0, 1, 0]
    found = data_of(source.gather(torch.tensor([2, 0])))
    clean = [Data(x=p.x, edge_index=p.edge_index[:, :2], y=p.y) for p in parts]
    theirs = Batch.from_data_list([clean[2], clean[0]])
    for name in ("x", "edge_index", "batch", "ptr", "y"):
        assert torch.equal(getattr(found, name), getattr(theirs, name)), name


def test_a_made_graph_can_be_sampled_too() -> None:
    splits = blocks(Blocks(fanouts=(3,)), Context(seed=4))
    assert isinstance(splits.train, Stream) and str(splits.spec.inputs[1]) == "Edges()"
    counts = torch.bincount(splits.train.gather(torch.arange(20)).inputs[1][1])
    assert counts.max() == 3
