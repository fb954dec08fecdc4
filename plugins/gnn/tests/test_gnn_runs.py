"""Whole runs on graphs and sets: tricks, resuming, folds, and what is said where parts do not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pegboard
import pytest
import torch
from pegboard.base.errors import PegboardError
from pegboard.config.check import check
from pegboard.planning.plan import assemble, make_plan
from pegboard.preview.explain import explain
from pegboard.testing.runs import cut_and_resumed, differences, lean, whole
from pegboard.tools.api import Run
from pegboard_gnn.trials import write_citations, write_molecules
from sweeps import first_of_each


def config(**nodes: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "seed": 1,
        "data": {"name": "block_model", "nodes": 60, "batch_size": "all"},
        "model": {"name": "gcn", "hidden": [8]},
        "optimizer": {"name": "adam", "lr": 0.02},
        "trainer": {"epochs": 4, "device": "cpu", "threads": 1},
    }
    return base | nodes


def test_all_five_tricks_act_on_a_network_on_graphs(tmp_path: Path) -> None:
    with lean():
        teacher = str(pegboard.train(config(), root=tmp_path, quiet=True).folder)
        tricks: dict[str, Any] = {
            "batchnorm": {},
            "dropout": {"p": 0.3, "sites": ["input", "hidden"]},
            "weight_decay": {"value": 0.05},
            "label_smoothing": {"epsilon": 0.1},
            "distillation": {"teacher": teacher},
        }
        plain = pegboard.load(teacher, which="last").state_dict()
        for key, fields in tricks.items():
            run = pegboard.train(config(regularizers={key: fields}), root=tmp_path, quiet=True)
            found = pegboard.load(run, which="last").state_dict()
            assert not all(torch.equal(found[name], value) for name, value in plain.items()), key
        both = pegboard.train(config(regularizers=tricks), root=tmp_path, quiet=True)
    assert both.figures["val/accuracy"] > 0.5


def test_dropout_of_few_numbers_is_dropout_of_all() -> None:
    plan = make_plan(check(config(regularizers={"dropout": {"p": 0.5, "sites": ["input"]}})), read=True)
    model: Any = assemble(plan, "cpu").model
    model.train()
    x = torch.zeros(60, 8)
    x[::3, 0] = 1.0
    rows = model._read(x)
    values = [model._read(x).values for _ in range(200)]
    kept = torch.stack(values)
    assert set(kept.unique().tolist()) == {0.0, 2.0} and abs(float((kept > 0).float().mean()) - 0.5) < 0.05
    assert type(rows).__name__ == "SparseRows"
    model.input.add_module("other", torch.nn.Identity())  # something that is not known to keep zeros
    assert isinstance(model._read(x), torch.Tensor)


@pytest.mark.parametrize("workers", first_of_each([0, 2]))
def test_a_run_on_sampled_neighbourhoods_resumes_exactly(workers: int, tmp_path: Path) -> None:
    write_citations(tmp_path / "Cora" / "raw")
    data = {
        "name": "planetoid",
        "root": str(tmp_path),
        "fanouts": [2, 1],
        "batch_size": 8,
        "workers": workers,
    }
    given = config(data=data, trainer={"epochs": 2, "device": "cpu", "threads": 1, "save_every": 2})
    with lean():
        reference, events = whole(given, tmp_path / "whole")
        resumed = cut_and_resumed(given, tmp_path / "cut", events.index("train") + 3)
    assert not differences(reference, resumed)


def test_workers_change_no_number_of_a_run(tmp_path: Path) -> None:
    write_citations(tmp_path / "Cora" / "raw")
    data: dict[str, Any] = {"name": "planetoid", "root": str(tmp_path), "fanouts": [2, 1], "batch_size": 8}
    data["eval_batch_size"] = 512
    with lean():
        runs = [
            pegboard.train(config(data={**data, "workers": n}), root=tmp_path / str(n), quiet=True)
            for n in (0, 2)
        ]
    one, two = (pegboard.load(run, which="last").state_dict() for run in runs)
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_molecules_are_cross_validated(tmp_path: Path) -> None:
    write_molecules(tmp_path / "MUTAG" / "raw")
    given = config(
        data={"name": "tudataset", "root": str(tmp_path), "test": 0.0, "batch_size": 16},
        model={"name": "gin", "hidden": [8]},
        trainer={"epochs": 2, "device": "cpu", "threads": 1, "folds": 2},
    )
    with lean():
        run = pegboard.train(given, root=tmp_path / "runs", quiet=True)
    assert len(Run(run.folder).folds) == 2 and 0 <= run.figures["val/accuracy"] <= 1


def test_parts_of_clouds_are_learned_point_by_point(tmp_path: Path) -> None:
    small = {"first": [8], "second": [16], "head": [8], "transform": [8], "transform_head": [8]}
    given = config(
        data={
            "name": "clouds",
            "task": "part",
            "clouds": 40,
            "points": 16,
            "normals": True,
            "batch_size": 20,
        },
        model={"name": "pointnet", **small},
        regularizers={"orthogonal_transform": {"weight": 0.01}, "dropout": {"p": 0.1}},
    )
    with lean():
        run = pegboard.train(given, root=tmp_path, quiet=True)
    assert "val/accuracy" in run.figures


def test_a_trick_that_turns_nothing_says_so() -> None:
    given = config(
        data={"name": "clouds", "clouds": 40, "points": 16},
        model={"name": "pointnet", "transform_features": False},
        regularizers={"orthogonal_transform": {}},
    )
    with pytest.raises(PegboardError, match="found nothing to act on"):
        assemble(make_plan(check(given), read=True), "cpu")
    other = {**given, "model": {"name": "deepsets"}}
    with pytest.raises(PegboardError, match="deepsets predicts no matrix"):
        check(other)


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ({"model": {"name": "mlp"}}, "gives Nodes"),
        ({"model": {"name": "deepsets"}}, "reads Points"),
        (
            {"model": {"name": "gcn", "jump": "max", "hidden": [4, 8]}},
            "needs layers of one width, found 4, 8",
        ),
        ({"model": {"name": "gcn", "jump": "cat", "hidden": []}}, "no hidden layer"),
        ({"model": {"name": "spectral", "modes": 61}}, "but the graph has 60 nodes"),
        ({"data": {"name": "cycles"}, "model": {"name": "spectral"}}, "eigenvectors belong to one graph"),
        ({"data": {"name": "grids"}, "model": {"name": "gcn"}}, "edges have 2 features"),
        ({"data": {"name": "grids"}, "model": {"name": "gin"}}, "edges have features"),
        ({"data": {"name": "cycles", "family": "cycles", "nodes": 7}}, "7 nodes cannot be two equal cycles"),
        ({"data": {"name": "block_model", "nodes": 21}}, "20 of 21 nodes"),
        ({"data": {"name": "cycles", "nodes": 11, "skips": [2, 10]}}, "a skip of 10 in 11 nodes"),
        (
            {"data": {"name": "cycles", "nodes": 11, "skips": [2, 9]}},
            "skips of 2 and 9 .* are the same graph",
        ),
        ({"data": {"name": "cycles", "nodes": 12, "skips": [2, 6]}}, "which refinement sees"),
        ({"data": {"name": "block_model", "nodes": 22, "val": 0.99}}, "0.99 of 2 nodes leaves none to test"),
        ({"data": {"name": "block_model", "blocks": 300}}, "300 communities of 200 nodes"),
        ({"data": {"name": "block_model", "fanouts": []}}, "fanouts"),
        ({"data": {"name": "karate", "labelled": 12}}, "at most 11"),
        ({"data": {"name": "tudataset", "dataset": "../MUTAG"}}, "letters, digits, _ and -"),
        ({"model": {"name": "gcn", "jump": "lstm", "hidden": [1]}}, "a single layer of width 1"),
    ],
)
def test_what_does_not_fit_is_said_before_anything_is_read(nodes: dict[str, Any], said: str) -> None:
    with pytest.raises(PegboardError, match=said):
        check(config(**nodes))


def test_a_batch_that_an_own_norm_cannot_train_on_is_told(tmp_path: Path) -> None:
    widths = {"first": [4], "second": [4], "head": [4], "transform": [4], "transform_head": [4]}
    given = config(
        data={"name": "clouds", "clouds": 10, "points": 3, "batch_size": 3},
        model={"name": "pointnet", **widths},
    )
    with lean(), pytest.raises(PegboardError, match=r"cannot train on a single .*\n.*data.drop_last"):
        pegboard.train(given, root=tmp_path, quiet=True)


def test_a_club_of_which_one_member_is_left_to_test_trains(tmp_path: Path) -> None:
    with lean():
        run = pegboard.train(config(data={"name": "karate", "labelled": 11}), root=tmp_path, quiet=True)
    assert "test/accuracy" in run.figures


@pytest.mark.catalogue("S4-114", "S4-123")
def test_the_probe_of_order_finds_none_in_graphs_and_sets(tmp_path: Path) -> None:
    sets = {"name": "sets", "sets": 40, "batch_size": 20}
    for nodes in (config(), config(data=sets, model={"name": "deepsets", "point": [8], "rest": [4]})):
        with lean():
            run = pegboard.train({**nodes, "probes": {"node_order": {}}}, root=tmp_path, quiet=True)
        gaps = [value for name, value in run.figures.items() if "order_gap_relative" in name]
        assert gaps and max(gaps) < 1e-5


@pytest.mark.catalogue("S4-129")
def test_the_probe_of_smoothing_sees_nodes_become_alike(tmp_path: Path) -> None:
    deep = {"name": "gcn", "hidden": [8] * 8}
    with lean():
        run = pegboard.train(config(model=deep, probes={"smoothing": {}}), root=tmp_path, quiet=True)
    found = {
        name.rpartition("likeness_")[2]: value for name, value in run.figures.items() if "likeness_" in name
    }
    assert found["8"] > found["input"] and found["8"] > 0.9


@pytest.mark.parametrize("model", ["gcn", "gat", "gin", "message_passing", "cheb", "monet"])
def test_a_step_on_batches_of_graphs_waits_for_no_device(model: str) -> None:
    data = {"name": "cycles", "nodes": 11, "skips": [2, 3], "copies": 5, "batch_size": 4}
    fields = {"name": model, "hidden": [4], "jump": "cat", "norm": "pair", "residual": True}
    text = explain(make_plan(check(config(data=data, model=fields)), read=True))
    assert "one step" in text and "not tried" not in text
