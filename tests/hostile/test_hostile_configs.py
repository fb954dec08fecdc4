"""Configs and recipes from a stranger are data: refused with the reason, never run."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pegboard
import pytest
import yaml
from hostile import CONFIG, EVIL, Said
from pegboard import PegboardError
from pegboard.cli import main
from pegboard.config.check import check
from pegboard.store import zoo
from sweeps import first_of_each


@pytest.mark.parametrize("place", first_of_each(["beside", "absolute", "nested"]))
def test_a_saved_config_never_runs_the_files_it_names(run: Path, said: Said, place: str) -> None:
    (run / "evil.py").write_text(EVIL)
    config = yaml.safe_load((run / "config.yaml").read_text())
    named = {"beside": "evil.py", "absolute": str(run / "evil.py"), "nested": "checkpoints/../evil.py"}
    config["plugins"] = {"local": [named[place]]}
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    for command in ("eval", "predict", "resume"):
        assert "if you trust it, name it: --local" in said(command, run)
    with pytest.raises(PegboardError, match="runs no files by itself"):
        pegboard.load(run)
    given = CONFIG | {"regularizers": {"distillation": {"teacher": str(run)}}}
    with pytest.raises(PegboardError, match=r"names this one: plugins.local=\[.*evil.py\]"):
        pegboard.train(given, root="runs", quiet=True)
    weights = CONFIG | {"model": {"name": "mlp", "hidden": [4], "weights": str(run)}}
    pegboard.train(weights, root="runs", quiet=True)  # which takes tensors and nothing else


@pytest.mark.parametrize("plugins", ["evil.py", 5, {"local": "evil.py"}, {"local": {"a": "evil.py"}}, [1]])
def test_local_plugins_written_in_another_way_are_not_run_either(run: Path, said: Said, plugins: Any) -> None:
    (run / "evil.py").write_text(EVIL)
    config = yaml.safe_load((run / "config.yaml").read_text())
    (run / "config.yaml").write_text(yaml.safe_dump(config | {"plugins": plugins}))
    for command in ("eval", "resume"):
        assert "plugins.local" in said(command, run)


GOOD = """
    from dataclasses import dataclass
    from pegboard import Model, hookimpl

    @dataclass(frozen=True)
    class Own:
        '''A model of one's own.'''

    def build(config, context):
        from torch import nn
        return nn.Linear(context.spec.inputs[0].size, context.outputs)

    @hookimpl
    def pegboard_models():
        return [Model("own", Own, build)]
