"""Plugins of other releases: which of them fit this core, and how records of earlier APIs are read."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pegboard.base.deprecation as deprecation
import pegboard.registry.adapters as adapters
import pytest
import yaml
from crowd import MODULE, install
from pegboard import Context, Optimizer, PegboardDeprecationWarning
from pegboard.base.deprecation import renamed
from pegboard.cli import main
from pegboard.registry.adapters import Adapter, plugin_api
from pegboard.registry.discovery import Registry
from pegboard.registry.installed import Plugin, find_installed, negotiate
from pegboard.tools.isolated_import import import_alone

PYTHON = f'python_version >= "{sys.version_info[0]}.{sys.version_info[1]}"'
OTHER = f'python_version < "{sys.version_info[0]}.{sys.version_info[1]}"'

# A core, the requirements of a plugin, and whether the two fit.
FITS = [
    ("0.2.0", ["pegboard>=0.2,<1"], True),
    ("0.9.3", ["pegboard>=0.2,<1"], True),
    ("1.0.0", ["pegboard>=0.2,<1"], False),
    ("0.1.9", ["pegboard>=0.2,<1"], False),
    ("0.2.0", ["Pegboard (>=0.2,<1)"], True),
    ("0.2.0", ["pegboard[all]>=0.3"], False),
    ("0.2.7", ["pegboard~=0.2.5"], True),
    ("0.3.0", ["pegboard~=0.2.5"], False),
    ("0.2.1", ["pegboard==0.2.*,!=0.2.1"], False),
    # A release candidate fits a range that it lies in; one of a bound lies outside, as for pip.
    ("0.3.0rc1", ["pegboard>=0.2,<1"], True),
    ("0.2.0rc1", ["pegboard>=0.2,<1"], False),
    ("1.0.0rc1", ["pegboard>=0.2,<1"], False),
    ("0.2.0rc1", ["pegboard>=0.2rc1"], True),
    # Conditions: what is asked for an extra or another Python does not count.
    ("0.2.0", ['pegboard>=99; extra == "new"'], True),
    ("0.2.0", [f"pegboard>=99; {OTHER}", f"pegboard>=0.2; {PYTHON}"], True),
    ("0.2.0", [f"pegboard>=99; {PYTHON}"], False),
    # Several requirements hold together.
    ("0.2.0", ["pegboard>=0.1", "pegboard<0.2"], False),
    ("0.2.0", ["pegboard>=0.1", "pegboard<0.3"], True),
    ("0.2.0", ["pegboard"], True),
    ("0.2.0", [], True),
    ("0.2.0", ["pegboard>>2"], True),
    ("0.2.0", ["pegboard-mlp>=99"], True),
]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder on the path, and an empty cache; nothing was warned of yet."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    others = {name: module for name, module in sys.modules.items() if not name.startswith("acme_")}
    monkeypatch.setattr(sys, "modules", others)
    monkeypatch.setattr(deprecation, "_told", set())
    return folder


def found(dist: str) -> Plugin:
    (plugin,) = [p for p in Registry.discover().plugins if p.dist == dist]
    return plugin


@pytest.mark.parametrize(("core", "needs", "fits"), FITS)
def test_a_plugin_fits_the_cores_that_its_requirements_allow(
    core: str, needs: list[str], fits: bool, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(site, "acme-range", MODULE.format(name="ranged"), needs)
    monkeypatch.setattr("pegboard.registry.installed.__version__", core)
    (plugin,) = [p for p, _, _ in find_installed() if p.dist == "acme-range"]
    negotiate(plugin)
    assert plugin.status == ("found" if fits else "incompatible")


@pytest.mark.parametrize(
    ("needs", "hint"), [("pegboard>=99", "pip install --upgrade pegboard"), ("pegboard<0.1", "acme-other")]
)
def test_code_that_does_not_fit_never_runs(needs: str, hint: str, site: Path, tmp_path: Path) -> None:
    mark = tmp_path / "it ran"
    install(site, "acme-other", f"open({str(mark)!r}, 'w')\n" + MODULE.format(name="other"), [needs])
    plugin = found("acme-other")
    assert plugin.state == "incompatible" and not mark.exists() and "acme_other" not in sys.modules
    assert plugin.reason.startswith(f"needs {needs}, this is ") and plugin.reason.endswith(hint)


def test_another_core_asks_again_whether_a_known_plugin_fits(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "it ran"
    install(site, "acme-known", f"open({str(mark)!r}, 'w')\n" + MODULE.format(name="known"), ["pegboard<0.9"])
    assert found("acme-known").state == "ready"
    mark.unlink()
    del sys.modules["acme_known"]
    for module in ("installed", "offers_cache"):
        monkeypatch.setattr(f"pegboard.registry.{module}.__version__", "0.9.0")
    assert found("acme-known").state == "incompatible" and not mark.exists()


@pytest.mark.parametrize("needs", [[], ["pegboard"], ['pegboard>=99; extra == "x"'], ["pegboard-mlp>=0.1"]])
def test_a_plugin_without_a_range_is_noted(needs: list[str], site: Path) -> None:
    install(site, "acme-any", MODULE.format(name="any"), needs)
    install(site, "acme-bound", MODULE.format(name="bound"))
    for _ in range(2):  # the second time it is known, and not negotiated with
        plugin = found("acme-any")
        assert plugin.state == "ready" and "does not say with which releases of the core" in plugin.reason
        assert found("acme-bound").reason == ""


@pytest.mark.parametrize(
    ("needs", "api"),
    [
        (["pegboard>=0.1,<1"], 1),
        (["pegboard>=0.1.7"], 1),
        (["pegboard==0.1.*"], 1),
        (["pegboard<1"], 1),
        ([], 1),
        (["pegboard>=0.2,<1"], 2),
        (["pegboard>=0.2rc1"], 2),
        (["pegboard~=0.2.3"], 2),
        (["pegboard>=0.1", "pegboard>0.2"], 2),
        (["pegboard>=7"], 3),
        (["pegboard===odd"], 1),
    ],
)
def test_the_api_of_a_plugin_is_that_of_the_oldest_core_it_allows(needs: list[str], api: int) -> None:
    assert plugin_api(needs) == api


OLD = """
    from dataclasses import dataclass
    from pegboard import Optimizer, hookimpl

    @dataclass(frozen=True)
    class Empty:
        '''Nothing.'''

    def build(config, context):
        raise AssertionError

    @hookimpl
    def pegboard_optimizers():
        return [
            Optimizer("old_first", Empty, build),
            Optimizer(
                "old_second",
                Empty,
                build,
                synchronizes=True,
            ),
        ]
