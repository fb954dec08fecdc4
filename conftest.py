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


# Tests that build, install or compile more than they say about lines of the core. To trace them for coverage
# makes them half as slow again, and what they reach is reached by others.
UNTRACED = {
    "test_author_types.py", "test_docs.py", "test_examples.py", "test_install.py",
    "test_kills.py", "test_scaffold.py", "test_site.py", "test_tricks_compose.py",
}  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.name in UNTRACED or item.path.name.endswith("_conformance.py"):
            item.add_marker("no_cover")


@pytest.fixture(autouse=True)
def no_tracer_in_commands(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an untraced test starts is not traced either."""
    if request.node.get_closest_marker("no_cover"):
        for name in [name for name in os.environ if name.startswith("COVERAGE_")]:
            monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def same_random_numbers() -> None:
    """Every test starts from the same random state, whichever ran before it."""
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)
