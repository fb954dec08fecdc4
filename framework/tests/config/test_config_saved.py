"""Trained models that a config names: whether there is one is said by `check`, with the place."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import pytest
from pegboard.config.check import ConfigError, check
from pegboard.config.errors import Mistake
from pegboard.contract.records import ProbePart, Regularizer, SavedModel
from pegboard.registry.discovery import Plugin, Registry

Ref = Annotated[str, SavedModel()]


@dataclass(frozen=True)
class Inner:
    """A nested node."""

    model: Ref = ""


@dataclass(frozen=True)
class Learn:
    """Learns from models of a stranger's plugin."""

    teacher: Ref = ""  # one
    more: tuple[Ref, ...] = ()  # several
    named: Mapping[str, Ref] = field(default_factory=dict)  # by name
    inner: Inner | None = None
    start: Annotated[str, SavedModel(files=True)] | None = None
    alike: Annotated[str, SavedModel(alike=True)] = ""  # one for the same data
    share: float = 1.0


def stranger(root: Path | None = None) -> Registry:
    parts = [
        Regularizer("learn", Learn, lambda c, x: None, stages={"edit_loss": "mix"}, neutral={"share": 0.0}),
        ProbePart("learned", Learn, lambda c, x: None),
    ]
    recipes = [] if root is None else [root]
    return Registry([Plugin("more", "acme-more", "1", status="ready", parts=parts, recipes=recipes)])


@pytest.fixture
def strange(registry: Registry, tmp_path: Path) -> Registry:
    """The fakes with a stranger's parts and a zoo of two recipes, one of them without weights."""
    for name, files in (
        ("digits/mlp-large", ["recipe.yaml", "model.safetensors"]),
        ("digits/cnn", ["recipe.yaml"]),
    ):
        folder = tmp_path / "zoo" / name
        folder.mkdir(parents=True)
        for file in files:
            (folder / file).write_text("", "utf-8")
    return Registry([*registry.plugins, *stranger(tmp_path / "zoo").plugins])


def refused(text: str, registry: Registry) -> list[Mistake]:
    Path("cfg.yaml").write_text(text, "utf-8")
    with pytest.raises(ConfigError) as raised:
        check("cfg.yaml", (), registry)
    return list(raised.value.mistakes)


def test_a_recipe_that_is_not_in_the_zoo_is_found_with_its_place(
    strange: Registry, accept: Any, base: str
) -> None:
    text = base.replace("  name: dense\n", "  name: dense\n  weights: zoo:digits/mlp-larg\n")
    (mistake,) = refused(text, strange)
    assert mistake.path == "model.weights" and str(mistake.origin) == "cfg.yaml:5:12"
    assert mistake.nearest == ("zoo:digits/mlp-large",) and "pegboard zoo list" in mistake.hint
    check({**_tree(), "model": {"name": "dense", "weights": "zoo:digits/mlp-large"}}, (), strange)


def test_a_recipe_without_weights_is_not_a_trained_model(strange: Registry, accept: Any) -> None:
    with pytest.raises(ConfigError, match=r"without weights\n.*\n.*pegboard zoo train digits/cnn"):
        check({**_tree(), "model": {"name": "dense", "weights": "zoo:digits/cnn"}}, (), strange)


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ("{teacher: runs/none}", "teacher"),
        ("{more: [runs/a, runs/none]}", "more.1"),
        ("{named: {big: runs/none}}", "named.big"),
        ("{inner: {model: runs/none}}", "inner.model"),
        ("{start: w.safetensors}", "start"),
        ("{start: 'zoo:digits/none'}", "start"),
    ],
)
@pytest.mark.parametrize(("section", "name"), [("regularizers", "learn"), ("probes", "learned")])
def test_every_field_that_names_a_trained_model_is_looked_up(
    strange: Registry,
    accept: Any,
    base: str,
    save_run: Callable[[str], None],
    fields: str,
    path: str,
    section: str,
    name: str,
) -> None:
    save_run("runs/a")
    text = base.replace("regularizers:\n  drop: {p: 0.2}\n", f"{section}:\n  {name}: {fields}\n")
    (mistake,) = refused(text, strange)
    assert mistake.path == f"{section}.{name}.{path}"
    assert mistake.origin is not None and mistake.origin.line == 9 and mistake.origin.column > 9
    assert "zoo:name" in mistake.expected


