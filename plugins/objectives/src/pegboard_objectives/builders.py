"""From a config and the target's spec to an objective: every choice is made here, once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
import torch.nn.functional as F
from pegboard import Classes, Context, Labels, Objective, Series, Spec, Tokens, Values
from torch import Tensor

from . import (
    L1,
    BinaryCrossEntropy,
    Brier,
    Clusters,
    CrossEntropy,
    Hinge,
    Huber,
    Lp,
    Mse,
    Perceptron,
)
from . import functional as losses
from .objective import Classification, Clustering, LabelSet, Loss, Regression
from .perceptron import PerceptronLoss


def _constant(values: Sequence[float] | None, context: Context) -> Tensor | None:
    return None if values is None else torch.tensor(values, dtype=torch.float32, device=context.device)


def cross_entropy(config: CrossEntropy, context: Context) -> Objective:
    target = context.spec.target
    assert isinstance(target, Classes | Tokens)
    weights = _constant(config.class_weights, context)
    full: Loss = partial(losses.cross_entropy, class_weights=weights)
    if isinstance(target, Tokens) and target.padding not in (-1, losses.IGNORED):
        full = partial(losses.padded_cross_entropy, class_weights=weights, padding=target.padding)
    # The common case goes as straight as it can.
    plain = losses.plain_cross_entropy if isinstance(target, Classes) and weights is None else full
    return Classification(
        "cross_entropy", plain, full, target, metrics=config.metrics, k=config.k, class_weights=weights
    )


def binary_cross_entropy(config: BinaryCrossEntropy, context: Context) -> Objective:
    target, name = context.spec.target, "binary_cross_entropy"
    weight = _constant(config.pos_weight, context)
    if isinstance(target, Labels):
        full: Loss = partial(losses.binary_cross_entropy, pos_weight=weight, missing=config.missing)
        return LabelSet(name, full, full, target, metrics=config.metrics, missing=config.missing)
    assert isinstance(target, Classes)
    full = partial(losses.two_class_cross_entropy, pos_weight=weight)
    return Classification(name, full, full, target, metrics=config.metrics, single=True)


def brier(config: Brier, context: Context) -> Objective:
    target = context.spec.target
    if isinstance(target, Labels):
        full: Loss = partial(losses.label_brier, missing=config.missing)
        return LabelSet("brier", full, full, target, metrics=config.metrics, missing=config.missing)
    assert isinstance(target, Classes)
    single = target.count == 2
    full = losses.two_class_brier if single else losses.brier
    return Classification("brier", full, full, target, metrics=config.metrics, k=config.k, single=single)


def mse(config: Mse, context: Context) -> Objective:
    target, loss = context.spec.target, losses.half_squares if config.half else F.mse_loss
    if isinstance(target, Classes):
        full: Loss = partial(losses.one_hot_mse, loss=loss, features=config.features)
        return Classification("mse", full, full, target, metrics=config.metrics, k=config.k, scores=True)
    return _regression("mse", loss, config, context)


def missing_in(config: Mse | L1 | Huber | Lp, target: Spec | None) -> bool:
    """Whether values may be nan: those that the config allows, and the steps after the end of a series."""
    return config.missing or (isinstance(target, Series) and target.padded)


def l1(config: L1, context: Context) -> Objective:
    return _regression("l1", F.l1_loss, config, context)


def huber(config: Huber, context: Context) -> Objective:
    return _regression("huber", partial(F.huber_loss, delta=config.delta), config, context)


def _regression(name: str, loss: Loss, config: Mse | L1 | Huber, context: Context) -> Objective:
    missing = missing_in(config, context.spec.target)
    full = partial(losses.regression, loss=loss, features=config.features, missing=missing)
    return _values(name, full, config, context, config.features == "sum")


def lp(config: Lp, context: Context) -> Objective:
    full = partial(losses.lp_distance, p=float(config.p), missing=missing_in(config, context.spec.target))
    return _values("lp", full, config, context, True)


def _values(name: str, full: Loss, config: Mse | L1 | Huber | Lp, context: Context, whole: bool) -> Objective:
    target = context.spec.target
    assert isinstance(target, Values | Series)
    missing = missing_in(config, target)
    return Regression(
        name, full, target, metrics=config.metrics, p=float(config.p), missing=missing, whole=whole
    )


def clustering(config: Clusters, context: Context) -> Objective:
    return Clustering(losses.clustering, context.spec.target)


def hinge(config: Hinge, context: Context) -> Objective:
    binary = partial(losses.binary_hinge, squared=config.squared)
    several = partial(losses.multiclass_hinge, kind=config.multiclass, squared=config.squared)
    return _margin("hinge", binary, several, config, context)


def perceptron(config: Perceptron, context: Context) -> Objective:
    binary, several = losses.binary_perceptron, losses.multiclass_perceptron
    return _margin("perceptron", binary, several, config, context, PerceptronLoss)


def _margin(
    name: str,
    binary: Loss,
    several: Loss,
    config: Hinge | Perceptron,
    context: Context,
    kind: type[Classification] = Classification,
) -> Objective:
    target = context.spec.target
    assert isinstance(target, Classes)
    single = target.count == 2
    full = binary if single else several
    return kind(name, full, full, target, metrics=config.metrics, k=config.k, single=single, scores=True)
