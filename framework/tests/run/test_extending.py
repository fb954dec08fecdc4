"""A run goes on to another length as if it had been asked for so from the beginning, or says what differs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pegboard
import pytest
import yaml
from pegboard import PegboardError
from pegboard.cli import main
from pegboard.engine.loop import Loop

Config = Callable[..., dict[str, Any]]
TOY = str(Path(__file__).parents[1].joinpath("toy.py"))


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    """Nobody looks at the curves, nor at what git says."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pegboard.run.finish.draw_curves", lambda rows, path, *more: path)
        patch.setattr("pegboard.run.provenance.git_state", lambda: ({}, ""))
        yield


def longer(config: Config, schedule: Any = None, **trainer: Any) -> dict[str, Any]:
    """A run of 4 updates an epoch, with random numbers in every one of them."""
    return config(
        regularizers={"drop": {"p": 0.3}},
        optimizer={"name": "plain", "lr": 0.1, "momentum": 0.9, "schedule": schedule},
        trainer={"device": "cpu", "threads": 1, "log_every": 3, "diagnose": False} | trainer,
    )


def outcome(run: pegboard.Run | Path) -> dict[str, Any]:
    """What has to be the same to the byte: weights, state, history, figures, config."""
    folder = run.folder if isinstance(run, pegboard.Run) else run
    found: dict[str, Any] = {
        f"{name}/{file}": (folder / "checkpoints" / name / file).read_bytes()
        for name in ("best", "last")
        for file in ("model.safetensors", "state.pt")
    }
    done = pegboard.Run(folder)
    found |= {"rows": done.history, "config": yaml.safe_load((folder / "config.yaml").read_text())}
    return found | {name: done.summary[name] for name in ("status", "steps", "best_step", "best", "figures")}


HALVE = {"name": "halve", "every": 5}
LENGTHS = [
    ({"epochs": 2}, "trainer.epochs=5", {"epochs": 5}),
    ({"steps": 6, "log_every": 2}, "trainer.steps=19", {"steps": 19, "log_every": 2}),
    ({"epochs": 9, "steps": 8}, "trainer.steps=20", {"epochs": 9, "steps": 20}),
]


@pytest.mark.parametrize(("first", "word", "whole"), LENGTHS, ids=["epochs", "steps", "the first of both"])
def test_a_finished_run_goes_on_as_if_it_had_been_asked_for_so(
    config: Config, root: Path, first: dict[str, Any], word: str, whole: dict[str, Any]
) -> None:
    run = pegboard.train(longer(config, HALVE, **first), root=root, quiet=True)
    more = pegboard.train(longer(config, HALVE, **first), word, root=root, quiet=True, from_run=run)
    resumed = pegboard.resume(run, quiet=True, overrides=[word])
    wanted = outcome(pegboard.train(longer(config, HALVE, **whole), root=root / "whole", quiet=True))
    for found in (outcome(resumed), outcome(more)):
        if first == {"steps": 6, "log_every": 2}:  # it was evaluated once more, where it ended
            assert {row["step"] for row in found["rows"]} == {row["step"] for row in wanted["rows"]}
            found, expected = (o | {"rows": [r for r in o["rows"] if r["step"] > 8]} for o in (found, wanted))
        else:
            expected = wanted
        assert [name for name in expected if found[name] != expected[name]] == []
    assert resumed.folder == run.folder != more.folder


@pytest.mark.parametrize("new", [False, True], ids=["resume", "train --from"])
def test_an_unfinished_run_is_extended_too(
    config: Config, root: Path, monkeypatch: pytest.MonkeyPatch, new: bool
) -> None:
    given = longer(config, HALVE, epochs=4, save_every=2)
    with monkeypatch.context() as patch:
        save = Loop.save

        def killed(self: Loop, *args: Any) -> None:
            save(self, *args)
            if self.progress.step == 6:  # inside the second epoch
                self.saver.settle()
                raise KeyboardInterrupt

        patch.setattr(Loop, "save", killed)
        with pytest.raises(KeyboardInterrupt):
            pegboard.train(given, root=root, quiet=True)
    run = (root / "run" / "latest").resolve()
    word = "trainer.epochs=7"
    if new:
        done = pegboard.train(given, word, root=root, quiet=True, from_run=run)
    else:
        done = pegboard.resume(run, quiet=True, overrides=[word])
    wanted = outcome(pegboard.train(given, word, root=root / "whole", quiet=True))
    found = outcome(done)
    assert [name for name in wanted if found[name] != wanted[name]] == []


