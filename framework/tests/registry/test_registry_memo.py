"""Plugins that are known and unchanged are not imported until a part of theirs is used."""

from __future__ import annotations

import importlib
import json
import sys
from importlib import metadata
from pathlib import Path

import pytest
from crowd import MODULE, install
from pegboard import PegboardError
from pegboard.registry.discovery import Registry, UnknownPart
from pegboard.registry.installed import _points


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder on the path, and an empty cache; what was imported from it is forgotten."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "modules", sys.modules.copy())
    forget()
    return folder


def forget() -> None:
    """As in a new process."""
    for name in [n for n in sys.modules if n.startswith("acme_")]:
        del sys.modules[name]


def imported() -> list[str]:
    return sorted(name for name in sys.modules if name.startswith("acme_"))


def put(site: Path, dist: str, part: str, more: str = "") -> None:
    install(site, dist, more + MODULE.format(name=part))


def test_a_known_plugin_is_imported_when_its_part_is_used(site: Path) -> None:
    put(site, "acme-one", "lazy_one")
    put(site, "acme-two", "lazy_two")
    Registry.discover()
    assert imported() == ["acme_one", "acme_two"]
    forget()
    registry = Registry.discover()
    assert imported() == []
    entry = registry.lookup("regularizer", "lazy_two")
    assert (entry.qualified, registry.reference(entry)) == ("acme-two:lazy_two", "lazy_two")
    assert imported() == ["acme_two"]
    registry.entries("model")
    assert imported() == ["acme_two"]
    assert {"lazy_one", "lazy_two"} <= {e.part.name for e in registry.entries("regularizer")}
    assert imported() == ["acme_one", "acme_two"]


def test_the_list_of_plugins_imports_them_all(site: Path) -> None:
    put(site, "acme-one", "lazy_one")
    Registry.discover()
    forget()
    (plugin,) = [p for p in Registry.discover().plugins if p.dist == "acme-one"]
    assert (plugin.state, plugin.milliseconds > 0, [p.name for p in plugin.parts]) == (
        "ready",
        True,
        ["lazy_one"],
    )


def test_a_plugin_that_was_installed_again_is_imported_again(site: Path) -> None:
    put(site, "acme-one", "before")
    Registry.discover()
    forget()
    put(site, "acme-one", "after")
    registry = Registry.discover()
    assert imported() == ["acme_one"]
    assert registry.lookup("regularizer", "after")


