"""A run that is interrupted anywhere and resumed ends as one that was not.

That this holds for every part at two points is a check of the kit; here are more points, and parts together.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pegboard
import pytest
from pegboard.registry.discovery import Entry
from proofs import (
    TRAINER,
    Config,
    all_tricks,
    cut_and_resumed,
    differences,
    entries,
    fields,
    fitting,
    name_of,
    partner_data,
    plain,
    points,
    tried,
    whole,
)
from sweeps import first_of_each

pytestmark = pytest.mark.usefixtures("lean")

KINDS = ("model", "regularizer", "optimizer", "schedule", "objective", "dataset")
PARTS = [entry for kind in KINDS for entry in entries(kind)]
MANY = 15


def prove(config: Config, root: Path, count: int, turn: int = 0) -> int:
    """Interrupt a run at some points, each in a run of its own; returns at how many."""
    reference, events = whole(config, root / "whole")
    chosen = points(events, count, turn)
    for cut in chosen:
        resumed = cut_and_resumed(config, root / f"cut-{cut}", cut)
        where = f"interrupted at event {cut}, {events[cut]}, of {len(events)}"
        assert differences(reference, resumed) == [], where
    return len(chosen)


def test_all_tricks_together_resume_exactly_wherever_they_are_cut(shelf: Path, tmp_path: Path) -> None:
    given = all_tricks(shelf)
    assert len(given["regularizers"]) >= 5
    assert prove(given, tmp_path, MANY) == MANY


@pytest.mark.parametrize("workers", first_of_each([0, 2]))
def test_data_read_ahead_by_workers_resumes_exactly(workers: int, shelf: Path, tmp_path: Path) -> None:
    prove(streamed(shelf, workers), tmp_path, 3)


def streamed(shelf: Path, workers: int) -> Config:
    """A run over a table that is not held in memory."""
    (hub,) = (entry for entry in entries("dataset") if entry.part.name == "hub")
    data = {"name": "hub", **fields(hub, shelf), "batch_size": 4, "workers": workers, "memory": "never"}
    data["eval_batch_size"] = 2  # so that an evaluation has batches to read ahead
    return fitting("hub", [plain(data=data)])


def test_the_scale_of_losses_in_fp16_resumes_exactly(tmp_path: Path) -> None:
    prove(plain(trainer={**TRAINER, "precision": "fp16"}), tmp_path, 2)


def test_sums_of_many_losses_resume_exactly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pegboard.engine.loop.FLUSH", 1)  # as after hundreds of steps without a row
    prove(plain(trainer={**TRAINER, "log_every": 1000}), tmp_path, 4)


def test_a_difference_of_one_bit_is_seen(tmp_path: Path) -> None:
    one, _ = whole(plain(), tmp_path / "one")
    two, _ = whole(plain(optimizer={"name": "adam", "lr": 0.01 + 1e-9}), tmp_path / "two")
    assert any("weights" in text for text in differences(one, two))


@pytest.mark.prove
@pytest.mark.parametrize("entry", PARTS, ids=[name_of(entry) for entry in PARTS])
def test_a_run_with_this_part_resumes_exactly_at_15_points(
    entry: Entry, shelf: Path, tmp_path: Path, show: Callable[[str], None]
) -> None:
    count = prove(tried(entry, shelf), tmp_path, MANY)
    show(f"exact resume at {count} points, a run for each {entry.part.kind}")


@pytest.mark.prove
@pytest.mark.parametrize("workers", [0, 2])
def test_data_read_ahead_by_workers_resumes_exactly_at_15_points(
    workers: int, shelf: Path, tmp_path: Path, show: Callable[[str], None]
) -> None:
    count = prove(streamed(shelf, workers), tmp_path, MANY)
    show(f"exact resume at {count} points, data streamed with {workers} workers")


@pytest.mark.prove
@pytest.mark.parametrize("steps_per_call", [1, 4, 64])
@pytest.mark.usefixtures("compiler")
def test_all_tricks_in_compiled_steps_resume_exactly(
    steps_per_call: int, shelf: Path, tmp_path: Path, show: Callable[[str], None]
) -> None:
    given = all_tricks(shelf)
    given["regularizers"].pop("label_noise", None)  # no graph can hold it
    given["trainer"] |= {"compile": "step", "steps_per_call": steps_per_call}
    count = prove(given, tmp_path, 4)
    show(f"exact resume at {count} points, all tricks in compiled steps, {steps_per_call} in a call")


TRICKS = entries("regularizer")


@pytest.mark.prove
@pytest.mark.parametrize("model", entries("model"), ids=name_of)
@pytest.mark.parametrize("trick", TRICKS, ids=name_of)
def test_this_trick_on_this_model_resumes_exactly_at_15_points(
    model: Entry, trick: Entry, shelf: Path, tmp_path: Path, show: Callable[[str], None]
) -> None:
    nodes = {
        "model": {"name": model.qualified, **fields(model, shelf)},
        "regularizers": {trick.part.name: {"name": trick.qualified, **fields(trick, shelf)}},
    }
    if own := getattr(model.part, "objective", ""):
        nodes["objective"] = {"name": own}
    try:
        given = fitting("", (plain(data=data, **nodes) for data in partner_data()))
        own_fields = given["regularizers"][trick.part.name]
        if "teacher" in own_fields:  # who reads what this model does
            taught = {**given, "name": "teacher", "regularizers": {}}
            own_fields["teacher"] = str(pegboard.train(taught, root=tmp_path, quiet=True).folder)
        count = prove(given, tmp_path, MANY)
    except AssertionError as refused:  # with a reason; that each part trains somewhere is shown above
        assert "The planner said last" in str(refused)
        assert trick.part.name in str(refused) or model.part.name in str(refused)
        count = 0
    except pegboard.PegboardError as refused:
        assert f"regularizers.{trick.part.name} found nothing to act on" in str(refused)
        count = 0
    if not count:
        show("exact resume, pair of model and trick that is refused with a reason")
        return
    show(f"exact resume at {count} points, pair of model and trick")
