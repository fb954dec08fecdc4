"""Losses as functions of tensors, usable without the framework.

Each gives the mean over a batch: `weight` (batch,) makes it the weighted mean sum(w l) / sum(w).
Classes and features are the last axis of an output. Nothing here waits for the device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

IGNORED = -100  # the index that marks a place without a target


def weighted_mean(losses: Tensor, weight: Tensor) -> Tensor:
    """sum(w l) / sum(w), where l is the mean of what `losses` (batch, ...) holds of a sample."""
    return _ratio(losses.reshape(weight.shape[0], -1).mean(-1) * weight, weight)


def _ratio(losses: Tensor, mass: Tensor) -> Tensor:
    # Where nothing counts the sum above is 0 too: the loss is 0 then, not 0/0.
    total = mass.sum()
    return losses.sum() / total.clamp(min=torch.finfo(losses.dtype).tiny)


def one_hot(target: Tensor, classes: int, dtype: torch.dtype) -> Tensor:
    """Indices (...) as rows (..., classes); an ignored index becomes a row of zeros."""
    # F.one_hot reads the values on the host first.
    return (target.unsqueeze(-1) == torch.arange(classes, device=target.device)).to(dtype)


def cross_entropy(
    output: Tensor, target: Tensor, weight: Tensor | None = None, class_weights: Tensor | None = None
) -> Tensor:
    """Cross entropy of softmax(output): the mean over all places that count.

    `output` is (batch, ..., classes); `target` holds int64 indices (batch, ...), -100 where a place
    does not count, or distributions (batch, ..., classes), zeros where it does not. A place weighs
    what its class does, in both forms: one-hot rows give what their indices give.
    """
    classes = output.shape[-1]
    flat = output.reshape(-1, classes)
    if class_weights is not None:
        dtype = torch.promote_types(flat.dtype, class_weights.dtype)
        flat, class_weights = flat.to(dtype), class_weights.to(dtype)
    if target.is_floating_point():
        shares = target.reshape(-1, classes)
        if class_weights is not None:
            shares = shares * class_weights
        losses = F.cross_entropy(flat, shares, reduction="none")
        mass = shares.sum(-1)
    else:
        index = target.reshape(-1)
        losses = F.cross_entropy(flat, index, class_weights, ignore_index=IGNORED, reduction="none")
        mass = (index != IGNORED).to(losses.dtype)
        if class_weights is not None:
            mass = mass * class_weights.index_select(0, index.clamp(min=0))
    if weight is not None:
        # Each sample has as many places; the division is one of plain numbers.
        place = weight.repeat_interleave(losses.shape[0] // max(weight.shape[0], 1))
        losses, mass = losses * place, mass * place
    return _ratio(losses, mass)


def padded_cross_entropy(
    output: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    class_weights: Tensor | None = None,
    *,
    padding: int,
) -> Tensor:
    """`cross_entropy` where the index `padding` does not count either."""
    if not target.is_floating_point():
        target = target.masked_fill(target == padding, IGNORED)
    return cross_entropy(output, target, weight, class_weights)


def two_class_cross_entropy(
    output: Tensor, target: Tensor, weight: Tensor | None = None, pos_weight: Tensor | None = None
) -> Tensor:
    """Cross entropy of sigmoid(output): `output` (batch, 1) is the logit of class 1.

    `target` holds indices (batch,), or distributions (batch, 2).
    """
    if target.dim() == output.dim():
        target = target[..., 1]
    return binary_cross_entropy(output.squeeze(-1), target.to(output.dtype), weight, pos_weight)


def binary_cross_entropy(
    output: Tensor, target: Tensor, weight: Tensor | None = None, pos_weight: Tensor | None = None
) -> Tensor:
    """Cross entropy of sigmoid(output), each number of `target` the probability of a label to be on."""
    if weight is None:
        return F.binary_cross_entropy_with_logits(output, target, pos_weight=pos_weight)
    losses = F.binary_cross_entropy_with_logits(output, target, pos_weight=pos_weight, reduction="none")
    return weighted_mean(losses, weight)


def regression(
    output: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    loss: Callable[..., Tensor] = F.mse_loss,
    features: Literal["mean", "sum"] = "mean",
) -> Tensor:
    """A loss of torch on real values (batch, ...): the mean or sum over features, the mean over samples."""
    # torch would broadcast (batch,) against (batch, 1) to a square.
    if output.shape != target.shape:
        found = f"the model gives {tuple(output.shape)} and the target is {tuple(target.shape)}"
        raise ValueError(f"{found}: expected the same shape, with features in the last axis")
    if weight is None and features == "mean":
        return loss(output, target)
    losses = loss(output, target, reduction="none").reshape(output.shape[0], -1)
    each = losses.sum(-1) if features == "sum" else losses.mean(-1)
    return each.mean() if weight is None else weighted_mean(each, weight)


def one_hot_mse(
    output: Tensor, target: Tensor, weight: Tensor | None = None, *, features: Literal["mean", "sum"] = "mean"
) -> Tensor:
    """Squared error of scores (batch, classes) against indices, as one-hot rows, or distributions."""
    if not target.is_floating_point():
        target = one_hot(target, output.shape[-1], output.dtype)
    return regression(output, target, weight, features=features)


def _margin(output: Tensor, target: Tensor) -> Tensor:
    """y f(x) for y = -1 in class 0 and +1 in class 1; `output` (batch, 1), `target` (batch,)."""
    # reshape refuses more than one output a sample, where a squeeze might broadcast it.
    return output.reshape(target.shape) * (2 * target - 1)


def _excess(output: Tensor, target: Tensor) -> Tensor:
    """Score of each class less that of the right one, -inf for the right one itself."""
    place = target.unsqueeze(-1)
    return output.scatter(-1, place, float("-inf")) - output.gather(-1, place)


def _mean(losses: Tensor, weight: Tensor | None) -> Tensor:
    return losses.mean() if weight is None else weighted_mean(losses, weight)


def binary_hinge(
    output: Tensor, target: Tensor, weight: Tensor | None = None, *, squared: bool = False
) -> Tensor:
    """max(0, 1 - y f(x)), y = -1 or +1; `output` (batch, 1), `target` indices (batch,)."""
    losses = F.relu(1 - _margin(output, target))
    return _mean(losses.square() if squared else losses, weight)


def multiclass_hinge(
    output: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    kind: Literal["crammer_singer", "weston_watkins"] = "crammer_singer",
    squared: bool = False,
) -> Tensor:
    """max(0, 1 + f_j(x) - f_y(x)) over wrong classes j: the largest, or the sum.

    `output` (batch, classes), `target` indices (batch,).
    """
    violations = F.relu(1 + _excess(output, target))
    if squared:
        violations = violations.square()
    losses = violations.sum(-1) if kind == "weston_watkins" else violations.max(-1).values
    return _mean(losses, weight)


# clamp, unlike relu, has slope 1 at 0: an undecided sample counts as a mistake, so that a model
# whose outputs are all 0 learns.
def binary_perceptron(output: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
    """max(0, -y f(x)), y = -1 or +1; `output` (batch, 1), `target` indices (batch,)."""
    return _mean((-_margin(output, target)).clamp(min=0), weight)


def multiclass_perceptron(output: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
    """max(0, max f_j(x) - f_y(x)) over wrong classes j; `output` (batch, classes), `target` (batch,)."""
    return _mean(_excess(output, target).max(-1).values.clamp(min=0), weight)
