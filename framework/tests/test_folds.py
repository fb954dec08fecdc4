"""Cross-validation: who is in which fold, a run for each, what is said of them together, and resuming."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import signal
import statistics
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pegboard
import pytest
import torch
import yaml
from pegboard import Batch, Classes, DataSpec, Ragged, Resident, Sequences, Splits, Stream, Tokens, Vector
from pegboard.cli import main
from pegboard.config.check import check
from pegboard.data import cut_fold, cut_splits
from pegboard.engine.loop import Interrupted
from pegboard.folds import describe, quantile
from pegboard.planning import read_data

Config = Callable[..., dict[str, Any]]
Capture = pytest.CaptureFixture[str]
WATCHING = """
import json
from dataclasses import dataclass
from pathlib import Path
from pegboard import Tracker, TrackerPart, hookimpl

@dataclass(frozen=True)
class Watch:
    path: str  # where it writes

class Watching(Tracker):
    def __init__(self, path):
        self.path = Path(path)

    def write(self, *words):
        with self.path.open("a") as file:
            file.write(json.dumps(words) + chr(10))

    def start(self, run):
        self.write("start", run.id, run.group, run.resumed)

    def finish(self, status, summary):
        self.write("finish", status, summary.get("figures"))

@hookimpl
def pegboard_trackers():
    return [TrackerPart("watch", Watch, lambda config, context: Watching(config.path))]
"""


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    """Nobody looks at the curves, nor at what git says."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pegboard.ending.draw_curves", lambda rows, path, title: path)
        patch.setattr("pegboard.provenance.git_state", lambda: ({}, ""))
        yield


# Who is in which fold.
@pytest.mark.parametrize(("size", "count"), [(2, 2), (10, 3), (30, 10), (31, 10), (7, 7), (1000, 13)])
def test_folds_share_out_every_sample_once_in_sizes_that_differ_by_at_most_one(size: int, count: int) -> None:
    order = torch.randperm(size, generator=torch.Generator().manual_seed(size))
    cuts = [cut_fold(order, (number, count)) for number in range(count)]
    assert sorted(i for _, val in cuts for i in val.tolist()) == list(range(size))
    sizes = [len(val) for _, val in cuts]
    assert max(sizes) - min(sizes) <= 1
    for train, val in cuts:
        assert sorted([*train.tolist(), *val.tolist()]) == list(range(size))


def test_more_folds_than_samples_are_a_mistake_told_before_there_is_a_folder(
    config: Config, root: Path
) -> None:
    given = config(trainer={"folds": 90, "device": "cpu"})
    with pytest.raises(pegboard.PegboardError, match="folds is 90, but there are 80 samples"):
        pegboard.train(given, root=root, quiet=True)
    assert not list(root.glob("run/*"))


def rows(source: Any) -> list[Any]:
    """What a source holds, sample by sample."""
    batches = [source.gather(torch.tensor([i])) for i in range(len(source))]
    return [([x[0].tolist() for x in b.inputs], b.target[0].tolist(), b.weight) for b in batches]


def resident(first: int, count: int, weight: bool = False) -> Resident:
    x = torch.arange(first, first + count, dtype=torch.float32)[:, None]
    return Resident(
        [x], torch.arange(first, first + count) % 2, torch.full((count,), 0.5) if weight else None
    )


class Reads:
    """Reads samples as those of `resident`; with a key, which it adds to them."""

    def __init__(self, first: int) -> None:
        self.first = first

    def __call__(self, wanted: list[int], *key: int) -> Batch:
        numbers = torch.tensor(wanted) + self.first
        return Batch((numbers.float()[:, None] + (sum(key) % 7) / 10,), numbers % 2)


SPEC = DataSpec((Vector(1),), Classes(2))


