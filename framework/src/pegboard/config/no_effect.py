"""Settings that change nothing: the run ends before they act, or what they belong to is off."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..contract.options import DataOptions
from ..contract.specs import Classes, DataSpec, Image, Labels, Values, Vector, Voxels
from .errors import Mistake
from .nodes import Trainer
from .sections import Read

# Fields of the trainer, and those without which they have no effect.
SWITCHES = {"steps_per_call": "compile", "compile_mode": "compile", "mode": "monitor"}


@dataclass(frozen=True)
class Length:
    """How long a run is, as far as it is known: None where only the data tells."""

    epochs: int | None = None
    steps: int | None = None
    smallest_batch: int | None = None  # samples in its smallest training batch


def run_length(trainer: Trainer, options: DataOptions, samples: int | None) -> Length:
    """How long a run over so many training samples is at most."""
    epochs = trainer.most_epochs
    steps, sizes = trainer.steps, [size for _, size in options.stages() if size != "all"]
    if samples is None:
        return Length(epochs, steps, min(sizes, default=None))
    if steps is not None:  # the epoch in which the last of them falls
        made = partial(options.updates, samples=samples, accumulate=trainer.accumulate)
        begun = 1 + bisect_left(range(1, steps), steps, key=made)
        epochs = begun if epochs is None else min(epochs, begun)
    if epochs is not None:
        whole = options.updates(epochs, samples, trainer.accumulate)
        steps = whole if steps is None else min(whole, steps)
    reached = [(at, size) for at, size in options.stages() if epochs is None or at < epochs]
    smallest = min(samples if size == "all" else min(size, samples) for _, size in reached)
    if not options.drop_last:
        rest = [samples % size for _, size in reached if size != "all" and samples % size]
        smallest = min([smallest, *rest])
    return Length(epochs, steps, smallest)


def beyond(trainer: Trainer, path: str, data: Read, length: Length, drawn: bool = True) -> Iterable[Mistake]:
    """What would act only after the end of the run; pictures of samples where any are `drawn`."""
    epochs, every = length.epochs, trainer.sample_every
    if drawn and epochs is not None and every is not None and every > epochs:
        yield Mistake(
            path=f"{path}.sample_every",
            message=f"found {every}, but the run has {_count(epochs, 'epoch')}, so that it has no effect",
            expected=f"at most {epochs}",
        )
    for epoch, _ in data.options.stages()[1:]:
        if epochs is not None and epoch >= epochs:
            last = f"the run has {_count(epochs, 'epoch')}: the last is epoch {epochs - 1}"
            most = trainer.most_epochs
            longer = (
                f"{path}.epochs={epoch + 1}" if most is not None and epoch >= most else f"more {path}.steps"
            )
            yield Mistake(
                path=f"{data.path}.batch_schedule.{epoch}",
                message=f"batches change from epoch {epoch} on, but {last}",
                expected="an epoch of the run, counted from 0",
                hint=f"train longer, {longer}, or take it out",
                at_key=True,
            )


def rare(trainer: Trainer, path: str, length: Length) -> Iterable[Mistake]:
    """What a run does once, at its end, because it is due less often than the run is long."""
    for name, most, unit, done in (
        ("eval_every", length.epochs, "epoch", "it is evaluated"),
        ("log_every", length.steps, "update", "its loss is logged"),
        ("save_every", length.steps, "update", "it is saved after evaluations and"),
    ):
        value = getattr(trainer, name)
        if most is not None and value is not None and value > most and value != getattr(Trainer(), name):
            found = f"found {value}, and the run has {_count(most, unit)}: {done} at its end alone"
            yield Mistake(path=f"{path}.{name}", message=found)


def idle(trainer: Trainer, path: str) -> Iterable[Mistake]:
    """Fields of the trainer that belong to something that is off."""
    graphs = trainer.compile in ("step", "auto")
    if trainer.steps_per_call > 1 and not graphs:
        yield _idle(
            f"{path}.steps_per_call",
            f"{trainer.steps_per_call}, but {path}.compile is {trainer.compile}: no step is one graph",
            f"1, or {path}.compile=step",
        )
    if trainer.compile_mode != "default" and trainer.compile == "off":
        found = f"{trainer.compile_mode}, but {path}.compile is off: nothing is compiled"
        yield _idle(f"{path}.compile_mode", found, f"default, or {path}.compile=step")
    if trainer.mode is not None and trainer.monitor is None:
        found = f"{trainer.mode}, but no figure is named: the objective has its own, and says its direction"
        yield _idle(f"{path}.mode", found, f"null, or a figure: {path}.monitor=val/loss")


def idle_data(data: Read, spec: DataSpec | None, accumulate: int, path: str) -> Iterable[Mistake]:
    """Fields of the data that belong to something that is off."""
    options = data.options
    if not isinstance(options, DataOptions):
        return
    whole = all(size == "all" for _, size in options.stages())
    if whole and options.drop_last:
        yield _idle(f"{data.path}.drop_last", "true, but a batch is the whole training split", "false")
    if whole and accumulate > 1:
        found = f"{accumulate}, but an epoch has one batch, the whole training split"
        yield _idle(f"{path}.accumulate", found, f"1, or a number as {data.path}.batch_size")
    if options.lengths == "pad" and spec is not None and all(_one_shape(s) for s in _all(spec)):
        found = f"pad, but all samples of {data.what} have one shape: {spec}"
        yield _idle(f"{data.path}.lengths", found, "bucket, or take it out")


def idle_layout(channels_last: bool | None, path: str, spec: DataSpec | None) -> Iterable[Mistake]:
    """A layout of pictures where there are none."""
    pictures = spec is None or any(not _one_shape(s) or isinstance(s, Image | Voxels) for s in spec.inputs)
    if channels_last and not pictures:
        found = f"true, but there are no pictures: the model reads {spec}"
        yield _idle(f"{path}.channels_last", found, "null or false")


def _idle(path: str, found: str, expected: str) -> Mistake:
    return Mistake(path=path, message=f"found {found}", expected=expected, hint="it would have no effect")


def _all(spec: DataSpec) -> list[Any]:
    return [*spec.inputs, *([] if spec.target is None else [spec.target])]


def _one_shape(spec: Any) -> bool:
    """Whether all such samples surely have the same shape; of a plugin's own spec nothing is known."""
    return type(spec) in (Vector, Image, Voxels, Classes, Labels, Values)


def _count(number: int, unit: str) -> str:
    return f"{number} {unit}{'' if number == 1 else 's'}"
