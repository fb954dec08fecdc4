"""Made series with a season, a trend and noise, and forecasts of them."""

from __future__ import annotations

from pathlib import Path

import numpy
from pegboard import Splits

from .forecasting import forecast_splits
from .hub_options import Hub, Target
from .loading import Loaded
from .rows import Rows
from .seasons_options import Seasons
from .series_options import Series


def build(config: Seasons, fold: tuple[int, int] | None = None) -> Splits:
    """Windows of the series, cut by time as those of `hub` are."""
    import datasets  # type: ignore[import-untyped]

    asked = Series(
        key="series",
        time="step",
        window=config.window,
        horizon=config.horizon,
        stride=config.stride,
        gap=config.gap,
    )
    shares = {name: getattr(config, name) for name in ("val", "test", "split_seed", "limit", "normalize")}
    hub = Hub(
        path="made", inputs=("value",), target=Target(column="value", kind="forecast"), series=asked, **shares
    )
    rows = Rows(datasets.Dataset.from_dict(made(config)), "train")
    return forecast_splits(hub, Loaded({}, "made", "none needed", Path()), (rows, None, None), fold)


def made(config: Seasons) -> dict[str, list[object]]:
    """The columns of a table of steps."""
    draw = numpy.random.default_rng(config.seed)
    step = numpy.arange(config.steps)
    columns: dict[str, list[object]] = {"series": [], "step": [], "value": []}
    for number in range(config.series):
        level, phase = draw.normal(), draw.uniform(0, 2 * numpy.pi)
        wave = numpy.sin(2 * numpy.pi * step / config.season + phase)
        noise = draw.normal(0, config.noise, config.steps)
        values = level + wave + config.trend * step / config.steps + noise
        columns["series"] += [f"{number}"] * config.steps
        columns["step"] += step.tolist()
        columns["value"] += values.tolist()
    return columns