@pytest.mark.parametrize(
    ("train", "val"),
    [
        (resident(0, 20), resident(20, 6)),
        (resident(0, 20, weight=True), resident(20, 6)),
        (resident(0, 20), None),
        (Stream(Reads(0), 20), Stream(Reads(20), 6)),
        (Stream(Reads(0), 20), resident(20, 6)),
        (Stream(Reads(0), 20), None),
    ],
    ids=["memory", "weighted", "no val", "streams", "mixed", "stream without val"],
)
def test_the_core_cuts_the_samples_of_other_data_sets(train: Any, val: Any) -> None:
    test = resident(90, 3)
    whole = Splits(spec=SPEC, train=train, val=val, test=test, notes={"fingerprint": "x", "source": "y"})
    everyone = sorted(i for source in (train, val) if source for ([[i]], *_) in rows(source))
    held_out = []
    for number in range(4):
        cut = cut_splits(whole, (number, 4))
        assert cut.test is test and cut.val is not None and cut.notes == {"source": "y"}
        numbers = [[int(x[0][0]) for x, *_ in rows(source)] for source in (cut.train, cut.val)]
        assert sorted(numbers[0] + numbers[1]) == everyone
        held_out += numbers[1]
        for source in (cut.train, cut.val):
            many = source.gather(torch.arange(len(source)))
            assert torch.equal(many.target, many.inputs[0][:, 0].long() % 2)  # they stay together
            if many.weight is not None:
                assert torch.equal(many.weight, torch.where(many.inputs[0][:, 0] < 20, 0.5, 1.0))
    assert sorted(held_out) == everyone


def test_sequences_of_different_lengths_are_cut_too() -> None:
    texts = [[i] * (i % 4 + 1) for i in range(12)]
    tokens = DataSpec((Tokens(12, 4, 0),), Classes(2))

    def ragged(part: list[list[int]]) -> Ragged:
        return Ragged([Sequences.join(part, 0)], torch.tensor([t[0] % 2 for t in part]))

    whole = Splits(spec=tokens, train=ragged(texts[:9]), val=ragged(texts[9:]))
    held_out = [rows(cut_splits(whole, (number, 3)).val) for number in range(3)]
    assert sorted(x for fold in held_out for ([x], *_) in fold) == sorted(texts)

    class Texts:
        def __init__(self, part: list[list[int]]) -> None:
            self.part = part

        def __call__(self, wanted: list[int]) -> Batch:
            chosen = [self.part[i] for i in wanted]
            width = max(map(len, chosen))
            x = torch.tensor([t + [0] * (width - len(t)) for t in chosen])
            return Batch((x,), torch.tensor([t[0] % 2 for t in chosen]))

    def stream(part: list[list[int]]) -> Stream:
        return Stream(Texts(part), len(part), lengths=torch.tensor(list(map(len, part))))

    read = cut_splits(Splits(spec=tokens, train=stream(texts[:9]), val=stream(texts[9:])), (0, 3)).train
    kept = cut_splits(whole, (0, 3)).train
    assert isinstance(read, Stream) and isinstance(kept, Ragged)
    assert torch.equal(read.lengths, kept.lengths)  # type: ignore[arg-type]
    everyone = torch.arange(len(kept))
    assert torch.equal(read.gather(everyone).inputs[0], kept.gather(everyone).inputs[0])


def test_a_stream_that_draws_by_epoch_still_does_in_a_fold() -> None:
    whole = Splits(spec=SPEC, train=Stream(Reads(0), 20, seed=3), val=Stream(Reads(20), 6))
    cut = cut_splits(whole, (0, 2)).train
    assert isinstance(cut, Stream) and cut.seed == 3
    seen = []
    for epoch in range(3):
        cut.begin([], 0, epoch)
        seen.append(cut.gather(torch.arange(len(cut))).inputs[0][:, 0])
    drawn = seen[0] != seen[0].floor()
    assert torch.equal(seen[0].long()[~drawn] >= 20, torch.ones(int((~drawn).sum()), dtype=torch.bool))
    assert any(not torch.equal(seen[0], other) for other in seen[1:])


def test_the_core_cuts_alike_for_every_seed_of_the_run(config: Config) -> None:
    # `points` draws by the seed; the numbers of the samples are what must not depend on it.
    cuts = [cut_splits(Splits(spec=SPEC, train=resident(0, 20)), (1, 4)) for _ in range(2)]
    assert rows(cuts[0].val) == rows(cuts[1].val)
    splits = read_data(check(config(trainer={"folds": 4, "fold": 1})))
    assert (len(splits.train), len(splits.val), len(splits.test)) == (60, 20, 16)  # type: ignore[arg-type]


