"""Every config in the README runs."""

from __future__ import annotations

import importlib.util
import math
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from sweeps import first_of_each

README = (Path(__file__).parents[1] / "README.md").read_text()
TEXTS = re.findall(r"```yaml\n(.*?)```", README, re.S)
BLOCKS = [yaml.safe_load(text) for text in TEXTS]
OTHERS = ("pegboard_mlp", "pegboard_optimizers", "pegboard_objectives")


def flowers(path: Path) -> None:
    lines = ["petal_length,petal_width,colour,species"]
    lines += [f"{i / 10},{i % 5},{('red', 'blue')[i % 2]},{('rose', 'lily')[i % 2]}" for i in range(40)]
    path.write_text("\n".join(lines))


def real(block: dict[str, Any]) -> bool:
    """True of a config that reads a data set by its id."""
    return "/" in block["data"].get("path", "")


WHOLE = [text for text, block in zip(TEXTS, BLOCKS, strict=True) if "model" in block]


@pytest.mark.parametrize(
    ("block", "small"),
    [
        *((block, True) for block in BLOCKS),
        *(pytest.param(block, False, marks=pytest.mark.data) for block in BLOCKS if real(block)),
    ],
    ids=lambda value: value["data"].get("path", value["data"]["name"]) if isinstance(value, dict) else "",
)
def test_a_config_of_the_readme_is_right_and_its_data_can_be_built(
    block, small, parts, rows_cache, tmp_path, monkeypatch, request
):
    from pegboard import Context
    from pegboard.config.match_fields import build

    if small:
        request.getfixturevalue("on_small_data")
    monkeypatch.chdir(tmp_path)
    flowers(tmp_path / "flowers.csv")
    node = dict(block["data"])
    part = parts[node.pop("name")]
    found: list = []
    config = build(part.config, {k: v for k, v in node.items() if k not in part.reserved}, "data", found)
    assert found == []
    assert list(part.check(config, None)) == []
    splits = part.build(config, Context())
    assert len(splits.train) > 0
    assert len(splits.test) > 0


@pytest.mark.parametrize("text", first_of_each(WHOLE), ids=range(len(WHOLE)))
def test_a_whole_config_of_the_readme_trains(text, on_small_data, tmp_path, monkeypatch):
    import pegboard

    if not all(importlib.util.find_spec(module) for module in OTHERS):
        pytest.skip("needs pegboard-mlp, pegboard-optimizers and pegboard-objectives")
    monkeypatch.chdir(tmp_path)
    flowers(tmp_path / "flowers.csv")
    (tmp_path / "config.yaml").write_text(text)
    run = pegboard.train(tmp_path / "config.yaml", "trainer.steps=3", root=tmp_path / "runs", quiet=True)
    assert math.isfinite(run.figures["test/loss"])
    assert 0 <= run.figures.get("test/accuracy", 0) <= 1  # data without labels has none


def test_the_table_names_every_data_set(parts):
    named = set(re.findall(r"^\| `(\w+)` \| (?:`|as its)", README, re.M))
    assert parts.keys() <= named
