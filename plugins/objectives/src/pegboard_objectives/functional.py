"""Losses as functions of tensors, usable without the framework.

Each gives the mean over a batch: `weight` (batch,) makes it the weighted mean sum(w l) / sum(w), and a
sample of weight 0 may have any target. Classes and features are the last axis of an output. A class that is
not known is -100 or a row of zeros; a value or label that is not known is nan, where a loss is told that some
are `missing`. They do not count. Nothing here waits for the device.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from .measures import lp_norm

IGNORED = -100  # the index that marks a place without a target
MEAN, SUM = 1, 2  # how torch's own losses are told what to do with those of samples
Features = Literal["mean", "sum"]


def along(weight: Tensor, places: Tensor) -> Tensor:
    """Weights of samples (batch,) for their places (batch * n, ...): each n times, with further axes of 1."""
    # The division is one of plain numbers.
    each = weight.repeat_interleave(places.shape[0] // max(weight.shape[0], 1))
    return each.reshape(-1, *(1,) * (places.dim() - 1))


def _ratio(losses: Tensor, counts: Tensor) -> Tensor:
    """sum(c l) / sum(c); where nothing counts the loss is 0, not 0/0."""
    total = counts.sum().clamp(min=torch.finfo(losses.dtype).tiny)
    return (losses * counts).sum() / total


def _mean(losses: Tensor, known: Tensor | None = None, weight: Tensor | None = None) -> Tensor:
    """The mean of `losses` (batch, ...) over what is known, weighted where there are weights."""
    if known is None and weight is None:
        return losses.mean()
    counts = torch.ones_like(losses) if known is None else known.to(losses.dtype)
    return _ratio(losses, counts if weight is None else counts * along(weight, losses))


def known_classes(target: Tensor, weight: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Indices (places,) or distributions (places, classes) with 0 for what does not count, and what does."""
    soft = target.is_floating_point()
    known = (target != 0).any(-1) if soft else target != IGNORED
    if weight is not None:
        known = known & (along(weight, known) != 0)
    return target.masked_fill(~known.unsqueeze(-1) if soft else ~known, 0), known


def class_counts(target: Tensor, weight: Tensor | None = None, class_weights: Tensor | None = None) -> Tensor:
    """How much each of the places of `target` counts: indices (places,), distributions (places, classes)."""
    usable, known = known_classes(target, weight)
    if class_weights is not None:
        wide = class_weights.to(torch.promote_types(class_weights.dtype, torch.float32))
        counts = (usable * wide).sum(-1) if usable.is_floating_point() else wide[usable] * known
    else:
        counts = usable.sum(-1) if usable.is_floating_point() else known.float()
    return counts if weight is None else counts * along(weight, counts)


def known_values(
    output: Tensor, target: Tensor, weight: Tensor | None, missing: bool
) -> tuple[Tensor, Tensor | None]:
    """Targets with those that do not count replaced by what the model gives, and a mask of the known ones.

    The mask is None where nothing is missing.
    """
    known = ~target.isnan() if missing else None
    counts = known
    if weight is not None:
        counts = along(weight, target) != 0
        counts = counts if known is None else known & counts
    return target if counts is None else torch.where(counts, target, output.detach().to(target.dtype)), known


def one_hot(target: Tensor, classes: int, dtype: torch.dtype) -> Tensor:
    """Indices (...) as rows (..., classes); an ignored index becomes a row of zeros."""
    # F.one_hot reads the values on the host first.
    return (target.unsqueeze(-1) == torch.arange(classes, device=target.device)).to(dtype)


# What `F.cross_entropy` calls after its checks; private, and None where it is gone.
KERNEL: Callable[..., Tensor] | None = getattr(getattr(torch._C, "_nn", None), "cross_entropy_loss", None)
if KERNEL is None:
    warnings.warn(
        f"torch {torch.__version__} has no torch._C._nn.cross_entropy_loss: the loss is that of "
        "torch.nn.functional, with its checks",
        stacklevel=2,
    )


