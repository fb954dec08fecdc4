"""Slips whose answer must not mislead: two in one place, a key that is there already, numbers beyond all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pegboard.config.check import ConfigError, check
from pegboard.config.load import load
from pegboard.registry.discovery import Plugin, Registry

Refuse = Callable[..., list[Any]]


@pytest.mark.parametrize(
    ("old", "new", "path", "pieces"),
    [
        ("epochs: 2", "epoch: 0", "trainer.epoch", ["did you mean 'epochs'?", "found 0"]),
        ("batch_size: 64", "batchsize: 0", "data.batchsize", ["'batch_size'?", "found 0"]),
        ("activation: relu", "activaton: rellu", "model.activaton", ["'activation'?", "mean 'relu'?"]),
        ("hidden: [32, 16]", "hiden: 32", "model.hiden", ["'hidden'?", "in brackets: hidden: [32]"]),
    ],
)
def test_a_misspelt_key_with_a_wrong_value_is_two_mistakes(
    refuse: Refuse, base: str, old: str, new: str, path: str, pieces: list[str]
) -> None:
    mistakes = refuse(base.replace(old, new))
    assert [m.path for m in mistakes] == [path, path]
    assert all(piece in str(mistake) for piece, mistake in zip(pieces, mistakes, strict=True))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("epochs: 2", "epoch: 2"),  # its value is right
        ("{epochs: 2}", "{epochs:0}"),  # which has no value
        ("epochs: 2", "epochs: 2, epoch: 0"),  # the key that was meant has its own
    ],
)
def test_a_misspelt_key_alone_is_one(refuse: Refuse, base: str, old: str, new: str) -> None:
    assert len(refuse(base.replace(old, new))) == 1


@pytest.mark.parametrize(
    ("word", "meant"),
    [("Trainer.epochs=3", "trainer"), ("Data.batch_size=3", "data"), ("trainer.Epochs=3", "epochs")],
)
def test_a_key_that_is_given_already_is_still_the_one_that_was_meant(
    refuse: Refuse, base: str, word: str, meant: str
) -> None:
    assert refuse(base, word)[0].nearest[0] == meant


@pytest.mark.parametrize(
    ("old", "new", "piece", "absent"),
    [
        ("lr: 1e-3", "lr: " + "9" * 5000, "found the text", "without quotes"),
        ("lr: 1e-3", "lr: \uff11", "found the text", "without quotes"),
        ("lr: 1e-3", "lr: 'true'", "found the text", "without quotes"),
        ("epochs: 2", "epochs: None", "for none: epochs: null", ""),
        ("batch_size: 64", "batch_size: 1e10", "at most 1000000000", "64 bits"),
        ("epochs: 2", "accumulate: 1e10", "at most 1000000000", ""),
        ("epochs: 2", "threads: 100000", "at most 1024", ""),
        ("[32, 16]", "[1e30]", "a whole number has at most 64 bits", ""),
        ("seed: 0", "seed: 99999999999999999999", "a whole number has at most 64 bits", ""),
        ("lr: 1e-3", "lr: 1e-3, schedule.warmup: 3", "nest it: schedule: {warmup: ...}", "did you mean"),
        ("lr: 1e-3", "lr: 1e-3, players: [a]", "found the list [a]", "name: a"),
        ("  drop: {p: 0.2}", "  - drop: {p: 0.2}\n  - norm", "write regularizers: {drop: {p: 0.2}, norm", ""),
        ("  drop: {p: 0.2}", "  - on", "found the list [on]", ""),
        ("name: dense", "name: far:dense", "'far' is not installed, so it offers no model", "is a model"),
    ],
)  # fmt: skip
def test_the_answer_helps(refuse: Refuse, base: str, old: str, new: str, piece: str, absent: str) -> None:
    (mistake,) = refuse(base.replace(old, new))
    assert piece in str(mistake)
    assert not absent or absent not in str(mistake)
    assert len(str(mistake)) < 500


def test_a_list_under_a_misspelt_section_is_answered_with_the_right_name(refuse: Refuse, base: str) -> None:
    unknown, listed = refuse(base.replace("regularizers:\n  drop: {p: 0.2}", "callbacks: [drop]"))
    assert unknown.nearest == ("regularizers",) and listed.hint == "write regularizers: {drop: {}}"


def test_an_empty_word_is_said_to_be_on_the_command_line(refuse: Refuse, base: str) -> None:
    assert str(refuse(base, "")[0]).startswith("command line, ''")


@pytest.mark.parametrize("word", ["off", "Off", "NO", "false"])
def test_any_no_switches_a_trick_off(accept: Callable[..., Any], base: str, word: str) -> None:
    assert not accept(base, f"regularizers.drop={word}").regularizers


def test_every_wrong_name_in_disable_is_told_and_the_right_ones_hold(tmp_path: Path) -> None:
    config = tmp_path / "cfg.yaml"
    config.write_text("plugins: {disable: [mpl, dropout, no-such]}\nregularizers: {dropout: {}}\n")
    with pytest.raises(ConfigError) as raised:
        check(config)
    told = {m.path: str(m) for m in raised.value.mistakes}
    assert "cfg.yaml:1:21: plugins.disable.0" in told["plugins.disable.0"]
    assert "'mlp'" in told["plugins.disable.0"] and "not installed" in told["plugins.disable.2"]
    assert "plugins.disable.1" not in told
    assert "which is disabled" in told["regularizers.dropout"]


@pytest.mark.parametrize(
    ("code", "piece"),
    [
        ("x = 1\n\nundefined\n", "mine.py:3 did not load (import): NameError"),
        ("x = (\n", "mine.py:1 did not load (import): SyntaxError"),
        ("x = 1\n", "mine.py did not load (hook): it has no hooks"),
        ("def pegboard_models():\n    return []\n", "pegboard_models is not decorated with @pegboard"),
    ],
)  # fmt: skip
def test_a_local_plugin_that_does_not_load_is_told_with_its_line(
    tmp_path: Path, code: str, piece: str
) -> None:
    (tmp_path / "mine.py").write_text(code)
    (tmp_path / "cfg.yaml").write_text("plugins: {local: [mine.py]}\n")
    with pytest.raises(ConfigError) as raised:
        check(tmp_path / "cfg.yaml")
    (mistake,) = [m for m in raised.value.mistakes if m.path == "plugins.local.0"]
    assert piece in str(mistake)


LOCAL = """\
from __future__ import annotations
from dataclasses import dataclass
from pegboard import Regularizer, hookimpl
Own = {type}
@dataclass(frozen=True)
class Config:
    value: Own