def test_a_plugin_that_is_installed_for_editing_is_imported_again_once_a_file_of_it_changes(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(site, "acme-one", "lazy_one")
    monkeypatch.syspath_prepend(str(tmp_path / "source"))
    (tmp_path / "source").mkdir()
    (site / "acme_one").rename(tmp_path / "source" / "acme_one")
    Registry.discover()
    forget()
    Registry.discover()
    assert imported() == []
    (tmp_path / "source" / "acme_one" / "records.py").write_text("# beside its light module")
    Registry.discover()
    assert imported() == ["acme_one"]


def test_a_plugin_is_imported_again_once_one_is_installed_that_it_offers_more_with(site: Path) -> None:
    put(site, "acme-one", "lazy_one")
    head = site / "acme_one-1.0.dist-info" / "METADATA"
    head.write_text(head.read_text().rstrip() + '\nRequires-Dist: pegboard-nowhere>=1; extra == "more"\n')
    Registry.discover()
    forget()
    Registry.discover()
    assert imported() == []
    (site / "pegboard_nowhere").mkdir()
    (site / "pegboard_nowhere" / "__init__.py").write_text("")
    importlib.invalidate_caches()
    Registry.discover()
    assert imported() == ["acme_one"]


def test_a_module_that_was_edited_in_place_is_imported_again(site: Path) -> None:
    put(site, "acme-one", "before")
    Registry.discover()
    forget()
    (site / "acme_one" / "__init__.py").write_text(MODULE.format(name="after"))
    registry = Registry.discover()
    assert imported() == ["acme_one"] and registry.lookup("regularizer", "after")


def test_a_plugin_without_a_record_of_its_files_is_remembered_too(site: Path) -> None:
    put(site, "acme-one", "lazy_one")
    (site / "acme_one-1.0.dist-info" / "RECORD").unlink()
    Registry.discover()
    forget()
    Registry.discover()
    assert imported() == []


def test_a_part_that_appears_without_a_changed_file_is_found(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(
        site,
        "acme-one",
        "import os\n" + MODULE.format(name="{name}").replace('"{name}"', "os.environ['ACME']"),
    )
    monkeypatch.setenv("ACME", "before")
    Registry.discover()
    forget()
    monkeypatch.setenv("ACME", "after")
    assert Registry.discover().lookup("regularizer", "after")
    forget()
    with pytest.raises(UnknownPart, match="unknown regularizer 'before'"):
        Registry.discover().lookup("regularizer", "before")


def test_a_known_plugin_that_broke_since_tells_the_cause_on_use(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(site, "acme-one", "lazy_one", "import os\nassert 'ACME' not in os.environ, 'gone'\n")
    Registry.discover()
    forget()
    monkeypatch.setenv("ACME", "1")
    registry = Registry.discover()
    with pytest.raises(UnknownPart, match=r"broken\(import\): AssertionError: gone"):
        registry.lookup("regularizer", "acme-one:lazy_one")
    assert Registry.discover().plugins  # it is tried every time now
    monkeypatch.delenv("ACME")
    assert Registry.discover().lookup("regularizer", "lazy_one")


def test_two_known_plugins_with_one_name_still_clash(site: Path) -> None:
    put(site, "acme-one", "twin")
    put(site, "acme-two", "twin")
    Registry.discover()
    forget()
    with pytest.raises(UnknownPart, match="2 plugins offer the regularizer 'twin'"):
        Registry.discover().lookup("regularizer", "twin")


def test_switches_act_on_known_plugins(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(site, "acme-one", "lazy_one")
    Registry.discover()
    forget()
    with pytest.raises(UnknownPart, match="disabled"):
        Registry.discover(disable=["acme-one"]).lookup("regularizer", "acme-one:lazy_one")
    assert imported() == []
    monkeypatch.setenv("PEGBOARD_PLUGINS_STRICT", "1")
    put(site, "acme-two", "lazy_two", "raise RuntimeError\n")
    with pytest.raises(PegboardError, match="not every plugin is ready"):
        Registry.discover()


@pytest.mark.parametrize("text", ["{", "[]", '{"a": 3}', "null", "\x00"])
def test_a_damaged_cache_is_made_again(site: Path, tmp_path: Path, text: str) -> None:
    put(site, "acme-one", "lazy_one")
    file = tmp_path / "cache" / "pegboard" / "plugins.json"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    assert Registry.discover().lookup("regularizer", "lazy_one")
    assert [["regularizer", "lazy_one"]] in json.loads(file.read_text()).values()
    assert [p.name for p in file.parent.iterdir()] == ["plugins.json"]


def test_a_value_of_another_shape_counts_as_unknown(site: Path, tmp_path: Path) -> None:
    put(site, "acme-one", "lazy_one")
    Registry.discover()
    file = tmp_path / "cache" / "pegboard" / "plugins.json"
    for wrong in (3, None, "text", [["regularizer"]], [[1, 2, 3]]):
        file.write_text(json.dumps(dict.fromkeys(json.loads(file.read_text()), wrong)))
        forget()
        Registry.discover()
        assert imported() == ["acme_one"], wrong


def test_a_cache_that_cannot_be_written_is_done_without(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(site, "acme-one", "lazy_one")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert Registry.discover().lookup("regularizer", "lazy_one")


@pytest.mark.parametrize(
    "text",
    [
        "[pegboard]\na = b\n",
        "[console_scripts]\nx = y:z\n\n[pegboard]\na = b\nc=d:e\n[other]\nq = r\n",
        "# words\n[pegboard]\n# a = b\n c = d \n\n[pegboard]\ne = f",
        "  [pegboard]  \r\na = b [extra]\r\n",
        "[pegboard.more]\na = b\n",
        "",
    ],
)
def test_entry_points_are_read_as_the_standard_library_reads_them(text: str, tmp_path: Path) -> None:
    (tmp_path / "acme-1.0.dist-info").mkdir()
    (tmp_path / "acme-1.0.dist-info" / "entry_points.txt").write_text(text)
    (dist,) = metadata.distributions(path=[str(tmp_path)])
    expected = [(p.name, p.value) for p in dist.entry_points if p.group == "pegboard"]
    assert [(p.name, p.value) for p in _points(text)] == expected
