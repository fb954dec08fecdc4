"""A small network with pegs, and hands that hang the trick on them."""

from __future__ import annotations

from collections.abc import Callable

import pegged
import pytest
from pegboard import Context
from pegboard_dropout import Dropout, build
from torch import nn


@pytest.fixture
def mlp() -> Callable[..., nn.Sequential]:
    return pegged.make_mlp


@pytest.fixture
def hang() -> Callable[..., list[str]]:
    def hang_on(model: nn.Module, config: Dropout, name: str = "dropout") -> list[str]:
        return pegged.hang(build(config, Context()), model, name)

    return hang_on
