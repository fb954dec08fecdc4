"""Order is declared, never accidental."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import pytest
from pegboard import Regularizer, Role, Trick
from pegboard.contract.tricks import Use, order


@dataclass(frozen=True)
class Empty:
    """Nothing."""


@dataclass(frozen=True)
class Sited:
    """Has sites."""

    sites: tuple[str, ...] = ("hidden",)


def trick(
    name: str, stages: dict[str, str], config: Any = None, players: tuple[str, ...] = (), **more: Any
) -> Use:
    return Use(
        Regularizer(name, Empty, lambda c, x: Trick(), stages=stages, **more), config or Empty(), players
    )


def keys(stage: str, tricks: dict[str, Use]) -> list[str]:
    placed, problems = order(tricks)
    assert not problems
    return [p.key for p in placed[stage]]


def test_roles_decide_whatever_the_names_and_the_order_of_the_config() -> None:
    tricks = {"a": trick("a", {"hang": "drop"}), "b": trick("b", {"hang": "normalize"})}
    for permutation in itertools.permutations(tricks.items()):
        assert keys("hang", dict(permutation)) == ["b", "a"]


def test_declarations_decide_inside_a_role_and_names_the_rest() -> None:
    tricks = {
        "a": trick("a", {"edit_batch": "augment"}, after=("b", "c")),
        "b": trick("b", {"edit_batch": "augment"}),
        "c": trick("c", {"edit_batch": "augment"}, before=("b",)),
    }
    for permutation in itertools.permutations(tricks.items()):
        assert keys("edit_batch", dict(permutation)) == ["c", "b", "a"]


def test_the_rule_is_said() -> None:
    tricks = {
        "a": trick("a", {"edit_batch": "augment"}, after=("b",)),
        "b": trick("b", {"edit_batch": "augment"}),
    }
    placed, _ = order(tricks)
    assert [p.rule for p in placed["edit_batch"]] == [
        "role augment of augment < mix < attack, by name",
        "role augment of augment < mix < attack, after b",
    ]


def test_two_of_one_role_without_an_order_are_an_error_that_names_both_and_the_fix() -> None:
    tricks = {"a": trick("a", {"edit_batch": "mix"}), "b": trick("b", {"edit_batch": "mix"})}
    answers = {tuple(str(p) for p in order(dict(p))[1]) for p in itertools.permutations(tricks.items())}
    (answer,) = answers
    assert "'a' and 'b' both edit_batch as 'mix'" in answer[0]
    assert "a: null or b: null" in answer[0]


@pytest.mark.parametrize(
    "stage, role", [("edit_loss", "term"), ("edit_groups", "decay"), ("after_eval", "stop")]
)
def test_where_the_order_cannot_matter_names_decide(stage: str, role: str) -> None:
    tricks = {"b": trick("b", {stage: role}), "a": trick("a", {stage: role})}
    assert keys(stage, tricks) == ["a", "b"]


def test_tricks_on_different_sites_or_players_do_not_meet() -> None:
    apart = {
        "a": trick("a", {"hang": "drop"}, Sited(("input",))),
        "b": trick("b", {"hang": "drop"}, Sited(("hidden",))),
    }
    assert keys("hang", apart) == ["a", "b"]
    together = apart | {"b": trick("b", {"hang": "drop"}, Sited(("input", "hidden")))}
    assert order(together)[1]
    assert not order(together, sites=("hidden",))[1]
    assert order(together, sites=("input",))[1]
    players = {
        "a": trick("a", {"edit_grads": "clip"}, players=("one",)),
        "b": trick("b", {"edit_grads": "clip"}, players=("two",)),
    }
    assert keys("edit_grads", players) == ["a", "b"]


def test_one_part_twice_on_the_same_pegs_is_ambiguous() -> None:
    part = Regularizer("drop", Sited, lambda c, x: Trick(), stages={"hang": "drop"})
    _, problems = order({"x": Use(part, Sited()), "y": Use(part, Sited())})
    assert "different sites" in problems[0].hint


def test_conflicts_are_found_from_either_side() -> None:
    tricks = {
        "a": trick("a", {"edit_loss": "term"}),
        "b": trick("b", {"edit_loss": "term"}, conflicts=("a",)),
    }
    (problem,) = order(tricks)[1]
    assert "'b' cannot stand beside 'a'" in problem.message


def test_circles_and_contradictions_are_errors() -> None:
    circle = {
        "a": trick("a", {"edit_batch": "augment"}, after=("b",)),
        "b": trick("b", {"edit_batch": "augment"}, after=("a",)),
    }
    assert "circle" in order(circle)[1][0].message
    against = {
        "a": trick("a", {"hang": "normalize"}, after=("b",)),
        "b": trick("b", {"hang": "drop"}),
    }
    assert "comes before role" in order(against)[1][0].message


def test_unknown_roles_and_stages_are_errors() -> None:
    assert "unknown role" in order({"a": trick("a", {"hang": "dorp"})})[1][0].message
    (problem,) = order({"a": trick("a", {"hnag": "drop"})})[1]
    assert "did you mean 'hang'" in problem.hint


def test_a_plugin_may_add_a_role_with_a_place() -> None:
    prune = Role("acme:prune", "after_step", after="constrain")
    tricks = {
        "average": trick("average", {"after_step": "average"}),
        "prune": trick("prune", {"after_step": "acme:prune"}, roles=(prune,)),
        "zzz": trick("zzz", {"after_step": "constrain"}),
    }
    assert keys("after_step", tricks) == ["zzz", "prune", "average"]
    first = Role("acme:early", "after_step")
    tricks["early"] = trick("early", {"after_step": "acme:early"}, roles=(first,))
    assert keys("after_step", tricks)[0] == "early"