@hookimpl
def pegboard_regularizers():
    return [Regularizer("{name}", Config, lambda config, context: None)]
"""


def test_local_files_of_one_name_do_not_meet_and_each_is_told_at_its_place(tmp_path: Path) -> None:
    for folder, kind in (("a", "int"), ("b", "str")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.py").write_text(LOCAL.format(name=f"trick-{folder}", type=kind))
    (tmp_path / "broken.py").write_text("1 / 0")
    (tmp_path / "cfg.yaml").write_text(
        "plugins: {local: [a/mine.py, missing.py, ./a/mine.py, b/mine.py, broken.py]}\n"
        "regularizers: {trick-a: {value: x}, trick-b: {value: y, valu: z}}\n"
    )
    with pytest.raises(ConfigError) as raised:
        check(tmp_path / "cfg.yaml")
    told = {m.path: str(m) for m in raised.value.mistakes if m.path.startswith(("plugins", "regularizers"))}
    assert set(told) == {
        "plugins.local.1",
        "plugins.local.4",
        "regularizers.trick-a.value",
        "regularizers.trick-b.valu",
    }
    assert "expected a whole number" in told["regularizers.trick-a.value"]
    shown = f"pegboard show trick-b --local {tmp_path / 'b' / 'mine.py'}"
    assert shown in told["regularizers.trick-b.valu"]


def test_players_have_no_players(refuse: Refuse, base: str) -> None:
    (mistake,) = refuse(base, "optimizer.players={a: {players: {b: {}}}}")
    assert mistake.path == "optimizer.players.a.players"


def test_of_two_parts_with_one_name_a_qualified_one_is_suggested(registry: Registry) -> None:
    twin = Plugin("twin", "acme-twin", "1.0", status="ready", parts=registry.plugins[0].parts)
    with pytest.raises(ConfigError) as raised:
        check(load({"model": "dense"}), registry=Registry([*registry.plugins, twin]))
    (mistake,) = [m for m in raised.value.mistakes if m.path == "model.name"]
    assert mistake.nearest[0] == "pegboard-fakes:dense"


def test_a_key_with_one_wrong_letter_is_not_taken_for_a_longer_one(refuse: Refuse, base: str) -> None:
    given = base.replace("epochs: 2", "epochs: 2, compile: off")
    assert given != base and refuse(given, "trainer.compil=step")[0].nearest[0] == "compile"
