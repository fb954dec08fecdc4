"""YAML text to values that know where they were written.

Scalars are those of YAML 1.2: `1e-3` is a number, only `true` and `false` are booleans, there are
no dates and no base-60 numbers. Tags are refused, so that reading a file never runs anything.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

from .errors import Mistake, shown
from .nodes import Origin
from .yaml_errors import explain

MOST_NODES = 50_000  # values in a config, aliases written out
DEEPEST = 60  # levels of nesting
LARGEST = 2**20  # bytes of a file

_BOOL = {word: word.lower() == "true" for word in ("true", "True", "TRUE", "false", "False", "FALSE")}
_SWITCHES = {"yes": True, "on": True, "no": False, "off": False}
_NULL = ("", "~", "null", "Null", "NULL")
_INT = re.compile(r"[-+]?[0-9]+")
_BASED = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_SPECIAL = re.compile(r"([-+]?)\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
NUMBER = re.compile(
    "(?:" + "|".join(f"(?:{form.pattern})" for form in (_INT, _BASED, _FLOAT, _SPECIAL)) + ")$"
)


@dataclass(slots=True)
class Node:
    """A value with where it and its key were written."""

    value: Any  # dict[str, Node], list[Node] or a scalar
    at: Origin = field(default_factory=Origin)
    key: Origin | None = None
    blank: bool = False  # nothing at all was written after the key


def wrap(value: Any) -> Node:
    """Plain data as nodes without origins."""
    if isinstance(value, dict):
        return Node({k: wrap(v) for k, v in value.items()})
    return Node([wrap(v) for v in value]) if isinstance(value, list) else Node(value)


def bare(node: Node) -> Any:
    """The plain data in a node."""
    if isinstance(node.value, dict):
        return {k: bare(v) for k, v in node.value.items()}
    return [bare(v) for v in node.value] if isinstance(node.value, list) else node.value


class _Loader(yaml.SafeLoader):
    """Composes nodes, and remembers which of them were written with a tag.

    An interpolation may stand without quotes inside brackets too: `{lr: ${base}}`.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.tags: dict[int, str] = {}

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        tag = getattr(self.peek_event(), "tag", None)  # type: ignore[no-untyped-call]
        node = super().compose_node(parent, index)
        if tag is not None:
            self.tags[id(node)] = tag
        return node

    def scan_plain(self) -> yaml.ScalarToken:
        length = self._interpolated() if self.flow_level else 0
        if not length:
            return super().scan_plain()
        start = self.get_mark()
        text = self.prefix(length)
        self.forward(length)
        return yaml.ScalarToken(text.rstrip(), True, start, self.get_mark())

    def _interpolated(self) -> int:
        """How long the text here is that contains an interpolation and ends where its bracket does."""
        length = depth = seen = 0
        while (char := self.peek(length)) not in "\0\r\n":
            if char == "{" and length and self.peek(length - 1) == "$":
                depth, seen = depth + 1, 1
            elif char == "}" and depth:
                depth -= 1
            elif not depth and (char in ",[]{}" or (char == ":" and self.peek(length + 1) in " \0\r\n")):
                break
            length += 1
        return length if seen and not depth else 0


def read(
    data: bytes, place: Callable[[int, int], Origin], path: tuple[str, ...] = ()
) -> tuple[Node | None, list[Mistake]]:
    """The values in a YAML text; None where it cannot be read at all.

    `place` turns a line and a column, both from 1, into an origin; `path` is where in a config the text is.
    """
    if len(data) > LARGEST:
        return None, [Mistake(path="", message=f"larger than {LARGEST // 2**20} MiB", origin=place(1, 1))]
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        origin = place(before.count(b"\n") + 1, error.start - (before.rfind(b"\n") + 1) + 1)
        message = f"not a UTF-8 text: found the byte 0x{data[error.start]:02x}"
        return None, [Mistake(path="", message=message, hint="save the file as UTF-8", origin=origin)]
    try:
        loader = _Loader(text)
        try:
            root = loader.get_single_node()
        finally:
            loader.dispose()
        if root is None:
            return Node({}, place(1, 1)), []
        builder = _Builder(loader.tags, place)
        return builder.node(root, path), builder.mistakes
    except yaml.YAMLError as error:
        line, column, message, hint = explain(error, text)
        return None, [Mistake(path="", message=message, hint=hint, origin=place(line, column))]
    except RecursionError:
        return None, [Mistake(path="", message=f"nested deeper than {DEEPEST} levels", origin=place(1, 1))]
    except _TooMuchError as error:
        return None, [Mistake(path="", message=str(error), origin=error.origin)]


class _TooMuchError(Exception):
    def __init__(self, message: str, origin: Origin) -> None:
        super().__init__(message)
        self.origin = origin


