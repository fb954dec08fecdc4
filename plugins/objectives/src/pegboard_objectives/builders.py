"""From a config and the target's spec to an objective: every choice is made here, once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
import torch.nn.functional as F
from pegboard import Classes, Context, Labels, Objective, Tokens, Values
from torch import Tensor

from . import L1, BinaryCrossEntropy, CrossEntropy, Hinge, Huber, Mse, Perceptron
from . import functional as losses
from .objective import Classification, LabelSet, Loss, Regression


def _constant(values: Sequence[float] | None, context: Context) -> Tensor | None:
    return None if values is None else torch.tensor(values, dtype=torch.float32, device=context.device)


def cross_entropy(config: CrossEntropy, context: Context) -> Objective:
    target = context.spec.target
    assert isinstance(target, Classes | Tokens)
    weights = _constant(config.class_weights, context)
    full: Loss = partial(losses.cross_entropy, class_weights=weights)
    if isinstance(target, Tokens) and target.padding not in (-1, losses.IGNORED):
        full = partial(losses.padded_cross_entropy, class_weights=weights, padding=target.padding)
    # The common case goes straight to torch, which takes indices and distributions alike.
    plain = F.cross_entropy if isinstance(target, Classes) and weights is None else full
    return Classification("cross_entropy", plain, full, target, metrics=config.metrics, k=config.k)


def binary_cross_entropy(config: BinaryCrossEntropy, context: Context) -> Objective:
    target, name = context.spec.target, "binary_cross_entropy"
    weight = _constant(config.pos_weight, context)
    if isinstance(target, Labels):
        full: Loss = partial(losses.binary_cross_entropy, pos_weight=weight)
        return LabelSet(name, full, full, target, metrics=config.metrics)
    assert isinstance(target, Classes)
    full = partial(losses.two_class_cross_entropy, pos_weight=weight)
    return Classification(name, full, full, target, metrics=config.metrics, single=True)


def mse(config: Mse, context: Context) -> Objective:
    target = context.spec.target
    if isinstance(target, Classes):
        full: Loss = partial(losses.one_hot_mse, features=config.features)
        return Classification("mse", full, full, target, metrics=config.metrics, k=config.k, scores=True)
    return _regression("mse", partial(losses.regression, features=config.features), config, context)


def l1(config: L1, context: Context) -> Objective:
    return _regression(
        "l1", partial(losses.regression, loss=F.l1_loss, features=config.features), config, context
    )


def huber(config: Huber, context: Context) -> Objective:
    loss = partial(F.huber_loss, delta=config.delta)
    return _regression(
        "huber", partial(losses.regression, loss=loss, features=config.features), config, context
    )


def _regression(name: str, full: Loss, config: Mse | L1 | Huber, context: Context) -> Objective:
    target = context.spec.target
    assert isinstance(target, Values)
    return Regression(name, full, full, target, metrics=config.metrics)


def hinge(config: Hinge, context: Context) -> Objective:
    binary = partial(losses.binary_hinge, squared=config.squared)
    several = partial(losses.multiclass_hinge, kind=config.multiclass, squared=config.squared)
    return _margin("hinge", binary, several, config, context)


def perceptron(config: Perceptron, context: Context) -> Objective:
    return _margin("perceptron", losses.binary_perceptron, losses.multiclass_perceptron, config, context)


def _margin(
    name: str, binary: Loss, several: Loss, config: Hinge | Perceptron, context: Context
) -> Objective:
    target = context.spec.target
    assert isinstance(target, Classes)
    single = target.count == 2
    full = binary if single else several
    return Classification(
        name, full, full, target, metrics=config.metrics, k=config.k, single=single, scores=True
    )
