"""A config with the files it extends and the overrides of the command line, as one tree.

Files named by `extends` are merged left to right, then the file itself, then the command line.
Nothing here raises on a bad config: what is wrong is noted, and `check` reports it with the rest.
"""

from __future__ import annotations

import numbers
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..base.files import follow
from ..base.nearest import nearest
from .accepted_types import is_module, module_hint, refuse_source, refuse_words
from .dump import to_yaml as to_yaml
from .errors import ConfigError, Mistake, join, listed, shown
from .interpolate import interpolate
from .merge import as_mapping, merge, part_at
from .nodes import Origin
from .overrides import overrides as parse
from .sections import top_keys
from .yaml_reader import DEEPEST, LARGEST, Node, bare, read

_HALF = re.compile("[\ud800-\udfff]")
Source = str | os.PathLike[str] | Mapping[str, Any]


@dataclass(kw_only=True)
class Loaded:
    """A merged config: plain data, and where everything in it was written."""

    tree: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, Origin] = field(default_factory=dict)  # dotted path -> where the key stands
    values: dict[str, Origin] = field(default_factory=dict)  # dotted path -> where the value stands
    blank: set[str] = field(default_factory=set)  # keys with nothing after their colon
    written: dict[str, str] = field(default_factory=dict)  # interpolations as they were written
    mistakes: list[Mistake] = field(default_factory=list)
    complete: bool = True  # False where a file could not be read
    file: Path | None = None

    @property
    def title(self) -> str:
        return str(self.file) if self.file else "the config"

    def locate(self, path: str, *, at_key: bool = False) -> Origin:
        """Where a path was written; of one that was not, where the nearest key around it was."""
        steps = path.split(".")
        if not at_key and path in self.values:
            return self.values[path]
        while steps:
            if (name := ".".join(steps)) in self.origins:
                return self.origins[name]
            steps.pop()
        return Origin(file=str(self.file), line=1, column=1) if self.file else Origin()


def load(source: Source, overrides: Sequence[str] = (), inside: Path | None = None) -> Loaded:
    """Read a file or a mapping, with what it extends and what the command line changes.

    Of a file from a stranger, what it extends has to be `inside` a folder.
    """
    refuse_source(source)
    refuse_words(overrides)
    files = _Files(inside)
    loaded = Loaded(mistakes=files.mistakes)
    if isinstance(source, Mapping):
        root = files.extended(_python(source, (), files.mistakes), Path.cwd(), ())
    else:
        loaded.file = follow(Path(source))
        root = files.open(loaded.file, (), Origin(file=str(loaded.file)))
    words, wrong = parse(overrides)
    loaded.mistakes += wrong
    loaded.complete = files.complete
    change = Node({})
    for word in words:
        change = _join(change, word)
    root = merge(root, change)
    loaded.tree = _flatten(root, "", loaded)
    loaded.written, unresolved = interpolate(loaded.tree)
    loaded.mistakes += unresolved
    return loaded


def load_part(section: str, name: str, words: Sequence[str]) -> Loaded:
    """A section with one part in it, its name and the words `field=value` from the command line."""
    nodes, wrong = parse(words)
    part = Node({"name": Node(name, Origin(word=name), Origin(word=name))})
    for node in nodes:
        part = _join(part, node, (section,))
    loaded = Loaded(mistakes=wrong)
    loaded.tree = {section: _flatten(part, section, loaded)}
    loaded.origins[section] = Origin(word=name)
    return loaded


def _join(base: Node, over: Node, path: tuple[str, ...] = ()) -> Node:
    """Overrides put together without regard to their order: `model.depth=3 model.name=x`."""
    if part_at(path) is not None:
        base, over = as_mapping(base, path), as_mapping(over, path)
    if not (isinstance(base.value, dict) and isinstance(over.value, dict)):
        return over
    joined = dict(base.value)
    for key, node in over.value.items():
        joined[key] = _join(joined[key], node, (*path, key)) if key in joined else node
    return Node(joined, over.at, over.key)


def read_yaml(path: str | os.PathLike[str], inside: Path | None = None) -> dict[str, Any]:
    """The tree of a config file with what it extends; a file that cannot be read raises ConfigError."""
    loaded = load(path, inside=inside)
    if loaded.mistakes:
        raise ConfigError([locate(m, loaded) for m in loaded.mistakes], loaded.title)
    return loaded.tree


def locate(mistake: Mistake, loaded: Loaded) -> Mistake:
    """A mistake with where it was written."""
    if mistake.origin is not None:
        return mistake
    return replace(mistake, origin=loaded.locate(mistake.path, at_key=mistake.at_key))


