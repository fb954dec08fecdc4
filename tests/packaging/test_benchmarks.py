"""The benchmarks: what they train, what they count and how they report. No time is asserted."""

from __future__ import annotations

import ast
import dataclasses
import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from pegboard_gnn.trials import write_citations
from sandbox import ROOT
from sweeps import first_of_each

BENCHMARKS = ROOT / "benchmarks"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Imports a module of the benchmarks, which are scripts and not a package."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))

    def load(name: str) -> ModuleType:
        return importlib.import_module(name)

    return load


@pytest.fixture
def small_cora(bench: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """The module of the graph workload, on few made-up papers in the form of Cora."""
    write_citations(tmp_path / "planetoid" / "Cora" / "raw")
    monkeypatch.setenv("PEGBOARD_DATA", str(tmp_path))
    cora = bench("cora")
    kept = (cora.graph, cora.matrices)
    for function in kept:
        function.cache_clear()
    yield cora
    for function in kept:
        function.cache_clear()


@pytest.mark.sweep
def test_a_step_of_ours_makes_fewer_calls_than_the_hand_written_one(bench: Any) -> None:
    steps = bench("steps")
    rows = steps.loops()
    counts = {}
    for name, run in rows.items():
        run(3)
        counts[name] = (steps.a_step(run, steps.count_calls), steps.a_step(run, steps.operations))
    plain, hand, _, ours = counts.values()
    assert ours[0] < 0.5 * hand[0] < 0.3 * plain[0]
    assert ours[1] <= hand[1]  # the look for numbers that are not finite is among them


def test_what_is_counted_is_what_a_step_does(bench: Any) -> None:
    steps = bench("steps")
    x = torch.ones(3)

    def run(number: int) -> None:
        for _ in range(number):
            x.add(1).mul(2)
            len([x])

    assert steps.a_step(run, steps.operations) == 2
    assert steps.a_step(lambda n: [abs_of(i) for i in range(n)], steps.count_calls) == 1


def abs_of(number: int) -> int:
    return abs(number)


@pytest.mark.parametrize("name", first_of_each(["lenet", "decoder", "gcn", "gin on graphs", "gan"]))
def test_a_step_of_a_family_makes_fewer_calls_than_one_by_hand(bench: Any, name: str, tmp_path: Path) -> None:
    families = bench("families")
    ours, hand = families.pair(families.configs(tmp_path)[name])
    for run in (ours, hand):
        run(2)
    counts = [families.steps.a_step(run, families.steps.count_calls) for run in (ours, hand)]
    assert counts[0] < counts[1]


@pytest.mark.usefixtures("small_cora")
def test_every_workload_has_whole_batches_and_a_loss_that_falls(bench: Any) -> None:
    for work in bench("workloads").WORKLOADS.values():
        x, y = work.data()
        assert len(x) == len(y) == work.rows
        assert work.rows % work.batch == 0
        assert int(y.max()) < work.classes
        torch.manual_seed(0)
        model = work.network()
        optimizer = torch.optim.Adam(model.parameters(), 3e-3)
        before = work.loss(model, 64)
        for _ in range(6):
            optimizer.zero_grad()
            work.criterion(model(x[:64]), y[:64]).backward()
            optimizer.step()
        assert work.loss(model, 64) < before


def test_the_transformer_does_not_look_ahead(bench: Any) -> None:
    work = bench("workloads").WORKLOADS["transformer"]
    (x, y), model = work.data(), work.network().eval()
    assert torch.equal(x[:, 1:], y[:, :-1])  # the letter that follows
    changed = x[:2].clone()
    changed[:, 20] = (changed[:, 20] + 1) % work.classes
    a, b = model(x[:2]), model(changed)
    assert torch.equal(a[:, :20], b[:, :20])
    assert not torch.equal(a[:, 20:], b[:, 20:])


def test_the_graph_network_and_its_gradients_are_those_of_the_example(small_cora: Any, bench: Any) -> None:
    x, edges, y, asked = small_cora.graph()
    ours = small_cora.gcn().layers[0]
    example = bench("peers.pyg_loop").Example(x.shape[1], small_cora.HIDDEN, small_cora.CLASSES)
    theirs = (example.conv1.lin.weight, example.conv1.bias, example.conv2.lin.weight, example.conv2.bias)
    with torch.no_grad():
        for p in ours.parameters():
            p.add_(0.1 * torch.randn_like(p))
        own = (ours.first.t(), ours.first_bias, ours.second.t(), ours.second_bias)
        for to, value in zip(theirs, own, strict=True):
            to.copy_(value)
    found, expected = ours(asked), example.eval()(x, edges)[asked]
    torch.testing.assert_close(found, expected)
    for answer in (found, expected):
        torch.nn.functional.cross_entropy(answer, y[asked]).backward()
    assert example.conv1.lin.weight.grad.abs().max() > 1e-4
    for name, to in zip(("first", "first_bias", "second", "second_bias"), theirs, strict=True):
        grad = getattr(ours, name).grad
        torch.testing.assert_close(grad.t() if grad.ndim == 2 else grad, to.grad)


def test_every_batch_of_the_graph_workload_is_the_full_batch(small_cora: Any, bench: Any) -> None:
    work = bench("workloads").WORKLOADS["gcn"]
    _, _, y, asked = small_cora.graph()
    for nodes, classes in bench("peers").loader(work):
        assert torch.equal(nodes, asked[None])
        assert torch.equal(classes, y[asked][None])
    assert not work.network().state_dict().keys() & {"layers.0.words.values", "layers.0.spread.values"}


@pytest.mark.usefixtures("small_cora")
@pytest.mark.parametrize("name", first_of_each(["pyg", "pegboard"]))
def test_a_turn_trains_on_a_graph(bench: Any, name: str) -> None:
    worker, work = bench("worker"), bench("workloads").WORKLOADS["gcn"]
    answer = worker.turn(name, work, threads=1, defaults=False, count=False)  # refused where none trained
    assert answer["note"] == ""
    assert answer["epoch"] > 0


@pytest.mark.parametrize("name", first_of_each(["lean", "pegboard"]))
def test_a_turn_trains_and_is_timed_by_its_epochs(bench: Any, name: str) -> None:
    worker, work = bench("worker"), bench("workloads").WORKLOADS["mlp"]
    answer = worker.turn(name, work, threads=1, defaults=False, count=True)
    assert answer["epoch"] > 0
    assert 0 < answer["calls"] < 200
    assert answer["note"] == ""
    assert answer["loss"] < 0.5


def test_a_turn_that_did_not_train_is_refused(bench: Any) -> None:
    worker, peers, work = bench("worker"), bench("peers"), bench("workloads").WORKLOADS["mlp"]
    bench("clock").CLOCK.reset(work.steps_per_epoch)
    idle = work.network()
    with pytest.raises(RuntimeError, match="did not train"):
        worker.judge(peers.Trained(idle, work.steps), work)
    with pytest.raises(RuntimeError, match="updates"):
        worker.judge(peers.Trained(idle, work.steps - 1), work)


def test_every_row_names_a_function_that_is_there(bench: Any) -> None:
    for peer in bench("peers").PEERS.values():
        tree = ast.parse((BENCHMARKS / "peers" / f"{peer.module}.py").read_text("utf-8"))
        functions = {n.name for n in tree.body if isinstance(n, ast.FunctionDef)}
        assigned = {getattr(t, "id", "") for n in tree.body if isinstance(n, ast.Assign) for t in n.targets}
        assert peer.function in functions | assigned, peer.title


def made_up(**micros: float) -> dict[str, Any]:
    """A result of four rounds, the last of which took twice as long for all."""
    kinds = {"plain": "hand", "hand": "hand", "ignite": "peer", "fabric": "peer"}
    rows = {
        name: {
            "title": name, "kind": kinds.get(name, "ours"), "version": "1.0", "compiled": name == "step",
            "calls": 1.0, "note": "", "first": {"cold": 2.0, "again": [1.0]},
            "times": {"1": {m: {k: [us, us, us, 2 * us] for k in ("epoch", "cpu")} for m in ("off", "on")}},
        }
        for name, us in micros.items()
    }  # fmt: skip
    facts = {"torch": "2", "python": "3", "cpu": "c", "cores": 2}
    return {
        "title": "a",
        "steps": "b",
        "machine": facts,
        "loops": importlib.import_module("loops").fingerprint(),
        "left_out": {"keras": "why"},
        "rounds": 4,
        "rows": rows,
    }


def test_targets_compare_round_by_round_and_with_the_fastest_peer(bench: Any) -> None:
    report = bench("report")
    results = {
        "mlp": made_up(plain=100, hand=60, pegboard=50, step=31, ignite=110, fabric=95),
        "cnn": made_up(plain=100, hand=60, pegboard=60.1, step=59),
    }
    text = report.targets_text(results).splitlines()
    lines = {(line[:58].rstrip(), line[58:71].rstrip()): line[71:].split() for line in text}
    assert lines["eager, the best hand-written loop", "mlp"] == ["1.0", "1.20", "(1.20-1.20)", "met"]
    assert lines["eager, the best hand-written loop: the aim", "mlp"][-2:] == ["not", "met"]
    assert lines["eager, the best hand-written loop", "cnn"][-2:] == ["not", "met"]
    assert lines["compiled step, the best hand-written loop", "mlp"][1] == "1.94"
    assert lines["eager, the fastest framework", "mlp"][1] == "1.90"
    assert lines["compiled step, eager", "cnn"][-1] == "met"
    assert not any("Lightning" in key[0] for key in lines)


def test_the_table_shows_ratios_quartiles_and_what_was_left_out(bench: Any, tmp_path: Path) -> None:
    report = bench("report")
    results = made_up(plain=100, hand=60, step=25)
    text = report.table(results)
    row = next(line for line in text.splitlines() if line.startswith("step"))
    assert row.split()[1:] == ["0.25", "(0.25-0.25)"] * 2 + ["0.25", "25", "1", "2.0,", "1.0"]
    assert "left out: keras: why" in text
    assert report.chart(results, tmp_path / "chart.png").stat().st_size > 1000


def test_figures_of_loops_that_have_changed_since_say_so(bench: Any) -> None:
    report = bench("report")
    now = made_up(plain=100, hand=60, pegboard=50)
    before = now | {"loops": "0"}
    unknown = {name: value for name, value in now.items() if name != "loops"}  # nothing was noted then
    for show in (report.table, lambda results: report.brief({"mlp": results})):
        assert report.OLDER not in show(now)
        assert show(before).endswith(report.OLDER) and show(unknown) == show(before)
    assert report.OLDER not in report.targets_text({"mlp": now})
    assert report.targets_text({"mlp": now, "cnn": before}).endswith(f"{report.OLDER}: cnn")


def test_the_page_shows_what_was_measured(bench: Any) -> None:
    report = bench("report")
    page = (ROOT / "docs" / "performance.md").read_text("utf-8")
    results = report.load(report.RESULTS)
    for key, found in results.items():
        assert report.table(found) in page, f"make bench wrote no table of {key}"
    assert not results or report.targets_text(results) in page
    assert report.brief(results) in (ROOT / "README.md").read_text("utf-8")


def test_met_takes_three_of_four_rounds(bench: Any) -> None:
    targets = bench("targets")
    target = targets.Target("text", "pegboard", "hand", 1.0)
    ratio = bench("ratios").ratio
    assert target.verdict(ratio([1.1, 1.2, 1.3, 0.9, 1.1], [1.0] * 5)) == "met"  # one of five is noise
    assert target.verdict(ratio([1.1, 1.2, 1.3, 0.9, 0.9], [1.0] * 5)) == "not met"  # though the median is


def test_frameworks_take_whole_batches_at_once(bench: Any) -> None:
    peers, work = bench("peers"), bench("workloads").WORKLOADS["mlp"]
    x, y = work.data()
    seen = [rows for batch in peers.loader(work) for rows in zip(*batch, strict=True)]
    assert len(seen) == work.rows
    order = sorted(range(len(x)), key=lambda i: (x[i].tolist(), int(y[i])))
    found = sorted(seen, key=lambda row: (row[0].tolist(), int(row[1])))
    assert all(torch.equal(a, x[i]) and b == y[i] for (a, b), i in zip(found, order, strict=True))


def test_the_compiled_step_by_hand_makes_the_updates_of_adam(bench: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(torch, "compile", lambda function, **options: function)
    hand, work = bench("peers.hand_loop"), bench("workloads").WORKLOADS["mlp"]
    short = dataclasses.replace(work, epochs=1)
    models = []
    for train in (hand.train, hand.train_step):
        torch.manual_seed(0)
        models.append(train(short, False, ROOT).model)
    for a, b in zip(*(model.parameters() for model in models), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
