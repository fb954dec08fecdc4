"""Switches keep plugins from being imported, say why, and how to undo it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from crowd import MODULE, install
from pegboard import PegboardError
from pegboard.cli import COMMANDS, main
from pegboard.config.check import ConfigError, check
from pegboard.registry.discovery import Registry, UnknownPart
from strangers import DEADLY, code, forget, move_in, only_these

Capture = pytest.CaptureFixture[str]
Config = Callable[..., dict[str, Any]]
NEVER = "raise AssertionError('imported')\n"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with two plugins, an empty cache and an empty list; imports are forgotten afterwards."""
    folder = tmp_path / "site"
    install(folder, "acme-one", MODULE.format(name="one_trick"))
    install(folder, "acme-two", MODULE.format(name="two_trick"), point="second")
    only_these([folder], monkeypatch)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    yield folder
    forget()


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return tmp_path / "config" / "pegboard" / "disabled-plugins.txt"


def imported() -> list[str]:
    return sorted(name for name in sys.modules if name.startswith("acme_"))


def states() -> dict[str, str]:
    return {p.dist: p.state for p in Registry.discover().plugins}


SWITCHES = {
    "disable": ("plugins.disable in the config; take it out there", {"disable": ["acme-one"]}, {}),
    "only": ("plugins.only in the config, which does not name it; add it there", {"only": ["second"]}, {}),
    "none": ("plugins.only in the config, which does not name it; add it there", {"only": []}, {}),
    "variable": (
        "PEGBOARD_PLUGINS_DISABLE; take it out there",
        {},
        {"PEGBOARD_PLUGINS_DISABLE": "acme_one, second"},
    ),
    "allowed": ("PEGBOARD_PLUGINS, which does not name it", {}, {"PEGBOARD_PLUGINS": "acme-two"}),
    "all": ("with all others by --no-plugins or PEGBOARD_NO_PLUGINS=1", {}, {"PEGBOARD_NO_PLUGINS": "1"}),
}


