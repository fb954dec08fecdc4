"""A reader that leaves, a terminal that goes away and letters that no encoding has end nothing."""

from __future__ import annotations

import errno
import io
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from pegboard.report.console import Console

Config = Callable[..., dict[str, Any]]


def code_without_reader(words: Sequence[str], folder: Path) -> tuple[int, str]:
    """Exit code and standard error of a command whose output nobody reads."""
    read, written = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pegboard", *words],
            cwd=folder,
            stdout=written,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": ""},
        )
    finally:
        os.close(written)
    return done.returncode, done.stderr


@pytest.mark.parametrize("words", ["show", "--help", "show trainer", "--version", "schema", "plugins list"])
def test_a_closed_pipe_changes_no_exit_code(tmp_path: Path, words: str) -> None:
    assert code_without_reader(words.split(), tmp_path) == (0, "")


def test_a_run_outlives_the_reader_of_its_output(tmp_path: Path, config: Config) -> None:
    (tmp_path / "cfg.yaml").write_text(yaml.safe_dump(config()))
    assert code_without_reader(["train", "cfg.yaml"], tmp_path) == (0, "")
    assert '"finished"' in (tmp_path / "runs/cfg/latest/summary.json").read_text()


class Gone(io.StringIO):
    """A stream whose other end is gone."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number

    def write(self, text: str) -> int:
        raise OSError(self.number, os.strerror(self.number))


@pytest.mark.parametrize("number", [errno.EPIPE, errno.EIO])
def test_a_console_without_a_terminal_is_silent(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Gone(number))
    console = Console(stream=Gone(number))
    console.say("text")
    console.warn("text")
    console.table("title", ["a"], [[1]])
    console.start(3)
    console.advanced(3)
    console.stop()


def test_a_full_disk_is_no_reader_that_left() -> None:
    with pytest.raises(OSError, match="No space left"):
        Console(stream=Gone(errno.ENOSPC)).say("text")


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "cp1252"])
def test_a_console_shows_what_its_encoding_has_no_letters_for(encoding: str) -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding, write_through=True)
    Console(stream=stream).say("lone \udc80, ä and 名")
    said = raw.getvalue().decode(encoding)
    assert said.startswith("lone \\udc80") and said.endswith("\n")
    assert (r"\u540d" in said) == (encoding != "utf-8")
