"""What these tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pegboard.testing import runs


@pytest.fixture(scope="module")
def lean() -> Iterator[None]:
    """Runs leave out what each repeats: to look for plugins, to explain their plan, to draw."""
    with runs.lean():
        yield
