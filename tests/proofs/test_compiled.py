"""Compiled steps compute what steps in Python do, for every part there is; or it is said why they cannot."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pegboard
import pytest
import torch
import yaml
from pegboard.registry.discovery import Entry
from pegboard.store import checkpoint
from pegboard_compile.graph import Graph, tracing
from proofs import FOLDER, LOCAL, Config, all_tricks, entries, fields, name_of, plain, tried, unequal
from safetensors.torch import load_file
from sweeps import first_of_each, first_of_each_row
from torch import Tensor
from torch._dynamo.backends.common import aot_autograd
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.exc import InvalidCxxCompiler
from torch._inductor.runtime.cache_dir_utils import default_cache_dir

pytestmark = pytest.mark.usefixtures("lean")
ODD = str(FOLDER / "odd_parts.py")
KINDS = ("regularizer", "objective", "model", "optimizer", "schedule", "dataset")
HUNDRED: dict[str, Any] = {"epochs": None, "steps": 100, "accumulate": 1}
PARTS = [entry for kind in KINDS for entry in entries(kind)]


def weights(folder: Path) -> dict[str, Tensor]:
    return load_file(folder / "checkpoints" / "last" / checkpoint.WEIGHTS)


def apart(one: dict[str, Tensor], two: dict[str, Tensor]) -> float:
    """The largest difference of two models, relative to numbers above 1."""
    assert set(one) == set(two)
    gaps = ((one[n].double() - two[n].double()).abs() / one[n].abs().clamp(min=1) for n in one)
    return max(float(gap.max()) for gap in gaps)


def trained(config: Config, root: Path, **trainer: Any) -> pegboard.Run:
    trainer = {**config["trainer"], **trainer}
    if trainer.get("compile", "off") not in ("step", "auto"):
        trainer.pop("steps_per_call", None)  # is for graphs of steps
    return pegboard.train({**config, "trainer": trainer}, root=root, quiet=True)


def pair(config: Config, root: Path, **trainer: Any) -> tuple[float, dict[str, Any]]:
    """How far a compiled run ends from one that is not, and what came of compiling it."""
    eager, compiled = (trained(config, root / mode, **trainer, compile=mode) for mode in ("off", "step"))
    return apart(weights(eager.folder), weights(compiled.folder)), compiled.summary["compiled"]


def fair(entry: Entry, shelf: Path, root: Path) -> Config:
    """A config that trains with one part, in which rounding does not grow by itself.

    Adam divides a gradient by its own size: that of a bias before a batch norm, which is nothing but
    rounding, becomes a step like any other. Descent with momentum leaves it as small as it is, with steps
    so short that an eager run whose weights were moved by one rounding ends where one does that was not.
    """
    given = tried(entry, shelf)
    if entry.part.kind in ("optimizer", "schedule"):
        return given
    for rate in (1e-2, 1e-3, 1e-4, 1e-5):
        given["optimizer"] = {"name": "sgd", "lr": rate, "momentum": 0.9}
        stirred = {**given, "regularizers": {**given.get("regularizers", {}), "astir": {}}}
        stirred["plugins"] = {"local": [*given["plugins"]["local"], ODD]}
        try:
            ends = [weights(trained(c, root / "fair", **HUNDRED).folder) for c in (given, stirred)]
        except pegboard.PegboardError:  # it diverged
            continue
        if apart(*ends) <= 2e-6:
            return given
    raise AssertionError("rounding grows by itself with the shortest steps too")


# What cannot be part of a graph, and what is said of it; beside it the run goes on with a smaller one.
ALONE = {
    "regularizer label_noise": r"regularizers.label_noise \(label_noise, functional.py:\d+\): ",
    **{
        f"optimizer {name}": f"optimizer '{name}' evaluates the loss again inside its update"
        for name in ("gd", "lbfgs", "nesterov")
    },
    **{
        f"dataset {name}": "batches of this data differ in shape"
        for name in ("cycles", "grids", "meshes", "tudataset")
    },
    "regularizer orthogonal_transform": r"model \(pointnet, pointnet.py:\d+\): it changes matrices in Python",
    # Torch does not trace its own recurrent kernels.
    "model rnn": r"model \(rnn, cells.py:\d+\): Attempted to wrap RNN, GRU, or LSTM",
    "model seq2seq": r"Attempted to wrap RNN, GRU, or LSTM \(cells.py:\d+\)",
}


ROUNDED = ("regularizer batchnorm",)  # makes biases before it have gradients of nothing but rounding


def of(entry: Entry) -> str:
    return f"{entry.part.kind} {entry.part.name}"


def less(name: str) -> str:
    """What is compiled beside it: the forward pass, unless that is the one that is no graph."""
    return "off" if name in ("model rnn", "model seq2seq") else "model"


@pytest.mark.prove
@pytest.mark.parametrize("entry", PARTS, ids=[name_of(entry) for entry in PARTS])
@pytest.mark.usefixtures("compiler")
def test_100_compiled_steps_with_this_part_agree_to_a_hundred_thousandth(
    entry: Entry, shelf: Path, tmp_path: Path, show: Callable[[str], None]
) -> None:
    given = fair(entry, shelf, tmp_path)
    gap, made = pair(given, tmp_path, **HUNDRED, steps_per_call=8)
    assert made["level"] == (less(of(entry)) if of(entry) in ALONE else "step"), made
    assert re.match(ALONE.get(of(entry), "$"), made["why"]), made
    assert gap <= 1e-5
    show(f"100 compiled steps within 1e-5 of eager, a run for each {entry.part.kind}")


def together() -> list[tuple[Entry, Entry, Entry]]:
    """Every part that goes into a step beside an optimizer and a schedule, so that all have their turn.

    Models have weights whose gradient is nothing but rounding, as the keys' constants in attention, and batch
    norm makes some: these have descent, for the reason above, which is the last of the optimizers.
    """
    parts = [e for kind in KINDS[:3] for e in entries(kind) if of(e) not in ALONE]
    optimizers = [e for e in entries("optimizer")[::-1] if of(e) not in ALONE]
    turns = zip(itertools.cycle(optimizers), itertools.cycle(entries("schedule")), strict=False)
    everything = itertools.islice(itertools.cycle(parts), max(len(parts), len(optimizers)))
    return [
        (part, optimizers[0] if part.part.kind == "model" or of(part) in ROUNDED else optimizer, schedule)
        for part, (optimizer, schedule) in zip(everything, turns, strict=False)
    ]


@pytest.mark.parametrize(
    "parts",
    first_of_each(together(), lambda parts: parts[0].part.kind),
    ids=lambda parts: "-".join(e.part.name for e in parts),
)
@pytest.mark.usefixtures("only_traced")
def test_a_traced_step_computes_what_a_step_in_python_does(
    parts: tuple[Entry, Entry, Entry], shelf: Path, tmp_path: Path
) -> None:
    part, optimizer, schedule = parts
    given = tried(part, shelf)
    node = {"name": schedule.qualified, **fields(schedule, shelf)}
    given["optimizer"] = {"name": optimizer.qualified, **fields(optimizer, shelf), "schedule": node}
    gap, made = pair(given, tmp_path, epochs=None, steps=12, accumulate=1, steps_per_call=4)
    assert (made["level"], made["why"], made["graphs"], made["recompiled"]) == ("step", "", 1, [])
    assert gap <= 1e-5


TOY = str(FOLDER.parents[2] / "framework" / "tests" / "toy.py")


def odd(compiled: str = "step", **nodes: Any) -> Config:
    """A config with the parts that make it hard; 8 updates an epoch."""
    trainer = {
        "epochs": 3,
        "device": "cpu",
        "steps_per_call": 8 if compiled in ("step", "auto") else 1,
        "compile": compiled,
        **nodes.pop("trainer", {}),
    }
    optimizer = {"name": "sgd", "lr": 0.05, "momentum": 0.9}
    return plain(
        **{"optimizer": optimizer, "trainer": trainer, "plugins": {"local": [*LOCAL, TOY, ODD]}, **nodes}
    )


@pytest.mark.parametrize("name", first_of_each(ALONE, lambda name: name.split()[0]))
@pytest.mark.usefixtures("only_traced")
def test_a_part_that_no_graph_can_hold_is_named_and_the_run_goes_on(
    name: str, shelf: Path, tmp_path: Path
) -> None:
    (entry,) = (e for e in PARTS if of(e) == name)
    gap, made = pair(tried(entry, shelf), tmp_path, epochs=None, steps=6, accumulate=1)
    assert gap <= 1e-5
    assert made["level"] == less(name) and re.match(ALONE[name], made["why"]), made["why"]


def test_a_graph_draws_the_random_numbers_of_a_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the compiler is told to take apart is taken apart; the rest of its work is left out."""

    def apart_alone(graph: Any, inputs: Any, config_patches: Any, **own: Any) -> Any:
        assert own == {}  # a table of our own would have to be right, and torch would keep no graph
        with torch._inductor.config.patch(config_patches):
            table = select_decomp_table()
        taken = aot_autograd(fw_compiler=lambda made, inputs: made.forward, decompositions=table)
        return taken(graph, inputs)

    torch._dynamo.reset()
    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx", apart_alone)
    gap, made = pair(odd(regularizers={"dropout": {"p": 0.5}}), tmp_path)
    assert (made["level"], made["why"]) == ("step", "")
    assert gap <= 1e-5


