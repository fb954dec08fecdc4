"""The losses of distillation as functions of tensors, usable without the framework.

Each takes the outputs of student and teacher and gives one loss for each place: the last axis,
which holds classes, labels or features, is gone. No gradient flows to the teacher.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

IGNORED = -100  # the index that torch's losses leave out


def _wide(x: Tensor) -> Tensor:
    """At least single precision: differences of log-probabilities do not survive half."""
    return x if x.dtype == torch.float32 else x.to(torch.promote_types(x.dtype, torch.float32))


def soft_cross_entropy(student: Tensor, teacher: Tensor, temperature: float = 1.0) -> Tensor:
    """-sum_y p_y log q_y, where p = softmax(teacher / T) and q = softmax(student / T)."""
    p = F.softmax(_wide(teacher.detach()) / temperature, -1)
    return -(p * F.log_softmax(_wide(student) / temperature, -1)).sum(-1)


def soft_divergence(student: Tensor, teacher: Tensor, temperature: float = 1.0) -> Tensor:
    """KL(p || q) for the same p and q: the cross entropy without the teacher's own entropy.

    Its gradient is the same, (q - p) / T, and it is zero where the student agrees.
    """
    p = F.log_softmax(_wide(teacher.detach()) / temperature, -1)
    q = F.log_softmax(_wide(student) / temperature, -1)
    return F.kl_div(q, p, reduction="none", log_target=True).sum(-1)


def binary_divergence(student: Tensor, teacher: Tensor, temperature: float = 1.0) -> Tensor:
    """KL(p || q) of labels that are on or off one by one, where p = sigmoid(teacher / T); their mean."""
    t, s = _wide(teacher.detach()) / temperature, _wide(student) / temperature
    p = torch.sigmoid(t)
    on = p * (F.logsigmoid(t) - F.logsigmoid(s))
    off = (1 - p) * (F.logsigmoid(-t) - F.logsigmoid(-s))
    return (on + off).mean(-1)


def squared_distance(student: Tensor, teacher: Tensor) -> Tensor:
    """(student - teacher)^2, its mean over the features."""
    return (_wide(student) - _wide(teacher.detach())).square().mean(-1)


def counted(losses: Tensor, target: Tensor | None, padding: int = IGNORED) -> Tensor | None:
    """1 where a place counts and 0 where the labels leave it out, shaped as `losses`; None: all count.

    Left out are indices (...) of -100 or `padding`, and rows of zeros in distributions (..., classes).
    """
    if target is None:
        return None
    if not target.is_floating_point():
        counts = (target != IGNORED) & (target != padding)
    elif target.dim() > losses.dim():
        counts = (target != 0).any(-1)
    else:
        return None
    return counts.reshape(losses.shape).to(losses.dtype)


def known_steps(target: Tensor | None) -> Tensor | None:
    """1 for each step (batch, length) of real vectors that is known, 0 where it is nan; None: all count."""
    return None if target is None or target.dim() < 3 else (~target.isnan().any(-1)).to(target.dtype)


def average(losses: Tensor, weight: Tensor | None = None, counts: Tensor | None = None) -> Tensor:
    """The mean over all places that count, where sample i has the weight `weight[i]`."""
    share = counts
    if weight is not None:
        weight = weight.to(losses.dtype).reshape(-1, *[1] * (losses.dim() - 1))
        share = weight.expand_as(losses) if counts is None else weight * counts
    if share is None:
        return losses.mean()
    # Where nothing counts the sum is 0 too: the loss is 0 then, not 0/0.
    return (losses * share).sum() / share.sum().clamp(min=torch.finfo(losses.dtype).tiny)


def mix_losses(hard: Tensor, soft: Tensor, alpha: float) -> Tensor:
    """(1 - alpha) hard + alpha soft; at either end the other loss is left out, infinite or not."""
    if alpha in (0, 1):
        return soft if alpha else hard
    return (1 - alpha) * hard + alpha * soft


def soften(teacher: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """p = softmax(teacher / T) and its logarithm."""
    logs = F.log_softmax(_wide(teacher.detach()) / temperature, -1)
    return logs.exp(), logs


def mix_divergence(
    hard: Tensor, student: Tensor, p: Tensor, logs: Tensor, temperature: float, alpha: float
) -> Tensor:
    """`mix_losses` of `hard` and of T^2 times the mean KL(p || q), for p and log p of `soften`.

    The same number as by way of `soft_divergence`, in few operations: factors are applied to the sum.
    """
    q = torch.log_softmax(_wide(student) / temperature, -1)
    gained = ((q - logs) * p).sum()  # minus the divergence of all places together
    factor = -alpha * temperature**2 * p.shape[-1] / max(p.numel(), 1)
    return gained * factor if alpha == 1 else torch.add(hard * (1 - alpha), gained, alpha=factor)