# Mean and interval.
@pytest.mark.parametrize(
    ("freedom", "t"),
    [(1, 12.7062), (2, 4.30265), (3, 3.18245), (4, 2.77645), (9, 2.26216), (29, 2.04523), (120, 1.97993)],
)
def test_quantiles_of_students_distribution_are_those_of_tables(freedom: int, t: float) -> None:
    assert quantile(0.95, freedom) == pytest.approx(t, abs=6e-6 * t)


def test_the_quantile_of_many_degrees_is_that_of_the_normal_distribution() -> None:
    assert quantile(0.95, 10**5) == pytest.approx(statistics.NormalDist().inv_cdf(0.975), rel=3e-5)


def test_mean_deviation_and_interval_by_hand() -> None:
    found = describe([1.0, 2.0, 3.0, 4.0])
    assert found["mean"] == 2.5
    assert found["std"] == pytest.approx(math.sqrt(5 / 3))
    half = 3.182446305 * math.sqrt(5 / 3) / 2
    assert found["interval"] == pytest.approx([2.5 - half, 2.5 + half])
    equal = describe([0.925000011920929] * 3)
    assert (equal["std"], equal["interval"]) == (0.0, [equal["mean"]] * 2)
    assert all(math.isnan(x) for x in describe([1.0, math.nan])["interval"])


# The runs.
def folded(config: Config, **more: Any) -> dict[str, Any]:
    trainer = {"epochs": 2, "device": "cpu", "folds": 3, "threads": 1, "log_every": 2}
    return config(regularizers={"drop": {"p": 0.3}}, trainer=trainer | more)


@pytest.fixture(scope="module")
def whole(config: Config, tmp_path_factory: pytest.TempPathFactory) -> pegboard.Run:
    """A cross-validation of three folds that nothing interrupted."""
    return pegboard.train(folded(config), root=tmp_path_factory.mktemp("whole"), quiet=True)


def outcome(run: pegboard.Run) -> dict[str, bytes]:
    """What of each fold must be the same to the byte: config, history, weights."""
    names = (
        "config.yaml",
        "metrics.jsonl",
        "checkpoints/best/model.safetensors",
        "checkpoints/last/state.pt",
    )
    return {f"{fold.folder.name}/{n}": (fold.folder / n).read_bytes() for fold in run.folds for n in names}


def test_every_fold_is_a_run_and_the_whole_has_their_means(whole: pegboard.Run) -> None:
    assert [fold.folder.name for fold in whole.folds] == ["fold-0", "fold-1", "fold-2"]
    assert sorted(p.name for p in whole.folder.glob("fold-*")) == ["fold-0", "fold-1", "fold-2"]
    assert whole.status == "finished" and {fold.status for fold in whole.folds} == {"finished"}
    assert whole.history == [] and whole.folds[0].folds == []
    saved = [yaml.safe_load((run.folder / "config.yaml").read_text()) for run in (whole, *whole.folds)]
    assert [c["trainer"]["fold"] for c in saved] == [None, 0, 1, 2]
    for name, mean in whole.figures.items():
        values = [fold.figures[name] for fold in whole.folds]
        assert mean == pytest.approx(statistics.fmean(values))
        said = whole.summary["statistics"][name]
        assert said["values"] == values
        assert said["std"] == pytest.approx(statistics.stdev(values))
        assert said["interval"][0] <= mean <= said["interval"][1]
    assert {"val/loss", "test/right"} <= set(whole.figures)
    for name in ("plan.txt", "environment.json", "origins.json", "report.html"):
        assert (whole.folder / name).is_file()
    assert "3 such runs, one for each fold" in (whole.folder / "plan.txt").read_text()
    assert "fold 2 of 3" in (whole.folds[2].folder / "plan.txt").read_text()
    assert not (whole.folder / "latest").exists() and (whole.folder.parent / "latest").is_symlink()


