"""Whatever a config holds, the answer is settings or a ConfigError."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pegboard.config.check import ConfigError, check
from pegboard.config.nodes import Settings
from pegboard.registry.discovery import Registry

WORDS = """
extends name seed data model optimizer objective regularizers trainer trackers plugins schedule
players lr hidden p sites drop norm teach epochs weights betas head channels init a.b ???
${seed} teacher local disable
"""
VALUES = (
    "spots dense conv descent adaptive wave drop entropy ${seed} ${model} ${ ${a:b} ??? cfg.yaml relu auto"
)
KEYS = st.sampled_from(["", "name ", *WORDS.split()])
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(
        ["\ud800", 10**400, "fakes:drop", "1e-3", *VALUES.split()],
    ),
)
TREES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=15,
)
GOOD: dict[str, Any] = {
    "data": {"name": "spots"},
    "model": {"name": "dense", "hidden": [3]},
    "optimizer": {"name": "descent", "lr": 0.1},
    "regularizers": {"drop": {"p": 0.1}},
    "trainer": {"epochs": 1},
}


def survive(source: Any, words: list[str], registry: Registry) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            assert isinstance(check(source, words, registry), Settings)
        except ConfigError as error:
            assert error.mistakes
            assert str(error)


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.dictionaries(KEYS, TREES, max_size=6),
    st.sets(st.sampled_from(sorted(GOOD))),
    st.lists(st.text(max_size=12), max_size=2),
)
def test_no_mapping_leads_to_anything_else(
    registry: Registry, tree: dict[str, Any], kept: set[str], words: list[str]
) -> None:
    survive({**tree, **{key: GOOD[key] for key in kept}}, words, registry)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.text(alphabet="abc:-[]{}&*!|>'\"%@`#,?~ \n\t\\0123.e$", max_size=60), st.integers(0, 8))
def test_no_text_leads_to_anything_else(registry: Registry, tmp_path: Path, text: str, line: int) -> None:
    lines = [f"{key}: {value}" for key, value in GOOD.items()]
    lines.insert(line, text)
    path = tmp_path / "cfg.yaml"
    path.write_text("\n".join(lines), "utf-8")
    survive(path, [], registry)


@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.binary(max_size=40))
def test_no_bytes_lead_to_anything_else(registry: Registry, tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "cfg.yaml"
    path.write_bytes(data)
    survive(path, [], registry)


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(
        st.sampled_from(
            ["drop.p", "a..b", "model", "model.name", "trainer.epochs", "regularizers.drop"]
        ).flatmap(lambda k: st.text(max_size=8).map(lambda v: f"{k}={v}"))
        | st.text(max_size=8),
        max_size=4,
    )
)
def test_no_override_leads_to_anything_else(registry: Registry, words: list[str]) -> None:
    survive(GOOD, words, registry)


@pytest.mark.parametrize("depth", [10, 100, 1000])
def test_depth_does_not_matter(registry: Registry, depth: int) -> None:
    tree: Any = 1
    for _ in range(depth):
        tree = {"a": [tree]}
    survive({**GOOD, "model": {"name": "conv", "init": tree}}, [], registry)
