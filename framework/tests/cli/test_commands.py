"""The command line: each command does its work; every mistake is one message and exit code 2."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pegboard
import pytest
import yaml
from pegboard.cli import COMMANDS, main

Config = Callable[..., dict[str, Any]]
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def cfg(config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("cfg.yaml").write_text(yaml.safe_dump(config()))
    return "cfg.yaml"


def test_train_eval_predict_and_resume(cfg: str, capsys: Capture) -> None:
    assert main(["train", cfg, "trainer.epochs=2", "--root", "out", "model.width=4"]) == 0
    shown = capsys.readouterr().out
    assert "best checkpoint" in shown and "run folder  out/cfg/" in shown and "curves.png" in shown
    latest = "out/cfg/latest"
    assert yaml.safe_load(Path(latest, "config.yaml").read_text())["model"]["width"] == 4
    assert main(["eval", latest]) == 0
    assert "test" in capsys.readouterr().out
    assert main(["eval", latest, "--json", "--split", "val", "--checkpoint", "last"]) == 0
    assert json.loads(capsys.readouterr().out).keys() == {"val/loss", "val/right"}
    assert main(["predict", latest]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert len(rows) == 16 and {row["class"] for row in rows} == {"left", "right"}
    assert main(["resume", latest, "--quiet"]) == 0


def test_predict_reads_tables_and_writes_them(cfg: str, capsys: Capture) -> None:
    main(["train", cfg, "--quiet"])
    latest = "runs/cfg/latest"
    Path("rows.csv").write_text("x,y,extra\n-3,-3,a\n3,3,b\n")
    assert main(["predict", latest, "--input", "rows.csv", "-o", "out.csv"]) == 0
    assert [r["class"] for r in csv.DictReader(Path("out.csv").read_text().splitlines())] == ["left", "right"]
    Path("rows.json").write_text('[{"x": -3, "y": -3}]')
    assert main(["predict", latest, "--input", "rows.json", "-o", "out.json"]) == 0
    assert json.loads(Path("out.json").read_text())[0]["class"] == "left"
    Path("rows.jsonl").write_text('{"x": 3, "y": 3}\n')
    assert main(["predict", latest, "--input", "rows.jsonl"]) == 0
    Path("columns.json").write_text('{"x": [3], "y": [3]}')
    assert main(["predict", latest, "--input", "columns.json"]) == 0
    capsys.readouterr()
    mistakes = {
        "row.csv": "did you mean 'rows.csv'",
        "bad.csv": "lacks the column 'y'",
        "empty.json": "holds no rows",
        "broken.json": "cannot read",
        "rows.txt": "expected .csv, .json or .jsonl",
    }
    Path("bad.csv").write_text("x\n1\n")
    Path("empty.json").write_text("[]")
    Path("broken.json").write_text("{")
    Path("rows.txt").write_text("x")
    for name, message in mistakes.items():
        assert main(["predict", latest, "--input", name]) == 2
        assert message in capsys.readouterr().err


def test_explain_prints_the_plan(cfg: str, capsys: Capture) -> None:
    assert main(["explain", cfg, "regularizers.drop.p=0.1", "trainer.accumulate=2"]) == 0
    text = capsys.readouterr().out
    shown = """Vector(2) -> Classes(2)|drop (drop)|role drop of normalize < drop|nll(f(x), y)|parameters  42
        |one step|2 batches to an update|optimizer 0 B|floating point operations"""
    for expected in map(str.strip, shown.split("|")):
        assert expected in text


def test_explain_reads_the_data_only_where_it_must(cfg: str, capsys: Capture) -> None:
    assert main(["explain", cfg, "data.stated=false"]) == 0
    assert "4 batches of 16 each, 12 steps" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words, message",
    [
        (["trian", "cfg.yaml"], "unknown command 'trian', did you mean 'train'?"),
        (["train", "cfg.yml"], "no file 'cfg.yml'"),
        (["train", "cfg.yaml", "model.widht=3"], "did you mean 'width'"),
        (["eval", "runs/nothing"], "no run or checkpoint at runs/nothing"),
        (["zoo", "show", "digits/nothing-like-it"], "no recipe 'digits/nothing-like-it'"),
        (["eval", "zoo:digits/nothing-like-it"], "no recipe"),
        (["train", "cfg.yaml", "--rot", "x"], "did you mean --root?"),
        (["check"], "the following arguments are required: config\n"),
        (["zoo", "record", "any", "--seeds", "0"], "found '0', expected a whole number of at least 1"),
        (["show", "--local", "missing.py"], "missing.py did not load (import)"),
        (["schema", "--local", "missing.py"], "missing.py did not load (import)"),
    ],
)
def test_mistakes_are_one_message_without_a_traceback(
    cfg: str, capsys: Capture, words: list[str], message: str
) -> None:
    try:
        code = main(words)
    except SystemExit as exit:
        code = int(str(exit.code))
    err = capsys.readouterr().err
    assert code == 2
    assert message in err and "Traceback" not in err


def test_a_model_too_large_for_memory_is_told(
    cfg: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise RuntimeError(
            "DefaultCPUAllocator: can't allocate memory: you tried to allocate 99 bytes.\nmore"
        )

    monkeypatch.setattr("pegboard.planning.plan.make_plan", full)
    assert main(["explain", cfg]) == 2
    assert capsys.readouterr().err.splitlines()[0].startswith("out of memory: DefaultCPUAllocator")


def test_a_plugin_that_a_part_needs_and_that_is_not_installed_is_told(
    cfg: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(*args: Any) -> None:
        import pegboard_nowhere  # type: ignore[import-not-found]  # noqa: F401

    monkeypatch.setattr("pegboard.tools.cross_validation.train", absent)
    assert main(["train", cfg]) == 2
    assert "pip install pegboard-nowhere" in capsys.readouterr().err


def test_a_split_that_is_not_there_is_an_error(cfg: str, capsys: Capture) -> None:
    main(["train", cfg, "data.held_out=false", "--quiet"])
    assert main(["eval", "runs/cfg/latest"]) == 2
    assert "the data has no test split: it has train" in capsys.readouterr().err


def test_help_of_every_command_has_an_example_and_imports_neither_torch_nor_numpy() -> None:
    code = (
        "import sys\nfrom pegboard.cli import main\n"
        "try:\n    main({words!r})\nexcept SystemExit as e:\n    assert not e.code, e.code\n"
        "assert not {{'torch', 'numpy'}} & set(sys.modules), 'heavy'"
    )
    for words in ([], *([name] for name in COMMANDS)):
        done = subprocess.run(
            [sys.executable, "-c", code.format(words=[*words, "--help"])],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "example: pegboard" in done.stdout


def test_python_dash_m_and_no_command_work() -> None:
    done = subprocess.run([sys.executable, "-m", "pegboard"], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "COMMAND" in done.stdout


def test_a_reader_that_leaves_is_not_an_error(cfg: str) -> None:
    command = f"{sys.executable} -m pegboard explain {cfg} | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr


def terminal(monkeypatch: pytest.MonkeyPatch, width: int) -> io.StringIO:
    """A stream that is a terminal of that width."""
    for name, value in {"COLUMNS": str(width), "LINES": "24", "TERM": "xterm", "NO_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: True, raising=False)
    return stream


def test_a_terminal_gets_a_bar_and_tables(
    config: Config, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pegboard.config.check import check
    from pegboard.report.console import Console
    from pegboard.run.training import run_plan

    stream = terminal(monkeypatch, 120)
    console = Console(stream=stream)
    trackers = {"note": {"path": "/nowhere/at/all"}}
    run_plan(check(config(trackers=trackers)), root, console)
    text = stream.getvalue()
    assert "12/12" in text and "steps/s" in text and "┃" in text


def drawn_on(stream: io.StringIO, row: dict[str, float]) -> list[str]:
    """What a terminal shows of a run after its last step."""
    from pegboard.report.console import Console

    console = Console(stream=stream)
    console.start(600)
    console.row(row)
    console.advanced(600)
    console.stop()
    text = re.sub("\x1b\\[[0-9;?]*[a-zA-Z]", "", stream.getvalue())
    return text.replace("\r", "\n").splitlines()


def test_a_narrow_terminal_keeps_its_bar_and_every_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("loss", "val/loss", "val/accuracy", "val/top5", "val/f1", "val/ece", "test/loss")
    row = {name: 0.12345 + i for i, name in enumerate(names)}
    lines = drawn_on(terminal(monkeypatch, 80), row)
    assert all(len(line) <= 80 for line in lines)
    last = lines[max(i for i, line in enumerate(lines) if "600/600" in line) :]
    assert "━" * 10 in last[0] and "steps/s" in last[0]
    shown = " ".join(" ".join(last).split())
    assert all(f"{name} {value:.4g}" in shown for name, value in row.items())


def test_slow_steps_are_told_in_seconds_a_step() -> None:
    from pegboard.report.console import speed

    assert [speed(rate, "step") for rate in (0.0, 0.25, 3.0, 1234.0)] == [
        "no step yet",
        "4.0 s/step",
        "3.0 steps/s",
        "1234 steps/s",
    ]


def test_lists_of_parts_are_whole_at_any_width(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture, root: Path
) -> None:
    from pegboard.registry.discovery import Registry

    summaries = [e.part.summary for e in Registry.discover().entries("model")]
    for width in (40, 80, 200):
        monkeypatch.setenv("COLUMNS", str(width))
        monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
        assert main(["show", "models"]) == 0
        out = capsys.readouterr().out
        assert "..." not in out
        assert all(set(summary.split()) <= set(out.split()) for summary in summaries)
        assert width < 80 or max(map(len, out.splitlines())) <= width


def test_the_public_functions_are_lazy_and_listed() -> None:
    assert set(dir(pegboard)) == set(pegboard.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        pegboard.nothing  # type: ignore[attr-defined]  # noqa: B018
