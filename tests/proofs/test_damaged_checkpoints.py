"""A damaged newest checkpoint is named, and the one before it used; damaged numbers are never used."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pegboard
import pytest
from pegboard.store import checkpoint
from proofs import LOCAL, cut_and_resumed, differences, plain, watched, whole

pytestmark = pytest.mark.usefixtures("lean")
CONFIG = plain(trainer={"epochs": 3, "log_every": 2, "save_every": 1, "keep": 2, "device": "cpu"})


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def forget_hashes(path: Path) -> None:
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps({**manifest, "sha256": {}}))


def mistake_hashes(path: Path) -> None:
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps({**manifest, "sha256": ["model.safetensors"]}))


DAMAGES = [
    *(
        (how, name)
        for how in (truncate, flip, empty, Path.unlink)
        for name in (checkpoint.WEIGHTS, checkpoint.STATE)
    ),
    *((how, checkpoint.MANIFEST) for how in (truncate, empty, Path.unlink, forget_hashes, mistake_hashes)),
]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A run that was not interrupted, and one that was and still has to be resumed."""
    folder = tmp_path_factory.mktemp("runs")
    reference, events = whole(CONFIG, folder / "whole")
    with watched(len(events) // 2), pytest.raises(pegboard.PegboardError, match="pegboard resume"):
        pegboard.train(CONFIG, root=folder / "cut", quiet=True)
    (cut,) = (folder / "cut").glob("*/2*")
    return reference, cut


@pytest.mark.parametrize(("how", "name"), DAMAGES, ids=lambda value: getattr(value, "__name__", value))
def test_the_one_before_a_damaged_checkpoint_is_used(
    how: Callable[[Path], None],
    name: str,
    runs: tuple[Path, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    reference, cut = runs
    run = tmp_path / "run"
    shutil.copytree(cut, run, symlinks=True)
    newest, before = checkpoint.history(run / "checkpoints")[:2]
    how(newest / name)
    resumed = pegboard.resume(run, quiet=True, local=LOCAL)
    said = capsys.readouterr().err
    assert str(newest) in said
    assert "trying the one before it" in said
    assert str(before) not in said
    assert differences(reference, resumed.folder) == []


def test_where_all_are_damaged_none_is_used(runs: tuple[Path, Path], tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(runs[1], run, symlinks=True)
    for place in checkpoint.history(run / "checkpoints"):
        flip(place / checkpoint.STATE)
    with pytest.raises(pegboard.PegboardError, match=re.escape(f"no checkpoint of {run} is whole")):
        pegboard.resume(run, quiet=True, local=LOCAL)


def test_a_checkpoint_that_was_complete_but_not_yet_named_is_found(
    runs: tuple[Path, Path], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(runs[1], run, symlinks=True)
    newest = checkpoint.history(run / "checkpoints")[0]
    for other in ("1.77", "2.78"):
        (newest.parent / f".step-0000000{other}").mkdir()
    newest.rename(newest.with_name(f".{newest.name}.12345"))  # killed between two operations of a save
    checkpoint.recover(run / "checkpoints")
    assert checkpoint.history(run / "checkpoints")[0] == newest
    resumed = pegboard.resume(run, quiet=True, local=LOCAL)
    assert differences(runs[0], resumed.folder) == []
    assert not list((run / "checkpoints").glob(".*"))


def test_links_that_a_killed_process_did_not_move_are_moved(runs: tuple[Path, Path], tmp_path: Path) -> None:
    """The best of all evaluations is that of the last checkpoint, and `best` still points elsewhere."""
    reference, _ = runs
    run = tmp_path / "run"
    shutil.copytree(reference, run, symlinks=True)
    state = checkpoint.read_state(run / "checkpoints" / "last")
    assert (run / "checkpoints" / "best").resolve().name == f"step-{state['progress']['best_step']:08d}"
    for link in ("last", "best"):
        (run / "checkpoints" / link).unlink()
    assert differences(reference, pegboard.resume(run, quiet=True, local=LOCAL).folder) == []


def test_an_evaluation_that_was_given_up_and_then_killed_is_measured_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference, events = whole(CONFIG, tmp_path / "whole")
    with watched(events.index("val")), pytest.raises(pegboard.PegboardError, match="resume"):
        pegboard.train(CONFIG, root=tmp_path / "cut", quiet=True)
    (run,) = (tmp_path / "cut").glob("*/2*")

    class Killed(BaseException):
        pass

    def die(*args: object) -> None:
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(checkpoint, "write", die)  # after the row was written
        pegboard.resume(run, quiet=True, local=LOCAL)
    resumed = pegboard.resume(run, quiet=True, local=LOCAL)
    assert differences(reference, resumed.folder) == []


def test_a_run_that_had_ended_can_be_resumed_and_stays_as_it_is(tmp_path: Path) -> None:
    reference, _ = whole(CONFIG, tmp_path / "one")
    again, events = whole(CONFIG, tmp_path / "two")
    assert differences(reference, pegboard.resume(again, quiet=True, local=LOCAL).folder) == []
    assert differences(reference, cut_and_resumed(CONFIG, tmp_path / "three", len(events) - 1)) == []
