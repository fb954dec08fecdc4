"""`pegboard check`, `show` and `schema`, and what they import."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pegboard.cli import main

PLUGIN = """
from dataclasses import dataclass
from typing import Annotated, Literal
from pegboard import Classes, DataSpec, Dataset, Ge, Lt, Model, ObjectivePart, Optimizer, ProbePart
from pegboard import Regularizer, Schedule, TrackerPart, Vector, hookimpl

def build(config, context):
    raise AssertionError

@dataclass(frozen=True)
class Some:
    '''The summary.

    More about it.
    '''

    share: Annotated[float, Ge(0), Lt(1)] = 0.5  # how much of it
    form: Literal["round", "square"] = "round"  # its form

@dataclass(frozen=True)
class Needs:
    '''It needs something.'''

    what: str  # the thing

@hookimpl
def pegboard_models():
    return [Model("zz-model", Some, build, inputs=(Vector,), pegs=("hidden",), docs="https://example.org")]

@hookimpl
def pegboard_optimizers():
    return [Optimizer("zz-optimizer", Some, build, closure=True), Schedule("zz-schedule", Some, build)]

@hookimpl
def pegboard_regularizers():
    stages = {"hang": "drop"}
    return [Regularizer("zz-trick", Needs, build, stages=stages, after=("zz-other",), deprecated="old")]

@hookimpl
def pegboard_datasets():
    return [Dataset("zz-data", Some, build, spec=lambda c: DataSpec((Vector(2),), Classes(3)))]

@hookimpl
def pegboard_objectives():
    return [ObjectivePart("zz-objective", Some, build)]

@hookimpl
def pegboard_trackers():
    return [TrackerPart("zz-tracker", Some, build)]

@hookimpl
def pegboard_probes():
    return [ProbePart("zz-probe", Some, build)]
