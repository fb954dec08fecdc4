"""Forecasts: windows of series and the steps that follow, cut by time, with persistence beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy
import torch
from numpy.typing import NDArray
from pegboard import Batch, DataSpec, Resident, Source, Splits, Stream, Values
from torch import Tensor

from . import scaling
from .hub_options import (
    Hub,
    answer_names,
    columns_of,
    forecast_spec,
    series_of,
    target_columns,
    target_of,
)
from .loading import Loaded
from .mistakes import mistake
from .options import Normalize
from .reading import Columns
from .rows import Rows
from .saved import Find, Form, Keep
from .season import find_season
from .series_filling import last_known
from .series_options import Series, keys_of
from .series_steps import Keyed, StepTable, insist, steps_of, written_table
from .series_time import Clock
from .splitting import sample_order
from .streaming import fits, memory_note

Array = NDArray[Any]
SPLITS = ("train", "val", "test")
STANDS = {  # what stands in inputs where a value is missing
    "forward": "the last value before stands there",
    "zero": "0 of the scaled values stands there",
    "mask": "0 of the scaled values and a mask stand there",
}


@dataclass
class Flat:
    """All series of a split, one after the other."""

    found: list[Keyed]
    values: Array  # (steps, columns) nan where nothing is known

    @property
    def starts(self) -> Array:
        """Where each series begins."""
        lengths = numpy.array([len(one) for one in self.found], numpy.int64)
        return numpy.cumsum(lengths) - lengths

    @property
    def ticks(self) -> Array:
        """Times of all steps."""
        return numpy.concatenate([one.ticks for one in self.found])


@dataclass
class Reader:
    """Cuts windows out of series when they are needed."""

    inputs: Tensor  # (steps, features), scaled
    target: Tensor  # (steps, targets), scaled
    anchors: Tensor  # (samples,) the first step that each sample predicts
    window: int
    horizon: int
    known: int  # the last so many features are known ahead, and before them the others are 0 in the horizon

    def __call__(self, rows: list[int]) -> Batch:
        return self.samples(self.anchors[rows])

    def targets(self) -> Tensor:
        """The target of all samples."""
        return self.target[self.anchors[:, None] + torch.arange(self.horizon)].flatten(1)

    def samples(self, anchors: Tensor) -> Batch:
        """The windows before these steps, and the steps from there on."""
        inputs = windows(self.inputs, anchors, self.window, self.horizon, self.known)
        ahead = anchors[:, None] + torch.arange(self.horizon)
        return Batch((inputs,), self.target[ahead].flatten(1))


def counted(steps: int) -> str:
    """A number of steps in words."""
    return "1 step" if steps == 1 else f"{steps} steps"


def windows(steps: Tensor, anchors: Tensor, window: int, horizon: int, known: int) -> Tensor:
    """(samples, window, features), or with features known ahead (samples, window + horizon, features + 1).

    In the horizon, which the last feature marks by 1, features that are not known ahead are 0.
    """
    past = steps[anchors[:, None] + torch.arange(-window, 0)]
    if not known:
        return past
    ahead = steps[anchors[:, None] + torch.arange(horizon)].clone()
    ahead[..., : ahead.shape[-1] - known] = 0.0
    both = torch.cat([past, ahead], 1)
    mark = (torch.arange(window + horizon) >= window).float().expand(len(anchors), -1)
    return torch.cat([both, mark[..., None]], -1)


class Scale:
    """How columns of values become features: scaled by training steps, 0 where nothing is known."""

    def __init__(self, columns: Sequence[str], known: int, scaler: scaling.Scaler, missing: str) -> None:
        self.columns, self.known, self.scaler, self.missing = tuple(columns), known, scaler, missing

    @classmethod
    def fit(cls, columns: Sequence[str], known: int, train: Array, how: Normalize, missing: str) -> Scale:
        """By the steps of training, of which those without a value do not count."""
        if how == "none":
            return cls(columns, known, scaling.fit(torch.zeros(1, 1), how), missing)
        parts = []
        for place, name in enumerate(columns):
            there = train[:, place][~numpy.isnan(train[:, place])]
            if not len(there):
                raise mistake(f"column {name!r} has no value in training", "one at least")
            parts.append(scaling.fit(torch.from_numpy(there), how))
        shift, scale = (torch.stack([getattr(p, f).flatten()[0] for p in parts]) for f in ("shift", "scale"))
        return cls(columns, known, scaling.Scaler(how, shift.double(), scale.double()), missing)

    def steps(self, values: Array, starts: Array) -> Tensor:
        """Features of all steps: of the past, with `mask` which of them were known, and those known ahead."""
        filled = last_known(values, starts) if self.missing == "forward" else values
        scaled = self.scaler(torch.from_numpy(filled)).nan_to_num(0.0)
        past = len(self.columns) - self.known
        if self.missing != "mask":
            return scaled
        there = torch.from_numpy(~numpy.isnan(values[:, :past])).float()
        return torch.cat([scaled[:, :past], there, scaled[:, past:]], 1)

    def of(self, name: str) -> tuple[float, float]:
        """Shift and scale of a column."""
        if self.scaler.how == "none":
            return 0.0, 1.0
        place = self.columns.index(name)
        return float(self.scaler.shift[place]), float(self.scaler.scale[place])

    def state(self) -> dict[str, Any]:
        """All of it, as JSON holds it."""
        return {"columns": list(self.columns), "known": self.known, "missing": self.missing,
                "scaler": self.scaler.state()}  # fmt: skip

    @classmethod
    def load(cls, state: Mapping[str, Any]) -> Scale:
        """The one that `state` described."""
        scaler = scaling.Scaler.load(state["scaler"])
        return cls(state["columns"], int(state["known"]), scaler, state["missing"])


class ForecastForm(Form):
    """Tables of steps that a person wrote: the last window of each series, and the steps that follow."""

    name = "forecast"
    tables = True

    def __init__(
        self, inputs: Sequence[str], targets: Sequence[str], series: Series, clock: Clock, scale: Scale
    ) -> None:
        self.inputs, self.targets, self.series, self.clock, self.scale = (
            tuple(inputs), tuple(targets), series, clock, scale,
        )  # fmt: skip
        names = [*keys_of(series), *([series.time] if series.time else []), *inputs, *series.known]
        self.columns = tuple(dict.fromkeys(names))

    @property
    def read(self) -> tuple[str, ...]:
        """Columns of values, those known ahead last."""
        return (*(name for name in self.inputs if name not in self.series.known), *self.series.known)

    def ends(self, table: Columns) -> list[tuple[Keyed, Array, int]]:
        """Each series with its values, and the first step without any but those known ahead."""
        written = written_table(table, keys_of(self.series), self.series.time)
        if written.dates != (self.clock.unit in ("months", "microseconds")):
            kinds = ("numbers", "dates")
            raise mistake(
                f"column {self.series.time!r} holds {kinds[written.dates]}",
                f"{kinds[not written.dates]}, as in training",
            )
        values = numpy.stack([written.numbers(name) for name in self.read], 1)
        past, window, horizon = (
            len(self.read) - len(self.series.known),
            self.series.window or 1,
            self.series.horizon,
        )
        found = []
        for one in written.series(self.clock, self.series.irregular):
            spread = one.spread(values)
            there = (
                numpy.flatnonzero(~numpy.isnan(spread[:, :past]).all(1))
                if past
                else numpy.array([len(one) - horizon - 1])
            )
            end = int(there[-1]) + 1 if len(there) else 0
            what = f"series {'/'.join(one.key)!r}" if one.key else "the table"
            if end < window:
                raise mistake(
                    f"{what} has {counted(max(end, 0))} before those that are asked for",
                    f"at least {window}, which the model reads",
                )
            if self.series.known and len(one) < end + horizon:
                names = ", ".join(self.series.known)
                raise mistake(
                    f"{what} has {counted(len(one) - end)} after the last value",
                    f"rows for the {horizon} steps to come, with {names}, known ahead",
                )
            if self.series.missing == "error":
                insist([Keyed(one.key, one.rows[end - window : end], one.ticks[end - window : end])],
                       self.read, values, written, self.clock)  # fmt: skip
            found.append((one, spread, end))
        return found

    def encode(self, table: Columns) -> tuple[Tensor, ...]:
        series, made = self.series, []
        for _, spread, end in self.ends(table):
            steps = self.scale.steps(spread, numpy.array([0]))
            made.append(
                windows(steps, torch.tensor([end]), series.window or 1, series.horizon, len(series.known))
            )
        return (torch.cat(made),)

    def table(self, asked: str | Columns, answers: Mapping[str, list[Any]]) -> Mapping[str, list[Any]]:
        """A row for each step to come of each series of a table that a person wrote."""
        if isinstance(asked, str):
            raise TypeError("the windows of a split are known to its data alone")
        where = []
        for one, _, end in self.ends(asked):
            last, horizon = one.ticks[end - 1], self.series.horizon
            if self.series.irregular == "rows":  # nothing says when a row comes that is not there
                when = self.clock.shown(one.ticks[end : end + horizon])
                when += [f"+{ahead}" for ahead in range(len(when) + 1, horizon + 1)]
            else:
                when = self.clock.shown(last + numpy.arange(1, horizon + 1))
            where.append((one.key, last, when))
        return self.rows(where, answers)

    def rows(
        self, where: Sequence[tuple[tuple[str, ...], float, list[str]]], answers: Mapping[str, list[Any]]
    ) -> dict[str, list[Any]]:
        """A row for each predicted step: its series, the last step that was read, its time, the numbers."""
        names, horizon = keys_of(self.series), self.series.horizon
        time = self.series.time or "step"
        made: dict[str, list[Any]] = {name: [] for name in (*names, "from", time)}
        for key, last, when in where:
            for name, text in zip(names, key, strict=True):
                made[name] += [text] * horizon
            made["from"] += self.clock.shown(numpy.array([last])) * horizon
            made[time] += when
        numbers = horizon * len(self.targets)
        for column, cells in answers.items():
            label = "forecast" if column == "value" else column
            flat = [cell if isinstance(cell, list) else [cell] for cell in cells]
            if any(len(cell) != numbers for cell in flat):  # of the whole sample
                made[label] = [cell for cell in cells for _ in range(horizon)]
                continue
            for place, target in enumerate(self.targets):
                named = label if len(self.targets) == 1 else f"{label} {target}"
                made[named] = [v for cell in flat for v in cell[place :: len(self.targets)]]
        return made

    def state(self, keep: Keep) -> dict[str, Any]:
        series = self.series
        return {
            "inputs": list(self.inputs),
            "targets": list(self.targets),
            "series": {
                "key": list(keys_of(series)), "time": series.time, "missing": series.missing,
                "irregular": series.irregular, "window": series.window, "horizon": series.horizon,
                "known": list(series.known),
            },
            "clock": self.clock.state(),
            "scale": self.scale.state(),
        }  # fmt: skip

    @classmethod
    def load(cls, state: Mapping[str, Any], find: Find) -> ForecastForm:
        """The one that `state` described."""
        fields = dict(state["series"])
        series = Series(**fields | {"key": tuple(fields["key"]), "known": tuple(fields["known"])})
        clock, scale = Clock.load(state["clock"]), Scale.load(state["scale"])
        return cls(state["inputs"], state["targets"], series, clock, scale)


def forecast_splits(
    config: Hub,
    loaded: Loaded,
    parts: Sequence[Rows | None],
    fold: tuple[int, int] | None = None,
) -> Splits:
    """Splits of windows; val and test come after train in time."""
    return _Forecast(config, loaded, parts, fold).splits()


class _Forecast:
    """The making of splits."""

    def __init__(
        self, config: Hub, loaded: Loaded, parts: Sequence[Rows | None], fold: tuple[int, int] | None
    ) -> None:
        self.config, self.loaded, self.fold = config, loaded, fold
        self.series, self.targets = series_of(config), target_columns(target_of(config))
        self.window, self.horizon = self.series.window or 1, self.series.horizon
        past = [name for name in columns_of(config) if name not in self.series.known]
        self.read = (*past, *self.series.known)
        self.warnings: list[str] = []
        self.lines: list[str] = []
        tables = {
            s: steps_of(rows, self.series) for s, rows in zip(SPLITS, parts, strict=True) if rows is not None
        }
        self.clock = tables["train"].clock()
        self.flats = {split: self._flat(table) for split, table in tables.items()}

    def _flat(self, table: StepTable) -> Flat:
        found = table.series(self.clock, self.series.irregular)
        names = tuple(dict.fromkeys((*self.read, *self.targets)))
        columns = {name: table.numbers(name) for name in names}
        values = numpy.stack([*columns.values()], 1)
        if self.series.missing == "error":
            insist(found, names, values, table, self.clock)
        wanted = numpy.stack([columns[name] for name in (*self.read, *self.targets)], 1)
        flat = Flat(found, numpy.concatenate([one.spread(wanted) for one in found]))
        gaps = int(numpy.isnan(flat.values).any(1).sum())
        if gaps:
            how = STANDS.get(self.series.missing, "")
            self.lines.append(
                f"{gaps} of {len(flat.values)} steps have no value: in inputs {how}; none is predicted"
            )
        return flat

    def splits(self) -> Splits:
        cuts, self.lines = self._cuts(), [self._head(), *self.lines]
        anchors = {split: self._anchors(split, of) for split, of in cuts.items()}
        anchors = {split: found for split, found in anchors.items() if len(found)}
        self._check(anchors)
        scale, shift, size = self._scale(cuts["train"])
        names = answer_names(self.config)
        units = (shift * self.horizon, size * self.horizon)
        plain = all(s == 0 for s in units[0]) and all(s == 1 for s in units[1])
        spec = forecast_spec(self.config)
        assert spec is not None
        target = Values(len(names), names) if plain else Values(len(names), names, *units)
        spec = DataSpec(spec.inputs, target, spec.names)
        season = self._season(cuts["train"])
        readers, baselines = {}, dict[str, dict[str, Tensor]]()
        for split, found in anchors.items():
            flat = self._flat_of(split)
            goal = torch.from_numpy((flat.values[:, len(self.read) :] - shift) / size).float()
            steps = scale.steps(flat.values[:, : len(self.read)], flat.starts)
            index = torch.from_numpy(found)
            readers[split] = Reader(steps, goal, index, self.window, self.horizon, len(self.series.known))
            if season is not None and split != "train":
                self._insist_on_season(split, flat, found, season)
            for name, rule in self._rules(flat, found, season, numpy.array(shift), numpy.array(size)).items():
                baselines.setdefault(name, {})[split] = rule
        form = ForecastForm([*columns_of(self.config)], self.targets, self.series, self.clock, scale)
        return self._made(spec, readers, baselines, form, scale, season)

    def _made(
        self, spec: DataSpec, readers: Mapping[str, Reader], baselines: Mapping[str, Mapping[str, Tensor]],
        form: ForecastForm, scale: Scale, season: int | None,
    ) -> Splits:  # fmt: skip
        features = spec.inputs[0].size or 1
        size = 4 * sum(len(r.anchors) for r in readers.values()) * (features + (spec.target.size or 1))  # type: ignore[union-attr]
        sources: dict[str, Source] = {}
        for split, reader in readers.items():
            batch = reader.samples(reader.anchors) if fits(self.config.memory, size) else None
            sources[split] = (
                Stream(reader, len(reader.anchors)) if batch is None else Resident(batch.inputs, batch.target)
            )
        notes: dict[str, Any] = {
            "source": self.loaded.source,
            "licence": self.loaded.licence,
            "memory": memory_note(self.config.memory, size),
            "fingerprint": _fingerprint(readers),
            "sizes": {split: len(reader.anchors) for split, reader in readers.items()},
            "statistics": {"window": {**scale.scaler.notes(), "columns": list(scale.columns)}},
            "about": "\n".join(self.lines),
            **({} if season is None else {"season": season}),
        }

        def table(asked: str | Columns, answers: Mapping[str, list[Any]]) -> Mapping[str, list[Any]]:
            return self._answers(form, readers, asked, answers)

        fields = form.fields() | {"table": table}
        return Splits(
            spec=spec,
            train=sources["train"],
            val=sources.get("val"),
            test=sources.get("test"),
            notes=notes,
            baselines=baselines,
            warnings=tuple(self.warnings),
            **fields,
        )

    def _answers(
        self,
        form: ForecastForm,
        readers: Mapping[str, Reader],
        asked: str | Columns,
        answers: Mapping[str, list[Any]],
    ) -> Mapping[str, list[Any]]:
        """Answers to a split, or to a table, as a row for each predicted step."""
        if not isinstance(asked, str):
            return form.table(asked, answers)
        flat, reader = self._flat_of(asked), readers[asked]
        ticks, starts = flat.ticks, flat.starts
        anchors = reader.anchors.numpy()
        keys = numpy.searchsorted(starts, anchors, "right") - 1
        where = [
            (flat.found[key].key, ticks[at - 1], self.clock.shown(ticks[at : at + self.horizon]))
            for key, at in zip(keys, anchors, strict=True)
        ]
        given = {name: cells for name, cells in answers.items() if name != "target"}
        goal = flat.values[:, len(self.read) :]
        given["target"] = [goal[at : at + self.horizon].flatten().tolist() for at in anchors]
        return form.rows(where, given)

    def _flat_of(self, split: str) -> Flat:
        return self.flats.get(split, self.flats["train"])

    def _cuts(self) -> dict[str, tuple[float, float]]:
        """For each split, from and before which times its targets lie."""
        series, config = self.series, self.config
        own = [split for split in ("val", "test") if split in self.flats]
        flat = self.flats["train"]
        there = ~numpy.isnan(flat.values[:, len(self.read) :]).any(1)
        times = numpy.unique(numpy.round(flat.ticks[there], 6))
        if not len(times):
            raise mistake("no step has a value of the target", "one at least")
        tests = 0 if "test" in own else round(len(times) * config.test)
        vals = 0 if "val" in own else round(len(times) * config.val)
        infinity = float("inf")
        end = times[len(times) - tests] if tests else infinity
        found: dict[str, tuple[float, float]] = {}
        if self.fold is not None:
            number, count = self.fold
            rest = times[: len(times) - tests]
            if count + 1 > len(rest):
                raise mistake(f"{count} folds of {len(rest)} times", f"at most {max(len(rest) - 1, 2)} folds")
            start, stop = (len(rest) * (number + n) // (count + 1) for n in (1, 2))
            begin = rest[start]
            found["val"] = (begin, (rest[stop] if stop < len(rest) else end) - (series.gap if tests else 0))
            found["train"] = (-infinity, begin - series.gap)
        elif vals:
            begin = times[len(times) - tests - vals]
            found["train"], found["val"] = (-infinity, begin - series.gap), (begin, end - series.gap)
        else:
            found["train"] = (-infinity, end - series.gap)
        if tests:
            found["test"] = (end, infinity)
        for split in own:
            found[split] = (-infinity, infinity)
            if split == "val" and self.fold is not None:
                raise mistake(
                    "folds of a forecast cannot use a split of its own for validation", "splits: {val: cut}"
                )
        self._overlaps(own)
        return found

    def _overlaps(self, own: Sequence[str]) -> None:
        """Splits of the source whose times lie before the end of the one before."""
        last = self.flats["train"].ticks.max()
        for split in own:
            first = self.flats[split].ticks.min()
            if self.series.time is not None and first <= last:
                shown = self.clock.shown(numpy.array([first, last]))
                self.warnings.append(
                    f"{split} begins at {shown[0]}, and what is before it ends at {shown[1]}: it does not "
                    "measure forecasts of times that were not seen"
                )
            last = max(last, self.flats[split].ticks.max())

    def _head(self) -> str:
        known = f", {', '.join(self.series.known)} known ahead" if self.series.known else ""
        count = len(self.flats["train"].found)
        counted = self.clock.unit == "rows" or self.series.irregular == "rows"
        every = "" if counted else f" of {self.clock.says()}"
        return (
            f"forecast of {', '.join(self.targets)}: {self.window} steps{every} are read and "
            f"{self.horizon} predicted{known}, a window every {self.series.stride} steps, of {count} series"
        )

    def _anchors(self, split: str, cut: tuple[float, float]) -> Array:
        """The first predicted step of each sample of a split, among all steps."""
        flat = self._flat_of(split)
        empty = numpy.isnan(flat.values[:, len(self.read) :]).any(1)
        before = numpy.concatenate([[0], numpy.cumsum(empty)])
        found, dropped = [], 0
        for start, one in zip(flat.starts, flat.found, strict=True):
            first = numpy.arange(self.window, len(one) - self.horizon + 1)
            inside = (one.ticks[first] >= cut[0] - 1e-6) & (
                one.ticks[first + self.horizon - 1] < cut[1] - 1e-6
            )
            first = first[inside][:: self.series.stride] + start
            whole = before[first + self.horizon] == before[first]
            dropped += int((~whole).sum())
            found.append(first[whole])
        anchors = numpy.concatenate(found)
        if dropped:
            self.lines.append(f"{dropped} windows of {split} are left out, as a value to predict is missing")
        limit = self.config.limit if split == "train" else self.config.eval_limit
        if limit is not None and limit < len(anchors):
            chosen = sample_order(len(anchors), self.config.split_seed)[:limit].sort().values
            anchors = anchors[chosen.numpy()]
        if len(anchors):
            ticks = flat.ticks
            times = ticks[anchors].min(), ticks[anchors + self.horizon - 1].max()
            begin, end = self.clock.shown(numpy.array(times))
            after = f", {counted(self.series.gap)} apart from the next split" if self.series.gap else ""
            self.lines.append(
                f"{split}: {len(anchors)} windows, whose targets lie from {begin} to {end}{after}"
            )
        return anchors

    def _check(self, anchors: Mapping[str, Array]) -> None:
        need = self.window + self.horizon
        longest = max(len(one) for one in self.flats["train"].found)
        if "train" not in anchors:
            raise mistake(
                f"no window trains: window {self.window} and horizon {self.horizon} need {need} steps, and "
                f"the longest series has {longest} in all",
                "series that are longer in the time of training",
                "take a shorter window or horizon, or smaller shares for val and test",
            )
        short = sum(1 for one in self.flats["train"].found if len(one) < need)
        if short:
            self.warnings.append(
                f"{short} of {len(self.flats['train'].found)} series are shorter than window and horizon, "
                f"{need} steps, and have no sample"
            )
        for split, share in (("val", self.config.val), ("test", self.config.test)):
            if split not in anchors and (share or split in self.flats):
                self.warnings.append(
                    f"{split} has no window: its time is shorter than the horizon, {self.horizon}"
                )

    def _scale(self, cut: tuple[float, float]) -> tuple[Scale, tuple[float, ...], tuple[float, ...]]:
        """How inputs are scaled, and the shift and scale of each target: by the time of training alone."""
        flat = self.flats["train"]
        names = (*self.read, *self.targets)
        own = tuple(dict.fromkeys(names))
        values = flat.values[flat.ticks < cut[1] - 1e-6][:, [names.index(name) for name in own]]
        whole = Scale.fit(own, 0, values, self.config.normalize, self.series.missing)
        shift, size = zip(*(whole.of(name) for name in self.targets), strict=True)
        places, scaler = [own.index(name) for name in self.read], whole.scaler
        if scaler.how != "none":
            scaler = scaling.Scaler(scaler.how, scaler.shift[places], scaler.scale[places])
        return Scale(self.read, len(self.series.known), scaler, self.series.missing), shift, size

    def _season(self, cut: tuple[float, float]) -> int | None:
        """The steps of a season: those that the config says, or that the training steps show."""
        season = self.series.season
        if season != "auto":
            return season
        flat = self.flats["train"]
        parts = []
        for start, one in zip(flat.starts, flat.found, strict=True):
            values = flat.values[start : start + len(one), len(self.read)]
            values = values[one.ticks < cut[1] - 1e-6]
            filled = last_known(values[:, None], numpy.array([0]))[:, 0]
            parts.append(filled[~numpy.isnan(filled)])
        found = find_season(parts)
        if found is None:
            self.lines.append("no season is seen in training; series: {season: 12} would state one")
            return None
        self.lines.append(
            f"a season of {found[0]} steps, by the autocorrelation of training ({found[1]:.2f})"
        )
        return found[0]

    def _insist_on_season(self, split: str, flat: Flat, anchors: Array, season: int) -> None:
        """Warn of windows that no season lies before, for which seasonal persistence is persistence."""
        begin = flat.starts[numpy.searchsorted(flat.starts, anchors, "right") - 1]
        short = int((anchors - season < begin).sum())
        if short:
            self.warnings.append(
                f"{short} of {len(anchors)} windows of {split} begin less than a season of {season} steps "
                "after their series: the last value stands for what seasonal persistence would say"
            )

    def _rules(
        self, flat: Flat, anchors: Array, season: int | None, shift: Array, size: Array
    ) -> dict[str, Tensor]:
        """What persistence, and that of a season before, answer: (samples, horizon * targets), scaled."""
        goal = last_known(flat.values[:, len(self.read) :], flat.starts)
        goal = numpy.nan_to_num((goal - shift) / size)
        ahead = numpy.arange(self.horizon)
        last = goal[anchors - 1][:, None].repeat(self.horizon, 1)
        found = {"persistence": last}
        if season is not None:
            back = anchors[:, None] + ahead - season * (ahead // season + 1)
            begin = flat.starts[numpy.searchsorted(flat.starts, anchors, "right") - 1][:, None]
            before = goal[numpy.maximum(back, 0)]
            found["seasonal persistence"] = numpy.where((back >= begin)[..., None], before, last)
        return {name: torch.from_numpy(rule).float().flatten(1) for name, rule in found.items()}


def _fingerprint(readers: Mapping[str, Reader]) -> str:
    """The sha256 of all steps and of where the samples of each split begin."""
    import hashlib

    digest = hashlib.sha256()
    for split, reader in readers.items():
        for tensor in (reader.inputs, reader.target, reader.anchors):
            digest.update(f"{split} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
            digest.update(tensor.contiguous().numpy().data)
    return digest.hexdigest()
