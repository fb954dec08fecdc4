"""What importing a plugin does is seen from outside, whatever it does."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from crowd import MODULE, install
from pegboard.tools.isolated_import import Imported, import_alone, import_each
from strangers import BROKEN, CHANGES, ILL, RUDE, move_in

KINDS = ("well", *BROKEN, *RUDE, *ILL)
LIMIT = 3.0


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("strangers")


@pytest.fixture(scope="module")
def seen(place: Path) -> Iterator[dict[str, Imported]]:
    """All of them, imported once."""
    site = place / "site"
    site.mkdir()
    move_in(site, *KINDS)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(site))
        patch.setenv("ACME_FILE", str(place / "pid"))
        patch.setenv("PYTHONPYCACHEPREFIX", str(place / "compiled"))
        targets = [f"acme_{kind}" for kind in KINDS]
        yield {KINDS[i]: found for i, found in import_each(targets, LIMIT, at_once=4)}


def test_a_plugin_that_behaves_gives_nothing_to_report(seen: dict[str, Imported]) -> None:
    well = seen["well"]
    assert well.parts == ("regularizer part_well",) and well.milliseconds > 0
    assert well == Imported(milliseconds=well.milliseconds, parts=well.parts)


@pytest.mark.parametrize(
    ("kind", "error", "line"),
    [
        ("missing", "ModuleNotFoundError: No module named 'surely_not_installed_anywhere'", 1),
        ("exits", "SystemExit: 3", 2),
        ("raises", "RuntimeError: boom", 2),
        ("typo", "SyntaxError: '(' was never closed", 1),
    ],
)
def test_what_stops_an_import_is_told_with_its_line(
    kind: str, error: str, line: int, seen: dict[str, Imported], place: Path
) -> None:
    found = seen[kind]
    assert found.error.startswith(error) and found.phase == "import"
    assert found.where == f"{place / 'site' / f'acme_{kind}' / '__init__.py'}:{line}"
    assert (found.signal, found.hung, found.parts) == ("", False, ())


def test_a_crash_is_told_by_its_signal_and_line(seen: dict[str, Imported], place: Path) -> None:
    found = seen["crashes"]
    assert (found.signal, found.hung) == ("SIGSEGV", False) and "SIGSEGV" in found.error
    assert found.where == f"{place / 'site' / 'acme_crashes' / '__init__.py'}:3"
    assert found.printed == ""


def test_a_hang_is_ended_and_told_with_the_line_of_the_plugin(seen: dict[str, Imported], place: Path) -> None:
    found = seen["hangs"]
    assert found.hung and "did not end within 3 s" in found.error
    assert found.where == f"{place / 'site' / 'acme_hangs' / '__init__.py'}:3"


def test_a_process_that_is_left_is_told_with_its_code_and_last_words(seen: dict[str, Imported]) -> None:
    found = seen["leaves"]
    assert found.error == "it ended the process, with code 7: bye" and not found.signal and not found.hung


def test_manners_are_noted_each_by_itself(seen: dict[str, Imported], place: Path) -> None:
    assert seen["heavy"].heavy == ("mlflow",)
    assert seen["bulky"].heavy == ("bulky",)
    assert sorted(seen["prints"].printed.split()) == ["hello", "there"]
    assert "UserWarning: mind the gap" in seen["warns"].printed and not seen["warns"].warnings
    assert seen["draws"].drew
    assert seen["calls"].network == ("127.0.0.1:9",)
    file = place / "site" / "acme_deprecated" / "__init__.py"
    assert seen["deprecated"].warnings == (f"{file}:3: that is old",)
    for kind in RUDE:
        found = seen[kind]
        assert found.error == "" and found.parts == (f"regularizer part_{kind}",)
        noted = [bool(found.heavy), bool(found.printed), found.drew, bool(found.network), bool(found.changed)]
        assert sum(noted) == (kind != "deprecated"), kind


def test_every_change_to_the_process_is_named(seen: dict[str, Imported], place: Path) -> None:
    assert set(seen["changes"].changed) == {*re.split(r"[|\n]", CHANGES), f"the file {place / 'pid'}"}


def test_what_it_started_is_ended_with_it(seen: dict[str, Imported], place: Path) -> None:
    pid = int((place / "pid").read_text())
    state = Path(f"/proc/{pid}/stat")
    if not state.parent.parent.is_dir():
        pytest.skip("needs /proc")
    ends = time.monotonic() + 600
    while state.exists() and state.read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < ends
        time.sleep(0.05)


def test_its_own_health_check_is_asked_and_may_print(seen: dict[str, Imported]) -> None:
    found = seen["unwell"]
    assert found.health == ("no licence; a file acme.key; ask Acme",)
    assert (found.error, found.printed) == ("", "")
    errors = {kind: seen[kind].error for kind in ILL if kind != "unwell"}
    assert errors == {
        "sick": "pegboard_health: OSError: no answer",
        "fainting": "pegboard_health: SystemExit: 3",
        "mistaken": "pegboard_health: TypeError: it returned 'all is lost', expected a list of Problems",
    }
    assert all(seen[kind].phase == "health" for kind in errors)


@pytest.mark.sweep
def test_a_local_file_an_attribute_and_an_absent_module_are_targets_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text(MODULE.format(name="mine"))
    (tmp_path / "acme_held.py").write_text(MODULE.format(name="held"))
    (tmp_path / "acme_holder.py").write_text("class A:\n    import acme_held as module\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    targets = [str(tmp_path / "mine.py"), "acme_holder:A.module", "acme_nowhere"]
    found = dict(import_each(targets))
    assert [found[i].parts for i in range(3)] == [("regularizer mine",), ("regularizer held",), ()]
    assert found[2].error == "ModuleNotFoundError: No module named 'acme_nowhere'" and found[2].where == ""


def test_a_module_in_the_working_folder_is_not_taken_for_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "random.py").write_text("raise RuntimeError('not me')\n")
    (tmp_path / "mine.py").write_text("import random\n" + MODULE.format(name="mine"))
    monkeypatch.chdir(tmp_path)
    assert import_alone("mine.py").error == ""


def test_a_record_of_another_api_is_judged_by_the_range_of_its_plugin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = """
from dataclasses import dataclass
from pegboard import Optimizer, hookimpl

