"""How many samples the splits of a data set have, where its config alone tells; no torch."""

from __future__ import annotations

from collections.abc import Iterable

from ..contract.options import DataOptions
from .errors import Mistake
from .no_effect import Length, run_length
from .nodes import Trainer
from .sections import Parts, Read

Sizes = tuple[int, int, int]  # of train, val and test


def split_sizes(parts: Parts, data: Read, fold: tuple[int, int] | None = None) -> Sizes | None:
    """What the data set declares of its splits; folds are cut as its `build` or the core does."""
    function = getattr(data.entry.part, "samples", None)
    if function is None or data.config is None:
        return None
    own = getattr(data.entry.part, "folds", False)
    try:
        sizes = function(data.config, fold if own else None)
        if sizes is None:
            return None
        if not (isinstance(sizes, tuple) and len(sizes) == 3 and all(isinstance(n, int) for n in sizes)):
            raise TypeError(f"samples returned {sizes!r}, expected three numbers: of train, val and test")
    except Exception as error:
        parts.defect(data.entry, data.path, "its samples", error)
        return None
    train, val, test = sizes
    if fold is not None and not own:
        rest, (number, count) = train + val, fold
        val = rest * (number + 1) // count - rest * number // count
        train = rest - val
    return train, val, test


def training_sizes(parts: Parts, data: Read, trainer: Trainer | None, path: str) -> tuple[int, ...]:
    """How many samples train, in each fold that is carried out; () where it is not known or none do.

    Folds beyond the data are noted; `path` is the place of the trainer.
    """
    whole = split_sizes(parts, data)
    if whole is None or whole[0] < 1:
        return ()
    if trainer is None or trainer.folds is None:
        return (whole[0],)
    count = trainer.folds
    together = split_sizes(parts, data, (0, 1))  # the one fold holds all but the test
    if trainer.fold is not None and trainer.fold >= count:
        return ()
    if together is not None and count > (most := together[1]):
        parts.found.append(
            Mistake(
                path=f"{path}.folds",
                message=f"found {count}, but {data.what} has {most} samples besides the test",
                expected=f"2 to {most}, each fold with a sample at least" if most > 1 else "no folds",
            )
        )
        return ()
    numbers = range(count) if trainer.fold is None else (trainer.fold,)
    found = [split_sizes(parts, data, (number, count)) for number in numbers]
    return tuple(dict.fromkeys(sizes[0] for sizes in found if sizes is not None and sizes[0] > 0))


def validated(parts: Parts, data: Read, trainer: Trainer | None) -> bool:
    """Whether a run may have a validation split: a fold has one, and so has data that does not say."""
    sizes = split_sizes(parts, data)
    return sizes is None or sizes[1] > 0 or (trainer is not None and trainer.folds is not None)


def nothing_to_train_on(parts: Parts, data: Read) -> Iterable[Mistake]:
    """A training split without samples, where the rules of the data set have not said so already."""
    sizes, own = split_sizes(parts, data), (data.path, f"{data.path}.")
    if (
        sizes is None
        or sizes[0] > 0
        or any(m.path == own[0] or m.path.startswith(own[1]) for m in parts.found)
    ):
        return
    found = f"{data.what} has no training samples: {sizes[1]} validate and {sizes[2]} test"
    yield Mistake(path=data.path, message=found, expected="more samples, or smaller shares", at_key=True)


def lengths(trainer: Trainer, options: DataOptions, sizes: tuple[int, ...]) -> Length:
    """How long a run is at most, and the smallest batch of all its folds."""
    every = [run_length(trainer, options, samples) for samples in sizes or (None,)]
    smallest = [length.smallest_batch for length in every if length.smallest_batch is not None]
    steps = [length.steps for length in every if length.steps is not None]
    epochs = [length.epochs for length in every if length.epochs is not None]
    return Length(max(epochs, default=None), max(steps, default=None), min(smallest, default=None))


def without_batches(data: Read, trainer: Trainer | None, sizes: tuple[int, ...]) -> Iterable[Mistake]:
    """Epochs that `drop_last` leaves no batch."""
    options = data.options
    if not isinstance(options, DataOptions) or not options.drop_last or not sizes:
        return
    epochs, count = trainer.most_epochs if trainer is not None else None, min(sizes)
    for epoch, size in options.stages():
        if size == "all" or size <= count or (epochs is not None and epoch >= epochs):
            continue
        where = f"batch_schedule has {size} from epoch {epoch} on" if epoch else f"batch_size is {size}"
        yield Mistake(
            path=f"{data.path}.drop_last",
            message=f"data.drop_last leaves no batch: {where}, the training split has {count} samples",
            expected=f"batches of at most {count} samples, or drop_last: false",
        )
