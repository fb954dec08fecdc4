"""Parameters of sweeps: a few are in every run of the tests, all of them in `make test-all`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable
from typing import Any

import pytest

# Checks of the conformance kit that train, compile or draw a part at length.
LONG_CHECKS = (
    *("builds_the_same_twice", "compiles_whole", "draws_its_samples", "exact_resume"),
    *("has_deterministic_kernels", "runs_on_meta", "trains_under_autocast", "works_in_spawned_workers"),
)


def first_of_each(values: Iterable[Any], kind: Callable[[Any], Hashable] = lambda value: None) -> list[Any]:
    """Parameters of which the first of each kind is in every run, the others are marked `sweep`."""
    seen: set[Hashable] = set()
    made = []
    for value in values:
        made.append(pytest.param(value, marks=[pytest.mark.sweep] if kind(value) in seen else []))
        seen.add(kind(value))
    return made


def first_of_each_row(rows: Iterable[Any]) -> list[Any]:
    """The same for rows of several values, of which the first is in every run."""
    return [pytest.param(*row, marks=[pytest.mark.sweep] if n else []) for n, row in enumerate(rows)]


def only(values: Iterable[Any], quick: Collection[Any]) -> list[Any]:
    """Parameters of which these are in every run, the others are marked `sweep`."""
    return [pytest.param(v, marks=[] if v in quick else [pytest.mark.sweep]) for v in values]


def mark_long_checks(items: Iterable[pytest.Item]) -> None:
    """Mark the long checks of the kit `sweep`, but for the first part of each kind that is tested."""
    seen: set[Hashable] = set()
    for item in items:
        name = item.name.removeprefix("test_part[").removesuffix("]")
        kind, _, rest = name.partition("-")
        check = rest.rpartition("-")[2]
        if name == item.name or check not in LONG_CHECKS:
            continue
        place = (kind, check)
        if place in seen or kind == "stepper":  # whose checks compile
            item.add_marker(pytest.mark.sweep)
        seen.add(place)
