"""A kind of part is a record, a hook and a row: whatever else knows kinds reads the table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pytest
from pegboard.cli import main
from pegboard.config.check import ConfigError, check
from pegboard.config.errors import Mistake
from pegboard.config.sections import top_keys
from pegboard.contract import hookspecs, records
from pegboard.contract.kinds import KINDS, Kind, Section, sections
from pegboard.contract.records import Part
from pegboard.planning.plan import make_plan
from pegboard.registry.discovery import Registry
from pegboard.testing.kit import Kit
from pegboard.testing.subjects import PARTNERS, partner_config

C = TypeVar("C")

PLUGIN = '''
"""Rows at equal distances."""
from dataclasses import dataclass
from typing import Annotated
from pegboard import Ge, hookimpl
from pegboard.contract.records import SamplerPart

@dataclass(frozen=True)
class Strides:
    """Take every n-th row."""

    by: Annotated[int, Ge(1)] = 2  # rows from one to the next

@hookimpl
def pegboard_samplers():
    return [SamplerPart("strides", Strides, lambda config, context: config.by)]
'''


@dataclass(frozen=True)
class SamplerPart(Part[C, Any]):
    """Builds what draws rows."""

    kind: ClassVar[str] = "sampler"


@hookspecs.hookspec
def pegboard_samplers() -> Sequence[SamplerPart[Any]]:
    """Samplers: `build` returns what draws rows."""
    raise NotImplementedError


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A local plugin with a part of a kind that the core has got by a record, a hook and a row."""
    monkeypatch.setattr(records, "SamplerPart", SamplerPart, raising=False)
    monkeypatch.setattr(hookspecs, "pegboard_samplers", pegboard_samplers, raising=False)
    section = Section(name="samplers", keyed=True, about="what draws the rows of a batch, by name")
    monkeypatch.setitem(KINDS, "sampler", Kind(record=SamplerPart, hook="pegboard_samplers", section=section))
    path = tmp_path / "strides.py"
    path.write_text(PLUGIN)
    return path


def config(plugin: Path, **samplers: Any) -> dict[str, Any]:
    return partner_config(samplers=samplers, plugins={"local": [str(PARTNERS), str(plugin)]})


def mistakes(folder: Path, text: dict[str, Any]) -> dict[str, Mistake]:
    """What is wrong with a config file, by path; every section stands on a line."""
    file = folder / "config.yaml"
    file.write_text("\n".join(f"{key}: {json.dumps(value)}" for key, value in text.items()))
    with pytest.raises(ConfigError) as caught:
        check(file)
    for mistake in caught.value.mistakes:
        line = list(text).index(mistake.path.partition(".")[0]) + 1
        assert mistake.origin and (mistake.origin.file, mistake.origin.line) == (str(file), line)
    return {mistake.path: mistake for mistake in caught.value.mistakes}


def test_its_parts_are_found_and_its_records_checked(plugin: Path) -> None:
    (entry,) = Registry.discover(local=[plugin]).entries("sampler")
    assert entry.part.name == "strides"
    plugin.write_text(PLUGIN.replace("[SamplerPart(", "[Strides() or ("))
    (broken,) = Registry.discover(local=[plugin]).failed([plugin])
    assert broken.reason == "pegboard_samplers returned Strides(by=2), expected SamplerPart records"


def test_a_config_names_them_in_their_section(plugin: Path) -> None:
    assert top_keys().index("samplers") == top_keys().index("regularizers") + 1
    settings = check(config(plugin, strides={}, far={"name": "strides", "by": 9}, off=None))
    assert {key: chosen.config.by for key, chosen in settings.keyed("samplers").items()} == {
        "far": 9, "strides": 2,
    }  # fmt: skip
    assert settings.plain["samplers"] == {"far": {"name": "strides", "by": 9}, "strides": {"by": 2}}
    assert check(settings.plain).plain == settings.plain
    paths = [path for path, _ in make_plan(settings, read=False).entries()]
    assert paths[-2:] == ["samplers.far", "samplers.strides"]


def test_check_lists_them(plugin: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(json.dumps(config(plugin, far={"name": "strides"})))
    assert main(["check", str(file)]) == 0
    assert f"  sampler     far (strides)            {plugin} local\n" in capsys.readouterr().out


def test_a_config_without_them_is_what_it_was(plugin: Path) -> None:
    assert "samplers" not in check(config(plugin)).plain


def test_every_mistake_has_its_place(plugin: Path, tmp_path: Path) -> None:
    wrong = config(plugin, stride={"by": 3}, strides={"bye": 3}, few={"name": "strides", "by": 0})
    found = mistakes(tmp_path, wrong)
    assert set(found) == {"samplers.stride", "samplers.strides.bye", "samplers.few.by"}
    unknown, field = found["samplers.stride"], found["samplers.strides.bye"]
    assert unknown.message == "unknown sampler 'stride'" and unknown.nearest == ("strides",)
    assert "pegboard show samplers" in unknown.hint
    assert field.message == "unknown key 'bye' of sampler 'strides'" and field.nearest == ("by",)


def test_what_stands_elsewhere_is_told_where_it_belongs(plugin: Path, tmp_path: Path) -> None:
    wrong = config(plugin) | {"regularizers": {"strides": {}}}
    wrong["sampler"] = wrong.pop("samplers")
    found = mistakes(tmp_path, wrong)
    assert found["sampler"].nearest[0] == "samplers"
    assert found["regularizers.strides"].message == "'strides' is a sampler, not a regularizer"
    assert "samplers: {strides: {}}" in found["regularizers.strides"].hint


def test_it_is_shown_and_in_the_schema(plugin: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "samplers", "--local", str(plugin)]) == 0
    assert "Take every n-th row." in capsys.readouterr().out
    assert main(["show", "strides", "--local", str(plugin)]) == 0
    assert "example\n  samplers:\n    strides: {by: 2}" in capsys.readouterr().out
    assert main(["schema", "--local", str(plugin)]) == 0
    schema = json.loads(capsys.readouterr().out)
    section = schema["properties"]["samplers"]
    assert section["description"] == "what draws the rows of a batch, by name"
    assert set(section["properties"]) == {"strides"}
    assert schema["$defs"]["sampler.strides"]["properties"]["by"]["default"] == 2


def test_the_kit_tries_them(plugin: Path) -> None:
    _, subject = Kit(str(plugin)).subjects()
    assert subject.config["samplers"] == {"strides": subject.node}
    assert subject.built_config().by == 2


def test_rows_agree_with_records_and_hooks() -> None:
    for name, kind in KINDS.items():
        assert kind.name == name == kind.record.kind and hasattr(hookspecs, kind.hook)
    for name, (section, kind) in sections().items():
        assert not section.only or section.only in kind.record.__dataclass_fields__, name
