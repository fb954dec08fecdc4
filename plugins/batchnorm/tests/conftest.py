"""A small network with pegs, and hands that hang the trick on them."""

from __future__ import annotations

from collections.abc import Callable

import pegged
import pytest
from pegboard import Context
from pegboard_batchnorm import BatchNorm, build
from torch import nn


@pytest.fixture
def mlp() -> Callable[..., nn.Sequential]:
    return pegged.make_mlp


@pytest.fixture
def hang() -> Callable[..., list[str]]:
    def hang_on(model: nn.Module, config: BatchNorm | None = None, name: str = "batchnorm") -> list[str]:
        return pegged.hang(build(config or BatchNorm(), Context()), model, name)

    return hang_on
