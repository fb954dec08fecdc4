"""Names that left the core for a plugin: they work, warn at the author's line, and say what to install."""

from __future__ import annotations

import sys
from pathlib import Path

import pegboard
import pytest
from pegboard import PegboardDeprecationWarning
from pegboard.base import deprecation

MOVED = sorted(pegboard._MOVED.items())


@pytest.fixture(autouse=True)
def untold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deprecation, "_told", set())


def run(path: Path, code: str) -> dict[str, object]:
    """What a file has after its code ran."""
    path.write_text(code)
    found: dict[str, object] = {}
    exec(compile(code, str(path), "exec"), found)
    return found


@pytest.mark.parametrize(("name", "home"), MOVED)
def test_a_moved_name_is_that_of_the_plugin(name: str, home: tuple[str, str], tmp_path: Path) -> None:
    file, (module, since) = tmp_path / "theirs.py", home
    with pytest.warns(PegboardDeprecationWarning) as caught:
        found = run(file, f"import math\n\nfrom pegboard import {name}\n")
    assert found[name] is getattr(sys.modules[module], name)
    (warning,) = caught
    assert (warning.filename, warning.lineno) == (str(file), 3)
    assert str(warning.message) == (
        f"pegboard.{name} is deprecated since pegboard {since} and an error from 1.0 on; "
        f"write from {module} import {name}"
    )
    with pytest.warns(PegboardDeprecationWarning) as caught:
        assert getattr(pegboard, name) is found[name]
    assert caught[0].filename == __file__


@pytest.mark.parametrize(("name", "home"), MOVED)
def test_without_the_plugin_it_says_what_to_install(
    name: str, home: tuple[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    module = home[0]
    monkeypatch.delitem(sys.modules, module, raising=False)
    find = sys.meta_path[:]

    class Absent:
        def find_spec(self, wanted: str, *rest: object) -> None:
            if wanted == module:
                raise ModuleNotFoundError(f"No module named {module!r}", name=module)

    monkeypatch.setattr(sys, "meta_path", [Absent(), *find])
    with pytest.raises(ImportError) as caught:
        run(tmp_path / "theirs.py", f"from pegboard import {name}\n")
    dist = module.replace("_", "-")
    assert str(caught.value) == (
        f"pegboard.{name} is part of {dist}, which is not installed\n"
        f"pip install {dist}, then: from {module} import {name}"
    )


def test_what_is_broken_in_the_plugin_is_told_as_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "needs_more.py").write_text("import nothing_of_this_name\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(pegboard._MOVED, "gone", ("needs_more", "0.3"))
    with pytest.raises(ModuleNotFoundError, match="nothing_of_this_name"):
        pegboard.gone  # noqa: B018


def test_they_are_not_among_the_names_that_the_core_shows() -> None:
    assert not {name for name, _ in MOVED} & {*pegboard.__all__, *dir(pegboard)}