"""
CONFIG = """\
plugins: {local: [mine.py]}
data: zz-data
model: {name: zz-model, share: 0.1}
optimizer: {name: zz-optimizer, schedule: zz-schedule}
objective: zz-objective
regularizers: {mine: {name: zz-trick, what: x}}
trackers: {zz-tracker: {}}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mine.py").write_text(PLUGIN)
    (tmp_path / "cfg.yaml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_check_says_what_the_config_is_made_of(folder: Path, capsys: Any) -> None:
    assert main(["check", "cfg.yaml"]) == 0
    out, err = capsys.readouterr()
    assert err == "warning: cfg.yaml:6:22: regularizer 'zz-trick' is deprecated: old\n"
    lines = out.splitlines()
    assert lines[0] == "cfg.yaml: ok"
    assert [line.split()[:2] for line in lines[1:7]] == [
        ["data", "zz-data"],
        ["model", "zz-model"],
        ["optimizer", "zz-optimizer"],
        ["schedule", "zz-schedule"],
        ["objective", "zz-objective"],
        ["regularizer", "mine"],
    ]
    assert lines[-1].split(maxsplit=1) == ["spec", "Vector(2) -> Classes(3)"]
    assert main(["check", "cfg.yaml", "--quiet"]) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_check_full_prints_a_config_that_checks_to_itself(folder: Path, capsys: Any) -> None:
    assert main(["check", "cfg.yaml", "--full"]) == 0
    whole = capsys.readouterr().out
    (folder / "sub").mkdir()
    (folder / "sub" / "whole.yaml").write_text(whole)
    assert main(["check", "sub/whole.yaml", "--full"]) == 0
    assert capsys.readouterr().out == whole


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_a_wrong_config_exits_with_2_and_the_report(folder: Path, capsys: Any) -> None:
    assert main(["check", "cfg.yaml", "model.shrae=3", "model.form=rund"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("2 mistakes in cfg.yaml\n")
    assert "command line, 'model.shrae=3': model.shrae\n" in error and "did you mean 'share'?" in error


def test_show_lists_kinds_and_parts(folder: Path, capsys: Any) -> None:
    assert main(["show", "--local", "mine.py"]) == 0
    everything = capsys.readouterr().out
    for kind in (
        "models",
        "optimizers",
        "schedules",
        "regularizers",
        "datasets",
        "objectives",
        "trackers",
        "probes",
    ):
        assert f"\n{kind}\n" in f"\n{everything}"
    assert any(line.split() == ["zz-model", "The", "summary.", "mine.py"] for line in everything.splitlines())
    for name in ("model", "models"):
        assert main(["show", name, "--local", "mine.py"]) == 0
        text = capsys.readouterr().out
        assert text.startswith("models\n") and "zz-model" in text and "zz-data" not in text


def test_show_tells_everything_about_a_part(folder: Path, capsys: Any) -> None:
    for name in ("zz-model", "mine:zz-model", "model:zz-model"):
        assert main(["show", name, "--local", "mine.py"]) == 0
        text = capsys.readouterr().out
        assert text.startswith("model 'zz-model', of mine.py local\nThe summary.\n\nMore about it.\n")
        assert "share  = 0.5" in text and "how much of it" in text
        assert "number (at least 0 and less than 1)" in text and "one of round, square" in text
        assert "weights" in text and "reads       Vector" in text and "pegs        hidden" in text
        assert "more        https://example.org" in text
        assert text.rstrip().endswith(
            "example\n  model:\n    name: zz-model\n    share: 0.5\n    form: round"
        ) or ("{name: zz-model, share: 0.5, form: round}" in text)


def test_show_of_other_parts_and_sections(folder: Path, capsys: Any) -> None:
    main(["show", "zz-trick", "--local", "mine.py"])
    text = capsys.readouterr().out
    assert "what  required" in text and "the thing" in text and "deprecated: old" in text
    assert "acts in     hang as drop" in text and "after       zz-other" in text
    main(["show", "zz-schedule", "--local", "mine.py"])
    assert "schedule: {name: zz-schedule" in capsys.readouterr().out
    main(["show", "zz-optimizer", "--local", "mine.py"])
    assert "with a closure" in capsys.readouterr().out
    main(["show", "zz-probe", "--local", "mine.py"])
    assert "probes:\n    zz-probe: {share" in capsys.readouterr().out
    main(["show", "trainer"])
    assert "epochs" in capsys.readouterr().out
    main(["show", "data", "--local", "mine.py"])
    text = capsys.readouterr().out
    assert "batch_size" in text and "zz-data" in text


def test_show_of_an_unknown_name_gives_the_nearest(folder: Path, capsys: Any) -> None:
    assert main(["show", "zz-modle", "--local", "mine.py"]) == 2
    assert "nothing is called 'zz-modle'; did you mean 'zz-model'?" in capsys.readouterr().err


def test_the_schema_describes_every_part(folder: Path, capsys: Any) -> None:
    assert main(["schema", "--local", "mine.py", "-o", "schema.json"]) == 0
    schema = json.loads(Path("schema.json").read_text())
    assert capsys.readouterr().out.splitlines()[-1] == "# yaml-language-server: $schema=schema.json"
    main(["schema", "--local", "mine.py"])
    assert json.loads(capsys.readouterr().out) == schema
    assert schema["$schema"].endswith("2020-12/schema")
    model = schema["$defs"]["model.zz-model"]
    assert model["description"] == "The summary."
    share = model["properties"]["share"]
    assert share["description"] == "how much of it" and share["default"] == 0.5
    assert share["anyOf"][0] == {"type": "number", "minimum": 0, "exclusiveMaximum": 1}
    assert model["properties"]["form"]["anyOf"][0] == {"enum": ["round", "square"]}
    assert not model["additionalProperties"]
    assert {"weights", "infer_pegs", "name"} <= set(model["properties"])
    offered = {name.get("const"): name for name in schema["$defs"]["names.model"]["anyOf"]}
    assert offered["zz-model"]["description"] == "The summary.\nhttps://example.org\nmine.py local"
    assert (
        schema["$defs"]["regularizer.zz-trick"]["properties"]["what"]["description"] == "the thing (required)"
    )
    assert main(["schema", "-o", "no/such/folder/x.json"]) == 2


def test_the_schema_takes_a_right_config_and_refuses_a_wrong_one(registry: Any) -> None:
    jsonschema = pytest.importorskip("jsonschema")

    from pegboard.config.check import check
    from pegboard.config.schema import schema

    made = schema(registry)
    jsonschema.Draft202012Validator.check_schema(made)
    validator = jsonschema.Draft202012Validator(made)
    plain = check(
        {
            "data": {"name": "table", "path": "x", "columns": {"a": "input"}},
            "model": {"name": "conv", "head": {"width": 3}, "scale": 0.5},
            "optimizer": {"name": "adaptive", "schedule": "wave"},
            "regularizers": {"soften": {}, "mine": {"name": "norm"}},
            "trackers": {"board": {}},
        },
        registry=registry,
    ).plain
    assert not list(validator.iter_errors(plain))
    assert validator.is_valid({"extends": "base.yaml", "regularizers": {"drop": None}})
    for wrong in (
        {"model": {"name": "conv", "kernel_size": 12}},
        {"model": {"name": "cnv"}},
        {"model": {"name": "conv", "chanels": [1]}},
        {"regularizers": {"drop": {"p": 1}}},
        {"trainer": {"epochs": 0}},
        {"sed": 1},
    ):
        assert not validator.is_valid({**plain, **wrong}), wrong


@pytest.mark.parametrize(
    "words",
    [["check", "cfg.yaml"], ["show"], ["schema"], ["plugins", "list"], ["check", "--help"], ["--help"]],
)
def test_these_commands_import_neither_torch_nor_numpy_and_little_else(
    folder: Path, words: list[str]
) -> None:
    code = (
        "import sys; from pegboard.cli import main\n"
        f"try: status = main({words!r})\n"
        "except SystemExit as stop: status = stop.code\n"
        "heavy = {'torch', 'numpy', 'omegaconf', 'matplotlib'} & set(sys.modules)\n"
        "if len(sys.modules) > 400: heavy.add(f'{len(sys.modules)} modules')\n"
        "sys.exit(status or (f'imported {heavy}' if heavy else 0))\n"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