VECTOR, IMAGE = {"type": "Vector", "features": 2}, {"type": "Image", "channels": 1, "height": 1, "width": 2}
CLASSES = {"type": "Classes", "count": 3, "names": []}


@pytest.mark.parametrize(
    ("inputs", "target", "fits"),
    [
        ([VECTOR], CLASSES, True),
        ([IMAGE], CLASSES, True),  # may be flattened
        ([VECTOR | {"features": None}], CLASSES, True),
        ([{"type": "acme:Video"}], CLASSES, True),  # nothing is known of it
        ([VECTOR | {"features": 4}], CLASSES, False),
        ([IMAGE | {"height": 8}], CLASSES, False),
        ([VECTOR], CLASSES | {"count": 4}, False),
        ([VECTOR], {"type": "Values", "count": 3}, True),
    ],
)
def test_a_model_of_other_data_cannot_be_learned_from(
    strange: Registry,
    accept: Any,
    base: str,
    save_run: Callable[[str], None],
    inputs: list[Any],
    target: dict[str, Any],
    fits: bool,
) -> None:
    save_run("runs/a")
    spec = {"inputs": inputs, "target": target, "names": []}
    Path("runs/a/checkpoints/best/manifest.json").write_text(json.dumps({"spec": spec}), "utf-8")
    text = base.replace("drop: {p: 0.2}", "learn: {alike: runs/a, teacher: runs/a}")
    if fits:
        Path("cfg.yaml").write_text(text, "utf-8")
        check("cfg.yaml", (), strange)
    else:
        (mistake,) = refused(text, strange)
        assert mistake.path == "regularizers.learn.alike" and str(mistake.origin) == "cfg.yaml:9:18"
        assert "was trained on" in mistake.message and "Vector(2) -> Classes(3)" in mistake.message


def test_a_part_without_strength_needs_no_model(strange: Registry, accept: Any) -> None:
    check({**_tree(), "regularizers": {"learn": {"teacher": "runs/none", "share": 0.0}}}, (), strange)


def test_a_run_that_has_begun_needs_its_models_no_more(strange: Registry, accept: Any) -> None:
    tree = {**_tree(), "regularizers": {"learn": {"teacher": "runs/none"}}}
    check(tree, (), strange, begun=True)


@pytest.mark.parametrize(
    ("ref", "said"),
    [
        ("runs/digits/lates", "did you mean 'runs/digits/latest'?"),
        ("runs/digit/latest", "did you mean 'runs/digits'?"),
        ("run/digits/latest", "did you mean 'runs'?"),
        ("runs/zzz", "there is no run or checkpoint 'runs/zzz'"),
        ("runs/zzz/a", "the nearest folder is 'runs', which holds cv, digits"),
        ("runs/digits", "holds no checkpoint"),
        ("runs/cv", "a cross-validation"),
        ("cfg.yaml", "is a file, not the folder of a run"),
        ("x" * 5000, "there is no run or checkpoint"),
        ("a\0b", "there is no run or checkpoint"),
    ],
)
def test_what_is_wrong_with_a_folder_is_said(
    strange: Registry, accept: Any, save_run: Callable[[str], None], ref: str, said: str
) -> None:
    save_run("runs/digits/latest")
    Path("runs/cv/fold-0").mkdir(parents=True)
    Path("cfg.yaml").write_text("", "utf-8")
    with pytest.raises(ConfigError) as raised:
        check({**_tree(), "regularizers": {"learn": {"teacher": ref}}}, (), strange)
    assert said in str(raised.value) and len(raised.value.mistakes) == 1


def _tree() -> dict[str, Any]:
    return {
        "data": "spots",
        "model": "dense",
        "optimizer": {"name": "descent", "lr": 0.1},
        "trainer": {"epochs": 2},
    }