class _Files:
    """Reads each file once, follows `extends`, notes what is wrong."""

    def __init__(self, inside: Path | None = None) -> None:
        self.inside = None if inside is None else _real(inside)
        self.mistakes: list[Mistake] = []
        self.complete = True
        self.done: dict[str, Node] = {}

    def open(self, path: Path, chain: tuple[Path, ...], origin: Origin) -> Node:
        """The values of a file and of all that it extends; empty where it cannot be read."""
        real = _real(path)
        if any(_real(p) == real for p in chain):
            steps = " -> ".join(str(p) for p in (*chain, path))
            self.fail(f"'extends' leads back to itself: {steps}", "take one of these out", origin, "extends")
            return Node({})
        if real not in self.done:
            node = self.read(path, origin, named=str(path) == origin.file and not origin.line)
            self.done[real] = self.extended(node, path.parent, (*chain, path))
        return self.done[real]

    def fail(self, message: str, hint: str, origin: Origin, path: str = "", near: str = "") -> None:
        self.complete = False
        self.mistakes.append(
            Mistake(path=path, message=message, hint=hint, nearest=(near,) if near else (), origin=origin)
        )

    def read(self, path: Path, origin: Origin, named: bool) -> Node:
        """The values of a file; of one that is no config, and that nobody `named`, nothing is shown.

        A config from a stranger may extend any file of the reader's, and messages end in logs.
        """
        try:
            data = _bytes(path) if path.is_file() else None
        except (OSError, ValueError) as error:
            self.fail(f"cannot read {str(path)!r}: {getattr(error, 'strerror', None) or error}", "", origin)
            return Node({})
        if data is None:
            self.absent(path, origin)
            return Node({})
        node, found = read(data, lambda line, column: Origin(file=str(path), line=line, column=column))
        if not named and not _is_config(path, data, node, found):
            at = next((m.origin for m in found if m.origin is not None), None)
            where = f" (line {at.line}, column {at.column})" if at is not None else ""
            why = f"it cannot be read{where}" if node is None else "it has no key of one"
            hint = f"a config has keys as {', '.join(top_keys()[2:5])}"
            self.fail(f"{str(path)!r} is not a config: {why}", hint, origin, "extends")
            return Node({})
        self.mistakes += found
        if node is None:
            self.complete = False
            return Node({})
        if not isinstance(node.value, dict):
            if node.value is not None:
                hint = "write a space after the colon" if ":" in str(node.value) else "write 'key: value'"
                self.fail(
                    f"a config is a mapping of keys to values, found {shown(bare(node))}", hint, node.at
                )
            return Node({}, node.at)
        return node

    def absent(self, path: Path, origin: Origin) -> None:
        """Note that there is no such file, with the files that were perhaps meant."""
        where = "" if Path(origin.file) == path and not origin.line else "extends"
        if path.is_dir():
            inside = _configs(path)
            hint = f"configs in it: {listed(inside)}" if inside else "name a file"
            self.fail(f"{str(path)!r} is a folder, not a config", hint, origin, where)
            return
        folder = path.parent
        if not folder.is_dir():
            near = nearest(folder.name, _folders(folder.parent))
            hint = f"there is no folder {str(folder)!r}"
            meant = str(folder.parent / near[0] / path.name) if near else ""
            self.fail(f"no file {str(path)!r}", hint, origin, where, meant)
            return
        names = _configs(folder)
        stems = {Path(n).stem: n for n in names}
        near = [stems[s] for s in nearest(path.stem, stems)]
        hint = f"configs in {str(folder)!r}: {listed(names)}" if names else f"no configs in {str(folder)!r}"
        meant = "" if not near else (near[0] if where else str(folder / near[0]))
        self.fail(f"no file {str(path)!r}", hint, origin, where, meant)

    def extended(self, node: Node, folder: Path, chain: tuple[Path, ...]) -> Node:
        """A file's values laid over those of the files that it extends."""
        if not isinstance(node.value, dict) or "extends" not in node.value:
            return node
        own = {k: v for k, v in node.value.items() if k != "extends"}
        listed_files = node.value["extends"]
        entries = listed_files.value if isinstance(listed_files.value, list) else [listed_files]
        base = Node({})
        for entry in entries:
            if entry.value is None and entry is listed_files:
                continue
            if not isinstance(entry.value, str):
                message = f"found {shown(bare(entry))}, expected the path of a config, or a list of paths"
                self.fail(message, "extends: [base.yaml]", entry.at, "extends")
                continue
            path = Path(os.path.normpath(folder / entry.value)) if chain else Path(entry.value)
            if self.inside is not None and not Path(_real(path)).is_relative_to(self.inside):
                message = f"'extends' leads to {str(path)!r}, out of the folder that the config came in"
                self.fail(message, "copy the values that are meant into the config", entry.at, "extends")
                continue
            base = merge(base, self.open(path, chain, entry.at))
        return merge(base, Node(own, node.at, node.key))


