"""SIGTERM and Ctrl-C end a command in good order; a second Ctrl-C ends it at once."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import kills
import pegboard
import pytest
import yaml
from pegboard.cli import main
from proofs import LOCAL, differences, plain, watched, whole
from sessions import ended, journal_reaches, started
from sweeps import first_of_each_row

LATE = """
import atexit, os, signal
from pegboard import hookimpl

@hookimpl
def pegboard_models():
    return []

class Late:
    def __del__(self):  # while Python takes its modules apart
        os.kill(os.getpid(), signal.SIGHUP)

late = Late()
atexit.register(os.kill, os.getpid(), signal.SIGHUP)
"""


def prepare(folder: Path, local: tuple[str, ...] = (), **journal: Any) -> None:
    given = {**kills.CONFIG, "plugins": {"local": [*kills.LOCAL, *local]}}
    given["regularizers"] = {**kills.CONFIG["regularizers"], "journal": journal}
    given["trainer"] = {**kills.CONFIG["trainer"], "save_every": 10}
    (folder / "config.yaml").write_text(yaml.safe_dump(given))


CODES = [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)]


@pytest.mark.parametrize(("number", "code"), first_of_each_row(CODES))
def test_a_signal_finishes_the_update_saves_and_says_how_to_go_on(
    number: signal.Signals, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(tmp_path, pause=0.02)
    process = started(["train", "config.yaml", "--quiet"], tmp_path)
    journal_reaches(tmp_path, 7)
    process.send_signal(number)
    found, said = ended(process)
    assert found == code
    run = kills.run_folder(tmp_path)
    assert run is not None
    made = kills.journal(tmp_path)[-1][1]
    (line,) = said.splitlines()
    expected = f"stopped by a signal after step {made}, saved; go on with: pegboard resume"
    assert line.startswith(expected)
    assert kills.newest(run) == made
    assert pegboard.Run(run).status == "interrupted"
    monkeypatch.chdir(tmp_path)  # the journal is written where a run is started
    resumed = pegboard.resume(run, quiet=True, local=kills.LOCAL)
    prepare(tmp_path)  # without the pauses, which change nothing
    whole = pegboard.train(tmp_path / "config.yaml", f"regularizers.journal.path={tmp_path}/whole.txt",
                           root=tmp_path / "whole", quiet=True)  # fmt: skip
    assert differences(whole.folder, resumed.folder) == []


@pytest.mark.sweep
def test_a_terminal_that_goes_away_ends_the_run_with_its_last_update_saved(tmp_path: Path) -> None:
    (tmp_path / "late.py").write_text(LATE)  # a machine under load has time for more of them at the end
    prepare(tmp_path, ("late.py",), pause=0.02)
    ours, theirs = os.openpty()
    streams = {"stdin": theirs, "stdout": theirs, "stderr": theirs, "start_new_session": True}
    process = started(["train", "config.yaml"], tmp_path, **streams)
    os.close(theirs)
    journal_reaches(tmp_path, 7)
    os.close(ours)  # from now on nothing can be written any more
    for _ in range(3):  # the shell passes on what the kernel has said already
        process.send_signal(signal.SIGHUP)
        time.sleep(0.05)
    assert process.wait(60) == 129
    run = kills.run_folder(tmp_path)
    assert run is not None
    assert kills.newest(run) == kills.journal(tmp_path)[-1][1]
    assert pegboard.Run(run).status == "interrupted"


@pytest.mark.sweep
def test_under_nohup_a_terminal_may_go_away(tmp_path: Path) -> None:
    prepare(tmp_path, pause=0.01)
    process = started(["train", "config.yaml", "--quiet"], tmp_path, hangup=signal.SIG_IGN)
    journal_reaches(tmp_path, 7)
    process.send_signal(signal.SIGHUP)
    assert ended(process) == (0, "")
    run = kills.run_folder(tmp_path)
    assert run is not None
    assert pegboard.Run(run).status == "finished"


def test_a_system_without_hangups_has_the_other_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    from pegboard.run.interruption import ending_signals

    monkeypatch.delattr(signal, "SIGHUP")
    assert ending_signals() == [signal.SIGINT, signal.SIGTERM]


@pytest.mark.sweep
def test_a_second_interrupt_leaves_at_once_with_the_last_checkpoint_whole(tmp_path: Path) -> None:
    prepare(tmp_path, stall_at=15, stall=60.0)
    process = started(["train", "config.yaml", "--quiet"], tmp_path)
    journal_reaches(tmp_path, 15)
    time.sleep(0.5)  # until it is in the update that stalls
    process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    assert process.poll() is None  # it waits for the update to end
    process.send_signal(signal.SIGINT)
    code, said = ended(process, 20)
    assert code == 130
    assert said.strip() == "left at once; the last checkpoint is whole"
    run = kills.run_folder(tmp_path)
    assert run is not None
    assert kills.newest(run) == 10


@pytest.mark.usefixtures("lean", "only_traced")
def test_a_signal_inside_a_call_of_a_graph_ends_the_run_where_the_call_ends(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trainer = {"epochs": 3, "device": "cpu", "compile": "step", "steps_per_call": 64}
    given = plain(data={"name": "partner", "batch_size": 2}, trainer=trainer)  # 16 updates an epoch
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(given))
    with watched(cut=5):
        assert main(["train", f"{tmp_path}/config.yaml", "--root", str(tmp_path), "--quiet"]) == 143
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("stopped by a signal after step 16, saved; go on with: pegboard resume")
    (run,) = tmp_path.glob("config/2*")
    assert kills.newest(run) == 16
    resumed = pegboard.resume(run, quiet=True, local=LOCAL)
    assert differences(whole(given, tmp_path / "whole")[0], resumed.folder) == []
