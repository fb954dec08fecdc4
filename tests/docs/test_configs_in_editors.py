"""The JSON Schema that editors use takes every config of the project, and finds mistakes where they are."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from pegboard.cli import main
from pegboard.config.check import check
from pegboard.config.nodes import Origin
from pegboard.config.schema import HEADER, schema
from pegboard.config.yaml_reader import bare, read
from pegboard.registry.discovery import Registry
from sandbox import ROOT

CONFIGS = sorted(ROOT.glob("configs/*.yaml"))
RECIPES = sorted(ROOT.glob("zoo/**/recipe.yaml"))
PAGES = [
    *ROOT.glob("*.md"),
    *ROOT.glob("docs/**/*.md"),
    *ROOT.glob("*/README.md"),
    *ROOT.glob("plugins/*/README.md"),
]


def values(data: bytes) -> Any:
    """A file as an editor reads it: YAML 1.2, and nothing of what it extends."""
    node, mistakes = read(data, lambda line, column: Origin(line=line, column=column))
    assert node is not None and not mistakes
    return bare(node)


def blocks() -> Iterator[Any]:
    """The whole configs on the pages, but for those with parts of a local file."""
    for page in sorted(PAGES):
        for text in re.findall(r"^```yaml\n(.*?)^```$", page.read_text("utf-8"), re.M | re.S):
            config = values(text.encode())
            if isinstance(config, dict) and {"data", "model"} <= set(config) and "plugins" not in config:
                line = page.read_text("utf-8").partition(text)[0].count("\n") + 1
                yield pytest.param(config, text.startswith("# wrong"), id=f"{page.relative_to(ROOT)}:{line}")


@pytest.fixture(scope="module")
def validator() -> Any:
    made = schema(Registry.discover())
    jsonschema.Draft202012Validator.check_schema(made)
    return jsonschema.Draft202012Validator(made)


def told(validator: Any, config: Any) -> list[str]:
    """Where something is wrong, as dotted paths."""
    return sorted(".".join(map(str, error.absolute_path)) for error in validator.iter_errors(config))


def used(config: Any) -> set[str]:
    """The parts that a whole config names."""
    chosen = [config[section] for section in ("data", "model", "optimizer")]
    keyed = {**(config.get("regularizers") or {}), **(config.get("trackers") or {})}
    names = [node["name"] if isinstance(node, dict) else node for node in chosen]
    return {*names, *((node or {}).get("name", key) for key, node in keyed.items())}


def offered(validator: Any) -> set[str]:
    names = [
        name for kind, made in validator.schema["$defs"].items() if "names." in kind for name in made["anyOf"]
    ]
    return {name["const"] for name in names if "const" in name}


@pytest.mark.parametrize("path", [*CONFIGS, *RECIPES], ids=lambda path: str(path.relative_to(ROOT)))
def test_every_config_of_the_project_is_taken(path: Path, validator: Any) -> None:
    assert told(validator, values(path.read_bytes())) == []


@pytest.mark.parametrize(("config", "wrong"), list(blocks()))
def test_every_config_on_a_page_is_taken_unless_it_shows_mistakes(
    config: Any, wrong: bool, validator: Any
) -> None:
    if not wrong and (absent := used(config) - offered(validator)):
        pytest.skip(f"of plugins that are not installed here: {', '.join(absent)}")
    assert bool(told(validator, config)) == wrong


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.parent.name)
def test_what_a_run_keeps_of_a_config_is_taken(path: Path, validator: Any) -> None:
    assert told(validator, dict(check(path).plain)) == []


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_every_config_names_the_schema_that_make_writes(path: Path) -> None:
    first = path.read_text("utf-8").splitlines()[0]
    assert first.startswith(HEADER)
    written = path.parent / first.removeprefix(HEADER)
    makefile = (ROOT / "Makefile").read_text()
    assert f"pegboard schema -o {written.relative_to(ROOT)}" in makefile
    assert str(written.relative_to(ROOT)) in (ROOT / ".gitignore").read_text().splitlines()


RIGHT: dict[str, Any] = {
    "seed": 0,
    "data": {"name": "digits", "batch_size": 64},
    "model": {"name": "mlp", "hidden": [64, 32], "activation": "relu"},
    "optimizer": {"name": "adamw", "lr": 1e-3, "schedule": {"name": "cosine", "warmup": 20}},
    "regularizers": {"dropout": {"p": 0.2}, "again": {"name": "dropout", "sites": ["input"]}},
    "trackers": {"wandb": {"project": "demo"}},
    "trainer": {"epochs": 2},
}
# What is written instead, and where the schema must find it.
WRONG: list[tuple[str, Any, str]] = [
    ("seed", "zero", "seed"),
    ("seed", -1, "seed"),
    ("sed", 1, ""),
    ("model", 3, "model"),
    ("model", "mpl", "model"),
    ("model.name", "mpl", "model.name"),
    ("model.name", "pegboard-cnn:mlp", "model.name"),
    ("model.hidden", "wide", "model.hidden"),
    ("model.hidden", [64, 0], "model.hidden"),
    ("model.hiden", [64], "model"),
    ("model.activation", "rleu", "model.activation"),
    ("data.batch_size", 0, "data.batch_size"),
    ("data.batch_size", 1.5, "data.batch_size"),
    ("optimizer.lr", "fast", "optimizer.lr"),
    ("optimizer.schedule", "cosin", "optimizer.schedule"),
    ("optimizer.schedule.warmup", -1, "optimizer.schedule.warmup"),
    ("optimizer.players", {"critic": {"name": "sgd", "lr": -1}}, "optimizer.players.critic.lr"),
    ("regularizers.dropout.p", 1, "regularizers.dropout.p"),
    ("regularizers.dropout.q", 0.5, "regularizers.dropout"),
    ("regularizers.dropout", 0.5, "regularizers.dropout"),
    ("regularizers.droput", {"p": 0.5}, "regularizers.droput"),
    ("regularizers.again.p", "half", "regularizers.again.p"),
    ("regularizers.again.name", "droput", "regularizers.again.name"),
    ("trackers.wandb.project", 3, "trackers.wandb.project"),
    ("trainer.epochs", 0, "trainer.epochs"),
    ("trainer.device", "gpu", "trainer.device"),
    ("trainer.epoch", 3, "trainer"),
]  # fmt: skip
FINE: list[tuple[str, Any]] = [
    ("model", "mlp"),
    ("model.name", "pegboard-mlp:mlp"),
    ("model.name", "mlp:mlp"),
    ("model.name", "${trainer.monitor}"),
    ("model.hidden", "${widths}"),
    ("optimizer.schedule", "cosine"),
    ("optimizer.schedule", None),
    ("optimizer.players", {"critic": {"lr": 0.1}}),
    ("objective", None),
    ("regularizers", None),
    ("regularizers.dropout", None),
    ("regularizers.dropout", False),
    ("regularizers.pegboard-dropout:dropout", {"p": 0.1}),
    ("extends", ["a.yaml", "b.yaml"]),
]


def changed(path: str, value: Any) -> dict[str, Any]:
    config = copy.deepcopy(RIGHT)
    *above, last = path.split(".")
    node = config
    for key in above:
        node = node[key]
    node[last] = value
    return config


def test_the_right_config_is_right(validator: Any) -> None:
    check(RIGHT)
    assert told(validator, RIGHT) == []


@pytest.mark.parametrize(("path", "value", "where"), WRONG, ids=[f"{p}={v}" for p, v, _ in WRONG])
def test_a_mistake_is_found_at_its_key(path: str, value: Any, where: str, validator: Any) -> None:
    assert told(validator, changed(path, value)) == [where]


@pytest.mark.parametrize(("path", "value"), FINE, ids=[f"{p}={v}" for p, v in FINE])
def test_what_configs_may_also_say_is_taken(path: str, value: Any, validator: Any) -> None:
    assert told(validator, changed(path, value)) == []


def test_an_editor_has_a_word_on_every_name_key_and_section(validator: Any) -> None:
    made = validator.schema
    registry = Registry.discover()
    for kind in ("model", "dataset", "optimizer", "schedule", "objective"):
        names = made["$defs"][f"names.{kind}"]["anyOf"]
        said = {name["const"]: name["description"] for name in names if "const" in name}
        for entry in registry.entries(kind):
            assert said[registry.reference(entry)].startswith(entry.part.summary)
    for section in made["properties"].values():
        assert section["description"]
    for name in ("regularizers", "trackers"):
        assert all(node["description"] for node in made["properties"][name]["properties"].values())
    for name, part in made["$defs"].items():
        if "additionalProperties" in part and part.get("properties"):
            bare = [key for key, field in part["properties"].items() if not field.get("description")]
            assert not bare, f"{name}: {bare}"


def test_the_command_says_the_line_that_a_config_needs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.schema.json"
    assert main(["schema", "-o", str(path)]) == 0
    assert json.loads(path.read_text("utf-8"))["title"] == "a Pegboard config"
    line = capsys.readouterr().out.splitlines()[-1]
    assert line == "# yaml-language-server: $schema=mine.schema.json"
    config = tmp_path / "mine.yaml"
    config.write_text(f"{line}\n" + (ROOT / "configs" / "moons.yaml").read_text("utf-8"))
    assert main(["check", "--quiet", str(config)]) == 0


def patterns(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        yield from [node["pattern"]] if isinstance(node.get("pattern"), str) else []
        yield from node.get("patternProperties", ())
    for part in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from patterns(part)


def test_patterns_are_read_alike_by_python_and_by_editors(validator: Any) -> None:
    found = set(patterns(validator.schema))
    assert len(found) > 50
    # Editors are written in JavaScript, which has no such groups, and escapes nothing needlessly.
    assert not [pattern for pattern in found if re.search(r"\(\?(P|[aiLmsux])", pattern)]
    escaped = {letter for pattern in found for letter in re.findall(r"\\(.)", pattern)}
    assert escaped <= set("dDwWsSbBnrtfv.*+?^${}()|[]\\/")
