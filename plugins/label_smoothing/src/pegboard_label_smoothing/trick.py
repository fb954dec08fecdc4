"""The tricks: thin classes around the functions."""

from __future__ import annotations

import re

import torch
from pegboard import Labels, PegboardError, Resident, Spec, Tokens, Trick
from torch import Tensor

from . import LabelNoise, LabelSmoothing, choices, identity, strength
from .functional import (
    IGNORED,
    add_noise,
    confuse_binary,
    confuse_labels,
    smooth_binary,
    smooth_labels,
)

MOST = 512  # classes whose smoothed rows are kept
_TARGET = re.compile(r"(?<![\w'])y(?![\w'])")


class LabelSmoothingTrick(Trick):
    """Smooths the targets of a training step; strength zero hands back the very same tensor."""

    def __init__(self, config: LabelSmoothing, target: Spec | None, device: str = "cpu") -> None:
        self.epsilon = strength(config)
        self.binary = isinstance(target, Labels)
        self.padding = target.padding if isinstance(target, Tokens) else -1
        self.confusion: Tensor | None = None
        if config.confusion is not None:
            self.idle = identity(config.confusion)
            self.classes = len(config.confusion)
            exact = torch.tensor(config.confusion, dtype=torch.float64)
            exact /= exact.sum(1, keepdim=True)  # a row written with few digits misses 1 by a little
            self.confusion = exact.to(torch.get_default_dtype()).to(device)
        else:
            self.idle = self.epsilon == 0
            self.classes = 2 if self.binary or self.idle else _classes(target)
        self.whole = False  # whether every place is known to count
        self.rows: Tensor | None = None  # of each class, where they are few
        if self.confusion is None and not self.idle and not self.binary and self.classes <= MOST:
            self.rows = smooth_labels(torch.arange(self.classes), self.classes, self.epsilon).to(device)

    def prepare(self, train: Resident, size: int) -> None:
        """See once whether every place counts, which a step then need not ask."""
        target = train.target
        if target is not None and not target.is_floating_point():
            self.whole = bool(((target >= 0) & (target != self.padding)).all())

    def edit_target(self, target: Tensor) -> Tensor:
        if self.idle:
            return target
        if self.binary:
            if self.confusion is not None:
                return confuse_binary(target, self.confusion)
            return smooth_binary(target, self.epsilon)
        if self.padding >= 0 and not self.whole and not target.is_floating_point():
            target = target.masked_fill(target == self.padding, IGNORED)
        if self.confusion is not None:
            return confuse_labels(target, self.confusion, self.whole)
        if self.rows is not None and not target.is_floating_point():
            return confuse_labels(target, self.rows, self.whole)
        return smooth_labels(target, self.classes, self.epsilon)

    def formula(self, loss: str) -> str:
        if self.idle:
            return loss
        if self.confusion is not None:
            return replace_target(loss, "confusion[y]", term=True)
        return replace_target(loss, f"(1-{self.epsilon:g}) y + {self.epsilon:g}/{self.classes}")


class LabelNoiseTrick(Trick):
    """Adds noise to the targets of a training step; strength zero draws none."""

    def __init__(self, config: LabelNoise, generator: torch.Generator) -> None:
        self.std, self.generator = config.std, generator

    def edit_target(self, target: Tensor) -> Tensor:
        return add_noise(target, self.std, self.generator) if self.std else target

    def formula(self, loss: str) -> str:
        return replace_target(loss, f"y + {self.std:g} N(0, 1)") if self.std else loss


def _classes(target: Spec | None) -> int:
    count = None if target is None else choices(target)
    if count is None:
        raise PegboardError(
            f"label smoothing needs to know how many classes there are, and the target is "
            f"{target or 'not stated'}.\nGive the data set a target of the form Classes(count=...) "
            "or Tokens(vocab=...), or give the trick a confusion matrix."
        )
    return count


def replace_target(loss: str, by: str, *, term: bool = False) -> str:
    """The formula with `y` replaced; in parentheses where `y` is not an argument by itself."""

    def place(match: re.Match[str]) -> str:
        before, after = loss[: match.start()].rstrip(), loss[match.end() :].lstrip()
        alone = before[-1:] in ("", "(", ",") and after[:1] in ("", ")", ",")
        return by if alone or term else f"({by})"

    return _TARGET.sub(place, loss)
