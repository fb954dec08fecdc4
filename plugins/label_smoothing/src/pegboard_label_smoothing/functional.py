"""Label smoothing as functions of tensors, usable without the framework."""

from __future__ import annotations

import torch
from torch import Tensor

IGNORED = -100  # the index that torch's losses leave out


def _split(target: Tensor) -> tuple[Tensor, Tensor]:
    """A valid index for every place, and whether the place counts: both (..., 1), without a sync."""
    ignored = (target == IGNORED).unsqueeze(-1)
    return target.unsqueeze(-1).masked_fill(ignored, 0), ~ignored


def smooth_labels(target: Tensor, classes: int, epsilon: float) -> Tensor:
    """Move the share `epsilon` of each distribution evenly over all classes.

    `target` is int64 indices (...) or floats (..., classes); the result is floats (..., classes).
    A place that is ignored, index -100 or a row of zeros, becomes or stays a row of zeros.
    """
    if target.is_floating_point():
        # By the row's own sum and not by 1, so that a row of zeros stays one.
        return (1 - epsilon) * target + (epsilon / classes) * target.sum(-1, keepdim=True)
    place, counts = _split(target)
    counts = counts.to(torch.get_default_dtype())
    rest = (counts * (epsilon / classes)).expand(*target.shape, classes)
    return rest.scatter(-1, place, counts * (1 - epsilon + epsilon / classes))


def confuse_labels(target: Tensor, confusion: Tensor, whole: bool = False) -> Tensor:
    """Replace each class by its row of `confusion` (classes, classes), whose rows sum to 1.

    `target` is int64 indices (...) or floats (..., classes); the result is floats (..., classes).
    A place that is ignored, index -100 or a row of zeros, becomes or stays a row of zeros; `whole`
    says that there is none such.
    """
    if target.is_floating_point():
        return target @ confusion.to(target.dtype)
    # Unlike indexing, a lookup takes -1 for the mistake it is, not for the last class.
    if whole:
        return torch.embedding(confusion, target)
    ignored = target == IGNORED
    rows = torch.embedding(confusion, target.masked_fill(ignored, 0))
    return rows.masked_fill_(ignored.unsqueeze(-1), 0.0)


def smooth_binary(target: Tensor, epsilon: float) -> Tensor:
    """Label smoothing of labels that are on (1) or off (0) one by one, each a choice of two."""
    return (1 - epsilon) * target + epsilon / 2


def confuse_binary(target: Tensor, confusion: Tensor) -> Tensor:
    """Each label's probability to be on under `confusion` (2, 2): row 0 for labels off, row 1 for on."""
    off, on = confusion[:, 1].to(target.dtype).unbind()
    return off + (on - off) * target


def add_noise(target: Tensor, std: float, generator: torch.Generator | None = None) -> Tensor:
    """Real targets with independent Gaussian noise of standard deviation `std`."""
    noise = torch.randn(target.shape, generator=generator, device=target.device, dtype=target.dtype)
    return target + std * noise
