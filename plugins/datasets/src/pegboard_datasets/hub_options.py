"""Config of `hub`, what it says of the data without reading them, and the rules between fields."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Literal

from pegboard import (
    Classes,
    DataSpec,
    Facts,
    Ge,
    Image,
    Labels,
    Length,
    Problem,
    Spec,
    Tokens,
    Values,
    Vector,
)

from .options import ClassCut, ValueCut, check_cut

InputKind = Literal["auto", "image", "numbers", "category", "text"]
TargetKind = Literal["auto", "classes", "labels", "values", "next"]
Memory = Literal["auto", "always", "never"]
Pixels = Annotated[int, Ge(1)]
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
HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")
OUTSIDE = re.compile(r"[/~\\]|.*(://|(^|[/\\])\.\.([/\\]|$))")  # leads out of the folder it is below
BYTES = 256  # symbols a byte-level tokenizer begins with
PADDING = 0  # the number of the symbol that fills up a text


@dataclass(frozen=True, kw_only=True)
class Input:
    """How a column becomes an input of the model."""

    kind: InputKind = "auto"  # auto goes by the column's own type
    size: tuple[Pixels, Pixels] | None = None  # image: height and width it is brought to; None as it is
    channels: Literal[1, 3] | None = None  # image: 1 grey, 3 colour; None as the first picture
    tokens: Symbols = "words"  # text: what a symbol is; the last three are trained tokenizers
    vocab: Annotated[int, Ge(2)] | None = None  # text: most symbols; None: all, or 8192 of a tokenizer
    length: Annotated[int, Ge(1)] | None = None  # text: symbols in a sample; None: the longest in training
    lowercase: bool = False  # text: before anything else
    unknown: bool = True  # text: a symbol for what training never showed; false makes it an error


@dataclass(frozen=True, kw_only=True)
class Target:
    """What the model predicts."""

    column: str | tuple[str, ...] = ()  # one column, or several values or 0/1 labels; none for next
    kind: TargetKind = "auto"  # auto goes by the column's own type; next is the text shifted by one


@dataclass(frozen=True, kw_only=True)
class SplitNames:
    """The splits of the source that serve; `auto` goes by the usual names, `cut` takes a share of train."""

    train: str = "auto"  # auto: train, or the only split there is
    val: str = "auto"  # auto: validation, valid, val or dev where there is one, else cut
    test: str = "auto"  # auto: test where there is one, else cut


@dataclass(frozen=True, kw_only=True)
class Hub(ClassCut, ValueCut):
    """Any data set of the Hugging Face hub, or local csv, json, parquet, text and picture files.

    Columns of numbers and categories are joined to one vector; every image and text is an input.
    """

    path: str  # hub id, folder, file or pattern of files; ids are sought in $PEGBOARD_DATA/hub first
    inputs: Annotated[dict[str, Input] | tuple[str, ...], Length(1)]  # columns the model reads
    target: Target | str  # what it predicts
    subset: str | None = None  # configuration of a hub data set that has several
    revision: str | None = None  # branch, tag or commit of a hub data set
    files: dict[str, str] = field(default_factory=dict)  # split -> file or pattern below path
    splits: SplitNames = field(default_factory=SplitNames)  # which splits of the source serve
    eval_limit: Annotated[int, Ge(1)] | None = None  # samples kept of val and of test
    memory: Memory = "auto"  # hold the samples in memory: always, never (read batches), auto where they fit


def columns_of(config: Hub) -> dict[str, Input]:
    """The input columns, in order."""
    if isinstance(config.inputs, dict):
        return config.inputs
    return {name: Input() for name in config.inputs}


def target_of(config: Hub) -> Target:
    """The target."""
    return Target(column=config.target) if isinstance(config.target, str) else config.target


def target_columns(target: Target) -> tuple[str, ...]:
    """The columns of the target; none for the next symbol."""
    if isinstance(target.column, str):
        return (target.column,) if target.column else ()
    return target.column


def looks_local(path: str) -> bool:
    """Whether a path can only mean files of this machine."""
    return path.startswith((".", "/", "~")) or Path(path).suffix in READERS or "*" in path


def local_files(path: str) -> list[str]:
    """The files or the folder that a path means, sorted; empty where there are none."""
    path = os.path.expanduser(path)
    return [path] if os.path.exists(path) else sorted(glob.glob(path, recursive=True))


def input_names(config: Hub, kinds: dict[str, str]) -> tuple[str, ...]:
    """Names of the model's inputs: a vector stands where its first column stands."""
    joined = [name for name in kinds if kinds[name] in ("numbers", "category")]
    taken = "features" in kinds and "features" not in joined
    vector = joined[0] if len(joined) == 1 else ("numbers" if taken else "features")
    return tuple(dict.fromkeys(vector if name in joined else name for name in kinds))


