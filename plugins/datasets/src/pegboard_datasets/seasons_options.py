"""Config and record of made series to forecast. No torch at import."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

from pegboard import Codec, Context, Dataset, DataSpec, Facts, Ge, Problem, Series, Splits, Values

from .options import Cut, Normalize, check_cut, frozen

Count = Annotated[int, Ge(1)]


@frozen
class Seasons(Cut):
    """Made series with a season, a trend and noise, of which the steps to come are forecast."""

    normalize: Normalize = "none"  # by the steps of training: mean 0 and std 1, or the range 0 to 1
    series: Count = 8  # how many there are, each with a level and phase of its own
    steps: Count = 200  # of each series
    season: Annotated[int, Ge(2)] = 12  # steps after which the pattern comes again
    trend: float = 0.5  # growth over all steps, in heights of the season
    noise: Annotated[float, Ge(0)] = 0.1  # standard deviation of what is added to each step
    window: Count = 24  # steps that the model reads
    horizon: Count = 6  # steps that it predicts
    stride: Count = 1  # steps from one window to the next
    gap: Annotated[int, Ge(0)] = 0  # steps between the last target of a split and the next split
    seed: Annotated[int, Ge(0)] = 0  # of levels, phases and noise, whatever the run's


def seasons_spec(config: Seasons) -> DataSpec | None:
    """What `seasons` holds; the units of scaled values are known once they are made."""
    if config.normalize != "none":
        return None
    names = tuple(f"value+{ahead}" for ahead in range(1, config.horizon + 1))
    return DataSpec((Series(config.window, 1),), Values(config.horizon, names), ("window",))


def check_seasons(config: Seasons, facts: Facts) -> Iterable[Problem]:
    """The series are long enough."""
    yield from check_cut(config, facts)
    least = config.window + config.horizon
    if config.steps < least:
        found = f"{config.steps} steps, with a window of {config.window} and a horizon of {config.horizon}"
        yield Problem(found, "steps", f"at least {least}")


def count_seasons(config: Seasons, fold: tuple[int, int] | None = None) -> tuple[int, int, int] | None:
    """Windows whose targets lie in the time of train, val and test; a fold validates on what follows it."""
    steps, gap = config.steps, config.gap
    tests, vals = round(steps * config.test), round(steps * config.val)
    rest = steps - tests  # the time before the test
    until = rest - (gap if tests else 0)
    begin, end = (rest - vals, until) if vals else (until, until)
    if fold is not None:
        number, count = fold
        if not 2 <= count < rest:
            return None
        begin, stop = (rest * (number + n) // (count + 1) for n in (1, 2))
        end = stop - (gap if tests else 0)
    learned = begin - gap if vals or fold is not None else until

    def windows(first: int, last: int) -> int:
        """Of all series, with their targets from a step on and before another."""
        starts = last - config.horizon + 1 - max(first, config.window)
        return config.series * max(-(-starts // config.stride), 0)

    train, val = windows(0, learned), windows(begin, end)
    train = train if config.limit is None else min(train, config.limit)
    return train, val, windows(rest, steps) if tests else 0


def seasons_part() -> Dataset[Seasons]:
    """The record."""

    def build(config: Seasons, context: Context) -> Splits:
        from . import seasons

        return seasons.build(config, context.fold)

    def restore(config: Any, folder: Path) -> Codec:
        from .restoring import restore as restored

        return restored(config, folder)

    return Dataset(
        "seasons",
        Seasons,
        build,
        check=check_seasons,
        spec=seasons_spec,
        samples=count_seasons,
        trial=lambda folder: {"steps": 80, "window": 8, "horizon": 2, "series": 2},
        restore=restore,
    )