@pytest.mark.parametrize("how", first_of_each(["counter", "toggle", "list", "deque", "tensors"]))
@pytest.mark.usefixtures("only_traced")
def test_state_in_python_is_never_frozen_into_a_graph(how: str, tmp_path: Path) -> None:
    gap, made = pair(odd(regularizers={"stateful": {"how": how}}), tmp_path)
    assert gap <= 1e-5
    named = r"regularizers.stateful \(stateful, odd_parts.py:\d+\): it changes .* in Python in every update"
    assert made["level"] == "model" and re.match(named, made["why"]), made["why"]


@pytest.mark.parametrize("how", first_of_each(["assigned", "in_place", "added"]))
@pytest.mark.usefixtures("only_traced")
def test_state_in_tensors_moves_on_inside_a_call(how: str, tmp_path: Path) -> None:
    gap, made = pair(odd(regularizers={"stateful": {"how": how}}), tmp_path)
    assert (made["level"], made["graphs"]) == ("step", 1), made
    assert gap <= 1e-5


@pytest.mark.usefixtures("only_traced")
def test_of_the_updates_in_a_call_only_the_first_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    checked = Graph.checked

    def counted(graph: Graph, *fresh: Any) -> Any:
        calls.append(1)
        return checked(graph, *fresh)

    monkeypatch.setattr(Graph, "checked", counted)
    pegboard.train(odd(), root=tmp_path, quiet=True)
    # One update makes the optimizer's state, the graph is made, and once more it shows to need nothing else.
    assert len(calls) == 1 + 1 + 2


