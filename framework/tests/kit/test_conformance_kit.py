"""The kit passes what is sound and finds what is not, each defect by the check that is named for it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from pegboard.errors import PegboardError
from pegboard.testing import CHECKS, Kit, Outcome, conformance
from pegboard.testing import checks as _checks  # noqa: F401  registers them

SOUND = Path(__file__).with_name("sound_plugin.py")
CARD = """# Sound

## Use

```yaml
model: {name: sound_net, width: 4}
```

## Fields

sound_net: width. sound_descent: lr. sound_rate: power. sound_noise: std. sound_data: count.
sound_loss: scale. sound_tracker: unit. sound_probe: power. sound_optimum: by.

## How it works

Simply.

## Where it comes from

Here.
"""

TOP = "if TYPE_CHECKING:\n    import torch\n"

# check -> (part, what is replaced, by what): one defect for every check.
DEFECTS: dict[str, tuple[str, str, str]] = {
    "import_is_light": ("plugin", TOP, f"import numpy\n\n{TOP}"),
    "import_is_quiet": ("plugin", TOP, f"print('hello')\n\n{TOP}"),
    "import_is_quick": (
        "plugin",
        TOP,
        f"import time\nend = time.process_time() + 0.08\nwhile time.process_time() < end:\n    pass\n{TOP}",
    ),
    "import_draws_nothing": ("plugin", TOP, f"import random\nLUCK = random.random()\n\n{TOP}"),
    "import_asks_no_network": (
        "plugin",
        TOP,
        f"import socket\nHERE = socket.getaddrinfo('localhost', 80)\n\n{TOP}",
    ),
    "import_changes_nothing": ("plugin", TOP, f"import os\nos.environ['SOUND'] = '1'\n\n{TOP}"),
    "loads": ("plugin", "def pegboard_models()", "def pegboard_modles()"),
    "hooks_are_plain": ("plugin", "def pegboard_models()", "def pegboard_models(more=())"),
    "record": ("model-sound_net", "def build_net(config: SoundNet, ", "def build_net(config: SoundRate, "),
    "stages_are_declared": (
        "regularizer-sound_noise",
        '"edit_grads": "noise"',
        '"edit_batch": "augment", "after_step": "average"',
    ),
    "schema": ("model-sound_net", "@dataclass(frozen=True)\nclass SoundNet", "@dataclass\nclass SoundNet"),
    "fields_are_documented": ("schedule-sound_rate", "  # how fast", ""),
    "builds_the_same_twice": (
        "model-sound_net",
        "torch.zeros(features))",
        "torch.zeros(features) + int.from_bytes(os.urandom(4)))",
    ),
    "every_parameter_gets_a_gradient": (
        "model-sound_net",
        "            self.last = ",
        "            self.spare = nn.Linear(2, 2)\n            self.last = ",
    ),
    "saves_and_loads": (
        "model-sound_net",
        'self.register_buffer("mean", torch.zeros(features))',
        "self.mean = torch.zeros(features)",
    ),
    "exact_resume": (
        "regularizer-sound_noise",
        'return {"step": self.step}',
        'return {"step": self.step * 0}',
    ),
    "neutral_changes_nothing": (
        "regularizer-sound_noise",
        "            if config.std == 0:\n",
        "            params[0].grad = params[0].grad * 1.0001\n            if config.std == 0:\n",
    ),
    "order_does_not_matter": (
        "regularizer-sound_noise",
        "stages=stages,",
        'stages=stages, after=("partner_edit_grads_clip",),',
    ),
    "runs_on_meta": (
        "model-sound_net",
        "hidden = self.first(",
        "float(x.sum())\n            hidden = self.first(",
    ),
    "has_deterministic_kernels": (
        "model-sound_net",
        "hidden = self.first(",
        "x = x + 0 * x.cumsum(0)\n            hidden = self.first(",
    ),
    "compiles_whole": (
        "model-sound_net",
        "hidden = self.first(",
        "torch._dynamo.graph_break()\n            hidden = self.first(",
    ),
    "trains_under_autocast": (
        "model-sound_net",
        "return self.last(hidden)",
        "kept = torch.zeros(len(x), config.width, device=x.device)\n"
        "            kept[torch.arange(len(x), device=x.device)] = self.first(x)\n"
        "            return self.last(kept + hidden)",
    ),
    "splits_are_sound": (
        "dataset-sound_data",
        "return Batch((self.x[index],),",
        "return Batch((self.x[index.sort()[0]],),",
    ),
    "works_in_spawned_workers": (
        "dataset-sound_data",
        "self.x, self.y = x, y",
        "self.x, self.y, self.f = x, y, lambda: 0",
    ),
    "draws_its_samples": ("dataset-sound_data", "trial=sizes)", "trial=sizes, plot=lambda *_: None)"),
    "descends": ("optimizer-sound_descent", "p.sub_(", "p.add_("),
    "factors_are_sound": (
        "schedule-sound_rate",
        "(1 + step) ** -config.power",
        "-((1 + step) ** -config.power)",
    ),
    "names_players_and_metrics": ("objective-sound_loss", 'players=("model",)', 'players=("critic",)'),
    "weighs_samples": ("objective-sound_loss", "(each * weight).sum() / weight.sum()", "each.sum()"),
    "follows_a_run": ("tracker-sound_tracker", "self.rows += len(table.rows)", "raise RuntimeError('full')"),
    "measures_the_same_twice": (
        "probe-sound_probe",
        "p.detach().norm(self.power))",
        "p.detach().norm(self.power)) + id(self)",
    ),
    "generates_samples": ("model-sound_net", "generator=generator)", "generator=None)"),
    "knows_the_optimum": ("probe-sound_optimum", "copy.deepcopy(model)", "model"),
    "own_spec_survives_a_run": (
        "dataset-sound_data",
        "DataSpec((Triple(),)",
        'DataSpec((dataclass(frozen=True)(type("Late", (Triple,), {}))(),)',
    ),
    "card_is_complete": ("plugin", "", ""),
}
DISTRIBUTIONS_ONLY = {"core_range"}


def outcomes(path: Path, *ids: str) -> dict[str, Outcome]:
    cases = Kit(str(path)).cases()
    return {case.id: case.run() for case in cases if not ids or case.id in ids}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "README.md").write_text(CARD)
    return tmp_path


def test_there_is_a_defect_for_every_check() -> None:
    assert set(DEFECTS) | DISTRIBUTIONS_ONLY == set(CHECKS)
    assert len(DEFECTS) >= 15


def test_what_is_sound_passes_every_check(folder: Path) -> None:
    path = folder / "sound.py"
    path.write_text(SOUND.read_text())
    found = outcomes(path)
    assert not {i: o.message for i, o in found.items() if o.status == "failed"}
    skipped = {i for i, o in found.items() if o.status == "skipped"}
    assert skipped == {
        "plugin-core_range",
        "dataset-sound_data-works_in_spawned_workers",
        "probe-sound_optimum-has_deterministic_kernels",
        "probe-sound_probe-knows_the_optimum",
    }
    checked = {i.rpartition("-")[2] for i in found}
    assert checked == set(CHECKS)


@pytest.mark.parametrize("check", DEFECTS)
def test_a_defect_is_caught_by_the_check_named_for_it(check: str, folder: Path) -> None:
    part, old, new = DEFECTS[check]
    text = SOUND.read_text()
    if check == "card_is_complete":
        (folder / "README.md").write_text(
            CARD.replace("sound_rate: power.", "").replace("## Use", "## Usage")
        )
    else:
        assert text.count(old) == 1
    path = folder / f"defect_{check}.py"
    path.write_text(text.replace(old, new) if old else text)
    if "os.urandom" in new:
        path.write_text(path.read_text().replace(TOP, f"import os\n\n{TOP}"))
    found = outcomes(path, f"{part}-{check}")
    (outcome,) = found.values()
    assert outcome.status == "failed"
    assert "\n" not in outcome.message.strip() or check in ("runs_on_meta", "order_does_not_matter")
    assert "Traceback" not in outcome.message


def test_an_author_s_test_is_three_lines(folder: Path) -> None:
    (folder / "mine.py").write_text(SOUND.read_text().replace("  # how fast", ""))
    lines = ["from pegboard.testing import conformance", "", 'test_part = conformance("mine.py")']
    (folder / "test_mine.py").write_text("\n".join(lines) + "\n")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "pegboard.testing",
        "-q",
        "-k",
        "rate and (documented or record)",
    ]
    told = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert told.returncode == 1
    assert "1 failed, 1 passed" in told.stdout
    assert "SoundRate of schedule 'sound_rate' of mine.py says nothing of power" in told.stdout
    assert "Traceback" not in told.stdout


def test_a_declared_failure_is_strict(folder: Path) -> None:
    path = folder / "mine.py"
    path.write_text(SOUND.read_text().replace("  # how fast", ""))
    cases = Kit(
        str(path),
        {"schedule-sound_rate-fields_are_documented": "later", "schedule-sound_rate-record": "never"},
    ).cases()
    found = {
        case.id: case.run() for case in cases if case.id.startswith("schedule-sound_rate-f") or case.declared
    }
    assert found["schedule-sound_rate-fields_are_documented"].status == "declared"
    passes = found["schedule-sound_rate-record"]
    assert (passes.status, passes.stops) == ("failed", True)
    assert passes.message == "declared to fail (never), but passes"


def test_a_declared_failure_of_no_check_is_an_error(folder: Path) -> None:
    with pytest.raises(PegboardError, match="did you mean 'schedule-sound_rate-record'"):
        Kit(str(SOUND), {"schedule-sound_rate-recrod": "why"}).cases()


def test_a_check_of_this_release_only_warns(monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    check = CHECKS["record"]
    assert check.level == "required"
    monkeypatch.setattr("pegboard.testing.kit.__version__", "0.7.3")
    assert replace(check, since="0.7.0").level == "new"
    assert replace(check, since="0.6.0").level == "required"


@pytest.mark.sweep
def test_what_is_advised_warns_unless_strict(folder: Path) -> None:
    _, old, new = DEFECTS["compiles_whole"]
    (folder / "mine.py").write_text(SOUND.read_text().replace(old, new))
    (folder / "test_mine.py").write_text(
        'from pegboard.testing import conformance\n\ntest_part = conformance("mine.py")\n'
    )
    command = [sys.executable, "-m", "pytest", "-p", "pegboard.testing", "-q", "-k", "net and compiles"]
    soft = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert soft.returncode == 0
    assert "advised, and new checks that will be required" in soft.stdout
    assert "model-sound_net-compiles_whole" in soft.stdout
    hard = subprocess.run([*command, "--pegboard-strict"], cwd=folder, capture_output=True, text=True)
    assert hard.returncode == 1


def test_a_plugin_that_is_not_there_is_named_with_the_nearest() -> None:
    with pytest.raises(
        pytest.fail.Exception,
        match="no plugin 'pegboard-dropuot' is installed; did you mean 'pegboard-dropout'",
    ):
        conformance("pegboard-dropuot")


def test_every_check_says_what_it_is_for() -> None:
    assert all(re.match(r"[A-Z].*[.:]$|[A-Z].*\.$", check.about) for check in CHECKS.values())