@pytest.fixture(scope="module")
def finished(config: Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    given = longer(config, HALVE, epochs=2)
    return pegboard.train(given, root=tmp_path_factory.mktemp("finished"), quiet=True).folder


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run", symlinks=True))


def test_the_folder_says_what_was_changed_and_when(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weights = (run / "checkpoints" / "step-00000008" / "model.safetensors").read_bytes()
    words = ["trainer.epochs=3", "trainer.log_every=1", "--local", TOY]
    assert main(["resume", str(run), *words]) == 0
    said = capsys.readouterr()
    assert "extended    from 8 to 12 updates, as if asked for from the beginning" in said.out
    assert "changed after the run began" not in said.err
    environment = json.loads((run / "environment.json").read_text())
    assert environment["changes"] == [
        {
            "step": 8,
            "changed": {"trainer.epochs": [2, 3], "trainer.log_every": [3, 1]},
            "updates": [8, 12],
            "exact": True,
        }
    ]
    saved = yaml.safe_load((run / "config.yaml").read_text())["trainer"]
    assert (saved["epochs"], saved["log_every"]) == (3, 1)
    origins = json.loads((run / "origins.json").read_text())
    assert origins["trainer.epochs"] == "command line, 'trainer.epochs=3'"
    assert "12" in (run / "plan.txt").read_text() and (run / "checkpoints/step-00000008").is_dir()
    assert (run / "checkpoints/step-00000008/model.safetensors").read_bytes() == weights
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps = [row["step"] for row in rows]
    assert steps == sorted(steps) and steps[-1] == 12 and sum("test/loss" in row for row in rows) == 1
    assert main(["resume", str(run), "--quiet", "--local", TOY]) == 0  # as any finished run
    assert "changed after" not in capsys.readouterr().err


def test_a_new_folder_says_where_it_comes_from_and_leaves_that_alone(run: Path, config: Config) -> None:
    before = {p: p.read_bytes() for p in run.rglob("*") if p.is_file()}
    given = longer(config, HALVE, epochs=3) | {"name": "other"}
    done = pegboard.train(given, root=run.parent / "runs", quiet=True, from_run=run)
    assert {p: p.read_bytes() for p in run.rglob("*") if p.is_file()} == before
    environment = json.loads((done.folder / "environment.json").read_text())
    assert environment["from"] == {"run": "run", "step": 8} and environment["changes"][0]["exact"]
    assert done.folder.parent.name == "other" and done.summary["steps"] == 12


def kept(run: Path) -> dict[Path, bytes]:
    return {p: p.read_bytes() for p in run.rglob("*") if p.is_file()}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["optimizer.lr=0.5", "seed=4"],
            ["optimizer.lr: 0.1 so far, 0.5", "seed: 3 so far, 4", "model.weights="],
        ),
        (
            ["regularizers.drop=null"],
            ["regularizers.drop.p: 0.3 so far, none", "the updates so far were made"],
        ),
        (["data.batch_size=8"], ["data.batch_size: 16 so far, 8 asked for"]),
        (["trainer.precision=bf16"], ["it decides how numbers are rounded"]),
        (["trainer.monitor=val/loss"], ["by it the best checkpoint so far was chosen"]),
        (["name=x"], ["the folder of the run is called by it"]),
        (["trainer.folds=3"], ["it says which samples train"]),
        (["data.count=32"], ["the data is not that of the run", "train samples: 64 then, 32 now"]),
        (["trainer.epochs=1"], ["has made 8 updates", "asks for 4: a run is not made shorter"]),
        (["trainer.steps=20"], ["asks for no more", "null leaves it to the other"]),
        (["trainer.epochs=0"], ["expected a whole number (at least 1)"]),
        (["trainer.epoch=9"], ["did you mean 'epochs'"]),
    ],
)
def test_what_cannot_change_is_refused_with_the_reason(
    run: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: list[str]
) -> None:
    before = kept(run)
    assert main(["resume", str(run), *words, "--quiet", "--local", TOY]) == 2
    told = capsys.readouterr().err
    assert all(text in told for text in said), told
    assert kept(run) == before


def test_what_leaves_no_trace_in_the_weights_may_change(run: Path, tmp_path: Path) -> None:
    note = tmp_path / "note"
    words = [
        f"trackers.note.path={note}",
        "trainer.diagnose=true",
        "trainer.keep=5",
        "data.eval_batch_size=7",
    ]
    weights = (run / "checkpoints/last/model.safetensors").read_bytes()
    done = pegboard.resume(run, quiet=True, local=[TOY], overrides=words)
    assert (run / "checkpoints/last/model.safetensors").read_bytes() == weights
    assert done.diagnosis and note.is_file()


def shrinking(config: Config, **trainer: Any) -> dict[str, Any]:
    given = longer(config, {"name": "down"}, **trainer)
    return given | {"plugins": {"local": [TOY, str(Path(__file__).parents[1].joinpath("toy_lengths.py"))]}}


