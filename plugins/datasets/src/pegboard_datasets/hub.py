"""Any table of rows as splits: load, choose splits and kinds, cut, encode."""

from __future__ import annotations

from collections.abc import Callable

from pegboard import DataSpec, Sequences, Splits
from torch import Tensor

from .assembly import Samples, make_splits
from .encoders import Encoder, ImageEncoder, TextEncoder, VectorEncoder
from .hub_options import Hub, Input, columns_of, input_names, misplaced, target_columns, target_of
from .language import language_splits
from .loading import Loaded, choose, load, pooled
from .mistakes import mistake
from .reading import Columns
from .rows import Rows
from .splitting import cut, sample_order
from .streaming import Reader, decoded_size, fits, memory_note, stream_splits
from .targets import ClassTarget, LabelTarget, TargetEncoder, ValueTarget, target_kind

KINDS = {
    "image": "image",
    "classes": "category",
    "bool": "numbers",
    "integer": "numbers",
    "float": "numbers",
    "string": "text",
    "list": "numbers",
}


def build(config: Hub, fold: tuple[int, int] | None = None) -> Splits:
    """The splits that the config describes; with a `fold`, of train and val together that one validates."""
    loaded = load(config)
    train, val, test = choose(loaded, config)
    if fold is not None and val is not None:
        train, val = pooled(train, val), None
    columns, target = columns_of(config), target_of(config)
    for rows in filter(None, (train, val, test)):
        rows.need([*columns, *target_columns(target)])
    if target.kind == "next":
        return language_splits(config, loaded, train, val, test, fold)
    kinds = {name: _input_kind(train, name, options) for name, options in columns.items()}
    names = target_columns(target)
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
    return _encode(config, loaded, chosen, kinds, teach(chosen["train"]))


def _input_kind(rows: Rows, name: str, options: Input) -> str:
    kind = options.kind
    if kind == "auto":
        found = rows.type(name)
        if found not in KINDS:
            raise mistake(
                f"column {name!r} of split {rows.split!r} holds {rows.shown_type(name)}",
                "pictures, numbers, categories or text",
            )
        return _checked(options, KINDS[found], name)
    return kind


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
    target: TargetEncoder,
) -> Splits:
    train = chosen["train"]
    assert train is not None
    columns = columns_of(config)
    count = sum(len(rows) for rows in chosen.values() if rows is not None)
    size = count * decoded_size(train, kinds, columns, loaded.folder)
    hold = fits(config.memory, size)
    encoders: dict[str, Encoder] = {}
    first: list[Tensor | Sequences] = []
    joined = {name: kind for name, kind in kinds.items() if kind in ("numbers", "category")}
    for name in input_names(config, kinds):
        encoder: ImageEncoder | TextEncoder | VectorEncoder
        if kinds.get(name) == "image":
            encoder = ImageEncoder(train, name, columns[name], config.normalize, loaded.folder, hold)
        elif kinds.get(name) == "text":
            encoder = TextEncoder(train, name, columns[name], hold)
        else:
            encoder = VectorEncoder(train, joined, config.normalize, hold)
        encoders[name] = encoder
        if encoder.train is not None:
            first.append(encoder.train)
        del encoder.train  # the splits hold it from here on

    def encode(table: Columns) -> tuple[Tensor, ...]:
        return tuple(e.table(table) for e in encoders.values())

    statistics = {name: e.notes() for name, e in encoders.items()}
    spec = DataSpec(tuple(e.spec for e in encoders.values()), target.spec, tuple(encoders))
    notes = {
        "source": loaded.source,
        "licence": loaded.licence,
        "memory": memory_note(config.memory, size),
        "statistics": {**statistics, "target": target.notes()},
    }
    there = {split: rows for split, rows in chosen.items() if rows is not None}
    if not hold:
        read = [*columns, *target_columns(target_of(config))]
        readers = {split: Reader(rows, [*encoders.values()], target, read) for split, rows in there.items()}
        return stream_splits(spec, readers, encode=encode, columns=tuple(columns), notes=notes)
    samples = {"train": Samples(tuple(first), target.rows(train))}
    for split, rows in there.items():
        if split != "train":
            samples[split] = Samples(tuple(e.rows(rows) for e in encoders.values()), target.rows(rows))
    return make_splits(spec, samples, encode=encode, columns=tuple(columns), notes=notes)
