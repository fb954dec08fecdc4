"""Where the package that draws is not installed: runs go on and say so once, commands say what to install."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pegboard
import pytest
from pegboard.cli import main
from pegboard.contract import drawing

HERE = Path(__file__).parents[1]
LOCAL = [w for name in ("toy.py", "toy_samples.py", "toy_texts.py") for w in ("--local", str(HERE / name))]
MISSING = "pictures are drawn by pegboard-plots, which is not installed\npip install pegboard-plots\n"
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def no_plots(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(drawing, "entry_points", lambda group: [])
    drawing.plots.cache_clear()
    yield
    drawing.plots.cache_clear()


def generating(**nodes: Any) -> dict[str, Any]:
    """A run that would draw samples while it trains and at its end, and what a probe measured."""
    return {
        "data": {"name": "bare", "batch_size": 16, "pictures": True},
        "model": "cloud",
        "optimizer": {"name": "plain", "lr": 0.05},
        "trainer": {"epochs": 2, "device": "cpu", "threads": 1, "sample_every": 1},
        "probes": {"drawing": {}},
        "plugins": {"local": LOCAL[1::2]},
    } | nodes


def test_a_run_goes_on_without_pictures_and_says_so_once(
    no_plots: None, tmp_path: Path, capfd: Capture
) -> None:
    run = pegboard.train(generating(), root=tmp_path)
    shown = "".join(capfd.readouterr())
    assert shown.count("pegboard-plots") == 1 and "Traceback" not in shown
    assert re.search(r"^curves +not drawn, nor is any picture: pip install pegboard-plots$", shown, re.M)
    assert not [*(run.folder / "figures").iterdir()]
    assert run.figures["drawing/train"] == 48
    assert "data:image/png" not in (run.folder / "report.html").read_text("utf-8")


def test_figures_are_those_of_a_run_with_pictures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_plots: None
) -> None:
    without = pegboard.train(generating(), root=tmp_path / "a", quiet=True)
    monkeypatch.undo()
    drawing.plots.cache_clear()
    drawn = pegboard.train(generating(), root=tmp_path / "b", quiet=True)
    names = {path.name for path in (drawn.folder / "figures").iterdir()}
    assert names == {"curves.png", "samples.png", "samples-0001.png", "samples-0002.png", "probe-drawing.png"}
    assert without.figures == drawn.figures


@pytest.mark.parametrize("words", [["-o", "grid.png"], []])
def test_a_picture_of_samples_says_what_to_install(
    words: list[str], no_plots: None, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = str(pegboard.train(generating(), root=tmp_path, quiet=True).folder)
    capsys.readouterr()
    monkeypatch.setattr(
        "pegboard.inference.sample_files.draw_samples", lambda *given: pytest.fail("samples were drawn")
    )
    assert main(["sample", run, *LOCAL, *words]) == 2
    assert capsys.readouterr().err.endswith(MISSING)
    monkeypatch.undo()
    assert main(["sample", run, *LOCAL, "-o", str(tmp_path / "samples.npy")]) == 0


@pytest.mark.parametrize(
    "words",
    [["show", "data", "letters", "--plot"], ["probe", "RUN", "drawing", "--plot"]],
    ids=lambda words: words[0],
)
def test_a_command_that_draws_says_what_to_install(
    words: list[str], no_plots: None, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = str(pegboard.train(generating(), root=tmp_path, quiet=True).folder) if "RUN" in words else ""
    capsys.readouterr()
    assert main([run if word == "RUN" else word for word in [*words, *LOCAL]]) == 2
    assert capsys.readouterr().err.endswith(MISSING)
    assert not [*tmp_path.glob("*.png")]


def test_what_draws_imports_neither_torch_nor_matplotlib_before_it_is_called() -> None:
    code = "import sys, pegboard_plots; print({'torch', 'numpy', 'matplotlib'} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "set()"
