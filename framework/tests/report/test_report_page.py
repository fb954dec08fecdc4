"""The page of a run: one file that says what came of it, whatever the run folder holds."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import fitted_parts as fitted
import pegboard
import pytest
from pegboard.base import files
from pegboard.cli import main
from pegboard.store.run_reader import write_report

FITTED = str(fitted.__file__)


class Page(HTMLParser):
    """The tags, the text and the addresses of a page; a tag that is not closed is noted."""

    VOID = ("meta", "img", "br")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.addresses: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.addresses += [str(value) for name, value in attrs if name in ("src", "href")]
        self.open += [tag] if tag not in self.VOID else []

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def read(path: Path) -> Page:
    page = Page(path.read_text("utf-8"))
    assert not page.open and "script" not in page.tags
    assert all(address.startswith("data:image/png;base64,") for address in page.addresses)
    return page


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> pegboard.Run:
    config = {
        "name": "waves",
        "data": {"name": "wave", "batch_size": 30},
        "model": {"name": "line"},
        "optimizer": {"name": "plain", "lr": 0.5},
        "objective": {"name": "squares"},
        "reference": "exact",
        "trainer": {"epochs": 2, "device": "cpu", "threads": 1},
        "plugins": {"local": [str(Path(__file__).parents[1].joinpath("toy.py")), FITTED]},
    }
    return pegboard.train(config, root=tmp_path_factory.mktemp("runs"), quiet=True)


def test_a_run_ends_with_a_page_that_needs_nothing_else(run: pegboard.Run) -> None:
    page = read(run.folder / "report.html")
    assert len(page.addresses) == 1  # the curves, in the page itself
    assert run.diagnosis["verdict"] in page.text and run.diagnosis["rule"] in page.text
    for figure in (run.figures["test/loss"], run.reference["optimum"], run.reference["figures"]["test/loss"]):
        assert f"{figure:.4g}" in page.text
    for text in ("finished", "test, optimum", "mean |f(x) - y|^2", "Predictions", "name: waves", "torch"):
        assert text in page.text
    assert (run.folder / "plan.txt").read_text() in page.text
    assert f"pegboard eval {run.folder}" in page.text and f"--local {FITTED}" in page.text
    assert page.text.index("fine") < page.text.index("Figures")  # the verdict comes first
    style = (run.folder / "report.html").read_text()
    assert "prefers-color-scheme: dark" in style and 'name="viewport"' in style


def test_the_command_writes_the_same_page_from_the_folder(
    run: pegboard.Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    page = run.folder / "report.html"
    before = page.read_bytes()
    page.unlink()
    assert main(["report", str(run.folder)]) == 0
    assert capsys.readouterr().out.strip() == str(page) and page.read_bytes() == before
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    assert main(["report", str(run.folder), "--open"]) == 0
    assert opened == [page.resolve().as_uri()]


def test_what_a_folder_holds_is_shown_and_never_executed(run: pegboard.Run, tmp_path: Path) -> None:
    evil = "<script>alert('x')</script>\"'&"
    folder = tmp_path / "run"
    (folder / "figures").mkdir(parents=True)
    (folder / "config.yaml").write_text(f"name: {json.dumps(evil)}\n")
    (folder / "plan.txt").write_text(evil)
    (folder / "tables.json").write_text(json.dumps({evil: {"columns": [evil], "rows": [[evil]]}}))
    figures = {f"{evil}/loss": evil, "val/loss": [evil], "test/loss": {evil: evil}}
    judged = {"verdict": evil, "rule": evil, "gap": evil}
    reference = {"name": evil, "formula": evil, "error": evil, "gap": evil, "figures": {evil: evil}}
    summary: dict[str, Any] = {"status": evil, "why": evil, "figures": figures, "diagnosis": judged}
    (folder / "summary.json").write_text(json.dumps({**summary, "reference": reference}))
    page = read(write_report(folder))
    assert page.text.count("alert") > 8
    for wrong in (
        {"figures": 3, "diagnosis": [1], "reference": "x", "steps": "y"},
        {"diagnosis": {"rule": 3}},
    ):
        (folder / "summary.json").write_text(json.dumps(wrong))
        (folder / "tables.json").write_text(
            '{"a": 3, "b": {"columns": 1}, "c": {"columns": [], "rows": [1]}}'
        )
        read(write_report(folder))
    (folder / "summary.json").unlink()
    assert "unfinished" in read(write_report(folder)).text


def test_links_in_a_folder_from_a_stranger_are_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text("name: linked\n")
    (tmp_path / "mine").write_text("kept")
    for name in ("report.html", files.beside(Path("report.html")).name):
        (tmp_path / "run" / name).symlink_to(tmp_path / "mine")
    made = write_report(tmp_path / "run")
    assert (tmp_path / "mine").read_text() == "kept" and not made.is_symlink()
    assert "linked" in read(made).text


def test_a_large_table_is_cut(run: pegboard.Run, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("name: large\n")
    table = {"columns": [f"c{i}" for i in range(300)], "rows": [list(range(300))] * 500}
    (tmp_path / "tables.json").write_text(json.dumps({"confusion": table}))
    text = write_report(tmp_path).read_text()
    assert "500 rows of 300 columns, cut here" in text and len(re.findall("<tr>", text)) < 250


def test_the_command_needs_no_torch_and_names_a_folder_that_is_no_run(
    run: pegboard.Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = (
        "import sys; from pegboard.store.run_reader import write_report; before = 'jinja2' in sys.modules; "
        f"write_report({str(run.folder)!r}); print(before, 'jinja2' in sys.modules, 'torch' in sys.modules)"
    )
    shown = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert shown.split() == ["False", "True", "False"]  # the template's library comes with the first page
    assert main(["report", str(tmp_path)]) == 2
    assert "is not a run folder" in capsys.readouterr().err


def test_the_page_names_the_split_and_size_of_what_it_shows(run: pegboard.Run) -> None:
    page = read(run.folder / "report.html")
    samples = json.loads((run.folder / "environment.json").read_text())["data"]["samples"]
    for split, words in (("train", "train (training)"), ("test", "test")):
        assert re.search(rf"{re.escape(words)}\s*{samples[split]}", page.text)
    assert "Predictions, test split" in page.text
    assert "The training loss is the mean over the steps" in page.text


def test_a_dark_page_has_no_white_chart(run: pegboard.Run) -> None:
    text = (run.folder / "report.html").read_text()
    dark = "".join(re.findall(r"prefers-color-scheme: dark\) \{(.*?\n)\}", text, re.S))
    assert re.search(r"img\.chart \{[^}]*invert", dark)
    assert '<img class="chart" alt="curves"' in text


@pytest.mark.parametrize("holds", ["points", "picture"])
def test_a_dark_page_inverts_figures_that_hold_no_picture(tmp_path: Path, holds: str) -> None:
    from pegboard_plots import draw_figure

    def draw(figure: Any) -> None:
        axes = figure.add_subplot()
        axes.scatter([0, 1], [1, 0]) if holds == "points" else axes.imshow([[0, 1]])

    (tmp_path / "config.yaml").write_text("name: a\n")
    (tmp_path / "figures").mkdir()
    draw_figure(tmp_path / "figures" / "samples.png", "a", draw)
    draw_figure(tmp_path / "samples.svg", "a", draw)  # a format that takes other notes
    text = write_report(tmp_path).read_text()
    assert ('<img class="chart" alt="samples"' in text) == (holds == "points")


def test_the_panel_of_losses_says_which_tricks_act_on_the_training_loss(tmp_path: Path) -> None:
    from matplotlib.figure import Figure
    from pegboard_plots import draw_curves

    drawn: list[Figure] = []
    keep = Figure.savefig
    rows = [{"step": i, "train/loss": 1.0, "val/loss": 2.0, "val/accuracy": 0.5} for i in (1, 2)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", lambda self, *a, **k: (drawn.append(self), keep(self, *a, **k)))
        draw_curves(rows, tmp_path / "a.png", "a", ["dropout", "label_smoothing"])
    labels = {axes.get_title(): axes.get_xlabel() for axes in drawn[0].axes}
    assert "dropout, label_smoothing" in " ".join(labels["loss"].split()) and "objective" in labels["loss"]
    assert labels["accuracy"] == "step"


def test_a_slow_machine_gets_no_warning_of_legends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    from pegboard_plots import draw_curves

    seconds = itertools.count(step=10)
    monkeypatch.setattr("matplotlib.legend.time.perf_counter", lambda: next(seconds))
    rows = [{"step": i, "train/loss": 1.0, "val/loss": 2.0} for i in (1, 2)]
    draw_curves(rows, tmp_path / "a.png", "a")
    assert not [str(w.message) for w in recwarn]
