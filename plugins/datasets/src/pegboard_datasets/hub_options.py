"""Config of `hub`, and what it says of the data without reading them."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal

from pegboard import (
    Classes,
    DataSpec,
    Ge,
    Image,
    Labels,
    Length,
    Series,
    Spec,
    Tokens,
    Values,
    Vector,
)

from . import series_options
from .options import ClassCut, ValueCut
from .series_options import layout_of

InputKind = Literal["auto", "image", "numbers", "category", "text", "series"]
TargetKind = Literal[
    "auto", "classes", "labels", "values", "forecast", "next", "text", "tags", "span", "masked", "none"
]
Memory = Literal["auto", "always", "never"]
Pixels = Annotated[int, Ge(1)]
Quoting = Literal["auto", "none", "standard"]
Symbols = Literal["words", "whitespace", "characters", "bpe", "wordpiece", "unigram"]

# The reader of `datasets` for each kind of file.
READERS = {
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".json": "json",
    ".jsonl": "json",
    ".txt": "text",
}
BYTES = 256  # symbols a byte-level tokenizer begins with
PADDING = 0  # the number of the symbol that fills up a text
PAD, UNKNOWN, BEGIN, END = "<pad>", "<unk>", "<begin>", "<end>"
CLASS, SEPARATOR, MASK = "<cls>", "<sep>", "<mask>"
PIPELINE = "pipeline.json"  # among the files of a run, says how rows are read
HELD = ("next", "text", "tags", "span", "masked")  # targets whose samples are always in memory


@dataclass(frozen=True, kw_only=True)
class Input:
    """How a column becomes an input of the model."""

    kind: InputKind = "auto"  # auto goes by the column's own type
    size: tuple[Pixels, Pixels] | None = None  # image: height and width it is brought to; None as it is
    channels: Literal[1, 3] | None = None  # image: 1 grey, 3 colour; None as the first picture
    tokens: Symbols = "words"  # text: what a symbol is; the last three are trained tokenizers
    vocab: Annotated[int, Ge(2)] | None = None  # text: most symbols; None: all, or 8192 of a tokenizer
    length: Annotated[int, Ge(1)] | None = None  # text, series: most symbols or steps; None: the longest
    columns: str | tuple[str, ...] = ()  # series: its steps in a wide table, as t0..t149, t* or a list
    lowercase: bool = False  # text: before anything else
    unknown: bool = True  # text: a symbol for what training never showed; false makes it an error


@dataclass(frozen=True, kw_only=True)
class Target:
    """What the model predicts."""

    column: str | tuple[str, ...] = ()  # one, or several values or 0/1 labels; none for next, masked, none
    kind: TargetKind = "auto"  # auto goes by the column's own type; forecast is of the steps to come
    tokens: Symbols | None = None  # text: what a symbol is; None: as in the input
    vocab: Annotated[int, Ge(2)] | None = None  # text: most symbols; None: as in the input
    length: Annotated[int, Ge(2)] | None = None  # text: symbols in a sample; None: the longest in training
    lowercase: bool | None = None  # text: before anything else; None: as in the input
    unknown: bool | None = None  # text: a symbol for what training never showed; None: as in the input
    shared: bool = False  # text: one vocabulary, of input and target together
    overlong: Literal["cut", "drop"] = "cut"  # text, span: what becomes of training samples above a length


@dataclass(frozen=True, kw_only=True)
class SplitNames:
    """The splits of the source that serve; `auto` goes by the usual names, `cut` takes a share of train."""

    train: str = "auto"  # auto: train, or the only split there is
    val: str = "auto"  # auto: validation, valid, val or dev where there is one, else cut
    test: str = "auto"  # auto: test where there is one, else cut


@dataclass(frozen=True, kw_only=True)
class Hub(ClassCut, ValueCut):
    """Any data set of the Hugging Face hub, or local csv, json, parquet, text, picture and series files.

    Columns of numbers and categories are joined to one vector, series to one of several channels; every image
    and text is an input.
    """

    path: str  # hub id, folder, file or pattern of files; ids are sought in $PEGBOARD_DATA/hub first
    inputs: Annotated[dict[str, Input] | tuple[str, ...], Length(1)]  # columns the model reads
    target: Target | str | None  # what it predicts; null: nothing
    subset: str | None = None  # configuration of a hub data set that has several
    revision: str | None = None  # branch, tag or commit of a hub data set
    files: dict[str, str] = field(default_factory=dict)  # split -> file or pattern below path
    splits: SplitNames = field(default_factory=SplitNames)  # which splits of the source serve
    series: series_options.Series | None = None  # how rows become series, and forecasts of them
    eval_limit: Annotated[int, Ge(1)] | None = None  # samples kept of val and of test
    marked: bool = False  # text: <cls> first and <sep> after it; two columns are joined, with segments
    vocabulary: str | None = None  # folder of a run whose symbols serve, instead of new ones
    header: bool = True  # csv, tsv: the first line names the columns; false: they are called 0, 1, 2, ...
    quoting: Quoting = "auto"  # csv, tsv: quotes enclose values (standard) or are text
    memory: Memory = "auto"  # hold the samples in memory: always, never (read batches), auto where they fit


def columns_of(config: Hub) -> dict[str, Input]:
    """The input columns, in order."""
    if isinstance(config.inputs, dict):
        return config.inputs
    return {name: Input() for name in config.inputs}


def target_of(config: Hub) -> Target:
    """The target; without one its kind is none."""
    if config.target is None:
        return Target(kind="none")
    return Target(column=config.target) if isinstance(config.target, str) else config.target


def target_columns(target: Target) -> tuple[str, ...]:
    """The columns of the target; none for the next symbol."""
    if isinstance(target.column, str):
        return (target.column,) if target.column else ()
    return target.column


def wanted_columns(config: Hub) -> set[str]:
    """All columns that a config names."""
    series, wanted = series_of(config), set(target_columns(target_of(config)))
    for name, options in columns_of(config).items():
        wanted |= {name, *((options.columns,) if isinstance(options.columns, str) else options.columns or ())}
    return wanted | {*series_options.keys_of(series), *series.known, *((series.time,) if series.time else ())}


def looks_local(path: str) -> bool:
    """Whether a path can only mean files of this machine."""
    return path.startswith((".", "/", "~")) or Path(path).suffix in READERS or "*" in path


def local_files(path: str) -> list[str]:
    """The files or the folder that a path means, sorted; empty where there are none."""
    path = os.path.expanduser(path)
    return [path] if os.path.exists(path) else sorted(glob.glob(path, recursive=True))


def forecasts(config: Hub) -> bool:
    """Whether the target is the steps to come."""
    return target_of(config).kind == "forecast"


def layout(config: Hub) -> str:
    """What a row of the source is: a sample (rows), a step of one, or each file is a sample."""
    return layout_of(config.series, forecasts(config), config.path)


def series_of(config: Hub) -> series_options.Series:
    """How rows become series."""
    return config.series or series_options.Series()


def input_names(config: Hub, kinds: dict[str, str]) -> tuple[str, ...]:
    """Names of the model's inputs: a vector, or a series, stands where its first column stands."""
    channels = [name for name in kinds if kinds[name] == "series"]
    if channels:
        whole = channels[0] if len(channels) == 1 else "series"
        renamed = {whole if name in channels else name: kind for name, kind in kinds.items()}
        if any(kind != "series" for kind in kinds.values()):
            plain = {name: kind for name, kind in kinds.items() if name not in channels}
            vector = dict(zip(plain, _joined_names(plain), strict=True))
            return tuple(dict.fromkeys(vector.get(name, name) for name in renamed))
        return tuple(renamed)
    return tuple(dict.fromkeys(_joined_names(kinds)))


