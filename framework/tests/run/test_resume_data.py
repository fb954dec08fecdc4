"""A run goes on with the data that it began with, or says that it does not."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pegboard
import pytest
import torch
from pegboard import PegboardError
from pegboard.cli import main
from pegboard.engine.loop import Loop
from pegboard.tools import cross_validation

Config = Callable[..., dict[str, Any]]
TOYS = [str(Path(__file__).parents[1].joinpath(name)) for name in ("toy.py", "toy_rows.py")]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks at the curves, nor at what git says."""
    monkeypatch.setattr("pegboard.run.finish.draw_curves", lambda rows, path, *_: path)
    monkeypatch.setattr("pegboard.run.provenance.git_state", lambda: ({}, ""))


def rows(path: Path, shift: float = 0.0, count: int = 64) -> None:
    """Other points of the same classes for another shift."""
    x = torch.linspace(-1, 1, count)
    lines = (f"{a + shift:.4f} {1 - a:.4f} {i % 2}" for i, a in enumerate(x.tolist()))
    path.write_text("\n".join(lines))


@pytest.fixture
def killed(config: Config, root: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """A run on the file points.txt that ended after some updates without a word."""

    def make(*, stop: int = 6, stream: bool = False, trainer: dict[str, Any] | None = None) -> Path:
        rows(root.parent / "points.txt")
        data = {"name": "rows", "path": str(root.parent / "points.txt"), "stream": stream, "batch_size": 16}
        given = config(
            data=data,
            trainer={"epochs": 3, "device": "cpu", "diagnose": False} | (trainer or {}),
            plugins={"local": TOYS},
        )
        whole = Loop.save

        def save(self: Loop, *args: Any) -> None:
            if self.progress.step > stop:
                self.saver.settle()
                raise KeyboardInterrupt
            whole(self, *args)

        with monkeypatch.context() as patch:
            patch.setattr(Loop, "save", save)
            with pytest.raises(KeyboardInterrupt):
                pegboard.train(given, root=root, quiet=True)
        return (root / "run" / "latest").resolve()

    return make


def data_of(run: Path) -> dict[str, Any]:
    return dict(json.loads((run / "environment.json").read_text()))


def edit(run: Path, change: Callable[[dict[str, Any]], object]) -> None:
    found = data_of(run)
    change(found)
    (run / "environment.json").write_text(json.dumps(found))


@pytest.mark.parametrize("stream", [False, True], ids=["in memory", "read from disk"])
def test_other_data_is_refused_with_both_fingerprints(
    killed: Callable[..., Path], capsys: pytest.CaptureFixture[str], stream: bool
) -> None:
    run = killed(stream=stream)
    then = data_of(run)["data"]["fingerprint"]
    before = {p: p.read_bytes() for p in run.rglob("*") if p.is_file()}
    rows(run.parents[2] / "points.txt", shift=0.5)
    assert main(["resume", str(run), "--quiet"]) == 2
    said = capsys.readouterr().err
    assert f"the data is not that of the run {run}, which stands at step 4" in said
    assert f"fingerprint: {then} then, " in said and "--other-data" in said and "samples:" not in said
    assert then.startswith("spaced-") == stream
    after = {p: p.read_bytes() for p in run.rglob("*") if p.is_file()}
    assert after == before
    rows(run.parents[2] / "points.txt")  # as it was
    assert pegboard.resume(run, quiet=True).status == "finished"
    assert "other_data" not in data_of(run)


def test_data_that_is_meant_to_be_another_is_noted_with_its_step(
    killed: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    run = killed()
    then = data_of(run)["data"]
    rows(run.parents[2] / "points.txt", shift=0.5)
    assert pegboard.resume(run, quiet=True, other_data=True).status == "finished"
    assert "from step 4 on the run goes on with other data" in capsys.readouterr().err
    found = data_of(run)
    (change,) = found["other_data"]
    assert change["step"] == 4 and change["then"] == then == found["data"]
    assert change["now"]["fingerprint"] != then["fingerprint"]
    assert main(["compare", str(run), str(killed())]) == 1
    assert "likely cause: data (other data)" in capsys.readouterr().out
    rows(run.parents[2] / "points.txt", shift=0.5)
    pegboard.resume(run, quiet=True)  # the other data is that of the run by now
    assert len(data_of(run)["other_data"]) == 1
    rows(run.parents[2] / "points.txt")
    with pytest.raises(PegboardError, match="the data is not that of the run"):
        pegboard.resume(run, quiet=True)


def test_another_number_of_samples_is_told_where_there_is_no_fingerprint(
    killed: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    run = killed()
    edit(run, lambda e: e["data"].pop("fingerprint"))
    rows(run.parents[2] / "points.txt", shift=0.5)
    copy = shutil.copytree(run, run.with_name("copy"), symlinks=True)
    assert pegboard.resume(copy, quiet=True).status == "finished"  # as of an older version
    assert "has no fingerprint that the data can be compared by" in capsys.readouterr().err
    rows(run.parents[2] / "points.txt", count=63)
    with pytest.raises(PegboardError, match="train samples: 64 then, 63 now"):
        pegboard.resume(run, quiet=True)


@pytest.mark.parametrize(
    "data", [None, 3, "x", {"fingerprint": 5}, {"samples": [1]}, {"fingerprint": "old-1"}]
)
def test_a_record_of_another_form_is_told_and_the_run_goes_on(
    killed: Callable[..., Path], capsys: pytest.CaptureFixture[str], data: Any
) -> None:
    run = killed()
    edit(run, lambda e: e.update(data=data))
    assert pegboard.resume(run, quiet=True).status == "finished"
    assert "has no fingerprint that the data can be compared by" in capsys.readouterr().err


def test_a_run_without_a_checkpoint_is_compared_too(killed: Callable[..., Path]) -> None:
    run = killed()
    shutil.rmtree(run / "checkpoints")
    rows(run.parents[2] / "points.txt", shift=0.5)
    with pytest.raises(PegboardError, match="which stands at step 0"):
        pegboard.resume(run, quiet=True)


def test_folds_that_have_not_begun_are_not_trained_on_other_data(killed: Callable[..., Path]) -> None:
    fold = killed(stop=3, trainer={"folds": 2, "epochs": 1})
    run = fold.parent if fold.name.startswith("fold-") else fold
    shutil.rmtree(run / "fold-0")  # killed before the first one
    rows(run.parents[2] / "points.txt", shift=0.5)
    with pytest.raises(PegboardError, match="the data is not that of the run"):
        pegboard.resume(run, quiet=True)
    assert pegboard.resume(run, quiet=True, other_data=True).status == "finished"
    assert len(data_of(run)["other_data"]) == 1
    rows(run.parents[2] / "points.txt", shift=0.7)
    assert pegboard.resume(run, quiet=True).status == "finished"  # nothing is trained any more


def test_a_fold_that_was_cut_short_is_not_finished_on_other_data(killed: Callable[..., Path]) -> None:
    run = killed(stop=3, trainer={"folds": 2, "epochs": 2})
    assert (run / "fold-0" / "config.yaml").is_file() and cross_validation.fold_count(run) == 2
    rows(run.parents[2] / "points.txt", shift=0.5)
    with pytest.raises(PegboardError, match="the data is not that of the run"):
        pegboard.resume(run / "fold-0", quiet=True)


def test_what_a_spec_leaves_out_of_its_text_is_named_where_it_differs(
    killed: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    run = killed()
    for manifest in (run / "checkpoints").glob("step-*/manifest.json"):
        found = json.loads(manifest.read_text())
        found["spec"]["names"] = ["other"]
        manifest.write_text(json.dumps(found))
    words = ["resume", str(run), "trainer.epochs=4", *(word for toy in TOYS for word in ("--local", toy))]
    assert main([*words, "--quiet"]) == 2
    said = capsys.readouterr().err
    assert ", with other values: names ('other',) then, () now" in said
    for manifest in (run / "checkpoints").glob("step-*/manifest.json"):
        found = json.loads(manifest.read_text())
        found["spec"]["names"] = ["other"] * 20
        manifest.write_text(json.dumps(found))
    assert main([*words, "--quiet"]) == 2
    assert re.search(r"names \('other', .{40,50} \.\.\. then, \(\) now", capsys.readouterr().err)
    assert f"go on with: pegboard {' '.join(words)} --other-data" in said


def test_a_figure_that_is_no_number_is_measured_again(killed: Callable[..., Path]) -> None:
    run = killed()
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    changed = [{k: "/etc/passwd" if k.startswith("val/") else v for k, v in row.items()} for row in rows]
    assert changed != rows
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in changed))
    assert pegboard.resume(run, quiet=True).status == "finished"
