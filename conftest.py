"""What holds for the tests of every folder."""

from __future__ import annotations

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


@pytest.fixture(autouse=True)
def same_random_numbers() -> None:
    """Every test starts from the same random state, whichever ran before it."""
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)