def _joined_names(kinds: dict[str, str]) -> tuple[str, ...]:
    """For each column the input that it belongs to."""
    joined = [name for name in kinds if kinds[name] in ("numbers", "category")]
    taken = "features" in kinds and "features" not in joined
    vector = joined[0] if len(joined) == 1 else ("numbers" if taken else "features")
    return tuple(vector if name in joined else name for name in kinds)


def text_inputs(config: Hub) -> bool:
    """Whether every input can only be text."""
    return config.marked or target_of(config).kind in HELD


def target_input(config: Hub) -> Input:
    """How a target that is text is read: as the input, where it does not say otherwise."""
    target, source = target_of(config), next(iter(columns_of(config).values()))
    named = {f: getattr(target, f) for f in ("tokens", "vocab", "lowercase", "unknown")}
    said = {f: value for f, value in named.items() if value is not None}
    return replace(source, kind="text", length=target.length, **said)


def special_symbols(config: Hub, options: Input) -> list[str]:
    """The symbols of a vocabulary that no text has, in the order of their numbers."""
    kind = target_of(config).kind
    wanted = [PAD, UNKNOWN]
    if kind == "next":
        wanted = [UNKNOWN] if options.tokens == "characters" else [UNKNOWN, END]
    elif kind == "text":
        wanted += [BEGIN, END]
    elif config.marked or kind == "masked":
        wanted += [CLASS, SEPARATOR] + ([MASK] if kind == "masked" else [])
    known = options.tokens == "bpe" or not options.unknown  # every byte is
    return [s for s in wanted if s != UNKNOWN or not known]


