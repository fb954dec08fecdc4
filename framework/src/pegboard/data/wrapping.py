"""Sources around sources: wrappers, and an adapter for sources without the base class."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import Any, Self

from torch import Tensor

from ..contract.results import Batch, Source, SourceLike, Splits
from ..contract.specs import DataSpec


def _of_source(name: str) -> Any:
    """An attribute of what is wrapped."""
    return property(attrgetter(f"source.{name}"))


class Wrapped(Source):
    """A source around another, to which it hands everything on; a wrapper overrides what it changes.

    Around a `Resident` it takes the path of one: `resident` is what it wraps, from which a compiled step
    gathers by itself, and then calls `gathered`. So a wrapper that changes batches overrides `resident` too.
    """

    lengths = _of_source("lengths")
    widths = _of_source("widths")
    target = _of_source("target")
    weight = _of_source("weight")
    varied = _of_source("varied")
    whole = _of_source("whole")
    streamed = _of_source("streamed")
    resident = _of_source("resident")
    tensors = _of_source("tensors")
    nbytes = _of_source("nbytes")

    def __init__(self, source: Source) -> None:
        self.source = source

    def around(self, source: Source) -> Self:
        """The same wrapper around another source."""
        twin = copy.copy(self)
        twin.source = source
        return twin

    def __getattr__(self, name: str) -> Any:
        return _own(self, name)

    def __len__(self) -> int:
        return len(self.source)

    def gather(self, index: Tensor) -> Batch:
        return self.source.gather(index)

    def gathered(self, index: Tensor) -> None:
        """Called with the numbers of a batch that was taken from `resident`, past `gather`."""
        if isinstance(self.source, Wrapped):
            self.source.gathered(index)

    def to(self, device: str) -> Self:
        return self.around(self.source.to(device))

    def begin(self, order: Sequence[Tensor], workers: int, epoch: int = 0) -> None:
        self.source.begin(order, workers, epoch)

    def close(self) -> None:
        self.source.close()

    def padded(self, spec: DataSpec) -> Self:
        return self.around(self.source.padded(spec))

    def channels_last(self) -> Self:
        return self.around(self.source.channels_last())

    def targets(self) -> Tensor | None:
        return self.source.targets()


class Adapted(Source):
    """A source made of anything with `__len__`, `gather` and `to`; what else it has is found by its name."""

    def __init__(self, source: SourceLike) -> None:
        self.source, own = source, partial(getattr, source)
        self.lengths, self.widths = own("lengths", None), own("widths", None)
        self.varied, self.whole = own("varied", False), own("whole", False)
        self.weight = own("weight", None)
        # One that tells no weights beside its targets may have some in its batches.
        self.target = own("target", None) if hasattr(source, "weight") else None
        self._begin, self._close, self._padded = own("begin", None), own("close", None), own("padded", None)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:  # a plugin may ask whether a source is of its own class
        return type(self.source)

    def __reduce__(self) -> tuple[Any, ...]:  # pickle minds a class that is not the type
        return Adapted, (self.source,)

    def __getattr__(self, name: str) -> Any:
        return _own(self, name)

    def __len__(self) -> int:
        return len(self.source)

    def gather(self, index: Tensor) -> Batch:
        return self.source.gather(index)

    def to(self, device: str) -> Source:
        return adapted(self.source.to(device))

    @property
    def streamed(self) -> bool:
        return self._begin is not None

    def begin(self, order: Sequence[Tensor], workers: int, epoch: int = 0) -> None:
        if self._begin is not None:
            self._begin(order, workers, epoch)

    def close(self) -> None:
        if self._close is not None:
            self._close()

    def padded(self, spec: DataSpec) -> Source:
        return self if self._padded is None else adapted(self._padded(spec))

    def targets(self) -> Tensor | None:
        target = getattr(self.source, "target", None)
        if isinstance(target, Tensor):
            return target
        targets = getattr(getattr(self.source, "read", None), "targets", None)
        return None if targets is None else targets()

    @property
    def tensors(self) -> tuple[Tensor | None, ...] | None:
        return getattr(self.source, "tensors", None)

    @classmethod
    def picked(cls, parts: Sequence[Any], index: Tensor) -> Source | None:
        kind = type(parts[0].source)
        if not hasattr(kind, "picked") or not all(isinstance(part.source, kind) for part in parts):
            return None
        return adapted(kind.picked([part.source for part in parts], index))


def _own(wrapper: Wrapped | Adapted, name: str) -> Any:
    """What a source has besides, of its own class."""
    if name == "source" or name.startswith("__"):  # asked for while a copy is made
        raise AttributeError(name)
    return getattr(wrapper.source, name)


def adapted(source: SourceLike) -> Source:
    """The source as a `Source`: itself, where it is one."""
    return source if isinstance(source, Source) else Adapted(source)


def adapted_splits(splits: Splits) -> Splits:
    """Splits all of whose sources are a `Source`."""
    val, test = (None if source is None else adapted(source) for source in (splits.val, splits.test))
    return replace(splits, train=adapted(splits.train), val=val, test=test)