"""


def test_a_local_plugin_that_the_user_names_is_run(here: Path, said: Said) -> None:
    for name in ("own_first.py", "own_second.py"):
        (here / name).write_text(textwrap.dedent(GOOD))
    given = CONFIG | {"model": {"name": "own"}, "plugins": {"local": ["own_first.py"]}}
    run = pegboard.train(given, root="runs", quiet=True).folder
    assert pegboard.load(run)  # it was named in this process
    config = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(config.replace("own_first", "own_second"))
    with pytest.raises(PegboardError, match=r"own_second\.py"):
        pegboard.load(run)
    assert "no file" in said("eval", run, "--local", "absent.py")
    assert main(["eval", str(run), "--local", "own_second.py"]) == 0
    assert pegboard.load(run, local=["own_second.py"])
    assert pegboard.resume(run, quiet=True, local=["own_first.py"]).status == "finished"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("seed: !!python/object/apply:os.system ['touch EXECUTED']", "YAML tag"),
        ("seed: !!python/name:os.system", "YAML tag"),
        ("seed: !evil 1", "YAML tag"),
        ("? !!python/object/apply:os.system ['touch EXECUTED']\n: 1", "as a key"),
        ("seed: 1\nseed: 2", "stands twice"),
        ("seed: &a [*a]", "contains it"),
        ("a: &a {b: 1}\nseed: {<<: 5}", "no mapping after '<<'"),
        ("\n".join(f"a{i}: &a{i} [{f'*a{i - 1}, ' * 9 if i else '1'}]" for i in range(12)), "values once"),
        ("seed: " + "[" * 5000, "nested deeper"),
        ("seed: " + "9" * 10_000, "expected"),
        ("seed: 1e999", "expected"),
        ("seed: \0", "character"),
        ("model: {_target_: os.system, command: touch EXECUTED}", "does not say which model"),
        ("model: {name: os.system}", "unknown model 'os.system'"),
        ("model: {name: 'subprocess:run'}", "subprocess"),
        ("optimizer: {name: 'torch.optim:SGD'}", "offers no optimizer"),
        ("name: ../../etc/cron.d/x", "a folder name"),
        ("name: /etc/x", "a folder name"),
        ("name: ..", "a folder name"),
        ("name: 'a\0b'", "a"),
        ("extends: [/etc/shadow-of-nothing]", "no file"),
        ("extends: /dev/zero", "no file"),
        ("extends: cfg.yaml", "leads back to itself"),
        ("seed: ${oc.env:HOME}", "a resolver"),
        ("name: a${oc.env:SECRET,x}", "a resolver"),
        ("name: ${oc.${a}:SECRET}\na: env", "inside an interpolation"),
        ("name: '\\\\${oc.env:SECRET}'", "a resolver"),
        ("seed: ${oc.decode:'1'}", "a resolver"),
    ],
)
def test_a_hostile_config_is_refused(
    said: Said, monkeypatch: pytest.MonkeyPatch, text: str, reason: str
) -> None:
    monkeypatch.setenv("SECRET", "open-sesame")
    taken = {line.split(":")[0] for line in text.splitlines()}
    rest = {k: v for k, v in CONFIG.items() if k not in taken}
    Path("cfg.yaml").write_bytes((yaml.safe_dump(rest) + text + "\n").encode())
    for command in ("check", "train"):
        told = said(command, "cfg.yaml")
        assert reason in told and "sesame" not in told and len(told) < 20_000
    assert not Path("runs").exists()


def test_a_config_that_is_no_text_is_refused(said: Said) -> None:
    Path("cfg.yaml").write_bytes(yaml.safe_dump(CONFIG).encode() + b"seed: \xff\n")
    assert "not a UTF-8 text" in said("check", "cfg.yaml")
    Path("cfg.yaml").write_bytes(yaml.safe_dump(CONFIG).encode("utf-16"))
    assert "not a UTF-8 text" in said("check", "cfg.yaml")
    Path("cfg.yaml").write_bytes(yaml.safe_dump(CONFIG).encode() + b"#" * 2**20)
    assert "larger than 1 MiB" in said("check", "cfg.yaml")
    Path("cfg.yaml").write_bytes(b"\xef\xbb\xbf" + yaml.safe_dump(CONFIG).encode())
    assert main(["check", "cfg.yaml"]) == 0  # a mark that editors write is no mistake


@pytest.mark.parametrize(
    "grow",
    first_of_each(
        [
            lambda i: f"${{a{i - 1}}}${{a{i - 1}}}",
            lambda i: [f"${{a{i - 1}}}"] * 2,
            lambda i: {"x": f"${{a{i - 1}}}", "y": f"${{.z}}{'x' * i}", "z": f"${{a{i - 1}}}"},
        ]
    ),
)
def test_interpolations_cannot_grow_without_end(grow: Callable[[int], Any]) -> None:
    config = {**CONFIG, "a0": "xxxxxxxx", **{f"a{i}": grow(i) for i in range(1, 60)}}
    with pytest.raises(PegboardError, match="grows to more than"):
        check(config)


def test_a_run_folder_leaks_nothing_of_the_environment(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "open-sesame")
    run = pegboard.train(CONFIG, "name=plain", root="runs", quiet=True).folder
    assert not [p for p in run.rglob("*") if p.is_file() and b"sesame" in p.read_bytes()]


# Recipes.
@pytest.mark.parametrize("name", ["../../x", "/etc/passwd", "digits/../digits/mlp", "..", "", "a:b:c", "\0"])
def test_a_recipe_is_a_name_and_no_path(said: Said, name: str) -> None:
    assert "no recipe" in said("zoo", "show", name)
    assert "no recipe" in said("eval", f"zoo:{name}")


@pytest.mark.parametrize("data", [b"[" * 100_000, b"\xff", b"5", b'{"spec": 5}', b"{}"])
def test_the_result_of_a_recipe_is_data(
    run: Path, data: bytes, monkeypatch: pytest.MonkeyPatch, here: Path
) -> None:
    shutil.copyfile(run / "checkpoints/last/model.safetensors", here / "model.safetensors")
    (here / "recipe.yaml").write_text(yaml.safe_dump(CONFIG))
    (here / "result.json").write_bytes(data)
    monkeypatch.setattr(zoo, "recipes", lambda registry=None: [zoo.Recipe("a/b", here, "somebody")])
    with pytest.raises(PegboardError):
        pegboard.load("zoo:a/b")
    assert main(["zoo", "list"]) == (0 if data == b"{}" else 2)