@dataclass(frozen=True)
class Empty:
    '''Nothing.'''

@hookimpl
def pegboard_optimizers():
    return [Optimizer("waits", Empty, print, synchronizes=True)]
"""
    install(tmp_path, "acme-before", code, ["pegboard>=0.1,<1"])
    install(tmp_path, "acme-today", code, ["pegboard>=0.2,<1"])
    monkeypatch.syspath_prepend(str(tmp_path))
    found = dict(import_each(["acme_before", "acme_today"]))
    assert found[0].error == "" and "acme-before 1.0" in found[0].warnings[0]
    assert found[1].phase == "record"


def test_whoever_leaves_early_leaves_no_process_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    move_in(tmp_path, "well", "hangs")
    monkeypatch.syspath_prepend(str(tmp_path))
    made: list[subprocess.Popen[bytes]] = []
    start = subprocess.Popen

    def noted(*args: object, **options: object) -> subprocess.Popen[bytes]:
        made.append(start(*args, **options))  # type: ignore[call-overload]
        return made[-1]

    monkeypatch.setattr(subprocess, "Popen", noted)
    with closing(import_each(["acme_hangs", "acme_well"], limit=600, at_once=2)) as ending:  # type: ignore[type-var]
        assert next(ending)[0] == 1
    assert len(made) == 2 and all(process.returncode is not None for process in made)


def test_it_imports_nothing_heavy_itself() -> None:
    code = "import sys, pegboard.tools.doctor, pegboard.tools.import_child\n"
    code += "print({'torch', 'numpy'} & set(sys.modules))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    found = subprocess.check_output([sys.executable, "-c", code], text=True, env=environment)
    assert found.strip() == "set()"
