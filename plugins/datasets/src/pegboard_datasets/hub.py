"""Any table of rows as splits: load, choose splits and kinds, cut, encode."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from pegboard import DataSpec, Splits
from torch import Tensor

from .assembly import Samples, make_splits
from .columns import ColumnForm
from .encoders import Encoder, ImageEncoder, TextEncoder
from .forecasting import forecast_splits
from .hub_checks import misplaced
from .hub_options import (
    HELD,
    PAD,
    Hub,
    Input,
    columns_of,
    input_names,
    layout,
    series_of,
    target_columns,
    target_of,
)
from .language import language_splits
from .loading import Loaded, choose, load, pooled
from .mistakes import mistake
from .reading import Columns
from .rows import Rows
from .saved import Form, given_vocabulary
from .sentences import sentence_splits
from .series_encoder import SeriesEncoder, nested, varies
from .series_form import KeyedForm
from .series_options import FILE, keys_of
from .series_steps import rows_of_steps, sample_rows
from .splitting import cut, sample_order
from .streaming import Reader, decoded_size, fits, memory_note, stream_splits
from .targets import ClassTarget, LabelTarget, TargetEncoder, ValueTarget, target_kind
from .translation import translation_splits
from .vectors import VectorEncoder

KINDS = {
    "image": "image",
    "classes": "category",
    "bool": "numbers",
    "integer": "numbers",
    "float": "numbers",
    "string": "text",
    "list": "numbers",
}


def build(config: Hub, fold: tuple[int, int] | None = None, seed: int = 0) -> Splits:
    """The splits that the config describes; with a `fold`, of train and val together that one validates.

    The `seed` decides what is hidden for pretraining, and nothing else.
    """
    loaded = load(config)
    splits = _splits(config, loaded, fold, seed)
    return replace(splits, warnings=(*loaded.warnings, *splits.warnings))


def _splits(config: Hub, loaded: Loaded, fold: tuple[int, int] | None, seed: int) -> Splits:
    train, val, test = choose(loaded, config)
    if fold is not None and val is not None:
        train, val = pooled(train, val), None
    columns, target = columns_of(config), target_of(config)
    if target.kind == "forecast":
        return _forecast(config, loaded, (train, val, test), fold)
    if layout(config) == "steps":
        train = _keyed(config, train)
        val, test = (None if rows is None else _keyed(config, rows) for rows in (val, test))
    for rows in filter(None, (train, val, test)):
        rows.need([*(n for n, o in columns.items() if not o.columns), *target_columns(target)])
    if target.kind == "next":
        return language_splits(config, loaded, train, val, test, fold)
    if target.kind == "masked":
        from .pretraining import pretraining_splits

        return pretraining_splits(config, loaded, (train, val, test), seed, fold)
    if target.kind in HELD:
        chosen = _share_out(config, train, val, test, None, fold)
        if target.kind == "text":
            return translation_splits(config, loaded, chosen)
        return sentence_splits(config, loaded, chosen)
    kinds = {name: _input_kind(train, name, options) for name, options in columns.items()}
    names = target_columns(target)
    if target.kind == "none":
        return _encode(config, loaded, _share_out(config, train, val, test, None, fold), kinds, None)
    if not names:
        raise mistake("the target names no column", "a column, or kind: next for text")
    kind = target_kind(train, names[0]) if target.kind == "auto" else target.kind

    def teach(fitted: Rows) -> TargetEncoder:
        others = [rows for rows in (val, test) if rows is not None]
        if kind == "values":
            return ValueTarget(fitted, names, config.normalize_target)
        if kind == "labels":
            return LabelTarget(names, train, *others)
        return ClassTarget(train, names[0], *others)

    classes = teach(train).rows if kind == "classes" and config.stratify else None
    chosen = _share_out(config, train, val, test, classes, fold)
    assert chosen["train"] is not None
    if config.marked:
        return sentence_splits(config, loaded, chosen, teach(chosen["train"]))
    return _encode(config, loaded, chosen, kinds, teach(chosen["train"]))


def _input_kind(rows: Rows, name: str, options: Input) -> str:
    kind = options.kind
    if kind == "auto":
        found = rows.type(name)
        if found == "list" and (rows.listed != "rows" or nested(rows, name) or varies(rows, name)):
            return _checked(options, "series", name)
        if found not in KINDS:
            raise mistake(
                f"column {name!r} of split {rows.split!r} holds {rows.shown_type(name)}",
                "pictures, numbers, categories or text",
            )
        return _checked(options, KINDS[found], name)
    return kind


def _forecast(
    config: Hub, loaded: Loaded, parts: tuple[Rows, Rows | None, Rows | None], fold: tuple[int, int] | None
) -> Splits:
    """Windows of steps, which are rows or stand in lists and wide tables."""
    columns, series = columns_of(config), series_of(config)
    names = list(dict.fromkeys((*columns, *series.known, *target_columns(target_of(config)))))
    wide = {name: options.columns for name, options in columns.items() if options.columns}
    plain = [name for name in names if name not in wide]
    for rows in filter(None, parts):
        rows.need(plain)
    whole = bool(wide) or all(parts[0].type(name) == "list" for name in plain)
    if not whole:
        return forecast_splits(config, loaded, parts, fold)
    if layout(config) == "files":
        series = replace(series, key=FILE)
    made = [None if rows is None else rows_of_steps(rows, series, names, wide) for rows in parts]
    assert made[0] is not None
    config = replace(config, inputs=tuple(columns), series=made[0][1])
    return forecast_splits(config, loaded, [None if m is None else m[0] for m in made], fold)


def _keyed(config: Hub, rows: Rows) -> Rows:
    """A row for each series of a table of steps."""
    columns = columns_of(config)
    steps = [name for name, options in columns.items() if options.kind in ("auto", "series")]
    others = [*(name for name in columns if name not in steps), *target_columns(target_of(config))]
    return sample_rows(rows, series_of(config), steps, others)


def _checked(options: Input, kind: str, name: str) -> str:
    for problem in misplaced(options, kind):
        raise mistake(f"inputs.{name}: {problem.message}", problem.expected)
    return kind


def _share_out(
    config: Hub,
    train: Rows,
    val: Rows | None,
    test: Rows | None,
    classes: Callable[[Rows], Tensor] | None,
    fold: tuple[int, int] | None = None,
) -> dict[str, Rows | None]:
    """The rows of each split; nothing of the others is read."""

    def ordered(rows: Rows) -> Tensor:
        y = None if classes is None else classes(rows)
        return sample_order(len(rows), config.split_seed, y)

    shares = (0.0 if val is not None else config.val, 0.0 if test is not None else config.test)
    parts = cut(ordered(train), *shares, config.limit, fold)
    if not len(parts.train):
        raise mistake(
            f"split {train.split!r} has {len(train)} rows, which leave none to train on",
            "at least one training sample",
        )

    def held_out(own: Rows | None, share: Tensor | None) -> Rows | None:
        if own is not None:
            return own if config.eval_limit is None else own.take(ordered(own)[: config.eval_limit])
        return None if share is None else train.take(share[: config.eval_limit])

    return {
        "train": train.take(parts.train),
        "val": held_out(val, parts.val),
        "test": held_out(test, parts.test),
    }


def _encode(
    config: Hub,
    loaded: Loaded,
    chosen: dict[str, Rows | None],
    kinds: dict[str, str],
    target: TargetEncoder | None,
) -> Splits:
    train = chosen["train"]
    assert train is not None
    columns = columns_of(config)
    count = sum(len(rows) for rows in chosen.values() if rows is not None)
    size = count * decoded_size(train, kinds, columns, loaded.folder)
    hold = fits(config.memory, size)
    encoders = _encoders(config, loaded, chosen, kinds, hold)
    read = [name for of, options in columns.items() for name in _read_of(encoders, of, options)]
    form: Form = ColumnForm([*encoders.values()], read)
    if layout(config) == "steps":
        steps = [name for name, kind in kinds.items() if kind == "series"]
        form = KeyedForm(form, series_of(config), steps, [name for name in columns if name not in steps])
    statistics = {name: e.notes() for name, e in encoders.items()}
    asked = None if target is None else target.spec
    spec = DataSpec(tuple(e.spec for e in encoders.values()), asked, tuple(encoders))
    notes: dict[str, Any] = {
        "source": loaded.source,
        "licence": loaded.licence,
        "memory": memory_note(config.memory, size),
        "statistics": {**statistics, **({} if target is None else {"target": target.notes()})},
    }
    there = {split: rows for split, rows in chosen.items() if rows is not None}
    more = form.fields()
    names = keys_of(series_of(config)) if layout(config) == "steps" else (FILE,)
    if layout(config) != "rows":
        more["table"] = partial(_named, form, there, names)
    if flat := _flat_lists(train, kinds):
        notes["about"] = flat
    if not hold:
        read = [*read, *target_columns(target_of(config))]
        readers = {split: Reader(rows, [*encoders.values()], target, read) for split, rows in there.items()}
        return stream_splits(spec, readers, **more, notes=notes)
    samples = {}
    for split, rows in there.items():
        inputs = [e.rows(rows) if e.train is None else e.train for e in encoders.values()]
        samples[split] = Samples(tuple(inputs), None if target is None else target.rows(rows))
        for encoder in encoders.values():
            encoder.train = None  # the splits hold it from here on
    return make_splits(spec, samples, **more, notes=notes)


def _named(
    form: Form,
    there: dict[str, Rows],
    names: tuple[str, ...],
    asked: str | Columns,
    answers: Mapping[str, list[Any]],
) -> Mapping[str, list[Any]]:
    """Answers beside the key or the file of each sample."""
    if isinstance(asked, str):
        return {**{name: there[asked].values(name) for name in names}, **answers}
    return form.table(asked, answers) if form.tables else answers


def _flat_lists(train: Rows, kinds: dict[str, str]) -> str:
    """What to say of lists that are read as vectors, and may be meant as series."""
    found = []
    for name, kind in kinds.items():
        if kind == "numbers" and train.type(name) == "list":
            width = train.take(torch.arange(1)).numbers(name).shape[1]
            found.append(
                f"column {name!r} is read as a vector of {width} numbers; kind: series reads its steps"
            )
    return "\n".join(found)


def _read_of(encoders: dict[str, Encoder], name: str, options: Input) -> tuple[str, ...]:
    """The columns of the source that an input column means."""
    if not options.columns:
        return (name,)
    channels = next(e.channels for e in encoders.values() if isinstance(e, SeriesEncoder))
    return channels[name]


def _encoders(
    config: Hub, loaded: Loaded, chosen: dict[str, Rows | None], kinds: dict[str, str], hold: bool
) -> dict[str, Encoder]:
    """What has learned to make each input; training rows that were read for it are kept where they fit."""
    columns, encoders = columns_of(config), dict[str, Encoder]()
    train, others = chosen["train"], [r for s, r in chosen.items() if s != "train" and r is not None]
    assert train is not None
    channels = {name: columns[name] for name, kind in kinds.items() if kind == "series"}
    series = next(iter(channels)) if len(channels) == 1 else "series"
    joined = {name: kind for name, kind in kinds.items() if kind in ("numbers", "category")}
    for name in input_names(config, kinds):
        if channels and name == series:
            missing = series_of(config).missing
            encoders[name] = SeriesEncoder.fit(train, others, channels, config.normalize, missing, hold)
        elif kinds.get(name) == "image":
            encoders[name] = ImageEncoder.fit(
                train, name, columns[name], config.normalize, loaded.folder, hold
            )
        elif kinds.get(name) == "text":
            given = given_vocabulary(config, PAD)
            encoders[name] = TextEncoder.fit(train, name, columns[name], hold, given)
        else:
            encoders[name] = VectorEncoder.fit(train, joined, config.normalize, hold)
    return encoders