"""
LINE = OLD.splitlines().index("                synchronizes=True,")  # the first line is cut off


def old(site: Path, code: str = OLD, needs: Sequence[str] = ("pegboard>=0.1,<1",)) -> str:
    """Install a plugin of API 1; its file."""
    install(site, "acme-old", textwrap.dedent(code).lstrip("\n"), needs)
    return str(site / "acme_old" / "__init__.py")


def heard(action: Callable[[], Any]) -> list[warnings.WarningMessage]:
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always")
        action()
    return [note for note in notes if note.category is PegboardDeprecationWarning]


def test_a_record_of_an_earlier_api_is_adapted_and_its_line_is_named(site: Path) -> None:
    file = old(site)
    registry: list[Registry] = []
    (note,) = heard(lambda: registry.append(Registry.discover()))
    assert (note.filename, note.lineno) == (file, LINE)
    text = str(note.message)
    assert text.startswith("acme-old 1.0 (plugin 'acme_old'): synchronizes=True of optimizer 'old_second'")
    assert "since pegboard 0.2 and an error from 1.0 on" in text and 'synchronizes="it reads' in text
    first, second = (registry[0].lookup("optimizer", name).part for name in ("old_first", "old_second"))
    assert isinstance(first, Optimizer) and isinstance(second, Optimizer)
    assert (first.synchronizes, second.synchronizes) == ("", "its plugin does not say why")
    assert not heard(lambda: Registry.discover().plugins), "once in a process"


def test_a_plugin_of_todays_api_may_not_write_as_before(site: Path) -> None:
    old(site, needs=["pegboard>=0.2,<1"])
    plugin = found("acme-old")
    assert plugin.state == "broken(record)" and "expected a text that says why" in plugin.reason


def test_nothing_is_said_of_records_that_are_as_they_should_be(site: Path) -> None:
    old(site, OLD.replace("synchronizes=True", 'synchronizes="it must"'))
    assert not heard(Registry.discover)
    assert found("acme-old").state == "ready"


@pytest.mark.parametrize(
    ("code", "line"),
    [
        # The name is a variable.
        ("return [Optimizer(n, Empty, build, synchronizes=True) for n in ['one']]", "return"),
        # The fields come from a mapping.
        (
            "m = {'synchronizes': True}\n        return [\n          Optimizer('one', Empty, build, **m)]",
            "Optimizer('one'",
        ),
        # Nothing to be found: the hook itself.
        ("O = Optimizer\n        return [O(*['one', Empty, build], **{'synchronizes': False})]", "@hookimpl"),
        # Others of that name, and others with that field, are not it.
        (
            "str('one'), dict(name='two', synchronizes=True)\n"
            "        return [Optimizer(name='one', config=Empty, build=build,\n          synchronizes=True)]",
            "synchronizes=True)]",
        ),
    ],
)  # fmt: skip
def test_the_line_is_found_however_a_record_is_made(code: str, line: str, site: Path) -> None:
    body = OLD.partition("        return [")[0] + f"        {code}\n"
    file = old(site, body)
    (note,) = heard(Registry.discover)
    text = Path(file).read_text().splitlines()
    assert note.filename == file and text[note.lineno - 1].strip().startswith(line)


def test_a_record_made_in_another_module_is_found_there(site: Path) -> None:
    made = (
        textwrap.dedent(OLD.partition("    @hookimpl")[0])
        + 'SECOND = Optimizer("old_second", Empty, build, synchronizes=True)\n'
    )
    hook = "from pegboard import hookimpl\nfrom .records import SECOND\n\n@hookimpl\n"
    old(site, f"{hook}def pegboard_optimizers():\n    return [SECOND]\n")
    (site / "acme_old" / "records.py").write_text(made)
    (note,) = heard(Registry.discover)
    assert note.filename == str(site / "acme_old" / "records.py")
    assert note.lineno == len(made.splitlines())


def test_where_warnings_are_errors_the_plugin_says_so(site: Path) -> None:
    old(site)
    with warnings.catch_warnings():
        warnings.simplefilter("error", PegboardDeprecationWarning)
        for _ in range(2):  # what stopped once stops again
            plugin = found("acme-old")
            assert plugin.state == "broken(record)" and "synchronizes=True of optimizer" in plugin.reason


def test_a_user_sees_the_line_once_and_goes_on(site: Path) -> None:
    file = old(site)
    code = (
        "from pegboard.registry.discovery import Registry\n"
        "for _ in range(3): registry = Registry.discover()\n"
        "print(registry.lookup('optimizer', 'old_second').qualified)"
    )
    env = {"PYTHONPATH": str(site), "XDG_CACHE_HOME": str(site.parent / "other"), "PATH": "/usr/bin:/bin"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "acme-old:old_second\n")
    assert done.stderr.count("PegboardDeprecationWarning") == 1
    assert done.stderr.startswith(f"{file}:{LINE}: PegboardDeprecationWarning: acme-old 1.0")


def test_a_check_of_a_config_shows_the_line_too(
    site: Path, config: Callable[..., dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    file = old(site)
    path = site / "cfg.yaml"
    path.write_text(yaml.safe_dump(config(optimizer={"name": "old_second"})))
    assert main(["check", str(path)]) == 0
    assert capsys.readouterr().err.startswith(f"warning: {file}:{LINE}: acme-old 1.0 (plugin")


def test_doctor_sees_it_in_its_own_process(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = old(site)
    monkeypatch.setenv("PYTHONPATH", str(site))
    seen = import_alone("acme_old")
    assert (seen.error, len(seen.warnings)) == ("", 1)
    assert seen.warnings[0].startswith(f"{file}:{LINE}: ") and "synchronizes=True" in seen.warnings[0]


# What the core will write when it deprecates something, tried with things that it does not deprecate.


def test_a_hook_that_goes_away_is_named_where_it_is_defined(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(adapters.HOOKS, "pegboard_optimizers", ("0.7", "return them from pegboard_updates"))
    file = old(site, OLD.replace("synchronizes=True,", ""))
    ours = [note for note in heard(Registry.discover) if note.filename == file]
    (note,) = ours
    assert Path(file).read_text().splitlines()[note.lineno - 1] == "@hookimpl"
    assert str(note.message) == (
        "acme-old 1.0 (plugin 'acme_old'): the hook pegboard_optimizers is deprecated since pegboard 0.7 "
        "and an error from 1.0 on; return them from pegboard_updates"
    )


def test_a_field_that_is_renamed_is_carried_over(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    carried = Adapter(
        api=2,
        record=Optimizer,
        field="docs",
        old=lambda value: value == "there",
        new=lambda value: {"docs": "", "deprecated": value},
        instead="write deprecated",
    )
    monkeypatch.setattr(adapters, "ADAPTERS", (*adapters.ADAPTERS, carried))
    file = old(site, OLD.replace("synchronizes=True,", 'docs="there",'))
    (note,) = heard(Registry.discover)
    assert (note.filename, note.lineno) == (file, LINE)
    part = Registry.discover().lookup("optimizer", "old_second").part
    assert (part.docs, part.deprecated) == ("", "there")


def test_an_attribute_that_is_renamed_is_named_where_it_is_read(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Context, "updates", renamed("Context", "updates", "steps", "1.4"), raising=False)
    reads = "        return context.updates"
    file = old(site, OLD.replace("        raise AssertionError", reads).replace("synchronizes=True,", ""))
    part = Registry.discover().lookup("optimizer", "old_first").part
    answers: list[Any] = []
    (note,) = heard(lambda: answers.append(part.build(part.config(), Context(steps=7))))
    assert answers == [7]
    assert note.filename == file and "context.updates" in Path(file).read_text().splitlines()[note.lineno - 1]
    assert str(note.message) == (
        "acme-old 1.0 (plugin 'acme_old'): Context.updates is deprecated since pegboard 1.4 and an error "
        "from 2.0 on; read Context.steps"
    )


def test_a_line_of_no_plugin_is_told_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass
    class Thing:
        new: int = 3

    monkeypatch.setattr(Thing, "old", renamed("Thing", "old", "new", "0.2"), raising=False)
    (note,) = heard(lambda: Thing().old)  # type: ignore[attr-defined]
    assert note.filename == __file__ and str(note.message).startswith("Thing.old is deprecated since")
    # A plugin that is installed beside the core is not the core.
    beside = f"{Path(deprecation.__file__).parents[1]}_acme/__init__.py"
    (note,) = heard(lambda: exec(compile("\nthing.old", beside, "exec"), {"thing": Thing()}))
    assert (note.filename, note.lineno) == (beside, 2)


def test_a_hook_of_a_later_core_is_left_alone_where_it_is_optional(site: Path) -> None:
    later = "\n    @hookimpl{}\n    def pegboard_dreams():\n        raise AssertionError\n"
    old(site, OLD.replace("synchronizes=True,", "") + later.format("(optionalhook=True)"))
    assert found("acme-old").state == "ready"
    install(site, "acme-strict", textwrap.dedent(OLD + later.format("")).lstrip("\n"))
    assert found("acme-strict").state == "broken(hook)"