@pytest.mark.parametrize("switch", SWITCHES)
def test_a_switch_keeps_code_from_running_and_says_how_to_undo_it(
    switch: str, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reason, given, environment = SWITCHES[switch]
    install(site, "acme-one", NEVER)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    registry = Registry.discover(**given)
    (plugin,) = [p for p in registry.plugins if p.dist == "acme-one"]
    assert plugin.state == "disabled" and reason in plugin.reason
    assert "acme_one" not in imported()
    others = {p.dist: p.state for p in registry.plugins if p.dist != "acme-one"}
    off = switch in ("none", "variable", "all")
    assert others == {"acme-two": "disabled" if off else "ready"}


@pytest.mark.parametrize("value", ["", "0"])
def test_an_empty_switch_is_none(value: str, site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PEGBOARD_NO_PLUGINS", "PEGBOARD_PLUGINS", "PEGBOARD_PLUGINS_DISABLE"):
        monkeypatch.setenv(name, value if name == "PEGBOARD_NO_PLUGINS" else "")
    assert set(states().values()) == {"ready"}


def test_every_wrong_name_is_told_before_anything_is_imported(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PEGBOARD_PLUGINS", "acme-tow,acme-one")
    monkeypatch.setenv("PEGBOARD_PLUGINS_DISABLE", "nothing-like-it")
    with pytest.raises(PegboardError) as raised:
        Registry.discover(disable=["secnd"], only=["acme-one", "acme-eno"])
    text = str(raised.value)
    assert (
        "PEGBOARD_PLUGINS names the plugin 'acme-tow', which is not installed. Did you mean 'acme-two'?"
        in text
    )
    assert "PEGBOARD_PLUGINS_DISABLE names the plugin 'nothing-like-it', which is not installed.\n" in text
    assert "plugins.disable names the plugin 'secnd', which is not installed. Did you mean 'second'?" in text
    assert "plugins.only names the plugin 'acme-eno'" in text and "'acme-one', which" not in text
    assert imported() == []


def test_a_distribution_is_meant_however_it_is_spelt(site: Path) -> None:
    registry = Registry.discover(disable=["Acme_Two"])
    assert {p.dist: p.state for p in registry.plugins} == {"acme-one": "ready", "acme-two": "disabled"}


def test_a_folder_that_is_on_the_path_twice_hides_nothing(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only_these([site, site], monkeypatch)
    assert states() == {"acme-one": "ready", "acme-two": "ready"}


# A config.


def test_a_config_may_name_the_only_plugins_to_use(site: Path, config: Config) -> None:
    install(site, "acme-one", NEVER)
    local = config()["plugins"]["local"]
    settings = check(config(plugins={"local": local, "only": ["acme-two"]}))
    assert settings.plain["plugins"] == {"local": local, "disable": [], "only": ["acme-two"]}
    assert imported() == ["acme_two"]
    again = check(settings.plain)
    assert again.plain == settings.plain and again.plugins == settings.plugins
    assert check(config(plugins={"local": local, "only": []})).plugins.only == ()
    assert check(config()).plugins.only is None


def test_wrong_names_in_a_config_are_told_with_the_others(site: Path, tmp_path: Path) -> None:
    file = tmp_path / "cfg.yaml"
    file.write_text(
        "plugins: {only: [acme-two, acme-oen], disable: [nothing-like-it]}\nmodel: {name: no_such}\n"
    )
    with pytest.raises(ConfigError) as raised:
        check(file)
    told = {m.path: str(m) for m in raised.value.mistakes}
    assert (
        "cfg.yaml:1:28: plugins.only.1\n    the plugin 'acme-oen' is not installed" in told["plugins.only.1"]
    )
    assert "'acme-one'" in told["plugins.only.1"] and "plugins.only.0" not in told
    assert "plugins.disable.0" in told and "model.name" in told
    assert imported() == ["acme_two"]


def test_a_config_that_names_a_part_of_a_disabled_plugin_is_told_so(site: Path, config: Config) -> None:
    states()  # from now on it is known what they offer
    given = config(regularizers={"one_trick": {}}, plugins={**config()["plugins"], "only": ["acme-two"]})
    with pytest.raises(ConfigError) as raised:
        check(given)
    (mistake,) = raised.value.mistakes
    assert "'one_trick' comes from plugin 'acme_one' (acme-one 1.0), which is disabled" in str(mistake)
    assert "plugins.only in the config, which does not name it; add it there" in str(mistake)


def test_where_it_is_not_known_what_disabled_plugins_offer_they_are_named(site: Path) -> None:
    with pytest.raises(UnknownPart) as raised:
        Registry.discover(disable=["acme-one"]).lookup("regularizer", "one_trick")
    assert "plugins that are switched off: acme_one (pegboard plugins list)" in raised.value.hint


# For every command.


def test_no_plugins_is_a_word_of_every_command(capsys: Capture) -> None:
    for command in COMMANDS:
        with pytest.raises(SystemExit) as stopped:
            main([command, "--help"])
        assert not stopped.value.code and "--no-plugins" in capsys.readouterr().out


@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_with_no_plugins_none_is_imported_wherever_the_word_stands(
    place: int, site: Path, config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    install(site, "acme-one", NEVER)
    file = tmp_path / "cfg.yaml"
    file.write_text(yaml.safe_dump(config()))
    words = ["check", str(file), "seed=1"]
    words.insert(place, "--no-plugins")
    monkeypatch.setattr("pegboard.config.check.Registry", Asked)
    assert main(words) == 0, capsys.readouterr().err
    assert Asked.states == {"acme-one": "disabled", "acme-two": "disabled"} and imported() == []
    assert "PEGBOARD_NO_PLUGINS" not in os.environ
    capsys.readouterr()
    assert main(["plugins", "list", "--json", "--no-plugins"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["status"] for row in rows] == ["disabled", "disabled"]


class Asked(Registry):
    """Notes what became of the installed plugins."""

    states: dict[str, str] = {}  # noqa: RUF012

    @classmethod
    def discover(cls, *args: Any, **more: Any) -> Registry:
        registry = Registry.discover(*args, **more)
        cls.states = {p.dist: p.state for p in registry.plugins if p.version != "local"}
        return registry


def test_the_variable_outlives_the_word(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PEGBOARD_NO_PLUGINS", "0")
    assert main(["plugins", "list", "--no-plugins"]) == 0
    assert os.environ["PEGBOARD_NO_PLUGINS"] == "0"


# A person's own list.


def test_disable_and_enable_write_a_list_that_holds_then(site: Path, own: Path, capsys: Capture) -> None:
    assert main(["plugins", "disable", "acme-one", "second"]) == 0
    assert own.read_text().splitlines()[1:] == ["acme-one", "second"] and own.read_text().startswith("#")
    assert "pegboard plugins enable acme-one" in capsys.readouterr().out
    assert states() == {"acme-one": "disabled", "acme-two": "disabled"} and imported() == []
    assert main(["plugins", "list"]) == 0
    assert "switched off by you; undo it: pegboard plugins enable second" in capsys.readouterr().out
    assert main(["plugins", "disable", "second"]) == 0
    assert "second is already switched off" in capsys.readouterr().out
    assert main(["plugins", "enable", "Acme_One"]) == 0
    assert "acme-one (acme_one) is switched on" in capsys.readouterr().out
    assert own.read_text().splitlines()[1:] == ["second"]
    assert states() == {"acme-one": "ready", "acme-two": "disabled"}
    assert main(["plugins", "enable", "acme-two"]) == 0
    said = capsys.readouterr().out
    assert "acme-two was not switched off by you" in said  # but by its other name
    assert "acme-two (second) is switched off by you; undo it: pegboard plugins enable second" in said
    assert [p.name for p in own.parent.iterdir()] == [own.name]


def test_enable_says_what_else_holds_a_plugin_off(
    site: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    assert main(["plugins", "disable", "acme-one"]) == 0
    monkeypatch.setenv("PEGBOARD_PLUGINS", "second")
    assert main(["plugins", "enable", "acme-one"]) == 0
    assert (
        "acme-one (acme_one) is switched off by PEGBOARD_PLUGINS, which does not" in capsys.readouterr().out
    )


def test_a_name_that_is_not_installed_is_answered_with_the_nearest(
    site: Path, own: Path, capsys: Capture
) -> None:
    assert main(["plugins", "disable", "acme-one", "acme-tow"]) == 2
    assert "no plugin 'acme-tow' is installed. Did you mean 'acme-two'?" in capsys.readouterr().err
    assert not own.exists()
    assert main(["plugins", "enable", "secnod"]) == 2
    assert "'secnod' is switched off or installed. Did you mean 'second'?" in capsys.readouterr().err


def test_a_name_that_is_no_longer_installed_is_remarked_on_and_can_be_taken_out(
    site: Path, own: Path, capsys: Capture
) -> None:
    own.parent.mkdir(parents=True)
    own.write_text("acme-gone\nacme-one\n")
    assert states() == {"acme-one": "disabled", "acme-two": "ready"}
    assert main(["plugins", "list"]) == 0
    assert f"{own} names the plugin 'acme-gone', which is not installed here." in capsys.readouterr().err
    assert main(["plugins", "enable", "acme-gone"]) == 0
    assert "no plugin 'acme-gone' is installed here" in capsys.readouterr().err
    assert own.read_text().splitlines()[1:] == ["acme-one"]


@pytest.mark.parametrize("damage", [b"acme-one\n\xff\xfe\x00\n", b"acme-one\n{\n", b"acme-one\n\x00\x00\n"])
def test_a_damaged_list_is_told_and_kept_when_a_new_one_takes_its_place(
    damage: bytes, site: Path, own: Path, capsys: Capture
) -> None:
    own.parent.mkdir(parents=True)
    own.write_bytes(damage)
    assert states() == {"acme-one": "disabled", "acme-two": "ready"}, "what can be read of it holds"
    states()
    assert capsys.readouterr().err.count(f"{own} is damaged") == 1
    assert main(["plugins", "disable", "second"]) == 0
    said = capsys.readouterr().err
    aside = own.with_name(f"{own.name}.damaged")
    assert f"{own} is damaged" in said and f"kept as {aside}; a new one takes its place" in said
    assert aside.read_bytes() == damage
    assert own.read_text().splitlines()[1:] == ["acme-one", "second"]
    assert main(["plugins", "enable", "second"]) == 0 and capsys.readouterr().err == ""


def test_a_list_that_cannot_be_read_or_written_is_told(
    site: Path, own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    own.mkdir(parents=True)
    assert set(states().values()) == {"ready"}
    assert f"{own} cannot be read: Is a directory" in capsys.readouterr().err
    assert main(["plugins", "disable", "acme-one"]) == 0
    assert own.read_text().splitlines()[1:] == ["acme-one"]
    capsys.readouterr()
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    assert main(["plugins", "disable", "acme-one"]) == 2
    assert "Not a directory" in capsys.readouterr().err
    assert set(states().values()) == {"ready"}


def test_a_list_that_is_a_link_stays_one(site: Path, own: Path, tmp_path: Path) -> None:
    (tmp_path / "dotfiles").touch()
    own.parent.mkdir(parents=True)
    own.symlink_to(tmp_path / "dotfiles")
    assert main(["plugins", "disable", "acme-one"]) == 0
    assert own.is_symlink() and "acme-one" in (tmp_path / "dotfiles").read_text()


def test_disable_works_when_everything_else_is_broken(
    site: Path, own: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    def broken(*_: object, **__: object) -> Any:
        raise RuntimeError("boom")

    for name in (
        "pegboard.registry.discovery.Registry.discover",
        "pegboard.registry.installed.find_installed",
    ):
        monkeypatch.setattr(name, broken)
    monkeypatch.setitem(sys.modules, "pegboard.registry.discovery", None)
    assert main(["plugins", "disable", "acme-whatever"]) == 0
    assert own.read_text().splitlines()[1:] == ["acme-whatever"]
    assert main(["plugins", "enable", "acme-whatever"]) == 0
    assert own.read_text().splitlines()[1:] == []


# Many strangers.


def command(site: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The command line in a process of its own, where these are installed beside all others."""
    root = site.parent
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PEGBOARD")}
    environment |= {"XDG_CACHE_HOME": str(root / "cache"), "XDG_CONFIG_HOME": str(root / "config")}
    environment |= {
        "PYTHONPATH": os.pathsep.join((str(site), *filter(None, sys.path))),
        "ACME_FILE": os.devnull,
    }
    words = (sys.executable, "-P", "-m", "pegboard", *words)
    return subprocess.run(words, env=environment, capture_output=True, text=True, check=False, timeout=600)


def test_a_plugin_that_takes_the_process_down_is_switched_off_without_being_imported(tmp_path: Path) -> None:
    site = tmp_path / "site"
    move_in(site, "crashes", "well")
    assert command(site, "plugins", "list").returncode < 0
    listed = command(site, "--no-plugins", "plugins", "list")
    assert listed.returncode == 0 and "acme-crashes" in listed.stdout
    assert command(site, "plugins", "disable", "acme-crashes").returncode == 0
    listed = command(site, "plugins", "list", "--json")
    assert listed.returncode == 0, listed.stderr
    found = {row["dist"]: row["status"] for row in json.loads(listed.stdout)}
    assert (found["acme-crashes"], found["acme-well"]) == ("disabled", "ready")


def test_forty_strangers_leave_everything_usable(
    tmp_path: Path, config: Config, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    site = tmp_path / "site"
    rude = ("missing", "exits", "raises", "typo", "prints", "deprecated", "draws", "sick", *DEADLY)
    move_in(site, *rude)
    for number in range(40 - len(rude)):
        install(site, f"acme-plain-{number}", code("", f"plain_{number}"))
    only_these([site], monkeypatch)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    assert main(["plugins", "disable", *(f"acme-{kind}" for kind in DEADLY)]) == 0
    capsys.readouterr()
    assert main(["plugins", "list", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    found = {row["dist"].removeprefix("acme-"): row["status"] for row in rows}
    assert len(found) == 40
    broken = {kind for kind, status in found.items() if status == "broken"}
    assert broken == {"missing", "exits", "raises", "typo"}
    assert {kind for kind, status in found.items() if status == "disabled"} == set(DEADLY)
    file = tmp_path / "cfg.yaml"
    file.write_text(yaml.safe_dump(config(regularizers={"plain_7": {}})))
    for words in ("check FILE", "plugins why FILE", "show", "schema", "explain FILE regularizers=null"):
        assert main([str(file) if word == "FILE" else word for word in words.split()]) == 0, words
    file.write_text(yaml.safe_dump(config(regularizers={"acme-missing:anything": {}})))
    assert main(["check", str(file)]) == 2
    said = capsys.readouterr().err
    assert (
        "which is broken(import): ModuleNotFoundError" in said
        and "pegboard plugins doctor acme-missing" in said
    )
    forget()
