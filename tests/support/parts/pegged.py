"""A small network with pegs, and hands that hang a trick on them as the core does."""

from __future__ import annotations

from itertools import pairwise

from pegboard import Peg, Trick
from pegboard.planning.pegs import find
from torch import nn


def make_mlp(*sizes: int, activation: type[nn.Module] = nn.ReLU, bias: bool = True) -> nn.Sequential:
    """Linear layers of these sizes, with pegs before, inside and after each hidden one."""
    layers: list[nn.Module] = [Peg("input", sizes[0])]
    for a, b in pairwise(sizes[:-1]):
        layers += [nn.Linear(a, b, bias), Peg("affine", b), activation(), Peg("hidden", b)]
    return nn.Sequential(*layers, nn.Linear(sizes[-2], sizes[-1], bias))


def hang(trick: Trick, model: nn.Module, name: str) -> list[str]:
    """Hang what the trick has for each peg under this name; the paths of the pegs that took it."""
    filled = []
    for path, peg in find(model):
        module = trick.hang(peg)
        if module is not None:
            peg.add_module(name, module)
            filled.append(path)
    return filled