@pytest.mark.usefixtures("only_traced")
def test_a_graph_that_is_made_again_is_reported(tmp_path: Path) -> None:
    gap, made = pair(odd(regularizers={"turning": {"after": 2}}), tmp_path)
    assert gap <= 1e-5
    (again,) = made["recompiled"]
    assert (made["level"], made["graphs"]) == ("step", 2)
    assert again.startswith("step 17: ") and "factor" in again


@pytest.mark.parametrize("together", first_of_each([1, 8]))
@pytest.mark.usefixtures("only_traced")
def test_another_size_of_batches_is_another_graph_and_nothing_is_made_again(
    together: int, tmp_path: Path
) -> None:
    data = {"name": "partner", "batch_size": 3, "batch_schedule": {1: 5, 2: 8, 3: "all"}}
    trainer = {"epochs": 5, "steps_per_call": together, "accumulate": 2}
    gap, made = pair(odd(data=data | {"sampling": "balanced"}, trainer=trainer), tmp_path)
    assert gap <= 1e-5
    assert (made["level"], made["graphs"], made["recompiled"]) == ("step", 4, []), made


@pytest.mark.parametrize(
    ("batch", "width", "asked", "threads"),
    first_of_each_row([(8, 6, None, 1), (24, 20_000, None, 2), (8, 6, 2, 2)]),
)
def test_a_graph_of_small_products_computes_on_one_thread(
    batch: int, width: int, asked: int | None, threads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second one takes longer to wake than a small product takes; a config that asks for it has it."""
    seen: set[int] = set()

    def watched(graph: Any, inputs: Any, **options: Any) -> Any:
        def call(*args: Any) -> Any:
            seen.add(torch.get_num_threads())
            return graph(*args)

        seen.add(torch.get_num_threads())  # what is compiled is cut up for as many
        return call

    torch._dynamo.reset()
    torch.set_num_threads(2)
    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx", watched)
    data, model = {"name": "partner", "batch_size": batch}, {"name": "mlp", "hidden": [width]}
    run = pegboard.train(odd(data=data, model=model, trainer={"threads": asked}), root=tmp_path, quiet=True)
    assert run.summary["compiled"]["level"] == "step"
    assert seen == {threads} and torch.get_num_threads() == 2


HARD: dict[str, dict[str, Any]] = {
    "a frozen parameter": {"model": {"name": "spare", "spare": "frozen"}},
    "an odd last batch": {"data": {"name": "partner", "batch_size": 5}},
    "odd groups": {
        "data": {"name": "partner", "batch_size": 5},
        "regularizers": {"clip": {"bound": 0.1}, "ema": {"decay": 0.9}},
        "trainer": {"accumulate": 3},
    },
    "an epoch of one update, of odd batches": {
        "data": {"name": "partner", "batch_size": 24},
        "trainer": {"accumulate": 4},
    },
    "two players": {
        "data": {"name": "points", "batch_size": 8},
        "objective": {"name": "guess", "players": 2},
        "trainer": {"log_every": 3},
    },
    "more updates in a call than an epoch has": {"trainer": {"steps_per_call": 64, "log_every": 3}},
}


@pytest.mark.parametrize("case", first_of_each(HARD))
@pytest.mark.usefixtures("only_traced")
def test_a_traced_run_agrees_where_it_is_hard(case: str, tmp_path: Path) -> None:
    gap, made = pair(odd(**HARD[case]), tmp_path)
    players = 2 if case == "two players" else 1
    assert (made["level"], made["graphs"], made["recompiled"]) == ("step", players, []), made
    assert gap <= 1e-5


@pytest.mark.usefixtures("only_traced")
def test_a_parameter_that_nothing_uses_is_named(tmp_path: Path) -> None:
    gap, made = pair(odd(model={"name": "spare", "spare": "unused"}), tmp_path)
    assert gap <= 1e-5
    assert made["level"] == "model" and made["why"].startswith("first.weight got no gradient"), made["why"]


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.usefixtures("only_traced")
def test_a_traced_run_reads_data_that_is_not_in_memory(workers: int, shelf: Path, tmp_path: Path) -> None:
    (hub,) = (entry for entry in entries("dataset") if entry.part.name == "hub")
    data = {"name": "hub", **fields(hub, shelf), "batch_size": 8, "workers": workers, "memory": "never"}
    gap, made = pair(odd(data=data), tmp_path)
    assert (made["level"], made["graphs"]) == ("step", 1), made
    assert gap <= 1e-5


def test_without_a_compiler_the_run_goes_on_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lacking(*args: Any, **options: Any) -> None:
        raise InvalidCxxCompiler

    torch._dynamo.reset()
    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx", lacking)
    gap, made = pair(odd(), tmp_path)
    assert gap == 0
    assert made["level"] == "off" and made["why"].startswith("No working C++ compiler found"), made


@pytest.mark.parametrize("writable", [True, False])
def test_graphs_are_kept_in_the_cache_of_a_person_who_has_one(
    writable: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    place = tmp_path / ("cache" if writable else "file")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", default_cache_dir())  # put back afterwards
    monkeypatch.setenv("XDG_CACHE_HOME", str(place))
    with tracing():
        found = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])
    assert found == (place / "pegboard" / "compiled" if writable else Path(default_cache_dir()))


@pytest.mark.prove
@pytest.mark.usefixtures("compiler")
def test_a_graph_is_found_again_by_the_next_run(tmp_path: Path) -> None:
    for found in (0, 1):
        torch._dynamo.reset()
        counters = torch._dynamo.utils.counters["inductor"]
        counters.clear()
        run = pegboard.train(odd(), root=tmp_path, quiet=True)
        assert run.summary["compiled"]["level"] == "step"
        assert (counters["fxgraph_cache_hit"], counters["fxgraph_cache_bypass"]) == (found, 0)


@pytest.mark.prove
def test_a_command_without_a_compiler_goes_on_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(odd()))
    environment = {
        **os.environ,
        "CXX": "/nonexistent/c++",
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "empty"),
    }
    words = [sys.executable, "-m", "pegboard", "train", "c.yaml"]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "compile: nothing is compiled, because No working C++ compiler found" in done.stdout + done.stderr


@pytest.mark.prove
@pytest.mark.usefixtures("compiler")
def test_how_many_updates_a_call_makes_changes_no_bit(shelf: Path, tmp_path: Path) -> None:
    given = all_tricks(shelf)
    given["regularizers"].pop("label_noise", None)
    ends = []
    for together in (1, 8):
        trainer = {
            "epochs": 3,
            "device": "cpu",
            "compile": "step",
            "steps_per_call": together,
        }
        run = pegboard.train({**given, "trainer": trainer}, root=tmp_path, quiet=True)
        assert run.summary["compiled"]["level"] == "step"
        ends.append({"weights": weights(run.folder), "history": run.history})
    assert list(unequal(*ends)) == []
