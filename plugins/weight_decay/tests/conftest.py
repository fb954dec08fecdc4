"""A loop as the core runs it, around any model, optimizer and loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from pegboard import Batch, Context, Trick
from pegboard_weight_decay import WeightDecay, build
from pegboard_weight_decay.functional import decay_
from torch import Tensor, nn

Factory = Callable[[list[dict[str, Any]]], torch.optim.Optimizer]


def make_groups(model: nn.Module) -> list[dict[str, Any]]:
    named = list(model.named_parameters())
    return [{"params": [p for _, p in named], "names": [n for n, _ in named]}]


def fit_model(
    model: nn.Module,
    config: WeightDecay | None,
    factory: Factory,
    loss: Callable[[], Tensor],
    steps: int,
    schedule: Callable[[int], float] | None = None,
) -> nn.Module:
    groups = make_groups(model)
    trick = None if config is None else build(config, Context())
    if trick is not None:
        groups = trick.edit_groups(groups)
    optimizer = factory([{k: v for k, v in g.items() if k != "names"} for g in groups])
    first = [g["lr"] for g in optimizer.param_groups]
    edits = trick is not None and type(trick).edit_loss is not Trick.edit_loss

    def evaluate() -> Tensor:
        optimizer.zero_grad()
        value = loss()
        if edits and trick is not None:
            value = trick.edit_loss(value, None, Batch(()))
        value.backward()
        return value

    for step in range(steps):
        for group, lr in zip(optimizer.param_groups, first, strict=True):
            group["lr"] = lr * (schedule(step) if schedule else 1)
        if isinstance(optimizer, torch.optim.LBFGS):
            optimizer.step(evaluate)  # type: ignore[arg-type]
            continue
        evaluate()
        for group in optimizer.param_groups:
            if "decoupled_decay" in group:
                decay_(group["params"], group["lr"], group["decoupled_decay"])
        optimizer.step()
    return model


@pytest.fixture
def groups_of() -> Callable[[nn.Module], list[dict[str, Any]]]:
    return make_groups


@pytest.fixture
def fit() -> Callable[..., nn.Module]:
    return fit_model
