"""Classes of val and test that no training sample has are told before a run, for every kind of source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pegboard
import pytest
import torch
from pegboard import Batch, Classes, DataSpec, Labels, Resident, Splits, Stream, Vector
from pegboard.data import cut_splits, data_warnings
from pegboard_gnn import Graph, GraphSet, sampled

X = torch.zeros(6, 2)
TARGETS = {"train": [0, 1, 0, 1, 0, 1], "val": [0, 2, 2, 1, 3, 0], "test": [2, 0, 0, 1, 1, 1]}
NAMES = ("cat", "dog", "fox", "owl")
TOLD = (
    "2 classes of the target without a training sample, which no model can learn: "
    "'fox' (2 of val, 1 of test), 'owl' (1 of val)"
)


class Reader:
    def __init__(self, target: list[int]) -> None:
        self.target = target

    def __call__(self, rows: list[int]) -> Batch:
        return Batch((torch.zeros(len(rows), 2),), torch.tensor(self.target)[rows])

    def targets(self) -> torch.Tensor:
        return torch.tensor(self.target)


def graph(target: list[int]) -> Any:
    ring = torch.stack((torch.arange(6), torch.arange(6).roll(1)))
    return Graph(X, ring), torch.arange(6), torch.tensor(target)


SOURCES = {
    "resident": lambda target: Resident([X], torch.tensor(target)),
    "stream": lambda target: Stream(Reader(target), 6),
    "padded": lambda target: Stream(Reader(target), 6).padded(DataSpec((Vector(2),), Classes(4))),
    "sampled": lambda target: sampled(*graph(target), fanouts=[1]),
    "graphs": lambda target: GraphSet(
        X, torch.zeros(2, 0, dtype=torch.int64), torch.tensor([[1, 0]] * 6), torch.tensor(target)
    ),
}


def made(kind: str, **targets: list[int]) -> Splits:
    sources = {name: SOURCES[kind](target) for name, target in targets.items()}
    return Splits(spec=DataSpec((Vector(2),), Classes(4, NAMES)), **sources)


@pytest.mark.parametrize("kind", SOURCES)
def test_unseen_classes_are_told_with_their_counts(kind: str) -> None:
    assert data_warnings(made(kind, **TARGETS)) == [TOLD]
    assert data_warnings(made(kind, train=TARGETS["val"], val=TARGETS["train"])) == []


def test_labels_that_training_never_has_are_told_too() -> None:
    some, other = torch.eye(4)[[0, 1, 0, 1, 0, 1]], torch.eye(4)[[0, 2, 2, 1, 3, 0]]
    splits = Splits(
        spec=DataSpec((Vector(2),), Labels(4, NAMES)), train=Resident([X], some), val=Resident([X], other)
    )
    assert data_warnings(splits) == [
        "2 labels of the target without a training sample, which no model can learn: "
        "'fox' (2 of val), 'owl' (1 of val)"
    ]


@pytest.mark.parametrize("kind", ["resident", "stream"])
def test_folds_tell_the_classes_that_they_leave_without_a_training_sample(kind: str) -> None:
    splits = made(kind, train=[0, 0, 0, 0, 0, 3])
    told = [data_warnings(cut_splits(splits, (number, 3))) for number in range(3)]
    assert sorted(map(len, told)) == [0, 0, 1]
    assert "'owl' (1 of val)" in max(told)[0]


def test_hidden_labels_and_samples_without_weight_do_not_count() -> None:
    hidden = Resident([X], torch.tensor([0, 1, -100, 2, 0, 1]), torch.tensor([1.0, 1, 0, 0, 1, 1]))
    splits = Splits(
        spec=DataSpec((Vector(2),), Classes(3)), train=hidden, val=Resident([X], torch.tensor([2] * 6))
    )
    assert data_warnings(splits)[0].endswith("'2' (6 of val)")


PLUGIN = '''
from dataclasses import dataclass
from pegboard import Dataset, hookimpl, Splits, DataSpec, Vector, Values, Classes

@dataclass(frozen=True)
class Pets:
    """Pets of which some come in the test alone."""

def build(config, context):
    import torch
    from pegboard import Resident
    x = torch.zeros(6, 2)
    return Splits(
        spec=DataSpec((Vector(2),), Classes(3, ("cat", "dog", "fox"))),
        train=Resident([x], torch.tensor([0, 1] * 3)), test=Resident([x], torch.tensor([0, 1, 2] * 2)),
        notes={"about": "six pets"}, warnings=("two pets have no name",),
    )

@hookimpl
def pegboard_datasets():
    return [Dataset("pets", Pets, build)]
'''


def test_a_run_and_its_plan_say_what_is_odd_in_the_data(
    config: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pets.py").write_text(PLUGIN)
    given = config(data={"name": "pets", "batch_size": 3}, trainer={"epochs": 1, "device": "cpu"})
    given["plugins"]["local"].append("pets.py")
    del given["objective"]
    given["objective"] = {"name": "guess"}
    run = pegboard.train(given)
    told = capsys.readouterr()
    lines = [line for line in told.err.splitlines() if line.startswith("warning: data:")]
    assert len(lines) == 2 and "two pets have no name" in lines[0] and "'fox' (2 of test)" in lines[1]
    assert "data: six pets" in told.out
    plan = (run.folder / "plan.txt").read_text()
    assert "six pets" in plan and "'fox' (2 of test)" in plan