def test_a_schedule_that_depends_on_the_length_is_refused_unless_it_is_meant(
    config: Config, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = pegboard.train(shrinking(config, epochs=2), root=root, quiet=True)
    before = kept(run.folder)
    for words in (["resume", str(run.folder)],):
        assert main([*words, "trainer.epochs=4", "--quiet"]) == 2
    told = capsys.readouterr().err
    assert "cannot go on from 8 to 16 updates as if asked for from the beginning" in told
    assert "step 1 had the factor 0.875, and in a run of 16 updates has 0.9375" in told
    assert "the factor goes from 0.125 at step 7 to 0.5 at step 8" in told and "--inexact" in told
    with pytest.raises(PegboardError, match="optimizer.schedule depends on the length"):
        pegboard.train(shrinking(config, epochs=4), root=root, quiet=True, from_run=run)
    assert kept(run.folder) == before
    done = pegboard.resume(run, quiet=True, overrides=["trainer.epochs=4"], inexact=True)
    assert "not as if asked for from the beginning" in capsys.readouterr().err
    assert done.summary["steps"] == 16 and done.history[-2]["lr"] == pytest.approx(0.1 * 1 / 16)
    environment = json.loads((run.folder / "environment.json").read_text())
    assert environment["changes"][0]["exact"] is False


def test_a_part_that_asks_for_the_length_of_the_run_is_named(config: Config, root: Path) -> None:
    given = shrinking(config, epochs=2)
    given["optimizer"].pop("schedule")
    given["regularizers"]["length"] = {}
    run = pegboard.train(given, root=root, quiet=True)
    with pytest.raises(PegboardError, match="length was built for a run of 8 updates, and asks how many"):
        pegboard.resume(run, quiet=True, overrides=["trainer.epochs=3"])


def test_a_run_that_a_trick_has_ended_is_not_extended(config: Config, root: Path) -> None:
    given = longer(config, epochs=6)
    given["regularizers"]["patience"] = {"evaluations": 2}
    run = pegboard.train(given, root=root, quiet=True)
    assert run.status == "stopped"
    with pytest.raises(PegboardError, match="was ended at step 8 by patience: .* would have ended there too"):
        pegboard.resume(run, quiet=True, overrides=["trainer.epochs=9"])


def test_a_trick_that_saw_an_evaluation_more_is_named(config: Config, root: Path) -> None:
    given = longer(config, epochs=3, eval_every=2)
    run = pegboard.train(given, root=root, quiet=True)
    pegboard.resume(run, quiet=True, overrides=["trainer.epochs=4"])  # weights are the same
    given["regularizers"]["patience"] = {"evaluations": 9}
    run = pegboard.train(given, root=root, quiet=True)
    with pytest.raises(PegboardError, match="patience saw the evaluation at step 12, where the run ended"):
        pegboard.resume(run, quiet=True, overrides=["trainer.epochs=4"])


@pytest.mark.parametrize("unfinished", [False, True])
def test_all_folds_are_extended_together(
    config: Config, root: Path, capsys: pytest.CaptureFixture[str], unfinished: bool
) -> None:
    given = longer(config, HALVE, epochs=1, folds=2)
    run = pegboard.train(given, root=root, quiet=True)
    if unfinished:
        shutil.rmtree(run.folder / "fold-1")
        (run.folder / "summary.json").unlink()
    with pytest.raises(
        PegboardError, match="one of the 2 folds of a cross-validation, which are changed together"
    ):
        pegboard.resume(run.folder / "fold-0", quiet=True, overrides=["trainer.epochs=2"])
    with pytest.raises(PegboardError, match="which go on in their own folders: pegboard resume"):
        pegboard.train(given, "trainer.epochs=2", root=root, quiet=True, from_run=run)
    pegboard.resume(run, overrides=["trainer.epochs=2"])
    assert "fold-0 from step 3" in capsys.readouterr().out
    whole = pegboard.train(given, "trainer.epochs=2", root=root / "whole", quiet=True)
    for one, other in zip(run.folds, whole.folds, strict=True):
        found, wanted = outcome(one), outcome(other)
        assert [name for name in wanted if found[name] != wanted[name]] == []
    assert run.figures == whole.figures and run.status == "finished"


def test_an_extension_that_is_killed_goes_on(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Loop, "run", lambda self: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            pegboard.resume(run, quiet=True, local=[TOY], overrides=["trainer.epochs=3"])
    assert pegboard.Run(run).status == "interrupted"
    assert pegboard.resume(run, quiet=True, local=[TOY]).summary["steps"] == 12


def test_what_is_no_run_to_go_on_from_is_said(config: Config, root: Path, run: Path) -> None:
    with pytest.raises(PegboardError, match="no run at"):
        pegboard.train(longer(config), root=root, quiet=True, from_run=run / "nothing")
    shutil.rmtree(run / "checkpoints")
    with pytest.raises(PegboardError, match="has no checkpoint to go on from"):
        pegboard.train(longer(config, HALVE, epochs=3), root=root, quiet=True, from_run=run)