def hub_spec(config: Hub) -> DataSpec | None:
    """What is known without reading: types where every kind is given, sizes where the config has them."""
    columns, target = columns_of(config), target_of(config)
    kinds: dict[str, str] = {name: c.kind for name, c in columns.items()}
    if text_inputs(config):
        kinds = dict.fromkeys(kinds, "text")
    if forecasts(config):
        return forecast_spec(config)
    if layout(config) != "rows":
        kinds = {name: "series" if kind == "auto" else kind for name, kind in kinds.items()}
    if "auto" in kinds.values() or target.kind == "auto":
        return None
    if text_inputs(config) and target.kind != "next":
        return _text_spec(config)
    specs: list[Spec] = []
    for name in input_names(config, kinds):
        options = columns.get(name, Input())
        height, width = options.size or (None, None)
        whole = "series" if name == "series" and "series" in kinds.values() else "numbers"
        match kinds.get(name, whole):
            case "series":
                specs.append(Series(None, None))
            case "image":
                specs.append(Image(options.channels, height, width))
            case "text" if target.kind == "next":
                marks = special_symbols(config, options)
                specs.append(Tokens(None, options.length, -1, end=number_of(END, marks)))
            case "text":
                specs.append(Tokens(None, options.length, PADDING))
            case _:
                specs.append(Vector(None))
    asked = None if target.kind == "none" else _plain_target(target.kind) or specs[0]
    return DataSpec(tuple(specs), asked, input_names(config, kinds))


def forecast_spec(config: Hub) -> DataSpec | None:
    """Windows of the inputs and the steps to come; sizes follow from the config."""
    series, targets = series_of(config), target_columns(target_of(config))
    if series.window is None:
        return None
    values = [name for name in columns_of(config) if name not in series.known]
    features = len(values) * (2 if series.missing == "mask" else 1) + len(series.known)
    length = series.window + (series.horizon if series.known else 0)
    read = Series(length, features + (1 if series.known else 0))
    return DataSpec((read,), Values(series.horizon * len(targets), answer_names(config)), ("window",))


def answer_names(config: Hub) -> tuple[str, ...]:
    """Names of the numbers of a forecast: all columns of the first step to come, then of the next."""
    series, targets = series_of(config), target_columns(target_of(config))
    return tuple(f"{name}+{ahead}" for ahead in range(1, series.horizon + 1) for name in targets)


def number_of(symbol: str, symbols: Sequence[str]) -> int:
    """The number of a symbol, -1 where there is none."""
    return symbols.index(symbol) if symbol in symbols else -1


def _plain_target(kind: str) -> Spec | None:
    known: dict[str, Spec] = {"classes": Classes(), "labels": Labels(), "values": Values()}
    return known.get(kind)


def _text_spec(config: Hub) -> DataSpec:
    columns, target = columns_of(config), target_of(config)
    lengths = [options.length for options in columns.values()]
    names = "+".join(columns)
    if target.kind == "text":
        source, answer = next(iter(columns.values())), target_input(config)
        ours, theirs = special_symbols(config, source), special_symbols(config, answer)
        read = Tokens(None, source.length, PADDING, -1, number_of(END, ours))
        begin, end = number_of(BEGIN, theirs), number_of(END, theirs)
        written = Tokens(None, answer.length, PADDING, begin, end)
        return DataSpec((read, written), written, (names, *target_columns(target)))
    total = None if None in lengths else sum(n for n in lengths if n is not None)
    # Another run's vocabulary numbers them as it does.
    marks = () if config.vocabulary else special_symbols(config, next(iter(columns.values())))
    text = Tokens(None, total, PADDING, number_of(CLASS, marks), number_of(SEPARATOR, marks))
    two = len(columns) == 2 or target.kind == "masked"
    inputs = (text, Tokens(2, total)) if two else (text,)
    answer_spec = _plain_target(target.kind) or _asked(target.kind, total)
    return DataSpec(inputs, answer_spec, (names, "segments")[: len(inputs)])


def _asked(kind: str, length: int | None) -> Spec | None:
    """What is asked of a text; None where the plugin is not there whose spec says it, as a check tells."""
    if kind == "tags":
        return Tokens(None, length)
    if not told(kind):
        return None
    from pegboard_transformer import Masked, Span

    return Span(length) if kind == "span" else Masked(None, length)


def told(kind: str) -> bool:
    """Whether the plugin is installed whose spec says what is asked, hidden symbols or an answer."""
    return kind not in ("span", "masked") or find_spec("pegboard_transformer") is not None
