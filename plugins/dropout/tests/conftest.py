"""A small network with pegs, and hands that hang a trick on them as the core does."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from pegboard import Context, Peg
from pegboard.pegs import find
from pegboard_dropout import Dropout, build
from torch import nn


def make_mlp(*sizes: int, activation: type[nn.Module] = nn.ReLU, bias: bool = True) -> nn.Sequential:
    layers: list[nn.Module] = [Peg("input", sizes[0])]
    for a, b in pairwise(sizes[:-1]):
        layers += [nn.Linear(a, b, bias), Peg("affine", b), activation(), Peg("hidden", b)]
    return nn.Sequential(*layers, nn.Linear(sizes[-2], sizes[-1], bias))


def hang_on(model: nn.Module, config: Dropout, name: str = "dropout") -> list[str]:
    trick, filled = build(config, Context()), []
    for path, peg in find(model):
        module = trick.hang(peg)
        if module is not None:
            peg.add_module(name, module)
            filled.append(path)
    return filled


@pytest.fixture
def mlp() -> Callable[..., nn.Sequential]:
    return make_mlp


@pytest.fixture
def hang() -> Callable[..., list[str]]:
    return hang_on
