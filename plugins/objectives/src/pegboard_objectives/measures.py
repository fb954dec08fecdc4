"""What losses and metrics are made of, as functions of tensors: information, distances, margins, groups."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def on_simplex(p: Tensor, tolerance: float = 1e-6) -> Tensor:
    """Whether each row of `p` (..., classes) is a distribution: no number below 0, and a sum of 1."""
    return (p >= -tolerance).all(-1) & ((p.sum(-1) - 1).abs() <= tolerance)


def information(p: Tensor) -> Tensor:
    """-log p: what is learned, in nats, when something of probability p happens."""
    return -p.log()


def entropy(p: Tensor) -> Tensor:
    """The expected information of each distribution of `p` (..., classes), in nats."""
    return -torch.xlogy(p, p).sum(-1)


def logit_entropy(logits: Tensor) -> Tensor:
    """The entropy of softmax(logits), finite at any size of them."""
    p = logits.log_softmax(-1)
    return -(p.exp() * p.clamp(min=torch.finfo(p.dtype).min)).sum(-1)


def divergence(p: Tensor, q: Tensor) -> Tensor:
    """Kullback-Leibler divergence of q from p (..., classes), in nats: 0 where equal, else above 0."""
    return (torch.xlogy(p, p) - torch.xlogy(p, q)).sum(-1)


def lp_norm(x: Tensor, p: float = 2.0) -> Tensor:
    """(sum |x|^p)^(1/p) over the last axis, for p of at least 1; no power of large numbers overflows."""
    if math.isinf(p):
        return x.abs().amax(-1)
    largest = x.detach().abs().amax(-1, keepdim=True)
    scale = torch.where(largest > 0, largest, 1.0)
    norm: Tensor = torch.linalg.vector_norm(x / scale, p, dim=-1)
    return norm * scale.squeeze(-1)


def signed_distance(x: Tensor, w: Tensor, b: Tensor | float = 0.0) -> Tensor:
    """How far points (..., features) are from the plane w x + b = 0; above 0 on the side that w points to."""
    distance: Tensor = (x @ w + b) / torch.linalg.vector_norm(w)
    return distance


def geometric_margin(x: Tensor, y: Tensor, w: Tensor, b: Tensor | float = 0.0) -> Tensor:
    """The least signed distance to the right side, y = -1 or +1: above 0 where the plane separates all."""
    return (y * signed_distance(x, w, b)).min()


def disparity(values: Tensor, group: Tensor) -> Tensor:
    """The largest difference between groups (samples,) in the mean of `values` (samples,), as of hits."""
    means = torch.stack([values[group == g].double().mean() for g in torch.unique(group)])
    return means.max() - means.min()


def adjusted_rand_index(table: Tensor) -> Tensor:
    """How far two groupings agree on pairs, 0 by chance and 1 wholly; `table` counts their pairs of groups.

    Hubert and Arabie, 1985.
    """

    def pairs(n: Tensor) -> Tensor:
        return (n * (n - 1)).sum() / 2

    both, rows, columns = pairs(table), pairs(table.sum(1)), pairs(table.sum(0))
    everything = pairs(table.sum().reshape(1))
    expected = rows * columns / everything
    most = (rows + columns) / 2
    # Two groupings without a pair to disagree on are the same.
    return torch.where(both == most, torch.ones_like(both), (both - expected) / (most - expected))
