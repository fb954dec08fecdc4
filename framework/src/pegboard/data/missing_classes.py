"""What is said of data before a run: classes without a training sample, and the data set's own lines."""

from __future__ import annotations

import torch
from torch import Tensor

from ..contract.results import Source, Splits
from ..contract.specs import Classes, Labels

SHOWN = 10  # classes that a message names


def data_warnings(splits: Splits) -> list[str]:
    """What is odd in the data: the data set's own warnings, then classes without a training sample."""
    found = unseen_classes(splits)
    return [*splits.warnings, *([found] if found else [])]


def about(splits: Splits) -> list[str]:
    """What the data set says of its samples in words, a line each."""
    said = splits.notes.get("about", "")
    return [line for line in str(said).splitlines() if line]


def unseen_classes(splits: Splits) -> str:
    """The classes or labels of val and test that no training sample has, with counts; "" where none is."""
    spec = splits.spec.target
    if not isinstance(spec, Classes | Labels) or spec.count is None:
        return ""
    train = class_counts(splits.train, spec.count)
    if train is None:
        return ""
    unseen: dict[int, list[str]] = {}
    for name in ("val", "test"):
        source = getattr(splits, name)
        counts = None if source is None else class_counts(source, spec.count)
        for number in () if counts is None else ((counts > 0) & (train == 0)).nonzero()[:, 0].tolist():
            assert counts is not None
            unseen.setdefault(number, []).append(f"{int(counts[number])} of {name}")
    if not unseen:
        return ""
    names = spec.names or [str(number) for number in range(spec.count)]
    told = [f"{names[number]!r} ({', '.join(unseen[number])})" for number in sorted(unseen)]
    more = f" and {len(told) - SHOWN} more" if len(told) > SHOWN else ""
    kinds = ("class", "classes") if isinstance(spec, Classes) else ("label", "labels")
    which = kinds[len(told) > 1]
    return (
        f"{len(told)} {which} of the target without a training sample, which no model can learn: "
        f"{', '.join(told[:SHOWN])}{more}"
    )


def class_counts(source: Source, count: int) -> Tensor | None:
    """How many samples of known class each class has, (classes,); None where that is not known."""
    target, weight = known_target(source)
    if target is None:
        return None
    target = target.cpu()
    if weight is not None:
        target = target[weight.cpu() != 0]
    if target.dim() > 1:  # distributions over classes, or labels
        return (target > 0).sum(0)
    return torch.bincount(target[(target >= 0) & (target < count)].long(), minlength=count)


def known_target(source: Source) -> tuple[Tensor | None, Tensor | None]:
    """The target and weight of all samples, where they are known without reading the inputs.

    What a `Stream` reads with may have `targets()`, which gives the target of all samples.
    """
    return source.targets(), source.weight