def test_one_fold_alone_repeats_that_fold_exactly(config: Config, whole: pegboard.Run, root: Path) -> None:
    again = pegboard.train(whole.folds[2].folder / "config.yaml", root=root, quiet=True)
    named = pegboard.train(folded(config, fold=2), root=root / "named", quiet=True)
    for run in (again, named):
        assert run.folds == [] and run.figures == whole.folds[2].figures
        for name in ("metrics.jsonl", "checkpoints/last/model.safetensors"):
            assert (run.folder / name).read_bytes() == (whole.folds[2].folder / name).read_bytes()
    assert pegboard.train(folded(config, fold=0), root=root, quiet=True).figures != again.figures


def test_a_finished_one_says_so_and_stays_as_it_is(whole: pegboard.Run, capsys: Capture) -> None:
    before = {p: p.stat().st_mtime_ns for p in whole.folder.rglob("*") if p.is_file()}
    pegboard.resume(whole)
    shown = capsys.readouterr().out
    assert "all 3 folds are finished" in shown and "val/loss" in shown
    assert {p: p.stat().st_mtime_ns for p in whole.folder.rglob("*") if p.is_file()} == before


def test_a_fold_says_that_the_core_cut_it(config: Config, root: Path, capsys: Capture) -> None:
    pegboard.train(folded(config, folds=2, epochs=1), root=root)
    shown = capsys.readouterr().out
    assert "fold 1 of 2, counted from 0, validates; cut by the core" in shown
    assert "2 folds: mean" in shown


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["trainer.fold=1"], "fold 1 of no folds"),
        (["trainer.folds=3", "trainer.fold=3"], "expected 0 to 2, as there are 3 folds"),
        (["trainer.folds=1"], "at least 2"),
        (["trainer.folds=3", "trainer.fold=-1"], "at least 0"),
    ],
)
def test_folds_that_are_none_are_mistakes_of_the_config(
    config: Config, words: list[str], message: str
) -> None:
    with pytest.raises(pegboard.PegboardError, match=message):
        check(config(), words)


# Interruptions.
def the_only(root: Path) -> Path:
    (folder,) = root.glob("run/2*")
    return folder


@pytest.mark.parametrize(
    "name", ["fold-0", "fold-1/checkpoints/step-00000008", "fold-1/summary.json", "summary.json"]
)
def test_killed_at_any_instant_it_ends_with_the_same_bytes(
    config: Config, whole: pegboard.Run, root: Path, name: str
) -> None:
    """Killed just before a file or a folder takes its name, which is when others see it."""
    child = os.fork()
    if not child:

        def watch(event: str, args: Any) -> None:
            if event == "os.rename" and re.search(rf"run/2[^/]*/{name}$", str(args[1])):
                os.kill(os.getpid(), signal.SIGKILL)

        try:
            sys.addaudithook(watch)
            pegboard.train(folded(config), root=root, quiet=True)
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    left = pegboard.Run(the_only(root))
    assert not (left.folder / name).exists() and left.status == "unfinished"
    run = pegboard.resume(left, quiet=True)
    assert outcome(run) == outcome(whole)
    assert (run.status, run.figures) == ("finished", whole.figures)


