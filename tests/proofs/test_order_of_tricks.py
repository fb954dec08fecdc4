"""The order in which a config lists tricks never changes a bit of the result."""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pegboard
import pytest
from pegboard.base.random_keys import key_seed
from pegboard.config.check import check
from pegboard.contract.tricks import order
from pegboard.engine.loop import Loop
from pegboard.engine.precision import choose_precision
from pegboard.planning.plan import assemble, make_plan
from pegboard.registry.discovery import Registry
from proofs import LOCAL, Config, entries, fields, plain, taught, unequal

pytestmark = pytest.mark.usefixtures("lean")
STEPS = 3


@functools.cache
def names() -> tuple[str, ...]:
    """The tricks of the registry, and partners of every stage and role."""
    names = [e.part.name for e in Registry.discover(local=LOCAL).entries("regularizer")]
    return tuple(sorted({name for name in names if name not in ("journal", "poison")}))


def node(name: str, target: str, shelf: Path) -> Config:
    ours = {entry.part.name: entry for entry in entries("regularizer")}
    if name not in ours:  # numbers of its own, so that two of them do not commute
        number = names().index(name)
        return {"by": 0.5 + 0.01 * number, "plus": 0.01 * (number + 1)}
    given = fields(ours[name], shelf)
    return given | {"teacher": str(taught(shelf, target))} if "teacher" in given else given


def outcome(keys: Sequence[str], nodes: Config, target: str) -> Any:
    """Weights after a few steps, or the words of the error."""
    given = plain(
        data={"name": "partner", "target": target, "batch_size": 8},
        regularizers={key: nodes[key] for key in keys},
        trainer={"steps": STEPS, "device": "cpu"},
    )
    try:
        import torch

        plan = make_plan(check(given), read=True)
        assert plan.splits is not None
        with torch.random.fork_rng():
            assembly = assemble(plan, "cpu")
            torch.manual_seed(key_seed(given["seed"], "train"))
            loop = Loop(assembly, plan.splits, choose_precision("fp32", "cpu"), Nobody(), Path("nowhere"))
            loop.span(loop.groups(0), STEPS)
        return assembly.model.state_dict()
    except pegboard.PegboardError as error:
        return str(error)


class Nobody:
    """A watcher that is not interested."""

    def working(self, total: int, unit: str) -> Any:
        return nullcontext(lambda done: None)

    def __getattr__(self, name: str) -> Any:
        return lambda *args: None


def compare(group: Sequence[str], shelf: Path) -> str:
    """Every order of some tricks ends alike; says how: trained, or refused with a reason that names them."""
    for target in ("classes", "values"):
        nodes = {name: node(name, target, shelf) for name in group}
        first, *others = (outcome(keys, nodes, target) for keys in itertools.permutations(group))
        for other in others:
            if isinstance(first, str) or isinstance(other, str):
                assert first == other, group
            else:
                assert list(unequal(first, other)) == [], group
        if not isinstance(first, str):
            return "trained"
        if "nothing says which comes first" in first or "cannot stand beside" in first:
            assert sum(f"{name!r}" in first for name in group) >= 2, first
            return "refused, naming both"
    return "refused, for a reason that lies in one of them"


def triples(count: int, seed: int) -> Iterator[tuple[str, ...]]:
    dice = random.Random(seed)
    for _ in range(count):
        yield tuple(dice.sample(names(), 3))


def pairs() -> list[tuple[str, ...]]:
    return list(itertools.combinations(names(), 2))


def test_pairs_of_the_registry_do_not_depend_on_their_order(shelf: Path) -> None:
    ours = [entry.part.name for entry in entries("regularizer")]
    results = [compare(pair, shelf) for pair in itertools.combinations(ours, 2)]
    assert "trained" in results


@pytest.mark.sweep
def test_pairs_of_every_stage_do_not_depend_on_their_order(shelf: Path) -> None:
    dice = random.Random(1)
    results = [compare(pair, shelf) for pair in dice.sample(pairs(), 30)]
    meeting = (
        ("partner_edit_grads_clip", "toy_second_clip"),
        ("toy_alone", "dropout"),
        ("toy_late_noise", "partner_edit_grads_noise"),
    )
    results += [compare(pair, shelf) for pair in meeting]
    assert results[-3:] == ["refused, naming both", "refused, naming both", "trained"]


@pytest.mark.sweep
def test_triples_do_not_depend_on_their_order(shelf: Path) -> None:
    assert [compare(triple, shelf) for triple in triples(10, 2)].count("trained") >= 3


def test_an_order_that_changes_is_seen(shelf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = itertools.count()

    def careless(*args: Any) -> Any:
        stages, problems = order(*args)
        return {k: v[:: 1 - 2 * (next(calls) % 2)] for k, v in stages.items()}, problems

    pair = ("partner_edit_batch_augment", "partner_edit_batch_mix")
    assert compare(pair, shelf) == "trained"
    monkeypatch.setattr("pegboard.planning.plan.order", careless)
    with pytest.raises(AssertionError, match="partner_edit_batch_mix"):
        compare(pair, shelf)


@pytest.mark.prove
@pytest.mark.parametrize("share", range(8))
def test_all_pairs(share: int, shelf: Path, show: Callable[[str], None]) -> None:
    for pair in pairs()[share::8]:
        show(f"pair of tricks in both orders, {compare(pair, shelf)}")


@pytest.mark.prove
@pytest.mark.parametrize("share", range(8))
def test_200_triples(share: int, shelf: Path, show: Callable[[str], None]) -> None:
    for triple in list(triples(200, 3))[share::8]:
        show(f"triple of tricks in all six orders, {compare(triple, shelf)}")
