"""Fields of the trainer that a plugin has taken over."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pegboard.config.check import ConfigError, check, refine
from pegboard.config.errors import Mistake
from pegboard.config.nodes import Settings
from pegboard.contract.specs import Classes, DataSpec, Vector
from pegboard.registry.discovery import Plugin, Registry

Accept = Callable[..., Settings]
Refuse = Callable[..., list[Mistake]]


def bounded(settings: Settings) -> Any:
    return settings.regularizers["bound"].config


def with_trainer(base: str, fields: str) -> str:
    return base.replace("epochs: 2", f"epochs: 2, {fields}")


def test_it_becomes_the_part_with_one_note_of_what_to_write(accept: Accept, base: str) -> None:
    with pytest.warns(FutureWarning) as told:
        settings = accept(with_trainer(base, "clip: 0.5, clip_by: value"))
    assert (bounded(settings).size, bounded(settings).by) == (0.5, "value")
    assert not hasattr(settings.trainer, "clip") and "clip" not in settings.plain["trainer"]
    (note,) = told
    assert str(note.message) == (
        "cfg.yaml:10:28: trainer.clip is deprecated: it has become regularizer 'bound'; "
        "write regularizers: {bound: {size: 0.5, by: value}}"
    )
    assert str(settings.values["regularizers.bound.size"]) == "cfg.yaml:10:28"


def test_what_was_moved_is_said_once(accept: Accept, base: str) -> None:
    with pytest.warns(FutureWarning):
        settings = accept(with_trainer(base, "clip: 0.5"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        refined = refine(settings, DataSpec((Vector(2),), Classes(3)))
        again = check(settings.plain, (), settings.registry)
    assert bounded(refined) == bounded(again) == bounded(settings)


@pytest.mark.filterwarnings("error")
def test_a_run_that_goes_on_is_told_nothing(accept: Accept, base: str, registry: Registry) -> None:
    Path("cfg.yaml").write_text(with_trainer(base, "clip: 0.5, clip_by: norm"), "utf-8")
    assert bounded(check("cfg.yaml", (), registry, begun=True)).size == 0.5


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("fields", ["clip: null, clip_by: norm", "clip: null", "clip_by: norm"])
def test_the_old_defaults_use_no_part(accept: Accept, base: str, fields: str) -> None:
    assert "bound" not in accept(with_trainer(base, fields)).regularizers


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_the_command_line_changes_it(accept: Accept, base: str) -> None:
    assert bounded(accept(base, "trainer.clip=2.0")).size == 2.0
    text = with_trainer(base, "clip: 0.5, clip_by: value")
    assert bounded(accept(text, "trainer.clip_by=norm")).by == "norm"
    settings = accept(text, "trainer.clip=null")
    assert "bound" not in settings.regularizers
    assert "trainer.clip_by: found value, but trainer.clip is null" in settings.notes[0]
    assert "bound" not in accept(text, "regularizers.bound=null").regularizers


def test_both_the_field_and_the_part_are_a_mistake(refuse: Refuse, base: str) -> None:
    text = base.replace("regularizers:", "regularizers:\n  bound: {size: 1}")
    for word in ("trainer.clip=2.0", "trainer.clip=null"):
        (mistake,) = refuse(text, word)
        assert mistake.path == "trainer.clip" and "regularizers.bound is given too" in mistake.message
        assert "regularizers.bound" in mistake.hint


@pytest.mark.parametrize(
    ("fields", "path", "expected"),
    [
        ("clip: -1", "regularizers.bound.size", "a number (more than 0)"),
        ("clip: 1, clip_by: length", "regularizers.bound.by", "one of norm, value"),
    ],
)
def test_a_wrong_value_is_found_where_it_stands(
    refuse: Refuse, base: str, fields: str, path: str, expected: str
) -> None:
    (mistake,) = refuse(with_trainer(base, fields))
    assert (mistake.path, mistake.expected) == (path, expected)
    assert mistake.origin is not None and mistake.origin.line == 10


def test_where_its_plugin_is_not_installed_the_mistake_names_it(
    accept: Accept, base: str, registry: Registry
) -> None:
    (plugin,) = registry.plugins
    parts = [part for part in plugin.parts if part.name != "bound"]
    without = Registry([Plugin("fakes", "pegboard-fakes", "1.0", status="ready", parts=parts)])
    Path("cfg.yaml").write_text(with_trainer(base, "clip: 1.0"), "utf-8")
    with pytest.raises(ConfigError) as raised:
        check("cfg.yaml", (), without)
    (mistake,) = raised.value.mistakes
    assert mistake.origin is not None and mistake.origin.line == 10
    assert "pegboard-constraints, which is not installed" in mistake.message
    assert mistake.hint == "pip install pegboard-constraints"
