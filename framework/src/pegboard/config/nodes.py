"""The core's own part of a config, and what a checked config becomes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from ..contract.options import MOST, DataOptions, ModelOptions
from ..contract.records import Ge, Gt, Le, Matches
from ..contract.specs import DataSpec

if TYPE_CHECKING:
    from ..registry.discovery import Entry, Registry

_PLAYER = re.compile(r"optimizer\.players\.((?:(?!\.schedule$).)*)")
DEVICES = Matches(r"auto|cpu|cuda(:\d+)?|mps", "auto, cpu, cuda, cuda:N or mps")


@dataclass(frozen=True, kw_only=True)
class Trainer:
    """How a run is carried out."""

    epochs: Annotated[int, Ge(1)] | None = None  # passes over the training split; 10 without steps
    steps: Annotated[int, Ge(1)] | None = None  # updates after which the run ends at the latest
    device: Annotated[str, DEVICES] = "auto"  # auto takes a GPU where there is one
    precision: Literal["auto", "fp32", "tf32", "bf16", "fp16"] = "auto"  # auto: bf16 where native, else fp32
    accumulate: Annotated[int, Ge(1), Le(MOST)] = 1  # batches summed up to one update
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
    options: Any = None  # the core's own keys of its node, where its kind has some

    @property
    def players(self) -> tuple[str, ...]:
        """Players that a regularizer acts on; () is all."""
        return getattr(self.options, "players", ())


@dataclass(frozen=True, kw_only=True)
class Settings:
    """A config after every check that needs neither torch nor data."""

    name: str
    seed: int
    parts: Mapping[str, Chosen]  # by their paths, in the order of a config; those of a keyed section by key
    trainer: Trainer
    plugins: Plugins
    spec: DataSpec | None  # as far as it is known without reading the data
    plain: Mapping[str, Any]  # the whole config with every default; check(plain) gives the same again
    origins: Mapping[str, Origin] = field(default_factory=dict)  # dotted path -> where its key was written
    values: Mapping[str, Origin] = field(default_factory=dict)  # dotted path -> where its value was written
    file: Path | None = None  # the config, where it is one: the place of what it leaves out
    notes: tuple[str, ...] = ()  # what a trial, made shorter on the command line, never comes to
    begun: bool = False  # a run that goes on or is over: what it was trained with is not judged again
    registry: Registry | None = field(default=None, repr=False, compare=False)  # that its parts are from

    def keyed(self, section: str) -> dict[str, Chosen]:
        """The parts of a section by their keys."""
        return {c.key: c for path, c in self.parts.items() if path.startswith(f"{section}.")}

    @cached_property
    def data(self) -> Chosen:
        return self.parts["data"]

    @cached_property
    def batches(self) -> DataOptions:
        options: DataOptions = self.data.options
        return options

    @cached_property
    def model(self) -> Chosen:
        return self.parts["model"]

    @property
    def weights(self) -> str | None:
        """Run folder, checkpoint, zoo:name or file whose weights the model starts from."""
        options: ModelOptions = self.model.options
        return options.weights

    @property
    def infer_pegs(self) -> bool:
        """Whether a model that has no pegs is given some."""
        options: ModelOptions = self.model.options
        return bool(options.infer_pegs)

    @cached_property
    def optimizer(self) -> Chosen:
        return self.parts["optimizer"]

    @cached_property
    def schedule(self) -> Chosen | None:
        return self.parts.get("optimizer.schedule")

    @cached_property
    def player_optimizers(self) -> dict[str, tuple[Chosen, Chosen | None]]:
        """Optimizer and schedule of the players that have their own settings."""
        found = {m[1]: path for path in self.parts if (m := _PLAYER.fullmatch(path))}
        return {name: (self.parts[p], self.parts.get(f"{p}.schedule")) for name, p in found.items()}

    @cached_property
    def objective(self) -> Chosen | None:
        """None until the data says its target."""
        return self.parts.get("objective")

    @cached_property
    def stepper(self) -> Chosen | None:
        """What makes the updates; None where each is made as Python runs it."""
        return self.parts.get("stepper")

    @cached_property
    def reference(self) -> Chosen | None:
        """The exact optimum that the run is measured beside."""
        return self.parts.get("reference")

    @cached_property
    def probes(self) -> dict[str, Chosen]:
        """What is measured at the end besides."""
        return self.keyed("probes")

    @cached_property
    def regularizers(self) -> dict[str, Chosen]:
        return self.keyed("regularizers")

    @cached_property
    def trackers(self) -> dict[str, Chosen]:
        return self.keyed("trackers")
