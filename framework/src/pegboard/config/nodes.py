"""The core's own part of a config, and what a checked config becomes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from ..contract.records import Ge, Gt, Le, Lt, Matches, SavedModel
from ..contract.specs import DataSpec

if TYPE_CHECKING:
    from ..registry.discovery import Entry, Registry

DEVICES = Matches(r"auto|cpu|cuda(:\d+)?|mps", "auto, cpu, cuda, cuda:N or mps")
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


@dataclass(frozen=True, kw_only=True)
class Trainer:
    """How a run is carried out."""

    epochs: Annotated[int, Ge(1)] | None = None  # passes over the training split; 10 without steps
    steps: Annotated[int, Ge(1)] | None = None  # updates after which the run ends at the latest
    device: Annotated[str, DEVICES] = "auto"  # auto takes a GPU where there is one
    precision: Literal["auto", "fp32", "tf32", "bf16", "fp16"] = "auto"  # auto: bf16 where native, else fp32
    accumulate: Annotated[int, Ge(1), Le(MOST)] = 1  # batches summed up to one update
    clip: Annotated[float, Gt(0)] | None = None  # bound of the gradient of an update
    clip_by: Literal["norm", "value"] = "norm"  # whether it bounds the length of the gradient or each number
    ema: Annotated[float, Gt(0), Lt(1)] | None = None  # share of an average of the weights that a step keeps
    compile: Literal["off", "model", "step", "auto"] = (
        "off"  # what becomes one graph; auto: what pays in time
    )
    compile_mode: Literal["default", "reduce-overhead", "max-autotune"] = "default"  # as in torch.compile
    steps_per_call: Annotated[int, Ge(1), Le(64)] = 1  # updates in one call of a graph, with compile: step
    channels_last: bool | None = None  # images with their channels innermost; null: where it is faster
    eval_every: Annotated[int, Ge(1)] = 1  # epochs between evaluations on the validation split
    # epochs between pictures of what the model generates, where it does; null: one picture at the end
    sample_every: Annotated[int, Ge(1)] | None = None
    log_every: Annotated[int, Ge(1)] = 50  # updates between rows of the training loss
    monitor: str | None = None  # figure that decides which checkpoint is best, as val/accuracy
    mode: Literal["min", "max"] | None = None  # whether less or more of it is better
    nonfinite: Literal["stop", "skip"] = "stop"  # what an update with nan or infinite numbers does
    save_every: Annotated[int, Ge(1)] | None = None  # updates between checkpoints, besides evaluations
    save_minutes: Annotated[float, Gt(0)] = 10.0  # minutes after which a checkpoint is due at the latest
    keep: Annotated[int, Ge(1)] = 2  # newest checkpoints that stay, besides the best
    threads: Annotated[int, Ge(1), Le(1024)] | None = None  # CPU threads of torch; null leaves its default
    deterministic: bool = True  # refuse kernels whose result depends on timing
    folds: Annotated[int, Ge(2)] | None = None  # of a cross-validation: a run for each of them
    fold: Annotated[int, Ge(0)] | None = None  # the one of them to carry out; null is all
    diagnose: bool = True  # say at the end whether the model underfits or overfits

    @property
    def most_epochs(self) -> int | None:
        """Passes over the training split; None when only `steps` ends the run."""
        return 10 if self.epochs is None and self.steps is None else self.epochs

    @property
    def cut(self) -> tuple[int, int] | None:
        """Number and count of the fold that the data is cut for, the first where all are carried out."""
        return None if self.folds is None else (self.fold or 0, self.folds)


@dataclass(frozen=True, kw_only=True)
class Plugins:
    """Which plugins this config may see."""

    local: tuple[str, ...] = ()  # Python files to register as plugins, relative to the config
    disable: tuple[str, ...] = ()  # plugins to leave out, by name or distribution
    only: tuple[str, ...] | None = None  # the only installed ones to use; null is all


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where a value of a config was written."""

    file: str = ""  # "" for a value from Python
    line: int = 0  # 1 for the first, 0 for the file as a whole
    column: int = 0  # 1 for the first
    word: str | None = None  # the command-line word, where it came from there

    def __str__(self) -> str:
        if self.word is not None:
            return f"command line, {self.word!r}"
        place = f":{self.line}:{self.column}" if self.line else ""
        return f"{self.file}{place}" if self.file else "config"


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """A part that a config names, with its checked config."""

    key: str  # the name under which it stands: that of the part unless the config says otherwise
    path: str = ""  # where it stands: data, regularizers.KEY
    entry: Entry
    config: Any  # an instance of entry.part.config
    players: tuple[str, ...] = ()  # players a regularizer acts on; () is all


@dataclass(frozen=True, kw_only=True)
class Settings:
    """A config after every check that needs neither torch nor data."""

    name: str
    seed: int
    data: Chosen
    batches: DataOptions
    model: Chosen
    weights: str | None  # run folder, checkpoint, zoo:name or file whose weights the model starts from
    infer_pegs: bool  # give pegs to a model that has none
    optimizer: Chosen
    schedule: Chosen | None
    player_optimizers: Mapping[str, tuple[Chosen, Chosen | None]]  # for players with their own settings
    objective: Chosen | None  # None until the data says its target
    reference: Chosen | None  # the exact optimum that the run is measured beside
    probes: Mapping[str, Chosen]  # what is measured at the end besides, sorted by key
    regularizers: Mapping[str, Chosen]  # sorted by key
    trainer: Trainer
    trackers: Mapping[str, Chosen]
    plugins: Plugins
    spec: DataSpec | None  # as far as it is known without reading the data
    plain: Mapping[str, Any]  # the whole config with every default; check(plain) gives the same again
    origins: Mapping[str, Origin] = field(default_factory=dict)  # dotted path -> where its key was written
    values: Mapping[str, Origin] = field(default_factory=dict)  # dotted path -> where its value was written
    file: Path | None = None  # the config, where it is one: the place of what it leaves out
    notes: tuple[str, ...] = ()  # what a trial, made shorter on the command line, never comes to
    begun: bool = False  # a run that goes on or is over: what it was trained with is not judged again
    registry: Registry | None = field(default=None, repr=False, compare=False)  # that its parts are from
