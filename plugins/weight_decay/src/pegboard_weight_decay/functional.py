"""Weight decay as functions; they need nothing of the framework."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any, Literal

import torch
from torch import Tensor

Kind = Literal["weight", "bias", "norm", "embedding"]

_EMBEDDING = re.compile(r"embed|(^|[._])(emb|wte|wpe|words|segments|positions)([._]|$)")
_MAP = re.compile(r"proj")  # of pictures cut into patches, which is a weight like any other


def decay_(params: Sequence[Tensor], lr: float | Tensor, value: float) -> None:
    """Multiply every parameter by `1 - lr * value`, in place; done right before an update."""
    with torch.no_grad():
        for param in params:
            param.mul_(1 - lr * value)


def chosen(names: Iterable[str], patterns: Sequence[str]) -> set[str]:
    """The names that fit one of the patterns, in which * stands for any text."""
    return {name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)}


def l2_term(params: Sequence[Tensor], value: float) -> Tensor:
    """`value / 2` times the sum of squares, a scalar; its gradient is `value * param`."""
    return torch.stack([p.square().sum() for p in params]).sum() * (value / 2)


def l1_term(params: Sequence[Tensor], value: float) -> Tensor:
    """`value` times the sum of absolute values, a scalar; its gradient is `value * sign(param)`."""
    return torch.stack([p.abs().sum() for p in params]).sum() * value


def kinds(named: Iterable[tuple[str, Tensor]]) -> dict[str, Kind]:
    """What each parameter is, from names and shapes as in `model.named_parameters()`.

    A module whose `weight` is a vector, or has the shape of its `bias`, is a normalisation, and all
    it holds is `norm`. Elsewhere `bias` in the last part of a name makes a bias, any other vector or
    scalar counts as `norm`, and `embed`, `emb`, `wte`, `wpe`, `words`, `segments` or `positions` in the name
    makes an embedding, unless its module is a projection (`proj`).
    """
    shapes = {name: tuple(param.shape) for name, param in named}

    def kind(name: str, shape: tuple[int, ...]) -> Kind:
        prefix, _, last = name.rpartition(".")
        path = f"{prefix}." if prefix else ""
        weight = shapes.get(f"{path}weight")
        if weight is not None and (len(weight) < 2 or weight == shapes.get(f"{path}bias")):
            return "norm"
        if "bias" in last:
            return "bias"
        if len(shape) < 2:
            return "norm"
        projects = _MAP.search(prefix.rpartition(".")[2])
        return "embedding" if _EMBEDDING.search(name) and not projects else "weight"

    return {name: kind(name, shape) for name, shape in shapes.items()}


def decayed(
    named: Iterable[tuple[str, Tensor]], *, bias: bool = False, norm: bool = False, embeddings: bool = True
) -> set[str]:
    """The names of the parameters that decay: all weights, and the kinds that are asked for."""
    wanted = {"weight": True, "bias": bias, "norm": norm, "embedding": embeddings}
    return {name for name, kind in kinds(named).items() if wanted[kind]}


def split_groups(groups: Sequence[dict[str, Any]], names: set[str], value: float) -> list[dict[str, Any]]:
    """Parameter groups in which those named have a group of their own, with key `decoupled_decay`.

    Every group has `params` and, in the same order, `names`; other keys are kept. A group that
    decays already decays by the sum.
    """
    result: list[dict[str, Any]] = []
    for group in groups:
        pairs = list(zip(group["names"], group["params"], strict=True))
        for chosen in (True, False):
            part = [(name, param) for name, param in pairs if (name in names) == chosen]
            if not part:
                continue
            new = group | {"names": [name for name, _ in part], "params": [param for _, param in part]}
            if chosen:
                new["decoupled_decay"] = group.get("decoupled_decay", 0.0) + value
            result.append(new)
    return result
