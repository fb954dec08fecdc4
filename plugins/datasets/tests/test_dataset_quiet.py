"""Reading files shows bars to a person and none in a quiet run."""

from __future__ import annotations

import io
import logging
from pathlib import Path

import datasets
import pegboard
import pytest
from pegboard.cli import main


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")  # so that all is read anew
    Path("rows.csv").write_text("a,b,label\n" + "0.1,0.2,x\n0.3,0.1,y\n" * 20)
    Path("cfg.yaml").write_text(
        "data: {name: hub, path: rows.csv, batch_size: 8, inputs: {a: {}, b: {}}, target: {column: label}}\n"
        "model: {name: mlp, hidden: [4]}\noptimizer: {name: sgd, lr: 0.1}\n"
        "trainer: {epochs: 1, device: cpu}\n"
    )
    return "cfg.yaml"


@pytest.mark.parametrize("quiet", [True, False])
def test_a_quiet_run_shows_no_bar_of_another_library(
    config: str, quiet: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", config, *(["--quiet"] if quiet else [])]) == 0
    told = capfd.readouterr()
    assert ("Generating" in told.err) != quiet
    assert not quiet or (told.out, told.err) == ("", "")
    assert datasets.is_progress_bar_enabled()


def test_quiet_holds_for_the_python_function(config: str, capfd: pytest.CaptureFixture[str]) -> None:
    pegboard.train(config, quiet=True)
    assert capfd.readouterr().err == ""


def test_a_file_that_cannot_be_read_is_told_once(config: str, capfd: pytest.CaptureFixture[str]) -> None:
    Path("rows.csv").write_text("a,b,label\n1,2,x\n1,2,3,4,5\n")
    shown = io.StringIO()
    handler = logging.StreamHandler(shown)  # as the one of the library, which has the stream of its import
    logging.getLogger("datasets").addHandler(handler)
    try:
        assert main(["train", config, "--quiet"]) == 2
        assert shown.getvalue() == "" and handler.filters == []
    finally:
        logging.getLogger("datasets").removeHandler(handler)
    told = capfd.readouterr().err
    assert told.startswith("1 mistake in config 'cfg'") and told.count("Expected 3 fields in line 3") == 1
