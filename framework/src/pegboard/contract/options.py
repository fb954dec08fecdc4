"""Keys of the core in the node of a part, one class for each kind that has some."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Literal

from .records import Ge, Le, SavedModel

MOST = 10**9  # of what torch counts or allocates; more is a slip
BatchSize = Annotated[int, Ge(1), Le(MOST)] | Literal["all"]
EVALUATED = 1024  # samples in an evaluation batch where a training batch is the whole split


@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """How the samples of a data set are batched; stands beside the data set's own fields."""

    batch_size: BatchSize = 64  # samples in a training batch; all: the whole training split
    # larger batches from some epochs on, counted from 0: {5: 128, 10: all}
    batch_schedule: Mapping[Annotated[int, Ge(1)], BatchSize] | None = None
    eval_batch_size: Annotated[int, Ge(1), Le(MOST)] | None = None  # samples in an evaluation batch
    # each sample once an epoch, or draws in which all are alike, by their weights, or so that all classes are
    sampling: Literal["epoch", "replacement", "weighted", "balanced"] = "epoch"
    shuffle: bool = True  # a new order every epoch, keyed by seed and epoch
    drop_last: bool = False  # leave out the last batch of an epoch when it is smaller
    lengths: Literal["bucket", "pad"] = "bucket"  # sequences: similar ones together, or all of one length
    workers: Annotated[int, Ge(0), Le(1024)] = 0  # processes that read ahead data that is not in memory

    def stages(self) -> list[tuple[int, int | Literal["all"]]]:
        """The epochs from which on batches have another size, and that size; the first is epoch 0."""
        return [(0, self.batch_size), *sorted((self.batch_schedule or {}).items())]

    def size_in(self, epoch: int) -> int | Literal["all"]:
        """Samples in a batch of an epoch."""
        return [size for first, size in self.stages() if first <= epoch][-1]

    def batches(self, epoch: int, samples: int) -> int:
        """Batches of an epoch over so many samples."""
        size = self.size_in(epoch)
        size = samples if size == "all" else size
        return samples // size if self.drop_last else math.ceil(samples / size)

    def updates(self, epochs: int, samples: int, accumulate: int) -> int:
        """Updates of so many epochs, each over so many batches at once."""
        firsts = [first for first, _ in self.stages() if first < epochs]
        return sum(
            (end - at) * math.ceil(self.batches(at, samples) / accumulate)
            for at, end in pairwise([*firsts, epochs])
        )

    @property
    def eval_size(self) -> int:
        """Samples in an evaluation batch."""
        if self.eval_batch_size is not None:
            return self.eval_batch_size
        return EVALUATED if self.batch_size == "all" else 4 * self.batch_size


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """How a model starts; stands beside the model's own fields."""

    # run folder, checkpoint, zoo:name or file whose weights it starts from
    weights: Annotated[str, SavedModel(files=True)] | None = None
    infer_pegs: bool | None = None  # give pegs to a model that has none; null: where a trick hangs modules


@dataclass(frozen=True, kw_only=True)
class RegularizerOptions:
    """Where a regularizer acts; stands beside its own fields."""

    players: tuple[str, ...] = ()  # players it acts on; empty is all
