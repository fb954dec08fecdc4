"""What is wrong with a plugin's records is listed before torch is imported; what can be used stays in use."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pegboard import Regularizer, Vector
from pegboard.registry.discovery import Registry, UnknownPart

PLUGIN = '''from dataclasses import dataclass
from typing import ClassVar

from pegboard import Model, Regularizer, Trick, hookimpl


@dataclass(frozen=True)
class Net:
    """A network."""

    width: int = 3  # units
    kinds: ClassVar[tuple] = ("a",)
    LIMITS = (1, 2)


def build(config, context):
    import torch

    return torch.nn.Linear(2, config.width)


@dataclass(frozen=True)
class Noise:
    """Noise on gradients."""

    std: float = 0.1  # standard deviation


def build_noise(config, context):
    return Trick()


@hookimpl
def pegboard_models():
    return [Model("small", Net, build, pegs=("hidden", "acme:gate"))]


@hookimpl
def pegboard_regularizers():
    return [Regularizer("noise", Noise, build_noise, stages={"edit_grads": "noise"}, neutral={"std": 0.0})]
'''
BUILD = "def build(config, context):\n"

# ruff: noqa: E501
# name -> (what is replaced, by what, status, a piece of the reason)
CASES = {
    "trial_is_no_function": ("Net, build,", "Net, build, trial={'width': 2},", "ready", "model 'small': trial is {'width': 2}, expected a function"),
    "check_is_no_function": ("Net, build,", "Net, build, check='no',", "broken(record)", "model 'small': check is no, expected a function"),
    "too_few_parameters": (BUILD, "def build(config):\n", "broken(record)", "build is called as build(config, context)"),
    "too_many_parameters": (BUILD, "def build(config, context, more):\n", "broken(record)", "(config, context, more)"),
    "keyword_only": (BUILD, "def build(config, context, *, more):\n", "broken(record)", "does not take"),
    "a_class_with_another_init": (
        "Net, build,",
        "Net, type('B', (), {'__init__': lambda self, config: None}),",
        "broken(record)",
        "build is called as",
    ),
    "no_annotation": ("width: int = 3", "width = 3", "ready", "width of Net has no annotation"),
    "not_frozen": ("@dataclass(frozen=True)\nclass Net", "@dataclass\nclass Net", "ready", "Net is not frozen"),
    "neutral_of_nothing": ('neutral={"std"', 'neutral={"sdt"', "ready", "neutral names 'sdt', which is no field of Noise, did you mean 'std'?"),
    "site": ('"hidden", "acme', '"hiden", "acme', "ready", "'hiden', which is no site"),
    "stage": ('"edit_grads"', '"edit_grad"', "ready", "no stage 'edit_grad', did you mean 'edit_grads'?"),
    "role": ('"edit_grads": "noise"', '"edit_grads": "nose"', "ready", "no role 'nose' in edit_grads, did you mean 'noise'?"),
    "neutral_without_values": ('neutral={"std": 0.0}', 'neutral=("std",)', "broken(record)", "neutral of 'noise' is ('std',), expected a mapping"),
    "trial": ("Net, build,", "Net, build, trial=lambda: {},", "ready", "trial is called as trial(folder)"),
    "torch": ("from typing", "import torch\nfrom typing", "ready", "imports torch"),
    "a_name_of_torch": ("from typing", "from torch import Tensor\nfrom typing", "ready", "imports torch"),
    "numpy": ("from typing", "import numpy as np\nfrom typing", "ready", "imports numpy"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_defect_of_a_record_is_a_status_or_a_remark(case: str, tmp_path: Path) -> None:
    old, new, state, told = CASES[case]
    assert PLUGIN.count(old) == 1
    path = tmp_path / f"{case}.py"
    path.write_text(PLUGIN.replace(old, new))
    (plugin,) = [p for p in Registry.discover(local=[path]).plugins if p.dist == str(path)]
    assert plugin.state == state
    assert told in plugin.reason


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (BUILD, BUILD),
        (BUILD, "def build(config, context=None, more=1):\n"),
        (BUILD, "def build(*given):\n    config, context = given\n"),
        ("Net, build,", "Net, __import__('functools').partial(build),"),
        ("Net, build,", "Net, lambda config, context: None,"),
        ("from typing", "from pegboard import Peg\nfrom typing"),
    ],
)
def test_what_is_sound_has_no_remark(old: str, new: str, tmp_path: Path) -> None:
    (path := tmp_path / "sound.py").write_text(PLUGIN.replace(old, new))
    (plugin,) = [p for p in Registry.discover(local=[path]).plugins if p.dist == str(path)]
    assert (plugin.state, plugin.reason, plugin.remarks) == ("ready", "", ())


def test_no_installed_plugin_of_ours_has_a_remark() -> None:
    ours = [p for p in Registry.discover().plugins if p.dist.startswith("pegboard-")]
    assert ours and not {p.dist: p.remarks for p in ours if p.remarks}


def test_plugins_list_shows_remarks_and_imports_no_torch_itself(tmp_path: Path) -> None:
    old, new, *_ = CASES["not_frozen"]
    (tmp_path / "soft.py").write_text(PLUGIN.replace(old, new))
    run = (
        "import sys; from pegboard.cli import main; main(['plugins', 'list', '--json', '--local', 'soft.py'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"{run}; print('torch' in sys.modules, file=sys.stderr)"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    (listed,) = [p for p in json.loads(done.stdout) if p["dist"] == "soft.py"]
    assert listed["status"] == "ready" and "Net is not frozen" in listed["reason"]
    assert done.stderr.strip() == "False"


def _installed(site: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A distribution acme-norm whose light module has this text."""
    info = site / "acme_norm-1.2.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-norm\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text("[pegboard]\nacme = acme_norm_light\n")
    file = site / "acme_norm_light.py"
    file.write_text(text)
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.delitem(sys.modules, "acme_norm_light", raising=False)
    return file


