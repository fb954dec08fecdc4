"""The actions of `pegboard plugins`: each has help with an example, and slips are answered."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from pegboard.cli import main
from pegboard.cli.plugins import ACTIONS
from strangers import code, only_these

Capture = pytest.CaptureFixture[str]
Config = Callable[..., dict[str, Any]]

ORDERED = '''
from dataclasses import dataclass
from pegboard import Regularizer, Role, Trick, hookimpl

@dataclass(frozen=True)
class Idle:
    """Does nothing."""

class Clip(Trick):
    def edit_grads(self, params): pass

class Both(Trick):
    def edit_loss(self, loss, output, batch): return loss
    def after_step(self, model): pass

@hookimpl
def pegboard_regularizers():
    make = lambda config, context: Clip()
    return [
        Regularizer("zebra", Idle, make, stages={"edit_grads": "clip"}),
        Regularizer("ant", Idle, make, stages={"edit_grads": "clip"}, after=("zebra",)),
        Regularizer("bee", Idle, make, stages={"edit_grads": "acme:prune"},
                    roles=(Role("acme:prune", "edit_grads", after="noise"),)),
        Regularizer("both", Idle, lambda config, context: Both(),
                    stages={"edit_loss": "term", "after_step": "constrain"}),
    ]
'''


@pytest.fixture
def cfg(tmp_path: Path, config: Config) -> str:
    (tmp_path / "ordered.py").write_text(ORDERED)
    local = [*config()["plugins"]["local"], str(tmp_path / "ordered.py")]
    tricks = {"zebra": {}, "ant": {}, "bee": {}, "sum": {"name": "both"}, "all": {"name": "both"}}
    tricks["all"]["players"] = ["first"]
    tricks["sum"]["players"] = ["second"]
    (tmp_path / "cfg.yaml").write_text(yaml.safe_dump(config(regularizers=tricks, plugins={"local": local})))
    return str(tmp_path / "cfg.yaml")


def test_why_gives_the_order_of_every_stage_and_the_rule_behind_each_place(cfg: str, capsys: Capture) -> None:
    assert main(["plugins", "why", cfg, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {stage: [row["key"] for row in rows] for stage, rows in found.items()} == {
        "edit_loss": ["all", "sum"],
        "edit_grads": ["bee", "zebra", "ant"],
        "after_step": ["all", "sum"],
    }
    bee, zebra, ant = found["edit_grads"]
    assert bee["rule"] == "role acme:prune of noise < acme:prune < clip"
    assert ant["rule"] == "role clip of noise < acme:prune < clip, after zebra"
    assert zebra["role"] == "clip" and zebra["plugin"].endswith("ordered.py") and zebra["version"] == "local"
    assert found["edit_loss"][0]["part"] == "both" and found["edit_loss"][0]["players"] == ["first"]
    assert found["edit_loss"][0]["rule"] == "role term of mix < term, by name"


def test_why_agrees_with_the_plan(cfg: str, capsys: Capture) -> None:
    import pegboard

    assert main(["plugins", "why", cfg, "regularizers.bee=null", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    plan = pegboard.plan(cfg, "regularizers.bee=null")
    told = {stage: [(row["key"], row["rule"]) for row in rows] for stage, rows in found.items()}
    assert told == {stage: [(p.key, p.rule) for p in placed] for stage, placed in plan.order.items()}


def test_why_is_readable_and_takes_overrides(cfg: str, capsys: Capture) -> None:
    assert main(["plugins", "why", cfg, "regularizers.bee=null"]) == 0
    lines = capsys.readouterr().out.splitlines()
    at = lines.index("edit_grads")
    assert lines[at + 1].split()[:2] == ["1", "zebra"] and lines[at + 2].split()[:2] == ["2", "ant"]
    assert "all (both) on first" in lines[1] and "role term of mix < term, by name" in lines[1]
    assert main(["plugins", "why", cfg, "regularizers=null"]) == 0
    assert capsys.readouterr().out == "the config has no tricks\n"
    assert main(["plugins", "why", cfg, "seed=x"]) == 2
    assert "'seed=x': seed\n    found the text" in capsys.readouterr().err


# The kit.


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    only_these([], monkeypatch)
    (tmp_path / "mine.py").write_text(code("prints"))
    return str(tmp_path / "mine.py")


def test_the_kit_runs_on_a_file_and_its_outcome_is_the_exit_code(file: str, capsys: Capture) -> None:
    assert main(["plugins", "test", file, "-k", "import_is"]) == 1
    shown = capsys.readouterr()
    rows = {line.split()[0]: line.split()[1] for line in shown.out.splitlines() if line.startswith("plugin-")}
    assert rows["plugin-import_is_light"] == "passed" and rows["plugin-import_is_quiet"] == "failed"
    assert "prints when it is imported: 'hello'" in shown.out
    assert shown.out.splitlines()[-1].startswith("1 of ") and "check " in shown.err
    assert main(["plugins", "test", file, "-k", "import_is_light"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "0 of 1 checks failed; 1 passed"


def test_the_outcomes_are_json_too(file: str, capsys: Capture) -> None:
    assert main(["plugins", "test", file, "-k", "plugin-import_is_quiet", "--json"]) == 1
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["id"], row["status"]) == ("plugin-import_is_quiet", "failed")


def test_advice_fails_only_where_it_is_asked_to_and_a_defect_is_a_failure(
    file: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pegboard.testing import CHECKS, Check, Failed, checks

    assert checks is not None

    def advice(subject: Any) -> None:
        raise Failed("better not\nbecause")

    def defect(subject: Any) -> None:
        raise ValueError("unforeseen")

    monkeypatch.setitem(CHECKS, "own_advice", Check("own_advice", ("plugin",), advice, "advised"))
    monkeypatch.setitem(CHECKS, "own_defect", Check("own_defect", ("plugin",), defect))
    assert main(["plugins", "test", file, "-k", "own_advice"]) == 0
    shown = capsys.readouterr().out
    assert "plugin-own_advice: failed (advised)\nbetter not\nbecause" in shown
    assert shown.splitlines()[-1] == "0 of 1 checks failed; 1 advised otherwise"
    assert main(["plugins", "test", file, "-k", "own_advice", "--strict"]) == 1
    capsys.readouterr()
    assert main(["plugins", "test", file, "-k", "own_defect"]) == 1
    assert f"ValueError: unforeseen ({__file__}:" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "piece"),
    [
        (["mien.py"], "no file 'mien.py'. Did you mean 'mine.py'?"),
        (["no-such-plugin"], "no plugin 'no-such-plugin' is installed"),
        (
            ["mine.py", "-k", "import_is_lite"],
            "in its id. Did you mean 'import_is_light'?",
        ),
    ],
)
def test_slips_of_the_kit_are_answered(
    words: list[str], piece: str, file: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(file).parent)
    assert main(["plugins", "test", *words]) == 2
    assert piece in capsys.readouterr().err


# All actions.


def test_our_own_plugins_are_well() -> None:
    from pegboard.tools.doctor import examine

    told: list[tuple[int, int]] = []
    looked = examine(["mlp", "pegboard-datasets", "Pegboard_WandB"], tell=lambda *count: told.append(count))
    assert [(one.dist, one.verdict, one.findings) for one in looked] == [
        (f"pegboard-{name}", "well", []) for name in ("datasets", "mlp", "wandb")
    ]
    assert told == [(0, 3), (1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize(
    ("word", "near"), [("lsit", "list"), ("docter", "doctor"), ("enalbe", "enable"), ("wy", "why")]
)
def test_a_misspelt_action_is_answered_with_the_nearest(word: str, near: str, capsys: Capture) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["plugins", word])
    said = capsys.readouterr().err
    assert stopped.value.code == 2
    assert said.startswith(f"unknown plugins action {word!r}, did you mean {near!r}?\nactions: list, doctor")


def test_help_of_every_action_has_an_example(capsys: Capture) -> None:
    for action in ACTIONS:
        with pytest.raises(SystemExit) as stopped:
            main(["plugins", action, "--help"])
        assert not stopped.value.code
        assert f"example: pegboard plugins {action}" in capsys.readouterr().out


def test_no_action_but_test_imports_torch_and_switching_does_not_even_import_the_registry(
    cfg: str, tmp_path: Path
) -> None:
    script = (
        "import json, sys\nfrom pegboard.cli import main\n"
        "for words in json.loads(sys.argv[1]):\n"
        "    assert main(['plugins', *words]) == 0, words\n"
        "    assert not {'torch', 'numpy'} & set(sys.modules), words\n"
        "    found = 'pegboard.registry.discovery' in sys.modules\n"
        "    assert words[0] not in ('disable', 'enable') or not found, words\n"
    )
    lines = [["disable", "pegboard-mlp"], ["enable", "pegboard-mlp"], ["list"], ["why", cfg]]
    lines.append(["doctor", str(tmp_path / "ordered.py")])
    environment = {"XDG_CONFIG_HOME": str(tmp_path / "config"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    words = [sys.executable, "-c", script, json.dumps(lines)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
