"""Where the rows of `hub` come from: the hub, its local mirror, or files."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy

from .hub_options import READERS, Hub, layout, local_files, looks_local, wanted_columns
from .mistakes import mistake, nearest, unknown
from .quoting import SEPARATORS, UNQUOTED, Quotes, insist_on_header, names_of, quotes_in, told
from .quoting import choose as choose_quoting
from .rows import Rows

PACKED = {
    b"PK\x03\x04": "zip",
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ\x00": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "lz4",
    b"7z\xbc\xaf\x27\x1c": "7-zip",
    b"Rar!": "rar",
}
STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
DEEPEST = 200  # levels of nesting in JSON
ROWS = "files with rows in them, which can be read"
HUB = "an id of the Hugging Face hub, or a path of files that can be read"
NAMES = {"val": ("validation", "valid", "val", "dev"), "test": ("test",)}


@dataclass(frozen=True)
class Loaded:
    """The splits of a source by their own names."""

    splits: dict[str, Rows]
    source: str
    licence: str
    folder: Path  # paths of pictures are relative to it
    warnings: tuple[str, ...] = ()  # what a person should know of the files


def load(config: Hub) -> Loaded:
    """Load what the config names; nothing is downloaded where it stands in the mirror or is local."""
    files = local_files(config.path)
    if layout(config) == "files":
        if not (len(files) == 1 and os.path.isdir(files[0])):
            raise mistake(f"there is no folder {config.path!r}", "a folder in which each file is a sample")
        from .series_files import read_folder

        splits, warnings = read_folder(Path(files[0]), config)
        return Loaded(splits, config.path, "not stated", Path(files[0]), tuple(warnings))
    if files and not (len(files) == 1 and os.path.isdir(files[0])):
        return _read_files({"train": files}, config, Path(files[0]).parent)
    if files:
        return _load_folder(Path(files[0]), config)
    if looks_local(config.path):
        raise mistake(f"there is no file or folder {config.path!r}", "a path that exists, or a hub id")
    root = os.environ.get("PEGBOARD_DATA")
    if root and (mirror := Path(root, "hub", config.path)).is_dir():
        return _load_folder(mirror, config, mirror=True)
    hint = "without a network, PEGBOARD_DATA=folder finds an id in folder/hub"
    if root:
        there = sorted(f"{folder.parent.name}/{folder.name}" for folder in Path(root, "hub").glob("*/*"))
        hint = f"PEGBOARD_DATA has no {config.path!r} in {root}/hub{nearest(config.path, there)}"
    options: dict[str, Any] = {"name": config.subset, "revision": config.revision}
    if not config.header:
        raise mistake(f"header means nothing for {config.path!r}, a hub id", "header: true")
    options["data_files"] = config.files or None
    options["quoting"] = UNQUOTED if config.quoting == "none" else None
    return _loaded(_call(config.path, config.path, expected=HUB, hint=hint, **options), config, Path())


def _load_folder(folder: Path, config: Hub, mirror: bool = False) -> Loaded:
    for path in (*folder.rglob("*.json"), *folder.rglob("*.jsonl")):
        if path.is_file() and nested_deeper(path, DEEPEST):
            raise mistake(f"{str(path)!r} is nested deeper than {DEEPEST} levels", "a table of rows")
    if config.files:
        found = {split: local_files(str(folder / pattern)) for split, pattern in config.files.items()}
        for split, paths in found.items():
            if not paths:
                raise mistake(f"files.{split}: no file {config.files[split]!r} in {str(folder)!r}")
        return _read_files(found, config, folder)
    subset = config.subset
    if subset is not None:
        import datasets  # type: ignore[import-untyped]

        known = datasets.get_dataset_config_names(str(folder))
        if subset not in known:
            # A mirror of one subset alone has no names for them.
            if not mirror or known != ["default"]:
                raise unknown("subset", subset, known)
            subset = None
    tables = _tables_in(folder, subset)
    if config.quoting != "auto" and not tables:
        raise mistake(
            f"quoting means nothing: {str(folder)!r} has other files than csv and tsv", "quoting: auto"
        )
    enclosing, warnings, quotes = _quotes(tables, config)
    quoting = None if enclosing or not tables else UNQUOTED
    if not config.header and not tables:
        raise mistake(
            f"header means nothing: {str(folder)!r} has other files than csv and tsv", "header: true"
        )
    names = _column_names(tables, config)
    splits = _call(config.path, str(folder), name=subset, quoting=quoting, column_names=names)
    return _loaded(splits, config, folder, (*warnings, *_quotes_told(quotes, splits, enclosing, config)))


def _tables_in(folder: Path, subset: str | None) -> dict[str, list[str]]:
    """The csv and tsv files that `datasets` takes from a folder, by split; none where it takes others."""
    if not any(path.suffix in SEPARATORS for path in folder.rglob("*")):
        return {}
    import datasets

    try:
        builder = datasets.load_dataset_builder(str(folder), name=subset)
    except Exception:  # loading says what is wrong
        return {}
    files = {str(split): [*map(str, paths)] for split, paths in (builder.config.data_files or {}).items()}
    suffixes = {Path(path).suffix for paths in files.values() for path in paths}
    return files if suffixes and suffixes <= SEPARATORS.keys() else {}


Found = Mapping[str, Mapping[str, Quotes]]  # split -> file -> its quotes


def _quotes(files: Mapping[str, Sequence[str]], config: Hub) -> tuple[bool, tuple[str, ...], Found]:
    """Whether quotes enclose values in csv and tsv files, what is to be said of it, and what was found."""
    found = {split: {path: quotes_in(path) for path in paths} for split, paths in files.items()}
    together = {path: quotes for of in found.values() for path, quotes in of.items()}
    enclosing, warning = choose_quoting(config.quoting, together)
    return enclosing, (warning,) if warning else (), found


def _quotes_told(found: Found, splits: Any, enclosing: bool, config: Hub) -> list[str]:
    if not enclosing:
        return []
    there = {split: of for split, of in found.items() if split in splits}
    return [line for split, of in there.items() for line in told(of, len(splits[split]), config.header)]


def _column_names(files: Mapping[str, Sequence[str]], config: Hub) -> list[str] | None:
    """The names of columns that csv and tsv files do not name; None where their first line does."""
    paths = [path for of in files.values() for path in of]
    if paths and not config.header:
        return names_of(paths[0])
    for path in paths:
        insist_on_header(path, wanted_columns(config))
    return None


def _read_files(files: Mapping[str, list[str]], config: Hub, folder: Path) -> Loaded:
    suffixes = sorted({Path(path).suffix for paths in files.values() for path in paths})
    if len(suffixes) != 1 or suffixes[0] not in READERS:
        raise mistake(f"files in {', '.join(suffixes)}", f"one of {', '.join(READERS)}, the same for all")
    for path in (path for paths in files.values() for path in paths):
        if kind := _packed(path):
            # `datasets` unpacks by the first bytes, whatever the name says and however much comes out.
            raise mistake(f"{path!r} is a {kind} file", f"a plain {suffixes[0]} file", "unpack it first")
        if READERS[suffixes[0]] == "json" and nested_deeper(Path(path), DEEPEST):
            raise mistake(f"{path!r} is nested deeper than {DEEPEST} levels", "a table of rows")
    more: dict[str, Any] = {"sep": "\t"} if suffixes[0] == ".tsv" else {}
    enclosing, warnings, found = _quotes(files if suffixes[0] in SEPARATORS else {}, config)
    if found and not enclosing:
        more["quoting"] = UNQUOTED
    more["column_names"] = _column_names(files, config) if found else None
    first = next(iter(files.values()))[0]
    splits = _call(first, READERS[suffixes[0]], data_files={k: list(v) for k, v in files.items()}, **more)
    return _loaded(splits, config, folder, (*warnings, *_quotes_told(found, splits, enclosing, config)))


def _packed(path: str) -> str:
    """The kind of compression of a file, by its first bytes."""
    try:
        with open(path, "rb") as file:
            head = file.read(6)
    except OSError as error:
        raise mistake(f"{path!r} cannot be read: {error.strerror or error}") from None
    return next((kind for magic, kind in PACKED.items() if head.startswith(magic)), "")


def nested_deeper(path: Path, limit: int) -> bool:
    """Whether JSON has more levels than a limit, without parsing it: deep nesting overflows the parser."""
    with path.open("rb") as file:
        if not _deeper(iter(lambda: file.read(2**20), b""), limit):
            return False
    return _deeper([STRING.sub(b"", path.read_bytes())], limit)  # brackets in texts are no levels


def _deeper(chunks: Iterable[bytes], limit: int) -> bool:
    depth = 0
    for chunk in chunks:
        signs = numpy.frombuffer(chunk, numpy.uint8)
        steps = ((signs == 91) | (signs == 123)).astype(numpy.int32) - ((signs == 93) | (signs == 125))
        if depth + int(steps.cumsum().max(initial=0)) > limit:
            return True
        depth += int(steps.sum())
    return False


def _call(shown: str, path: str, *, expected: str = ROWS, hint: str = "", **options: Any) -> Any:
    import datasets

    try:
        with _no_errors_logged():
            return datasets.load_dataset(path, **{k: v for k, v in options.items() if v is not None})
    except Exception as error:  # whatever the library or the network says, a person reads it here
        cause = f" ({_said(error.__cause__)})" if error.__cause__ else ""
        raise mistake(f"{shown!r} could not be loaded: {_said(error)}{cause}", expected, hint) from error


@contextmanager
def progress_bars(shown: bool) -> Iterator[None]:
    """Whether `datasets` shows bars inside; as it was before afterwards."""
    import datasets

    before = datasets.is_progress_bar_enabled()
    if before and not shown:
        datasets.disable_progress_bars()
    try:
        yield
    finally:
        if before and not shown:
            datasets.enable_progress_bars()


@contextmanager
def _no_errors_logged() -> Iterator[None]:
    """`datasets` logs no error inside: it raises it as well, and it is told then."""
    handlers = list(logging.getLogger("datasets").handlers)
    for handler in handlers:
        handler.addFilter(_below_error)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(_below_error)


def _below_error(record: logging.LogRecord) -> bool:
    return record.levelno < logging.ERROR


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def _loaded(splits: Any, config: Hub, folder: Path, warnings: tuple[str, ...] = ()) -> Loaded:
    rows = {str(name): Rows(data, str(name)) for name, data in splits.items()}
    licences = {data.info.license for data in splits.values() if data.info.license}
    return Loaded(rows, config.path, ", ".join(sorted(licences)) or "not stated", folder, warnings)


def choose(loaded: Loaded, config: Hub) -> tuple[Rows, Rows | None, Rows | None]:
    """The splits of the source that train, validate and test; None where a share is to be cut."""
    wanted, splits = config.splits, loaded.splits
    if wanted.train != "auto":
        train = _named(splits, wanted.train, "train")
    elif len(splits) == 1:
        train = next(iter(splits.values()))
    else:
        train = _named(splits, "train", "train")
    others = []
    for role, name in (("val", wanted.val), ("test", wanted.test)):
        if name == "auto":
            name = next((n for n in NAMES[role] if n in splits and splits[n] is not train), "cut")
        others.append(None if name == "cut" else _named(splits, name, role))
    return train, others[0], others[1]


def pooled(train: Rows, val: Rows) -> Rows:
    """The rows of two splits as those of one."""
    import datasets

    try:
        both = datasets.concatenate_datasets([train.data, val.data])
    except Exception as error:  # their columns differ, in whatever way
        raise mistake(
            f"splits {train.split!r} and {val.split!r} do not fit together: {_said(error)}",
            "columns of the same types, of which folds are cut",
            "splits: {val: cut} leaves the second out",
        ) from error
    return Rows(both, f"{train.split}+{val.split}")


def _named(splits: Mapping[str, Rows], name: str, role: str) -> Rows:
    if name not in splits:
        raise unknown("split", name, splits, hint=f"name one with splits: {{{role}: ...}}")
    return splits[name]
