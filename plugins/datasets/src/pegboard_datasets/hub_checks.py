"""What can be wrong with a config of `hub`, found without reading data."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import fields
from pathlib import Path

from pegboard import Facts, Problem

from .hub_options import (
    BYTES,
    HELD,
    PIPELINE,
    READERS,
    Hub,
    Input,
    Target,
    columns_of,
    forecasts,
    layout,
    local_files,
    looks_local,
    target_columns,
    target_input,
    target_of,
    text_inputs,
    told,
)
from .options import check_cut
from .series_options import check_series

HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")
OUTSIDE = re.compile(r"[/~\\]|.*(://|(^|[/\\])\.\.([/\\]|$))")  # leads out of the folder it is below
SYMBOLS = ("tokens", "vocab", "lowercase", "unknown")  # fields that say what a symbol is
# The kinds that a field of an input belongs to; every other belongs to text alone.
BELONGS = {
    "size": ("image",), "channels": ("image",), "columns": ("series",), "length": ("text", "series"),
}  # fmt: skip
SHORTEST = 5  # two symbols and their three marks


def check_hub(config: Hub, facts: Facts) -> Iterable[Problem]:
    """What can be seen without reading data."""
    yield from check_cut(config, facts)
    yield from _check_path(config)
    columns, target = columns_of(config), target_of(config)
    for name, options in columns.items():
        kind = "text" if text_inputs(config) and options.kind == "auto" else options.kind
        for problem in misplaced(options, kind):
            where = f"{_place(config, name)}.{problem.field}"
            yield Problem(problem.message, where, problem.expected, problem.hint)
    names = target_columns(target)
    if not names and target.kind not in ("next", "masked", "none"):
        yield Problem("the target names no column", "target.column", "a column", "or kind: next for text")
    if config.marked and target.kind == "none":
        yield Problem("marked texts are made for a target", "marked", "false, or a target")
    if config.labelled < 1 and target.kind not in ("auto", "classes"):
        yield Problem(f"a target of {target.kind} has no labels to hide", "labelled", "1, or kind: classes")
    if names and target.kind == "none":
        yield Problem("kind none predicts nothing", "target.column", "no column, or another kind")
    if len(names) > 1 and target.kind not in ("values", "labels", "span", "forecast"):
        yield Problem(f"{len(names)} columns as one target", "target.kind", "values, labels or forecast")
    yield from _check_series(config)
    for name in () if target.kind == "forecast" else sorted(set(names) & set(columns)):
        yield Problem(
            f"column {name!r} is both an input and the target", "target.column", "another column",
            "" if config.series is None else "target.kind: forecast predicts the steps to come",
        )  # fmt: skip
    yield from _check_target_fields(target)
    if text_inputs(config):
        yield from _check_texts(config, columns, target)
    yield from _check_vocabulary(config)


def _check_series(config: Hub) -> Iterator[Problem]:
    columns, targets = columns_of(config), target_columns(target_of(config))
    told = forecasts(config)
    if told or config.series is not None:
        yield from check_series(config.series, told, layout(config), tuple(columns), targets)
    if told and config.normalize_target:
        found = "a forecast scales its target as the column of an input, by normalize"
        yield Problem(found, "normalize_target", "false")
    if told and config.marked:
        yield Problem("marks are for texts, and a forecast reads series", "marked", "false")
    for name, options in columns.items():
        if told and options.kind not in ("auto", "series"):
            yield Problem(f"a forecast reads no {options.kind}", f"{_place(config, name)}.kind", "series")
        if options.columns and options.kind != "series":
            where = f"{_place(config, name)}.kind"
            yield Problem("columns of a wide table are the steps of a series", where, "series")
        if options.columns and layout(config) != "rows" and not told:
            where = f"{_place(config, name)}.columns"
            yield Problem("columns are steps where a row is a series", where, "layout: rows")


def misplaced(options: Input, kind: str) -> Iterator[Problem]:
    """Fields that mean nothing for a column of this kind, and values that cannot go together."""
    for f in fields(Input):
        owners = BELONGS.get(f.name, ("text",))
        if kind not in ("auto", *owners) and f.name != "kind" and getattr(options, f.name) != f.default:
            only = " or ".join(owners)
            yield Problem(f"{f.name} means nothing for a column of {kind}", f.name, f"only with {only}")
    if kind in ("auto", "text"):
        yield from _check_symbols(options)


def _check_symbols(options: Input) -> Iterator[Problem]:
    if options.tokens == "bpe" and options.vocab is not None and options.vocab < BYTES + 2:
        yield Problem(
            f"vocab {options.vocab} is too small: bpe begins with every byte",
            "vocab",
            f"at least {BYTES + 2}",
        )
    if options.tokens in ("wordpiece", "unigram") and not options.unknown:
        yield Problem(f"{options.tokens} cannot do without an unknown symbol", "unknown", "true")


def _place(config: Hub, name: str) -> str:
    return f"inputs.{name}" if isinstance(config.inputs, dict) else "inputs"


def _check_path(config: Hub) -> Iterator[Problem]:
    found = local_files(config.path)
    if not found and looks_local(config.path):
        yield Problem(
            f"there is no file or folder {config.path!r}",
            "path",
            "a path that exists, relative to where the command is started, or a hub id",
        )
    elif not found and (not HUB_ID.fullmatch(config.path) or OUTSIDE.match(config.path)):
        yield Problem(f"{config.path!r} is no hub id", "path", "owner/name, or a local path")
    elif layout(config) == "files":
        if found and not (len(found) == 1 and os.path.isdir(found[0])):
            yield Problem(f"one file a sample, but {config.path!r} is no folder", "path", "a folder of files")
    elif found and not all(os.path.isdir(f) or Path(f).suffix in READERS for f in found):
        yield Problem(f"no reader for {config.path!r}", "path", f"a folder, or files in {', '.join(READERS)}")
    if found and config.revision is not None:
        yield Problem(
            f"the local path {config.path!r} has no revision", "revision", "a hub id as path, or none"
        )
    if found and not os.path.isdir(found[0]):
        for name in ("files", "subset"):
            if getattr(config, name):
                yield Problem(f"{name} means nothing beside a file", name, "a folder or a hub id as path")
    for split, pattern in config.files.items():
        if OUTSIDE.match(pattern):
            yield Problem(f"{pattern!r} leads out of {config.path!r}", f"files.{split}", "a file below path")
    suffixes = {Path(pattern).suffix for pattern in config.files.values()}
    known = suffixes | {Path(f).suffix for f in found if not os.path.isdir(f)}
    if config.quoting != "auto" and known and not known & {".csv", ".tsv"}:
        which = ", ".join(sorted(known))
        yield Problem(f"quoting means nothing for {which} files", "quoting", "only with .csv or .tsv")
    if not config.header and known and not known & {".csv", ".tsv"}:
        which = ", ".join(sorted(known))
        yield Problem(f"header means nothing for {which} files", "header", "only with .csv or .tsv")
    if len(suffixes) > 1 or not suffixes <= set(READERS):
        yield Problem(
            f"files in {', '.join(sorted(suffixes))}",
            "files",
            f"one of {', '.join(READERS)}, the same for all",
        )


def _check_target_fields(target: Target) -> Iterator[Problem]:
    """Fields of a target that mean nothing for its kind."""
    for f in fields(Target):
        owners = ("text", "span") if f.name == "overlong" else ("text",)
        named = f.name not in ("column", "kind") and getattr(target, f.name) != f.default
        if named and target.kind not in owners:
            found = f"{f.name} means nothing for a target of kind {target.kind}"
            yield Problem(found, f"target.{f.name}", f"only with kind: {' or '.join(owners)}")


def _check_texts(config: Hub, columns: dict[str, Input], target: Target) -> Iterator[Problem]:
    """The rules of what is made of texts alone, and held in memory."""
    kind, what = target.kind, f"target.kind: {target.kind}" if target.kind in HELD else "marked"
    for name, options in columns.items():
        if options.kind not in ("auto", "text"):
            yield Problem(f"{what} reads no {options.kind}", f"{_place(config, name)}.kind", "text")
        if kind in ("next", "masked") and options.length is None:
            yield Problem("the length of a sample is missing", f"inputs.{name}.length", "symbols in a sample")
    most = 2 if kind == "span" or (config.marked and kind not in HELD) else 1
    if len(columns) > most:
        yield Problem(
            f"{len(columns)} inputs with {what}", "inputs", ("one text column", "one or two")[most - 1]
        )
    if config.memory == "never":
        for_whom = "text for a language model" if kind == "next" else f"text with {what}"
        yield Problem(f"{for_whom} is held in memory", "memory", "auto or always")
    if config.marked and kind in ("next", "text"):
        yield Problem(f"{what} has marks of its own", "marked", "false")
    if kind in ("next", "masked") and target_columns(target):
        found = "the next symbol comes" if kind == "next" else "hidden symbols come"
        yield Problem(f"{found} from the input", "target.column", f"no column with kind: {kind}")
    if not told(kind):
        message = "hidden symbols and answers are specs of pegboard-transformer, which is not installed"
        yield Problem(message, "target.kind", hint="pip install pegboard-transformer")
    if kind == "span" and not config.marked:
        yield Problem("answers need a place for none, the <cls> before the texts", "marked", "true")
    if kind == "span" and len(target_columns(target)) > 2:
        yield Problem(
            "an answer in more than two columns", "target.column", "start and text, or start and end"
        )
    yield from _check_lengths(config, columns, kind)
    if kind == "text" and columns:
        yield from _check_text_target(config, target)
    first, *others = columns.items()
    for name, options in others if most == 2 else ():
        for field in SYMBOLS:
            said = getattr(options, field)
            if said not in (getattr(Input(), field), getattr(first[1], field)):
                where = f"{_place(config, name)}.{field}"
                yield Problem(
                    f"joined texts have one vocabulary, and {first[0]!r} says another {field}",
                    where,
                    f"{getattr(first[1], field)} as there, or nothing",
                )


def _check_lengths(config: Hub, columns: dict[str, Input], kind: str) -> Iterator[Problem]:
    """Room for marks and one symbol at least."""
    if not (config.marked or kind in ("masked", "text")):
        return
    marks = [2, 1] if kind != "text" else [1]
    for (name, options), used in zip(columns.items(), marks, strict=False):
        least = SHORTEST if kind == "masked" else used + 1
        if options.length is not None and options.length < least:
            where = f"{_place(config, name)}.length"
            yield Problem(f"length {options.length} has no room beside the marks", where, f"at least {least}")


def _check_text_target(config: Hub, target: Target) -> Iterator[Problem]:
    for problem in _check_symbols(target_input(config)):
        yield Problem(problem.message, f"target.{problem.field}", problem.expected, problem.hint)
    source = next(iter(columns_of(config).values()))
    for field in SYMBOLS if target.shared else ():
        if getattr(target, field) not in (None, getattr(source, field)):
            found = f"a shared vocabulary, but the input says another {field}"
            yield Problem(found, f"target.{field}", f"{getattr(source, field)} as there, or nothing")


def _check_vocabulary(config: Hub) -> Iterator[Problem]:
    if config.vocabulary is None:
        return
    if not (Path(config.vocabulary).expanduser() / "data" / PIPELINE).is_file():
        yield Problem(
            f"{config.vocabulary!r} has no data/{PIPELINE}",
            "vocabulary",
            "the folder of a run that was trained on text of hub",
        )
    for name, options in columns_of(config).items():
        for field in SYMBOLS:
            if getattr(options, field) != getattr(Input(), field):
                where = f"{_place(config, name)}.{field}"
                yield Problem(f"{field} is that of the vocabulary's run", where, "nothing beside vocabulary")
    for field in SYMBOLS:
        if getattr(target_of(config), field) is not None:
            yield Problem(
                f"{field} is that of the vocabulary's run", f"target.{field}", "nothing beside vocabulary"
            )