class _Builder:
    """Turns YAML's nodes into ours; aliases are written out, tags and odd keys noted."""

    def __init__(self, tags: dict[int, str], place: Callable[[int, int], Origin]) -> None:
        self.tags, self.place = tags, place
        self.mistakes: list[Mistake] = []
        self.count = 0
        self.open: list[int] = []  # the nodes around this one, to see an alias to itself

    def origin(self, node: yaml.Node) -> Origin:
        return self.place(node.start_mark.line + 1, node.start_mark.column + 1)

    def note(self, node: yaml.Node, path: tuple[str, ...], message: str, hint: str = "") -> None:
        self.mistakes.append(
            Mistake(path=".".join(path), message=message, hint=hint, origin=self.origin(node))
        )

    def node(self, node: yaml.Node, path: tuple[str, ...]) -> Node:
        at = self.origin(node)
        self.count += 1
        if self.count > MOST_NODES:
            raise _TooMuchError(f"more than {MOST_NODES} values once its aliases are written out", at)
        if id(node) in self.open:
            self.note(node, path, "an alias to a value that contains it")
            return Node(None, at)
        if len(self.open) >= DEEPEST:
            raise _TooMuchError(f"nested deeper than {DEEPEST} levels", at)
        if tag := self.tags.get(id(node)):
            shown_tag = tag.replace("tag:yaml.org,2002:", "!!")
            self.note(node, path, f"found the YAML tag {shown_tag}", "a config holds plain data: remove it")
            return Node(None, at)
        self.open.append(id(node))
        try:
            if isinstance(node, yaml.MappingNode):
                return Node(self.mapping(node, path), at)
            if isinstance(node, yaml.SequenceNode):
                return Node([self.node(n, (*path, str(i))) for i, n in enumerate(node.value)], at)
            quoted = bool(getattr(node, "style", None))
            value = node.value if quoted else scalar(node.value)
            return Node(value, at, blank=not quoted and node.value == "")
        finally:
            self.open.pop()

    def mapping(self, node: yaml.MappingNode, path: tuple[str, ...]) -> dict[str, Node]:
        children: dict[str, Node] = {}
        inherited: dict[str, Node] = {}
        last: tuple[str, Any] = ("", None)
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value == "<<" and not key.style:
                inherited = {**self.merged(value, path), **inherited}
                continue
            name = self.key(key, value, path, last)
            if name is None:
                continue
            last = (name, value.value)
            if name in children:
                first, again = children[name].key, self.origin(key)
                self.note(
                    key,
                    (*path, name),
                    f"the key {name!r} stands twice: in line {first.line if first else 0} "
                    f"and in line {again.line}",
                    "remove one of the two",
                )
                continue
            children[name] = replace(self.node(value, (*path, name)), key=self.origin(key))
        return {**inherited, **children}

    def merged(self, node: yaml.Node, path: tuple[str, ...]) -> dict[str, Node]:
        """The mappings that `<<` brings in; the first of a list wins."""
        parts = node.value if isinstance(node, yaml.SequenceNode) else [node]
        found: dict[str, Node] = {}
        for part in parts:
            if not isinstance(part, yaml.MappingNode):
                self.note(part, path, "found no mapping after '<<'", "write '<<: *name' for an anchor &name")
                continue
            value = self.node(part, path).value
            found = {**(value if isinstance(value, dict) else {}), **found}
        return found

    def key(
        self, key: yaml.Node, value: yaml.Node, path: tuple[str, ...], last: tuple[str, Any]
    ) -> str | None:
        """The text of a key; `last` is the key and the value before it."""
        if not isinstance(key, yaml.ScalarNode):
            self.note(key, path, "found a list or mapping as a key", "keys are words: 'key: value'")
            return None
        if id(key) in self.tags:
            self.note(key, path, "found a YAML tag on a key", "a config holds plain data: remove it")
            return None
        name = key.value if key.style else scalar(key.value)
        if isinstance(name, str):
            return name
        hint = f'keys are words; quote it if it is meant: "{key.value}"'
        empty = isinstance(value, yaml.ScalarNode) and value.value == ""
        if type(name) is int and path and not empty:  # some mappings are keyed by numbers
            return str(name)
        if isinstance(name, int) and empty:
            if str(last[1]).lstrip("-+").isdecimal():
                message = f"found '{last[1]},{key.value}': a comma separates keys here"
                hint = f"a number takes a point: {last[0]}: {last[1]}.{key.value}; "
                hint += f"a list takes brackets: {last[0]}: [{last[1]}, {key.value}]"
                self.note(key, (*path, last[0]), message, hint)
                return None
            hint = "a comma separates keys here; a number takes a decimal point"
        message = "an empty key" if name is None else f"the key {key.value!r} is {shown(name)}, not a text"
        self.note(key, path, message, hint)
        return None


def switched(value: Any) -> bool | None:
    """Whether a value says yes or no, YAML 1.1's words for it included; None where it does neither."""
    if isinstance(value, bool):
        return value
    return _SWITCHES.get(value.lower()) if isinstance(value, str) else None


def scalar(text: str) -> Any:
    """What an unquoted scalar means."""
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    try:
        if _INT.fullmatch(text):
            return int(text)
        if _BASED.fullmatch(text):
            return int(text, 0)
    except ValueError:  # more digits than Python reads
        return text
    if _FLOAT.fullmatch(text):
        return float(text)
    if _SPECIAL.fullmatch(text):
        return float(text.replace(".", ""))
    return text