def test_a_signal_ends_the_whole_with_its_code_and_resume_finishes_it(
    config: Config, whole: pegboard.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("run.yaml").write_text(yaml.safe_dump(folded(config)))
    gather, count = Resident.gather, 0

    def counted(self: Any, index: torch.Tensor) -> Any:
        nonlocal count
        count += 1
        if count == 25:
            os.kill(os.getpid(), signal.SIGTERM)
        return gather(self, index)

    monkeypatch.setattr(Resident, "gather", counted)
    assert main(["train", "run.yaml"]) == 128 + signal.SIGTERM
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    folder = the_only(Path("runs"))
    said = capsys.readouterr().err
    assert f"in fold 1 of 3, saved; go on with: pegboard resume {folder} --local" in said
    run = pegboard.Run(folder)
    assert run.status == "interrupted" and len(run.folds) == 2
    assert main(["resume", str(folder), "--quiet"]) == 0
    assert outcome(run) == outcome(whole) and run.status == "finished"


def test_a_signal_too_late_for_a_fold_keeps_the_next_from_beginning(
    config: Config, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked_to_end(rows: Any, path: Path, title: str) -> Path:
        os.kill(os.getpid(), signal.SIGINT)
        return path

    monkeypatch.setattr("pegboard.ending.draw_curves", asked_to_end)
    with pytest.raises(Interrupted, match="in fold 0 of 2") as end:
        pegboard.train(folded(config, folds=2, diagnose=False), root=root, quiet=True)
    monkeypatch.undo()
    assert end.value.signal == signal.SIGINT
    run = pegboard.Run(the_only(root))
    assert [fold.status for fold in run.folds] == ["finished"] and run.status == "interrupted"
    assert [fold.status for fold in pegboard.resume(run, quiet=True).folds] == ["finished"] * 2


def test_a_fold_that_fails_is_told_and_the_rest_waits(
    config: Config, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    from pegboard import folds

    begin = folds.begin_run

    def failing(settings: Any, *args: Any, **more: Any) -> int:
        if settings.trainer.fold == 1:
            raise pegboard.PegboardError("no more room\nfor anything")
        return begin(settings, *args, **more)

    monkeypatch.setattr(folds, "begin_run", failing)
    with pytest.raises(pegboard.PegboardError, match="no more room"):
        pegboard.train(folded(config, epochs=1), root=root, quiet=True)
    run = pegboard.Run(the_only(root))
    assert run.status == "failed" and run.summary["why"] == "fold 1: PegboardError: no more room"
    assert f"all go on with: pegboard resume {run.folder}" in capsys.readouterr().err


# What others make of it.
def test_commands_that_need_one_model_name_the_folds(whole: pegboard.Run, capsys: Capture) -> None:
    for command in ("eval", "predict"):
        assert main([command, str(whole.folder)]) == 2
        said = capsys.readouterr().err
        assert "is a cross-validation of 3 runs" in said and f"as {whole.folder / 'fold-0'}" in said
    with pytest.raises(pegboard.PegboardError, match="cross-validation"):
        pegboard.load(whole)
    assert main(["eval", str(whole.folder / "fold-1"), "--split", "val", "--json"]) == 0
    measured = json.loads(capsys.readouterr().out)
    assert measured["val/loss"] == pytest.approx(whole.folds[1].figures["val/loss"], abs=1e-6)


def test_compare_looks_into_the_folds_and_shows_the_interval(
    config: Config, whole: pegboard.Run, root: Path, capsys: Capture
) -> None:
    shutil.copytree(whole.folder, root / "copy", symlinks=True)
    assert main(["compare", str(whole.folder), str(root / "copy")]) == 0
    other = pegboard.train(folded(config), "optimizer.lr=0.02", root=root, quiet=True)
    capsys.readouterr()
    assert main(["compare", str(whole.folder), str(other.folder)]) == 1
    shown = capsys.readouterr().out
    low, high = whole.summary["statistics"]["val/loss"]["interval"]
    assert f"(95 %: {low:.4g} to {high:.4g})" in shown and "fold-2/last" in shown
    assert "the first difference is at step 2" in shown


def test_trackers_hear_of_every_fold_and_of_the_means(config: Config, root: Path, tmp_path: Path) -> None:
    (tmp_path / "watching.py").write_text(WATCHING)
    given = folded(config, folds=2, epochs=1)
    given["plugins"] = {"local": [*given["plugins"]["local"], str(tmp_path / "watching.py")]}
    given["trackers"] = {"watch": {"path": str(tmp_path / "heard")}}
    run = pegboard.train(given, root=root, quiet=True)
    name = run.folder.name
    heard = [json.loads(line) for line in (tmp_path / "heard").read_text().splitlines()]
    assert heard == [
        ["start", f"{name}-fold-0", name, False],
        ["finish", "finished", run.folds[0].figures],
        ["start", f"{name}-fold-1", name, False],
        ["finish", "finished", run.folds[1].figures],
        ["start", name, name, False],
        ["finish", "finished", run.figures],
    ]
    pegboard.resume(run.folder.parent / "latest" / "fold-1", quiet=True)
    assert json.loads((tmp_path / "heard").read_text().splitlines()[6])[1:3] == [f"{name}-fold-1", name]
