"""Configs of series that must be remembered to their end, and what they hold. No torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Any

from pegboard import Classes, Context, Dataset, DataSpec, Facts, Ge, Problem, Series, Splits, Values

from .options import Shares, check_cut, frozen


@frozen
class Remembered(Shares):
    """Series of which something early must be known at the end."""

    samples: Annotated[int, Ge(1)] = 2000  # in all splits together
    length: Annotated[int, Ge(2)] = 20  # steps of a series, the longest where they differ
    shortest: Annotated[int, Ge(2)] | None = None  # steps of the shortest; None: all are `length` long
    seed: Annotated[int, Ge(0)] | None = None  # of all that is drawn; None takes the run's seed


@frozen
class Recall(Remembered):
    """Recall task: a bit at the first step of a series, asked for at its end."""

    noise: Annotated[float, Ge(0)] = 0.0  # standard deviation of all later steps


@frozen
class Adding(Remembered):
    """Adding problem: random numbers of which two are marked, one in each half; the target is their sum."""


def recall_spec(config: Recall) -> DataSpec:
    """What `recall` holds."""
    return DataSpec((_series(config, 1),), Classes(2, ("minus", "plus")), ("series",))


def adding_spec(config: Adding) -> DataSpec:
    """What `adding` holds: a number and its mark at every step."""
    return DataSpec((_series(config, 2),), Values(1), ("series",))


def _series(config: Remembered, features: int) -> Series:
    return Series(config.length, features, config.shortest not in (None, config.length))


def check_remembered(config: Remembered, facts: Facts) -> Iterable[Problem]:
    """The shortest series is no longer than the longest."""
    yield from check_cut(config, facts)
    if config.shortest is not None and config.shortest > config.length:
        yield Problem(
            f"the shortest series has {config.shortest} steps and the longest {config.length}",
            "shortest",
            f"at most {config.length}",
        )


def remembering_parts() -> list[Dataset[Any]]:
    """The records."""

    def build_of(name: str) -> Callable[[Any, Context], Splits]:
        def build(config: Any, context: Context) -> Splits:
            from . import remembering

            splits: Splits = getattr(remembering, name)(config, context)
            return splits

        return build

    known: list[tuple[str, type[Any], Callable[[Any], DataSpec]]] = [
        ("recall", Recall, recall_spec),
        ("adding", Adding, adding_spec),
    ]
    return [
        Dataset(
            name,
            config,
            build_of(name),
            check=check_remembered,
            spec=spec,
            trial=lambda folder: {"samples": 60},
        )
        for name, config, spec in known
    ]
