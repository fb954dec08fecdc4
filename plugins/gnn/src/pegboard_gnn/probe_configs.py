"""Configs of the probes. No torch at import."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

from pegboard import Facts, Ge, Points, Problem

from .specs import Nodes


@dataclass(frozen=True)
class NodeOrder:
    """Permutation invariance: how much outputs depend on the order of nodes or points."""

    orders: Annotated[int, Ge(1)] = 20  # orders that are tried
    samples: Annotated[int, Ge(1)] = 64  # of the split, the first
    split: Literal["train", "val", "test"] = "val"  # whose samples are given other orders


@dataclass(frozen=True)
class Smoothing:
    """Over-smoothing: how alike the nodes of a graph become from layer to layer; 1 where all are the same."""

    samples: Annotated[int, Ge(1)] = 64  # of the split, the first
    split: Literal["train", "val", "test"] = "val"  # whose graphs are looked at


def check_order(config: NodeOrder, facts: Facts) -> Iterator[Problem]:
    spec = facts.spec
    if spec is not None and not (spec.inputs and isinstance(spec.inputs[0], Nodes | Points)):
        yield Problem(f"the data gives {spec}, which has no nodes and no points", expected="graphs or sets")


def check_smoothing(config: Smoothing, facts: Facts) -> Iterator[Problem]:
    spec = facts.spec
    if spec is not None and not (spec.inputs and isinstance(spec.inputs[0], Nodes)):
        yield Problem(f"the data gives {spec}, which is no graph", expected="graphs")
    model = facts.model
    if model is not None and Nodes not in model.inputs:
        yield Problem(f"{model.name} has no layers on graphs", expected="a network on graphs of this plugin")
