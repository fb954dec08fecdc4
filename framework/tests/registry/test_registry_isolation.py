"""Whatever a plugin does, the host lists it with a status; only using it is an error."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pegboard import PegboardError
from pegboard.registry.discovery import Registry, UnknownPart

GOOD = """
    from dataclasses import dataclass
    from pegboard import Model, hookimpl

    @dataclass(frozen=True)
    class Tiny:
        '''A tiny model.'''
        width: int = 3  # units

    @hookimpl
    def pegboard_models():
        return [Model("{name}", Tiny, lambda config, context: None)]
"""

# ruff: noqa: E501
BROKEN = {
    "missing_dependency": ("import surely_not_installed_anywhere", "import", "surely_not_installed"),
    "exits": ("import sys\nsys.exit(3)", "import", "SystemExit"),
    "raises": ("raise RuntimeError('boom')", "import", "boom"),
    "misspelt_hook": (
        "from pegboard import hookimpl\n@hookimpl\ndef pegboard_modles():\n    return []",
        "hook",
        "did you mean 'pegboard_models'",
    ),
    "wrong_signature": (
        "from pegboard import hookimpl\n@hookimpl\ndef pegboard_models(surprise):\n    return []",
        "register",
        "surprise",
    ),
    "late_generator": (
        "from pegboard import hookimpl\n@hookimpl\ndef pegboard_models():\n    yield from ()\n    raise OSError('late')",
        "collect",
        "late",
    ),
    "not_a_record": (
        "from pegboard import hookimpl\n@hookimpl\ndef pegboard_models():\n    return ['mlp']",
        "record",
        "expected Model",
    ),
    "bad_name": (
        "from pegboard import Model, hookimpl\n@hookimpl\ndef pegboard_models():\n    return [Model('A b', int, int)]",
        "record",
        "not a part name",
    ),
    "no_build": (
        "from pegboard import Model, hookimpl\n@hookimpl\ndef pegboard_models():\n    return [Model('a', int, 3)]",
        "record",
        "not a function",
    ),
    "not_a_dataclass": (
        "from pegboard import Model, hookimpl\n@hookimpl\ndef pegboard_models():\n    return [Model('a', int, int)]",
        "schema",
        "expected a dataclass",
    ),
    "reserved_field": (
        "from dataclasses import dataclass\nfrom pegboard import Model, hookimpl\n"
        "@dataclass\nclass C:\n    name: str = ''\n"
        "@hookimpl\ndef pegboard_models():\n    return [Model('a', C, int)]",
        "schema",
        "the core's own",
    ),
    "same_name_twice": (
        "from dataclasses import dataclass\nfrom pegboard import Model, hookimpl\n@dataclass\nclass C:\n    a: int = 0\n"
        "@hookimpl\ndef pegboard_models():\n    return [Model('a', C, int), Model('a', C, int)]",
        "schema",
        "two parts",
    ),
    "no_hooks": ("x = 1", "hook", "it has no hooks"),
    "unmarked_hook": ("def pegboard_models():\n    return []", "hook", "pegboard_models is not decorated"),
    "not_a_list": (
        "from dataclasses import dataclass\nfrom pegboard import Model, hookimpl\n@dataclass\nclass C:\n    a: int = 0\n"
        "@hookimpl\ndef pegboard_models():\n    return Model('a', C, int)",
        "collect",
        "expected a list",
    ),
    "path_of_recipes": (
        "from pegboard import hookimpl\n@hookimpl\ndef pegboard_recipes():\n    return '/tmp'",
        "collect",
        "returned '/tmp', expected a list",
    ),
    "no_text": (
        "class Silent(Exception):\n    def __str__(self):\n        raise OSError\nraise Silent",
        "import",
        "Silent",
    ),
    "unprintable": ("raise RuntimeError('\\udcff')", "import", "RuntimeError: ?"),
}
# What a record declares wrongly would stop configs that do not even name it.
DECLARED = {
    "Model('a', C, int, inputs=3)": "inputs of 'a' is 3, expected a tuple of Spec classes",
    "Model('a', C, int, targets=(int,))": "expected a tuple of Spec classes",
    "Model('a', C, int, pegs='hidden')": "pegs of 'a' is 'hidden', expected a tuple of names",
    "Regularizer('a', C, int, after=('dropout'))": "after of 'a' is 'dropout', expected a tuple of names",
    "Regularizer('a', C, int, stages=['hang'])": "expected a mapping of stages to roles",
    "ObjectivePart('a', C, int, default_for=3)": "default_for of 'a' is 3",
    "Model('a', C, int, synchronizes=True)": "synchronizes of 'a' is True, expected a text that says why",
}


def install(site: Path, dist: str, code: str, requires: str = "pegboard>=0.1", point: str = "") -> None:
    """Put an importable plugin with its metadata into a folder, as pip would."""
    module = dist.replace("-", "_")
    (site / f"{module}.py").write_text(textwrap.dedent(code))
    info = site / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {dist}\nVersion: 1.0\nRequires-Dist: {requires}\n"
    )
    (info / "entry_points.txt").write_text(f"[pegboard]\n{point or module} = {module}\n")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    return folder


def status(registry: Registry, dist: str) -> str:
    (plugin,) = [p for p in registry.plugins if p.dist == dist]
    return plugin.state


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_plugin_is_listed_with_its_phase_and_cause(kind: str, site: Path) -> None:
    code, phase, reason = BROKEN[kind]
    dist = f"broken-{kind.replace('_', '-')}"
    install(site, dist, code)
    install(site, f"fine-beside-{kind.replace('_', '-')}", GOOD.format(name="tiny"))
    registry = Registry.discover()
    (plugin,) = [p for p in registry.plugins if p.dist == dist]
    assert (plugin.status, plugin.phase) == ("broken", phase)
    assert reason in plugin.reason
    assert registry.lookup("model", "tiny").plugin.dist.startswith("fine-beside")


@pytest.mark.parametrize("record", DECLARED)
def test_a_record_that_declares_nonsense_breaks_its_own_plugin_only(record: str, site: Path) -> None:
    hook = {"M": "models", "R": "regularizers", "O": "objectives"}[record[0]]
    install(
        site,
        f"declares-{list(DECLARED).index(record)}",
        "from dataclasses import dataclass\nfrom pegboard.contract.records import *\nfrom pegboard import hookimpl\n"
        "@dataclass\nclass C:\n    x: int = 0\n"
        f"@hookimpl\ndef pegboard_{hook}():\n    return [{record}]",
    )
    (plugin,) = [p for p in Registry.discover().plugins if p.dist.startswith("declares-")]
    assert plugin.state == "broken(record)" and DECLARED[record] in plugin.reason


def test_a_hook_without_records_is_remarked_on(site: Path) -> None:
    code = "from pegboard import hookimpl\n@hookimpl\ndef pegboard_models():\n    pass"
    install(site, "acme-nothing", code)
    (plugin,) = [p for p in Registry.discover().plugins if p.dist == "acme-nothing"]
    assert plugin.state == "ready" and "it offers nothing" in plugin.reason


def test_a_requirement_that_cannot_be_decided_does_not_stop_discovery(site: Path) -> None:
    undecidable = 'pegboard; python_version ~= "abc"'
    install(site, "acme-riddle", GOOD.format(name="riddle"), requires=undecidable)
    assert Registry.discover().lookup("model", "riddle")


def test_what_a_plugin_prints_stays_out_of_standard_output(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from pegboard.cli import main

    install(site, "acme-loud", "print('hello')" + textwrap.dedent(GOOD.format(name="loud")))
    assert main(["plugins", "list", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out) and err == "hello\n"


@pytest.mark.parametrize("field", ["a: 'Nowhere' = 1", "a: int = field(default_factory=lambda: 1 / 0)"])
def test_a_config_class_that_cannot_be_read_stops_only_its_own_page(
    field: str, site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from pegboard.cli import main

    code = (
        "from dataclasses import dataclass, field\nfrom pegboard import Model, hookimpl\n"
        f"@dataclass\nclass C:\n    {field}\n"
        "@hookimpl\ndef pegboard_models():\n    return [Model('unreadable', C, int)]"
    )
    install(site, f"acme-unreadable-{len(field)}", code)
    assert main(["schema"]) == 0 and main(["show"]) == 0
    assert "unreadable" in capsys.readouterr().out
    assert main(["show", "unreadable"]) == 2
    assert "a defect of acme-unreadable" in capsys.readouterr().err


def test_use_of_a_broken_plugin_tells_the_cause(site: Path) -> None:
    install(site, "acme-shape", "import surely_not_installed_anywhere", point="shape")
    with pytest.raises(UnknownPart, match="acme-shape 1.0.*broken.import.*surely_not_installed") as caught:
        Registry.discover().lookup("model", "acme-shape:shape")
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)


def test_an_incompatible_plugin_is_not_imported(site: Path) -> None:
    install(site, "from-the-future", "raise AssertionError('imported')", requires="pegboard>=99")
    registry = Registry.discover()
    assert status(registry, "from-the-future") == "incompatible"
    (plugin,) = [p for p in registry.plugins if p.dist == "from-the-future"]
    assert "needs pegboard>=99" in plugin.reason


def test_a_requirement_for_an_extra_does_not_count(site: Path) -> None:
    install(site, "with-extra", GOOD.format(name="tiny2"), requires='pegboard>=99; extra == "new"')
    assert status(Registry.discover(), "with-extra") == "ready"


def test_two_plugins_with_one_name_clash_only_on_use(site: Path) -> None:
    install(site, "acme-one", GOOD.format(name="twin"))
    install(site, "acme-two", GOOD.format(name="twin"))
    install(site, "acme-three", GOOD.format(name="single"))
    registry = Registry.discover()
    assert registry.lookup("model", "single").qualified == "acme-three:single"
    assert registry.lookup("model", "acme-two:twin").plugin.dist == "acme-two"
    assert registry.reference(registry.lookup("model", "acme-two:twin")) == "acme-two:twin"
    assert registry.reference(registry.lookup("model", "single")) == "single"
    with pytest.raises(UnknownPart, match="2 plugins offer") as caught:
        registry.lookup("model", "twin")
    assert set(caught.value.nearest) == {"acme-one:twin", "acme-two:twin"}


def test_an_older_copy_further_down_the_path_is_shadowed(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(site, "acme-copy", GOOD.format(name="copied"))
    first = tmp_path / "first"
    first.mkdir()
    monkeypatch.syspath_prepend(str(first))
    install(first, "acme-copy", GOOD.format(name="copied"))
    states = [p.state for p in Registry.discover().plugins if p.dist == "acme-copy"]
    assert sorted(states) == ["ready", "shadowed"]


def test_switches_keep_code_from_running(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(site, "acme-off", "raise AssertionError('imported')")
    install(site, "acme-on", GOOD.format(name="on"))
    assert status(Registry.discover(disable=["acme-off"]), "acme-off") == "disabled"
    monkeypatch.setenv("PEGBOARD_PLUGINS_DISABLE", "acme_off")
    assert status(Registry.discover(), "acme-off") == "disabled"
    monkeypatch.delenv("PEGBOARD_PLUGINS_DISABLE")
    monkeypatch.setenv("PEGBOARD_PLUGINS", "acme-on")
    registry = Registry.discover()
    assert status(registry, "acme-off") == "disabled"
    assert [p.dist for p in registry.plugins if p.status == "ready"] == ["acme-on"]


def test_a_switch_that_names_nothing_installed_is_an_error(site: Path) -> None:
    install(site, "acme-real", GOOD.format(name="real"))
    with pytest.raises(
        PegboardError, match=r"plugins.disable names the plugin 'acme-reel'.*Did you mean 'acme-real'"
    ):
        Registry.discover(disable=["acme-reel"])


def test_the_strict_switch_makes_every_status_an_error(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(site, "acme-bad", "1/0")
    monkeypatch.setenv("PEGBOARD_PLUGINS_STRICT", "1")
    with pytest.raises(PegboardError, match="acme-bad.*division by zero"):
        Registry.discover()


def test_unknown_names_are_answered_with_the_nearest_and_the_list(site: Path) -> None:
    install(site, "acme-shapes", GOOD.format(name="triangle"))
    registry = Registry.discover()
    with pytest.raises(UnknownPart, match="unknown model 'triangel'") as caught:
        registry.lookup("model", "triangel")
    assert caught.value.nearest[0] == "triangle"
    assert "pegboard show models" in caught.value.hint
    with pytest.raises(UnknownPart, match="'triangle' is a model, not a regularizer"):
        registry.lookup("regularizer", "triangle")
    with pytest.raises(UnknownPart, match="'acme-shapes' offers no model 'square'"):
        registry.lookup("model", "acme-shapes:square")
    with pytest.raises(UnknownPart, match="the plugin 'acme-forms' is not installed"):
        registry.lookup("model", "acme-forms:triangle")


def test_a_known_part_that_is_not_installed_comes_with_the_pip_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "pegboard.registry.discovery._index", lambda: {"model": {"faraway": "pegboard-faraway"}}
    )
    with pytest.raises(UnknownPart, match="not installed") as caught:
        Registry([]).lookup("model", "faraway")
    assert caught.value.hint == "pip install pegboard-faraway"
    with pytest.raises(UnknownPart, match="not installed") as caught:
        Registry([]).lookup("model", "pegboard-faraway:faraway")
    assert caught.value.hint == "pip install pegboard-faraway"


def test_local_files_are_plugins_when_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(textwrap.dedent(GOOD.format(name="homemade")))
    registry = Registry.discover(local=[path])
    assert registry.lookup("model", "homemade").plugin.name == "mine"
    missing = Registry.discover(local=[tmp_path / "absent.py"])
    assert missing.plugins[-1].state == "broken(import)"


def test_damaged_metadata_of_a_stranger_does_not_stop_discovery(site: Path) -> None:
    info = site / "damaged-1.0.dist-info"
    info.mkdir()
    (info / "entry_points.txt").write_bytes(b"\xff\xfe[pegboard\n===")
    install(site, "acme-alive", GOOD.format(name="alive"))
    assert Registry.discover().lookup("model", "alive")


def test_the_list_of_plugins_is_printed_and_json(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from pegboard.cli import main

    install(site, "acme-crash", "raise RuntimeError('boom')")
    assert main(["plugins", "list"]) == 0
    assert "broken(import)" in capsys.readouterr().out
    assert main(["plugins", "list", "--json"]) == 0
    records = {p["dist"]: p for p in json.loads(capsys.readouterr().out)}
    assert records["acme-crash"]["reason"] == "RuntimeError: boom"


def test_a_slow_import_is_remarked_on(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from pegboard.cli import main

    install(site, "acme-slow", "import time\ntime.sleep(0.25)" + textwrap.dedent(GOOD.format(name="slow")))
    assert main(["plugins", "list"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "acme-slow" in line]
    assert "ready" in line and "model slow; slow: its import took" in line


def test_a_run_does_not_notice_strangers(
    site: Path, config: Callable[..., dict[str, Any]], root: Path
) -> None:
    import pegboard

    def trained() -> list[bytes]:
        run = pegboard.train(config(regularizers={"drop": {"p": 0.2}}), root=root, quiet=True)
        names = ("checkpoints/last/model.safetensors", "metrics.jsonl", "config.yaml", "plan.txt")
        return [(run.folder / name).read_bytes() for name in names]

    alone = trained()
    for kind, (code, _, _) in BROKEN.items():
        install(site, f"stranger-{kind.replace('_', '-')}", code)
    install(site, "stranger-good", GOOD.format(name="unused"))
    install(site, "stranger-future", "1/0", requires="pegboard>=99")
    assert len(Registry.discover().plugins) >= len(BROKEN) + 2
    assert trained() == alone
