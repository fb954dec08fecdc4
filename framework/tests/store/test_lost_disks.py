"""A full disk, a run folder that is gone and half characters are told in words that help."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pegboard
import pytest
import yaml
from pegboard import PegboardError
from pegboard.cli import main
from pegboard.engine.loop import Loop
from pegboard.store import checkpoint, save_errors
from safetensors import SafetensorError

Config = Callable[..., dict[str, Any]]
TOY = str(Path(__file__).parents[1].joinpath("toy.py"))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pegboard.run.finish.draw_curves", lambda rows, path, *more: path)
    monkeypatch.setattr("pegboard.run.provenance.git_state", lambda: ({}, ""))


def full(path: Path, *_: Any, **__: Any) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


TORCHS = "[enforce fail at inline_container.cc:664] . unexpected pos 12992 vs 12886"


@pytest.mark.parametrize(
    ("module", "name", "error"),
    [
        ("torch", "save", RuntimeError(TORCHS)),
        ("pegboard.store.checkpoint", "save_model", SafetensorError("I/O error: (os error 28)")),
    ],
)
def test_a_full_disk_says_what_is_saved_and_how_to_go_on(
    config: Config,
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    module: str,
    name: str,
    error: Exception,
) -> None:
    def fails(*args: Any, **kwargs: Any) -> None:
        raise error

    write, (place, _, _) = checkpoint._write, (module, name, error)

    def third(part: Path, model: Any, state: Any, manifest: Any) -> None:
        with monkeypatch.context() as patch:
            if manifest["step"] == 8:
                patch.setattr(f"{place}.{name}", fails)
                patch.setattr(Path, "write_bytes", full)
            write(part, model, state, manifest)

    (root.parent / "cfg.yaml").write_text(yaml.safe_dump(config()))
    monkeypatch.setattr(checkpoint, "_write", third)
    little = shutil._ntuple_diskusage(2**40, 2**40 - 5120, 5120)
    monkeypatch.setattr(save_errors.shutil, "disk_usage", lambda path: little)
    assert main(["train", str(root.parent / "cfg.yaml"), "--root", str(root), "--quiet"]) == 2
    said = capsys.readouterr().err
    assert (
        "cannot save step 8" in said and "the disk is full: No space left on device (5 KiB are free)" in said
    )
    assert "step 4 is saved whole; with room to write, go on with: pegboard resume" in said
    assert "inline_container" not in said and "os error" not in said
    monkeypatch.setattr(checkpoint, "_write", write)
    run = (root / "cfg" / "latest").resolve()
    assert pegboard.resume(run, quiet=True, local=[TOY]).status == "finished"


def test_a_full_disk_at_the_first_row_is_told_too(
    config: Config, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pegboard.store.run_folder.MetricsFile.write", full)
    with pytest.raises(PegboardError, match="the run stopped after step 4: the disk is full"):
        pegboard.train(config(), root=root, quiet=True)


def test_a_page_that_cannot_be_written_is_not_said_to_be_there(
    config: Config, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pegboard.train(config(), root=root)
    assert "\nreport      " in capsys.readouterr().out
    monkeypatch.setattr("pegboard.run.finish.write_report", full)
    pegboard.train(config(), root=root)
    told = capsys.readouterr()
    assert "report.html was not written: No space left on device" in told.out + told.err
    assert "\nreport      " not in told.out


def test_what_a_library_says_of_another_failure_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(save_errors.shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(1, 0, 2**40))
    error = save_errors.why_unwritten(tmp_path, RuntimeError("cannot write this"))
    assert (error.errno, error.strerror) == (errno.EIO, "cannot write this") and not list(tmp_path.iterdir())


@pytest.mark.parametrize("left", ["", "checkpoints"])  # what was written while it was being deleted
def test_a_run_folder_deleted_while_it_trains_is_told(
    config: Config, root: Path, monkeypatch: pytest.MonkeyPatch, left: str
) -> None:
    save = Loop.save

    def deleted(self: Loop, *args: Any) -> None:
        if self.progress.step == 8:
            self.saver.settle()
            shutil.rmtree(self.folder)
            if left:
                (self.folder / left).mkdir(parents=True)
        save(self, *args)

    monkeypatch.setattr(Loop, "save", deleted)
    with pytest.raises(
        PegboardError, match="is gone, and with it what was saved: step 8 cannot be saved"
    ) as told:
        pegboard.train(config(), root=root, quiet=True)
    assert "or train anew" in str(told.value) and "whole" not in str(told.value)
    assert not list((root / "run").glob("2*/*/*"))  # nothing of it comes back


@pytest.mark.parametrize("command", ["resume", "eval", "predict", "report", "sample"])
def test_a_link_to_a_run_that_is_gone_names_the_newest_that_is_left(
    config: Config, root: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    older = root / "run" / "20200101-000000-aaaaaa"
    older.mkdir(parents=True)
    (older / "config.yaml").write_text("")
    (root / "run" / "latest").symlink_to("20200102-000000-bbbbbb")
    assert main([command, str(root / "run" / "latest")]) == 2
    said = capsys.readouterr().err
    assert "latest points to 20200102-000000-bbbbbb, a run that is gone" in said
    assert f"the newest that is left: {older}" in said
    assert main([command, str(root / "run" / "nothing")]) == 2
    assert "no run" in capsys.readouterr().err


@pytest.mark.parametrize(
    "change",
    [{"name": "a\ud800"}, {"data": {"name": "poi\udcffnts"}}, {"model": {"\ud800": 3, "name": "net"}}],
)
def test_half_characters_in_a_config_are_mistakes(
    config: Config, change: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(PegboardError, match="half of a character") as told:
        pegboard.plan(config(**change))
    str(told.value).encode()  # can be written anywhere


def test_half_characters_written_in_yaml_or_on_the_command_line_are_mistakes(
    config: Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "cfg.yaml"
    path.write_text(yaml.safe_dump(config()) + 'name: "a\\ud800"\n')
    assert main(["check", str(path)]) == 2
    assert "half of a character" in capsys.readouterr().err
    path.write_text(yaml.safe_dump(config()))
    for word in ("name=\udcff", "data.name=\ud800x", "model.\udcff=3"):
        assert main(["check", str(path), word]) == 2
        capsys.readouterr().err.encode()


def test_a_folder_that_is_no_utf8_holds_a_run(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    odd.mkdir()
    monkeypatch.chdir(odd)
    done = pegboard.train(config(), root=odd / "runs", quiet=True)
    assert done.status == "finished" and (done.folder / "report.html").is_file()
    assert main(["report", str(done.folder)]) == 0


def test_a_checkpoint_that_was_being_removed_does_not_count_as_saved(tmp_path: Path) -> None:
    for name in (".old-step-00000040", ".step-00000020.7", "step-00000010"):
        (tmp_path / "checkpoints" / name).mkdir(parents=True)
        (tmp_path / "checkpoints" / name / "manifest.json").write_text("{}")
    error = OSError(errno.EIO, os.strerror(errno.EIO))
    assert "step 20 is saved whole" in save_errors.not_saved(tmp_path / "checkpoints", 50, error, "resume")