def hub_spec(config: Hub) -> DataSpec | None:
    """What is known without reading: types where every kind is given, sizes where the config has them."""
    columns, target = columns_of(config), target_of(config)
    kinds: dict[str, str] = {name: c.kind for name, c in columns.items()}
    if target.kind == "next":
        kinds = dict.fromkeys(kinds, "text")
    if "auto" in kinds.values() or target.kind == "auto":
        return None
    specs: list[Spec] = []
    for name in input_names(config, kinds):
        options = columns.get(name, Input())
        height, width = options.size or (None, None)
        match kinds.get(name, "numbers"):
            case "image":
                specs.append(Image(options.channels, height, width))
            case "text":
                specs.append(Tokens(None, options.length, -1 if target.kind == "next" else PADDING))
            case _:
                specs.append(Vector(None))
    targets: dict[str, Spec] = {
        "classes": Classes(),
        "labels": Labels(),
        "values": Values(),
        "next": specs[0],
    }
    return DataSpec(tuple(specs), targets[target.kind], input_names(config, kinds))


def check_hub(config: Hub, facts: Facts) -> Iterable[Problem]:
    """What can be seen without reading data."""
    yield from check_cut(config, facts)
    yield from _check_path(config)
    columns, target = columns_of(config), target_of(config)
    for name, options in columns.items():
        where = f"inputs.{name}" if isinstance(config.inputs, dict) else "inputs"
        for problem in misplaced(options, options.kind):
            yield Problem(problem.message, f"{where}.{problem.field}", problem.expected, problem.hint)
    names = target_columns(target)
    if target.kind == "next":
        yield from _check_next(columns, names)
        if config.memory == "never":
            yield Problem("text for a language model is held in memory", "memory", "auto or always")
    elif not names:
        yield Problem("the target names no column", "target.column", "a column", "or kind: next for text")
    if config.labelled < 1 and target.kind not in ("auto", "classes"):
        yield Problem(f"a target of {target.kind} has no labels to hide", "labelled", "1, or kind: classes")
    if len(names) > 1 and target.kind not in ("values", "labels"):
        yield Problem(f"{len(names)} columns as one target", "target.kind", "values or labels")
    for name in sorted(set(names) & set(columns)):
        yield Problem(f"column {name!r} is both an input and the target", "target.column", "another column")


def misplaced(options: Input, kind: str) -> Iterator[Problem]:
    """Fields that mean nothing for a column of this kind, and values that cannot go together."""
    belongs = {"size": "image", "channels": "image"}
    for f in fields(Input):
        owner = belongs.get(f.name, "text")
        if kind not in ("auto", owner) and f.name != "kind" and getattr(options, f.name) != f.default:
            yield Problem(f"{f.name} means nothing for a column of {kind}", f.name, f"only with {owner}")
    if kind not in ("auto", "text"):
        return
    if options.tokens == "bpe" and options.vocab is not None and options.vocab < BYTES + 2:
        yield Problem(
            f"vocab {options.vocab} is too small: bpe begins with every byte",
            "vocab",
            f"at least {BYTES + 2}",
        )
    if options.tokens in ("wordpiece", "unigram") and not options.unknown:
        yield Problem(f"{options.tokens} cannot do without an unknown symbol", "unknown", "true")


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
    if len(suffixes) > 1 or not suffixes <= set(READERS):
        yield Problem(
            f"files in {', '.join(sorted(suffixes))}",
            "files",
            f"one of {', '.join(READERS)}, the same for all",
        )


def _check_next(columns: dict[str, Input], names: tuple[str, ...]) -> Iterator[Problem]:
    if names:
        yield Problem("the next symbol comes from the input", "target.column", "no column with kind: next")
    if len(columns) != 1:
        yield Problem(f"{len(columns)} inputs", "inputs", "one text column with target.kind: next")
    for name, options in columns.items():
        if options.kind not in ("auto", "text"):
            yield Problem(f"{options.kind} has no next symbol", f"inputs.{name}.kind", "text")
        if options.length is None:
            yield Problem("the length of a sample is missing", f"inputs.{name}.length", "symbols in a sample")
