"""What is offered instead of a wrong part would be right there; one cause is one mistake."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pytest
from pegboard.config.check import ConfigError, check
from pegboard.config.errors import Mistake
from pegboard.contract.records import (
    Dataset,
    Facts,
    Model,
    ObjectivePart,
    Optimizer,
    ProbePart,
    Problem,
    Regularizer,
)
from pegboard.contract.specs import Classes, DataSpec, Image, Labels, Values, Vector
from pegboard.registry.discovery import Plugin, Registry


@dataclass(frozen=True)
class Plain:
    """No keys at all."""


TERM: Any = {"edit_loss": "term"}


def none(config: Any, context: Any) -> None:
    return None


def needs(**wanted: str) -> Callable[[Any, Facts], Iterable[Problem]]:
    """A rule: the parts beside it have these names."""

    def rule(config: Any, facts: Facts) -> Iterable[Problem]:
        for kind, name in wanted.items():
            found = getattr(facts, kind)
            if found is not None and found.name != name:
                yield Problem(f"it needs the {kind} {name}", expected=name)

    return rule


def only_labels(config: Any, facts: Facts) -> Iterable[Problem]:
    if facts.objective is not None and facts.objective.name != "labels":
        yield Problem("it gives labels", "name", expected="another model")


def raises(config: Any, facts: Facts) -> Iterable[Problem]:
    raise IndexError


@pytest.fixture
def registry() -> Registry:
    classes, values = DataSpec((Vector(2),), Classes(3)), DataSpec((Vector(2),), Values(1))
    parts = [
        Dataset("kinds", Plain, none, spec=lambda c: classes),
        Dataset("amounts", Plain, none, spec=lambda c: values),
        Model("plain", Plain, none, inputs=(Vector,)),
        Model("eager", Plain, none, inputs=(Vector,), targets=(Classes,)),
        Model("sees", Plain, none, inputs=(Image,), check=needs(objective="sorts")),
        Model("game", Plain, none, inputs=(Vector,), check=needs(objective="duel")),
        Dataset("views", Plain, none, spec=lambda c: DataSpec((Image(1, 2, 2),), Labels(2))),
        Model("marks", Plain, none, inputs=(Image,), check=only_labels),
        Model("lost", Plain, none, inputs=(Image,), check=needs(objective="labels")),
        ObjectivePart("labels", Plain, none, targets=(Labels,), default_for=(Labels,)),
        ObjectivePart("rates", Plain, none, targets=(Labels,)),
        ProbePart("best", Plain, none, check=needs(model="eager"), reference=True),
        Model("broken", Plain, none, inputs=(Vector,), check=raises),
        ObjectivePart("sorts", Plain, none, targets=(Classes,), default_for=(Classes,)),
        ObjectivePart("fits", Plain, none, targets=(Values,), default_for=(Values,)),
        ObjectivePart("duel", Plain, none, check=needs(model="game")),
        Regularizer("softens", Plain, none, targets=(Classes,), stages={"edit_target": "smooth"}),
        Regularizer("shakes", Plain, none, inputs=(Image,), stages={"edit_batch": "augment"}),
        Regularizer(
            "both", Plain, none, check=needs(model="game", objective="duel"), stages={"edit_loss": "term"}
        ),
        Regularizer("any", Plain, none, stages={"edit_grads": "clip"}),
        ProbePart("of_game", Plain, none, check=needs(model="game")),
        ProbePart("of_all", Plain, none),
        Optimizer("steps", Plain, none),
    ]
    return Registry([Plugin("fakes", "acme-fakes", "1", status="ready", parts=parts)])


def refused(registry: Registry, **nodes: Any) -> list[Mistake]:
    tree = {"data": "kinds", "model": "plain", "optimizer": "steps"} | nodes
    with pytest.raises(ConfigError) as raised:
        check(tree, (), registry)
    return list(raised.value.mistakes)


@pytest.mark.parametrize(
    ("nodes", "offered"),
    [
        ({"model": "sees"}, "eager, game, plain"),
        ({"model": "sees", "objective": "sorts"}, "eager, plain"),
        ({"model": "sees", "objective": "duel"}, "game"),
        ({"model": "zzzz"}, "eager, game, plain"),
        ({"model": "zzzz", "objective": "sorts"}, "eager, plain"),
        ({"data": "amounts", "model": "eager"}, "game, plain"),
        ({"objective": "fits"}, "sorts"),
        ({"objective": "zzzz"}, "sorts"),
        ({"model": "game", "objective": "zzzz"}, "duel"),
        ({"regularizers": {"zzzz": {}}}, "any, softens"),
        ({"data": "amounts", "regularizers": {"zzzz": {}}}, "any"),
        ({"probes": {"zzzz": {}}}, "of_all"),
        ({"model": "game", "objective": "duel", "probes": {"zzzz": {}}}, "of_all, of_game"),
        ({"data": "views", "model": "marks", "objective": "zzzz"}, "labels"),  # no other value mends a name
        ({"model": "eager", "reference": "zzzz"}, "best"),
        ({"model": "eager", "reference": "of_all"}, "best"),
        ({"reference": "zzzz"}, "knows an optimum of this model and objective"),
        ({"model": {}}, "eager, game, plain"),
        ({"model": None}, "{name: ...} with one of eager, game, plain"),
        ({"data": "zzzz"}, "amounts, kinds"),
        ({"data": {}, "model": "eager"}, "kinds"),
        ({"data": None, "model": "eager"}, "{name: ...} with one of kinds"),
        ({"data": "zzzz", "objective": "fits"}, "amounts"),
        ({"data": "zzzz", "model": "marks"}, "views"),
    ],
)
def test_only_what_would_be_accepted_is_offered(
    registry: Registry, nodes: dict[str, Any], offered: str
) -> None:
    (mistake,) = refused(registry, **nodes)
    assert mistake.expected.endswith(f" {offered}"), mistake.expected


@pytest.mark.parametrize(
    ("nodes", "path"),
    [
        # The data is of another kind than all that is meant for it.
        (
            {"data": "amounts", "model": "eager", "objective": "sorts", "regularizers": {"softens": {}}},
            "model.name",
        ),
        ({"data": "amounts", "objective": "sorts", "regularizers": {"softens": {}}}, "objective"),
        ({"data": "amounts", "objective": "sorts", "regularizers": {"softens": {}}}, "objective"),
        # Its own rules say once more that a model does not read the data.
        ({"model": "sees", "objective": "duel"}, "model.name"),
        # A trick that belongs to other parts altogether.
        ({"regularizers": {"both": {}}}, "regularizers.both"),
        ({"objective": "fits", "trainer": {"monitor": "val/zzz"}}, "objective"),
    ],
)
def test_one_cause_is_one_mistake(registry: Registry, nodes: dict[str, Any], path: str) -> None:
    (mistake,) = refused(registry, **nodes)
    assert mistake.path == path


def test_all_reasons_of_a_part_that_does_not_go_with_the_rest_are_told(registry: Registry) -> None:
    (mistake,) = refused(registry, regularizers={"both": {}})
    assert mistake.message == "it needs the model game"
    assert mistake.hint == "also, it needs the objective duel; expected duel"


def test_a_model_of_other_data_does_not_say_which_objective_is_right(registry: Registry) -> None:
    found = refused(registry, model="lost", objective="fits")
    assert [m.expected for m in found if m.path == "objective"] == ["objectives for Classes(3): duel, sorts"]
    found = refused(registry, model="lost", objective="zzzz")
    assert [m.expected for m in found if m.path == "objective.name"] == ["one of duel, sorts"]


def test_two_causes_are_two_mistakes(registry: Registry) -> None:
    found = refused(registry, model="sees", objective="fits")
    assert {mistake.path for mistake in found} == {"model.name", "objective"}