def plain_cross_entropy(output: Tensor, target: Tensor) -> Tensor:
    """`F.cross_entropy` in fewer calls, and for distributions (batch, classes) in fewer operations."""
    if output.dim() != 2 or target.shape != output.shape:
        if KERNEL is None:
            return F.cross_entropy(output, target, ignore_index=IGNORED)
        return KERNEL(output, target, None, MEAN, IGNORED, 0.0)
    return (torch.log_softmax(output, -1) * (target / -max(len(target), 1))).sum()


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
        target = target.reshape(-1, classes)
        shares, _ = known_classes(target, weight)
        shares = shares if class_weights is None else shares * class_weights
        losses = F.cross_entropy(flat, shares, reduction="none")
    else:
        target = target.reshape(-1)
        if weight is None:  # torch sums up what counts on the way, but 0 / 0 is our own
            logs = torch.log_softmax(flat, -1)
            total, count = torch.ops.aten.nll_loss_forward(logs, target, class_weights, SUM, IGNORED)
            return total / count.clamp(min=torch.finfo(total.dtype).tiny)  # type: ignore[no-any-return]
        index = target.masked_fill(along(weight, target) == 0, IGNORED)
        losses = F.cross_entropy(flat, index, class_weights, ignore_index=IGNORED, reduction="none")
    counts = class_counts(target, weight, class_weights).to(losses.dtype)
    # A loss has the weight of its class in it already.
    total = counts.sum().clamp(min=torch.finfo(losses.dtype).tiny)
    return (losses if weight is None else losses * along(weight, losses)).sum() / total


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