@pytest.mark.parametrize(
    ("old", "new", "phase", "cause", "at"),
    [
        ("from typing", "import not_there\nfrom typing", "import", "ModuleNotFoundError: No module named 'not_there'", "not_there"),
        ("    return [Model(", "    print(1 / 0)\n    return [Model(", "collect", "ZeroDivisionError: division by zero", "1 / 0"),
        (BUILD, "def build(config):\n", "record", "build is called as", "def build("),
        ("    width: int = 3", "    name: str = ''\n    width: int = 3", "schema", "Net has a field 'name'", ""),
    ],
)  # fmt: skip
def test_who_names_a_part_of_a_broken_plugin_is_told_its_cause(
    old: str,
    new: str,
    phase: str,
    cause: str,
    at: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = PLUGIN.replace(old, new)
    file = _installed(tmp_path / "site", text, monkeypatch)
    registry = Registry.discover()
    with pytest.raises(UnknownPart) as caught:
        registry.lookup("model", "small")
    told = str(caught.value)
    assert f"model 'small' comes from plugin 'acme' (acme-norm 1.2), which is broken({phase})" in told
    assert cause in told and str(file) in told
    line = next(i for i, row in enumerate(text.splitlines(), 1) if at in row)
    assert not at or f"{file}:{line}" in told
    assert caught.value.__cause__ is not None
    with pytest.raises(UnknownPart) as other:
        registry.lookup("model", "nothing_of_it")
    assert "comes from" not in str(other.value)


@pytest.mark.parametrize("name", ["small", "acme-norm:small", "acme:small"])
def test_show_of_a_part_of_a_broken_plugin_tells_its_cause(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from pegboard.cli import main

    text = PLUGIN.replace("from typing", "import not_there\nfrom typing")
    _installed(tmp_path / "site", text, monkeypatch)
    assert main(["show", name]) == 2
    told = capsys.readouterr().err
    assert "part 'small' comes from plugin 'acme' (acme-norm 1.2), which is broken(import): Mod" in told
    assert "pegboard plugins doctor acme-norm" in told


def test_no_other_part_is_offered_for_one_of_a_broken_plugin(
    config: Callable[..., dict[str, object]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pegboard
    from pegboard import PegboardError

    text = PLUGIN.replace("from typing", "import not_there\nfrom typing").replace('"small"', '"mlps"')
    _installed(tmp_path / "site", text, monkeypatch)
    with pytest.raises(PegboardError) as caught:
        pegboard.plan(config(model={"name": "mlps", "hidden": [4]}))
    told = str(caught.value)
    assert (
        "1 mistake" in told and "broken(import): ModuleNotFoundError" in told and "did you mean" not in told
    )


def test_a_trick_says_on_which_inputs_it_works(
    config: Callable[..., dict[str, object]], tmp_path: Path
) -> None:
    import pegboard
    from pegboard import PegboardError

    text = PLUGIN.replace("import Model,", "import Image, Model, Vector,")
    for name, inputs, fine in (("a", "(Image,)", False), ("b", "(Image, Vector)", True)):
        path = tmp_path / f"{name}.py"
        path.write_text(text.replace("neutral={", f"inputs={inputs}, neutral={{"))
        local = {"local": [*config()["plugins"]["local"], str(path)]}  # type: ignore[index]
        given = config(plugins=local, regularizers={"noise": {"name": f"{path}:noise"}})
        if fine:
            pegboard.plan(given)
            continue
        with pytest.raises(PegboardError) as caught:
            pegboard.plan(given)
        assert "regularizer 'noise' works on inputs that are Image, but 'points' gives Vector" in str(
            caught.value
        )
        assert "take it out: noise: null" in str(caught.value)
    assert Regularizer("x", int, int, inputs=(Vector,)).inputs == (Vector,)  # type: ignore[arg-type]
