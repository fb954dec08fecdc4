"""What holds for the tests of every folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from typing import Any

import pytest
from catalogue import index, mistakes

ENTRIES = index()


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem(collector: pytest.Collector) -> Generator[None, Any, Any]:
    """A marker with an id that the catalogue does not have is an error of its file."""
    made = yield
    items = made if isinstance(made, list) else [made]
    found = {
        f"{item.originalname}: {mistake}"
        for item in items
        if isinstance(item, pytest.Function)
        for marker in item.iter_markers("catalogue")
        for mistake in mistakes(marker.args, ENTRIES)
    }
    if found:
        raise collector.CollectError("\n".join(sorted(found)))
    return made


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests on real data sets where PEGBOARD_DATA names no folder that has them."""
    if os.environ.get("PEGBOARD_DATA"):
        return
    skip = pytest.mark.skip(reason="needs the real data sets: PEGBOARD_DATA=folder make test-data")
    for item in items:
        if item.get_closest_marker("data"):
            item.add_marker(skip)


@pytest.fixture(autouse=True)
def same_random_numbers() -> None:
    """Every test starts from the same random state, whichever ran before it."""
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)