def _two_classes(output: Tensor, target: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """The logit of class 1 and its probability, both (batch,), and what is known."""
    usable, known = known_classes(target, weight)
    chance = usable[..., 1] if usable.is_floating_point() else usable
    # reshape refuses more than one output a sample, where a squeeze might broadcast it.
    return output.reshape(known.shape), chance.to(output.dtype), known


def two_class_cross_entropy(
    output: Tensor, target: Tensor, weight: Tensor | None = None, pos_weight: Tensor | None = None
) -> Tensor:
    """Cross entropy of sigmoid(output): `output` (batch, 1) is the logit of class 1.

    `target` holds indices (batch,), or distributions (batch, 2).
    """
    logit, chance, known = _two_classes(output, target, weight)
    losses = F.binary_cross_entropy_with_logits(logit, chance, pos_weight=pos_weight, reduction="none")
    return _mean(losses, known, weight)


def binary_cross_entropy(
    output: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    pos_weight: Tensor | None = None,
    *,
    missing: bool = False,
) -> Tensor:
    """Cross entropy of sigmoid(output), each number of `target` the probability of a label to be on."""
    if weight is None and not missing:
        return F.binary_cross_entropy_with_logits(output, target, pos_weight=pos_weight)
    usable, known = known_values(torch.zeros_like(target), target, weight, missing)
    losses = F.binary_cross_entropy_with_logits(output, usable, pos_weight=pos_weight, reduction="none")
    return _mean(losses, known, weight)


def two_class_brier(output: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
    """Squared error of the probability sigmoid(output): `output` (batch, 1) is the logit of class 1."""
    logit, chance, known = _two_classes(output, target, weight)
    return _mean((logit.sigmoid() - chance).square(), known, weight)


def label_brier(
    output: Tensor, target: Tensor, weight: Tensor | None = None, *, missing: bool = False
) -> Tensor:
    """Squared error of sigmoid(output), each number of `target` the probability of a label to be on."""
    usable, known = known_values(torch.zeros_like(target), target, weight, missing)
    return _mean((output.sigmoid() - usable).square(), known, weight)


def brier(output: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
    """Squared error of the probabilities softmax(output), summed over classes."""
    usable, known = known_classes(target, weight)
    if not usable.is_floating_point():
        usable = one_hot(usable, output.shape[-1], output.dtype)
    return _mean((output.softmax(-1) - usable).square().sum(-1), known, weight)


def _unequal(output: Tensor, target: Tensor) -> ValueError:
    found = f"the model gives {tuple(output.shape)} and the target is {tuple(target.shape)}"
    return ValueError(f"{found}: expected the same shape, with features in the last axis")


def regression(
    output: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    loss: Callable[..., Tensor] = F.mse_loss,
    features: Features = "mean",
    missing: bool = False,
) -> Tensor:
    """A loss of torch on real values (batch, ...): the mean or sum over features, the mean over samples.

    It must be 0 where both are equal. With values `missing`, the mean is over those that are known, or
    over the samples of which one is known.
    """
    if output.shape != target.shape:  # torch would broadcast (batch,) against (batch, 1) to a square
        raise _unequal(output, target)
    if weight is None and features == "mean" and not missing:
        return loss(output, target)
    target, known = known_values(output, target, weight, missing)
    losses = loss(output, target, reduction="none").reshape(output.shape[0], -1)
    known = None if known is None else known.reshape(losses.shape)
    if features == "sum":
        losses, known = losses.sum(-1), None if known is None else known.any(-1)
    return _mean(losses, known, weight)


def half_squares(output: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """Half the squared error, whose gradient is the error itself."""
    return F.mse_loss(output, target, reduction=reduction) / 2


def lp_distance(
    output: Tensor, target: Tensor, weight: Tensor | None = None, *, p: float = 2.0, missing: bool = False
) -> Tensor:
    """(sum |f - y|^p)^(1/p) over the features of a sample; the largest of them for p = inf."""
    if output.shape != target.shape:
        raise _unequal(output, target)
    target, known = known_values(output, target, weight, missing)
    distances = lp_norm((output - target).reshape(output.shape[0], -1), p)
    return _mean(distances, None if known is None else known.reshape(output.shape[0], -1).any(-1), weight)


def one_hot_mse(
    output: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    loss: Callable[..., Tensor] = F.mse_loss,
    features: Features = "mean",
) -> Tensor:
    """Squared error of scores (batch, classes) against indices, as one-hot rows, or distributions."""
    usable, known = known_classes(target, weight)
    if not usable.is_floating_point():
        usable = one_hot(usable, output.shape[-1], output.dtype)
    if output.shape != usable.shape:
        raise _unequal(output, usable)
    losses = loss(output, usable, reduction="none")
    return _mean(losses.sum(-1) if features == "sum" else losses.mean(-1), known, weight)


def _margin(output: Tensor, index: Tensor) -> Tensor:
    """y f(x) for y = -1 in class 0 and +1 in class 1; `output` (batch, 1), `index` (batch,)."""
    # reshape refuses more than one output a sample, where a squeeze might broadcast it.
    return output.reshape(index.shape) * (2 * index - 1)


def _excess(output: Tensor, index: Tensor) -> Tensor:
    """Score of each class less that of the right one, -inf for the right one itself."""
    place = index.unsqueeze(-1)
    return output.scatter(-1, place, float("-inf")) - output.gather(-1, place)


def binary_hinge(
    output: Tensor, target: Tensor, weight: Tensor | None = None, *, squared: bool = False
) -> Tensor:
    """max(0, 1 - y f(x)), y = -1 or +1; `output` (batch, 1), `target` indices (batch,)."""
    index, known = known_classes(target, weight)
    losses = F.relu(1 - _margin(output, index))
    return _mean(losses.square() if squared else losses, known, weight)


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
    index, known = known_classes(target, weight)
    violations = F.relu(1 + _excess(output, index))
    if squared:
        violations = violations.square()
    losses = violations.sum(-1) if kind == "weston_watkins" else violations.max(-1).values
    return _mean(losses, known, weight)


# clamp, unlike relu, has slope 1 at 0: an undecided sample counts as a mistake, so that a model
# whose outputs are all 0 learns.
def binary_perceptron(output: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
    """max(0, -y f(x)), y = -1 or +1; `output` (batch, 1), `target` indices (batch,)."""
    index, known = known_classes(target, weight)
    return _mean((-_margin(output, index)).clamp(min=0), known, weight)


def multiclass_perceptron(output: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
    """max(0, max f_j(x) - f_y(x)) over wrong classes j; `output` (batch, classes), `target` (batch,)."""
    index, known = known_classes(target, weight)
    return _mean(_excess(output, index).max(-1).values.clamp(min=0), known, weight)


def clustering(output: Tensor, target: Tensor | None = None, weight: Tensor | None = None) -> Tensor:
    """Squared distance to the nearest centre: `output` (batch, centres) is minus the squared distances."""
    return _mean((-output.max(-1).values).clamp(min=0), None, weight)
