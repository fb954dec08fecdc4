"""Batches of all samples, batches that grow, and optimizers that know when they are done."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pegboard
import pytest
import torch
from pegboard import PegboardError
from pegboard.config.check import check
from pegboard.planning.plan import assemble, make_plan
from pegboard.testing.runs import cut_and_resumed, differences, whole

HERE = Path(__file__).parents[1]
LOCAL = [str(HERE / "toy.py"), str(HERE / "drawn.py")]
Config = Callable[..., dict[str, Any]]


@pytest.fixture
def sized(config: Config) -> Config:
    """A config of 40 points; keyword arguments are fields of the data node, `nodes` replaces others."""

    def make(nodes: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
        trainer = {"epochs": 4, "device": "cpu", "log_every": 3}
        data = {"name": "points", "count": 40, **fields}
        return config(data=data, trainer=trainer, plugins={"local": LOCAL}) | (nodes or {})

    return make


def epochs_of(run: pegboard.Run) -> list[tuple[int, float]]:
    """Step and epoch of the rows."""
    return list(dict.fromkeys((row["step"], row["epoch"]) for row in run.history))


# All samples in one batch.


def test_a_batch_of_all_samples_is_gradient_descent(sized: Config, root: Path) -> None:
    given = sized(batch_size="all")
    run = pegboard.train(given, root=root, quiet=True)
    assert run.summary["steps"] == 4 and epochs_of(run) == [(1, 1.0), (2, 2.0), (3, 3.0), (4, 4.0)]
    plan = make_plan(check(given), read=True)
    model, train = assemble(plan, "cpu").model, plan.splits.train  # type: ignore[union-attr]
    optimizer = torch.optim.SGD(model.parameters(), 0.1, foreach=False)
    for _ in range(4):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(train.inputs[0]), train.target).backward()  # type: ignore[attr-defined]
        optimizer.step()
    found = pegboard.load(run, which="last").state_dict()
    assert all(torch.equal(found[name], tensor) for name, tensor in model.state_dict().items())


def test_an_evaluation_has_batches_of_its_own_size(sized: Config) -> None:
    def sized_by(**fields: Any) -> int:
        return check(sized(**fields)).batches.eval_size

    assert sized_by(batch_size=8) == sized_by(batch_size=8, batch_schedule={2: 16}) == 32
    assert sized_by(batch_size="all") == 1024 and sized_by(batch_size="all", eval_batch_size=5) == 5


# Batches that grow.


def test_batches_grow_at_the_epochs_that_a_schedule_names(sized: Config, root: Path) -> None:
    given = sized(batch_size=16, batch_schedule={1: 20, 3: "all"})
    run = pegboard.train(given, root=root, quiet=True)
    sampler = make_plan(check(given), read=True).sampler
    assert sampler is not None
    assert [sampler.size(epoch) for epoch in range(5)] == [16, 20, 20, 40, 40]
    assert [sampler.updates(epoch) for epoch in range(5)] == [3, 2, 2, 1, 1]
    assert run.summary["steps"] == 3 + 2 + 2 + 1
    assert epochs_of(run) == [(3, 1.0), (5, 2.0), (6, 2.5), (7, 3.0), (8, 4.0)]


@pytest.mark.parametrize(
    ("fields", "accumulate", "steps"),
    [
        ({"batch_schedule": {2: 15}}, 1, 4 + 4 + 3 + 3),
        ({"batch_schedule": {2: 15}, "drop_last": True}, 1, 3 + 3 + 2 + 2),
        ({"batch_schedule": {2: 15}}, 2, 2 + 2 + 2 + 2),
        ({"batch_schedule": {2: 15, 3: 30}}, 3, 2 + 2 + 1 + 1),
    ],
)
def test_the_steps_of_a_run_are_counted_through_the_schedule(
    sized: Config, fields: dict[str, Any], accumulate: int, steps: int
) -> None:
    trainer = {"epochs": 4, "device": "cpu", "accumulate": accumulate}
    given = sized({"trainer": trainer}, batch_size=12, **fields)
    assert make_plan(check(given), read=True).steps == steps


def test_an_epoch_without_a_batch_is_told_before_there_is_a_run(sized: Config, root: Path) -> None:
    given = sized(batch_size=16, batch_schedule={3: 64}, drop_last=True)
    with pytest.raises(
        PegboardError, match="drop_last leaves no batch: batch_schedule has 64 from epoch 3 on"
    ):
        pegboard.train(given, root=root, quiet=True)
    assert not list(root.glob("*/2*"))
    assert (
        pegboard.train(given, "trainer.epochs=3", root=root, quiet=True).summary["steps"] == 6
    )  # it never comes to that


def test_a_schedule_is_written_in_yaml_on_the_command_line_and_in_a_run_folder(
    sized: Config, root: Path, tmp_path: Path
) -> None:
    import yaml

    file = tmp_path / "grows.yaml"
    text = yaml.safe_dump(sized(batch_size=8))
    file.write_text(text.replace("  batch_size: 8", "  batch_size: 8\n  batch_schedule: {1: 16, 2: all}"))
    assert check(file).batches.batch_schedule == {1: 16, 2: "all"}
    for word, expected in (
        ("data.batch_schedule.1=10", {1: 10, 2: "all"}),
        ("data.batch_schedule={2: 20, 3: 30}", {1: 16, 2: 20, 3: 30}),
        ("data.batch_schedule=null", None),
    ):
        assert check(file, [word]).batches.batch_schedule == expected
    run = pegboard.train(str(file), root=root, quiet=True)
    again = check(run.folder / "config.yaml")
    assert again.batches == check(file).batches


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"batch_schedule": {2: 8}}, "batches of 8 from epoch 2 on, after batches of 16"),
        ({"batch_schedule": {4: 16}}, "batches of 16 from epoch 4 on, after batches of 16"),
        ({"batch_schedule": {2: 64, 4: 32}}, "batches of 32 from epoch 4 on, after batches of 64"),
        (
            {"batch_size": "all", "batch_schedule": {2: 8}},
            "batches of 8 from epoch 2 on, after batches of all",
        ),
        ({"batch_schedule": {0: 32}}, "found '0'\n.*a whole number .at least 1. before the colon"),
        ({"batch_schedule": {"two": 32}}, "found 'two'\n.*a whole number .at least 1. before the colon"),
        ({"batch_schedule": {2: 0}}, "found 0\n.*a whole number .*or all"),
        ({"batch_schedule": 128}, "found 128\n.*a mapping of whole numbers"),
        ({"batch_size": "everything"}, "found the text 'everything'\n.*or all"),
    ],
)
def test_sizes_that_cannot_be_are_mistakes(sized: Config, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(PegboardError, match=message):
        pegboard.plan(sized(**{"batch_size": 16, **fields}))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"batch_size": 16}, "4 epochs, batches of 16\nsamples: each once an epoch, in a new order\n"),
        ({"batch_size": 16, "shuffle": False}, "samples: each once an epoch, in the order of the data\n"),
        ({"batch_size": "all"}, "4 epochs, 1 batches of 40 each, 4 steps\nsamples: all in every update\n"),
        (
            {"batch_size": 16, "batch_schedule": {1: 20, 3: 30}, "sampling": "replacement"},
            "batches of 16, from epoch 1 on of 20, from epoch 3 on of 30\nsamples: drawn with replacement",
        ),
        ({"batch_schedule": {1: 128}}, "in matrix products and convolutions, with batches of 128"),
        ({"sampling": "balanced"}, "samples: drawn with replacement, every class as likely as another\n"),
    ],
)
def test_explain_says_how_samples_are_drawn_and_how_batches_grow(
    sized: Config, fields: dict[str, Any], said: str
) -> None:
    assert said in pegboard.plan(sized(**fields)).explain()


# Optimizers that know when they are done.


def ends(after: int, **trainer: Any) -> dict[str, Any]:
    return {
        "optimizer": {"name": "ends", "after": after},
        "trainer": {"epochs": 9, "device": "cpu", "log_every": 3, **trainer},
    }


def test_an_optimizer_that_is_finished_ends_the_run_after_the_epoch(sized: Config, root: Path) -> None:
    run = pegboard.train(sized(ends(3), batch_size=16), root=root, quiet=True)
    assert run.summary["status"] == "stopped" and run.summary["steps"] == 9
    assert run.summary["why"] == "optimizer: asked 3 times"


def test_a_run_that_the_optimizer_ends_is_measured_and_saved_though_it_was_not_due(
    sized: Config, root: Path
) -> None:
    run = pegboard.train(sized(ends(2, eval_every=5), batch_size=16), root=root, quiet=True)
    assert [row["step"] for row in run.history if "val/right" in row] == [6]
    assert (run.folder / "checkpoints" / "last").resolve().name == "step-00000006"


@pytest.mark.sweep
def test_an_optimizer_is_asked_once_after_every_whole_epoch(sized: Config, root: Path) -> None:
    given = sized(ends(3, steps=8), batch_size=16)  # 8 updates are no whole third epoch
    run = pegboard.train(given, root=root, quiet=True)
    assert run.summary["status"] == "finished" and run.summary["steps"] == 8
    given = sized(ends(3, eval_every=2), batch_size=16)
    uncut, events = whole(given, root)
    assert pegboard.Run(uncut).summary["why"] == "optimizer: asked 3 times"
    for cut in [
        i for i, what in enumerate(events) if what == "val"
    ]:  # after it was asked, before it is saved
        assert differences(uncut, cut_and_resumed(given, root, cut)) == []


def test_players_end_a_run_when_all_of_them_are_finished(sized: Config, root: Path) -> None:
    nodes = ends(2) | {"objective": {"name": "guess", "players": 2}}
    nodes["optimizer"] |= {"players": {"second": {"after": 4}}}
    run = pegboard.train(sized(nodes, batch_size=20), root=root, quiet=True)
    assert run.summary["why"] == "optimizer: asked 4 times; asked 4 times"
    nodes["optimizer"] = {"name": "ends", "players": {"second": {"name": "plain"}}}
    run = pegboard.train(sized(nodes, batch_size=20), root=root, quiet=True)
    assert run.summary["status"] == "finished"