def _bytes(path: Path) -> bytes:
    """What a file holds, but no more than shows that it is too large."""
    with path.open("rb") as file:
        return file.read(LARGEST + 1)


def _is_config(path: Path, data: bytes, node: Node | None, found: Sequence[Mistake]) -> bool:
    """Whether a file is a config, or one with a mistake, rather than something else."""
    if node is not None and not node.value and not found:
        return True  # nothing but comments
    keys = node.value if node is not None and isinstance(node.value, dict) else {}
    if keys and all(key.isidentifier() for key in keys):
        return path.suffix in (".yaml", ".yml") or not {"extends", *top_keys()}.isdisjoint(keys)
    text = data.decode("utf-8", "replace")
    names = "|".join(("extends", *top_keys()))
    return re.search(rf"^(?:{names})[ \t]*:(?:\s|$)", text, re.MULTILINE) is not None


def _real(path: Path) -> str:
    try:
        return os.path.realpath(path)
    except ValueError:  # a null character in it
        return str(path)


def _configs(folder: Path) -> list[str]:
    try:
        return sorted(p.name for p in folder.iterdir() if p.suffix in (".yaml", ".yml") and p.is_file())
    except OSError:
        return []


def _folders(folder: Path) -> list[str]:
    try:
        return sorted(p.name for p in folder.iterdir() if p.is_dir())
    except OSError:
        return []


def _flatten(node: Node, path: str, loaded: Loaded) -> Any:
    """Plain data, with origins kept by dotted path."""
    if path:
        loaded.origins[path] = node.key or node.at
        loaded.values[path] = node.at
        if node.blank:
            loaded.blank.add(path)
    if isinstance(node.value, dict):
        flat = {}
        for key, value in node.value.items():
            if not _whole(key, path, value.key or value.at, loaded):
                continue
            at = join(path, key) if "." in key else f"{path}.{key}" if path else key
            short = isinstance(value.value, str | bool)  # perhaps the name of a part alone
            flat[key] = _flatten(_written_out(value, at) if short else value, at, loaded)
        return flat
    if isinstance(node.value, list):
        return [_flatten(v, f"{path}.{i}", loaded) for i, v in enumerate(node.value)]
    return node.value if _whole(node.value, path, node.at, loaded) else None


def _whole(value: Any, path: str, at: Origin, loaded: Loaded) -> bool:
    """Whether a value or key can be written to a file; a text with half of a character cannot."""
    if not isinstance(value, str) or _HALF.search(value) is None:
        return True
    message = f"found {shown(value)}, which has half of a character: no file can hold it"
    loaded.mistakes.append(Mistake(path=path, message=message, hint="write the text anew", origin=at))
    return False


def _written_out(node: Node, path: str) -> Node:
    steps = tuple(path.split("."))
    return as_mapping(node, steps) if part_at(steps) else node


def _python(value: Any, path: tuple[str, ...], mistakes: list[Mistake], around: tuple[int, ...] = ()) -> Node:
    """Data from Python as nodes: mappings, sequences, text and numbers."""
    message = hint = ""
    if isinstance(value, Mapping | list | tuple):
        if id(value) in around or len(around) > DEEPEST:
            message = "it contains itself, or is nested too deep"
        elif isinstance(value, Mapping):
            # Below the top, some mappings are keyed by numbers.
            keyed = {str(k) if path and type(k) is int else k: v for k, v in value.items()}
            mistakes += [
                Mistake(path=".".join(path), message=f"the key {key!r} is not a text")
                for key in keyed
                if not isinstance(key, str)
            ]
            inside = (*around, id(value))
            return Node(
                {k: _python(v, (*path, k), mistakes, inside) for k, v in keyed.items() if isinstance(k, str)}
            )
        else:
            inside = (*around, id(value))
            return Node([_python(v, (*path, str(i)), mistakes, inside) for i, v in enumerate(value)])
    elif value is None or isinstance(value, str | bool | int | float):
        return Node(value)
    elif isinstance(value, Path):
        return Node(str(value))
    elif isinstance(value, numbers.Real):  # a number of numpy's
        return Node(int(value) if isinstance(value, numbers.Integral) else float(value))
    else:
        message = f"found {shown(value)}, expected plain data: text, numbers, lists and mappings"
        hint = module_hint(value) if is_module(value) else ""
    mistakes.append(Mistake(path=".".join(path), message=message, hint=hint))
    return Node(None)
