"""What a config dataclass says of its fields: type in words, range, choices, default, comment.

The dataclass is the only schema: messages, `pegboard show` and the JSON Schema all read it here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import functools
import linecache
import re
import sys
import tokenize
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Union, cast

from ..contract.records import Ge, Gt, Le, Length, Lt, Matches
from .errors import flow, listed, number

REQUIRED = dataclasses.MISSING
_PRAGMA = re.compile(r"#\s*(type:|noqa|pragma|ruff:|fmt:|mypy:|pyright:|pylint:).*")


@dataclass(frozen=True)
class Field:
    """One key of a part's config."""

    name: str
    hint: Any  # its type, with ranges
    default: Any  # REQUIRED where it has none
    owner: type[Any]

    @property
    def comment(self) -> str:
        """The comment at its line in the source."""
        return comments(self.owner).get(self.name, "")

    @property
    def required(self) -> bool:
        return self.default is REQUIRED

    @property
    def type(self) -> str:
        """Its type in words."""
        return words(self.hint)

    @property
    def shown_default(self) -> str:
        return "required" if self.required else flow(plain(self.default))


def _describe(cls: type[Any]) -> tuple[Field, ...]:
    """The fields of a config dataclass in order. Raises what a broken annotation raises."""
    hints = typing.get_type_hints(cls, include_extras=True)
    return tuple(Field(f.name, hints[f.name], _default(f), cls) for f in dataclasses.fields(cls) if f.init)


describe = cast(Callable[[type[Any]], tuple[Field, ...]], functools.cache(_describe))


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return REQUIRED


def plain(value: Any) -> Any:
    """A checked value as YAML can hold it."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value) if f.init}
    if isinstance(value, enum.Enum):
        return value.value if isinstance(value.value, str | int | float) else value.name
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(v) for v in value]
    return str(value) if isinstance(value, Path) else value


# Types in words.
_SIMPLE = {
    str: ("a text", "texts"),
    int: ("a whole number", "whole numbers"),
    float: ("a number", "numbers"),
    bool: ("true or false", "true or false"),
    Path: ("a path", "paths"),
    type(None): ("null", "null"),
    Any: ("any value", "any values"),
    object: ("any value", "any values"),
}


def split(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """A type without its annotation, and the ranges in it."""
    ranges: tuple[Any, ...] = ()
    while typing.get_origin(hint) is Annotated:
        ranges = (*typing.get_args(hint)[1:], *ranges)
        hint = typing.get_args(hint)[0]
    return hint, ranges


def members(hint: Any) -> tuple[Any, ...]:
    """The types of a union, or the one type."""
    return typing.get_args(hint) if typing.get_origin(hint) in (Union, types.UnionType) else (hint,)


def words(hint: Any, plural: bool = False) -> str:
    """A type with its range, in words."""
    bare, ranges = split(hint)
    limits = _limits(ranges)
    if matches := next((r for r in ranges if isinstance(r, Matches)), None):
        return f"texts ({matches.shown})" if plural else matches.shown
    if len(members(bare)) > 1:
        last = sorted(members(bare), key=lambda m: m is type(None))
        return " or ".join(words(m, plural) for m in last) + (f" ({limits})" if limits else "")
    named = _named(bare, plural)
    return f"{named} ({'each ' if plural else ''}{limits})" if limits else named


def _named(hint: Any, plural: bool) -> str:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint in _SIMPLE:
        return _SIMPLE[hint][plural]
    if choices := options(hint):
        return ("" if len(choices) == 1 else "one of ") + listed(map(flow, choices), 40)
    container = origin or hint
    if container is tuple and args and args[-1] is not Ellipsis:
        if len(set(args)) == 1:
            return f"{'lists' if plural else 'a list'} of {len(args)} {words(args[0], True)}"
        return f"a list of {len(args)} values: {', '.join(words(a) for a in args)}"
    if container in (tuple, list, Sequence, set, frozenset):
        lists = "lists" if plural else "a list"
        return f"{lists} of {words(args[0], True)}" if args else lists
    if container in (dict, Mapping):
        mappings = "mappings" if plural else "a mapping"
        names = words(args[0], True) if args and split(args[0])[0] is int else "names"
        return f"{mappings} of {names} to {words(args[1], True)}" if args else mappings
    if dataclasses.is_dataclass(hint):
        names = ", ".join(f.name for f in dataclasses.fields(hint) if f.init)
        return f"{'mappings' if plural else 'a mapping'} with the keys {names}"
    return getattr(hint, "__name__", str(hint))


def options(hint: Any) -> tuple[Any, ...]:
    """The values that a type of choices allows."""
    if typing.get_origin(hint) is Literal:
        return typing.get_args(hint)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return tuple(plain(member) for member in hint)
    return ()


def _limits(ranges: tuple[Any, ...]) -> str:
    signs = {Ge: "at least", Gt: "more than", Le: "at most", Lt: "less than"}
    said = [f"{signs[type(r)]} {number(r.bound)}" for r in ranges if type(r) in signs]
    for r in ranges:
        if isinstance(r, Length):
            many = {(1, None): "not empty", (r.least, r.least): f"of length {r.least}"}
            most = f"{r.least} to {r.most} long" if r.most is not None else f"at least {r.least} long"
            said.append(many.get((r.least, r.most), most))
    return " and ".join(said)


# Comments in the source.
def comments(cls: type[Any]) -> dict[str, str]:
    """The comment at each field's line; of the lines above where there is none. {} without a source."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if dataclasses.is_dataclass(base):
            found.update(_comments(base.__module__).get(base.__qualname__, {}))
    return found


@functools.cache
def _comments(module: str) -> dict[str, dict[str, str]]:
    """The comments of the fields of every class in a module, by the name of the class."""
    loaded = sys.modules.get(module)
    lines = linecache.getlines(getattr(loaded, "__file__", None) or "", getattr(loaded, "__dict__", None))
    reader = _Comments()
    with contextlib.suppress(SyntaxError, tokenize.TokenError):
        for token in tokenize.generate_tokens(iter([*lines, ""]).__next__):
            reader.take(token)
    return reader.found


class _Comments:
    """Reads tokens; a field is a statement `name: ...` in the body of a class."""

    def __init__(self) -> None:
        self.found: dict[str, dict[str, str]] = {}
        self.blocks: list[str] = []  # the classes and functions around this line; "" for an if
        self.opens = ""  # the block that the last statement opens, if it does
        self.line: list[tokenize.TokenInfo] = []  # the statement so far
        self.above: list[tokenize.TokenInfo] = []  # comments on lines of their own
        self.last, self.column = "", -1  # the field before, and where its comment stands

    def take(self, token: tokenize.TokenInfo) -> None:
        if token.type == tokenize.INDENT:
            self.blocks.append(self.opens)
        elif token.type == tokenize.DEDENT:
            self.blocks.pop()
        elif token.type == tokenize.COMMENT and not self.line:
            self.comment(token)
        elif token.type == tokenize.NEWLINE:
            self.statement([t for t in self.line if t.type not in (tokenize.COMMENT, tokenize.NL)])
            self.line, self.above = [], []
        elif token.type != tokenize.NL or self.line:
            self.line.append(token)

    def comment(self, token: tokenize.TokenInfo) -> None:
        if self.last and token.start[1] == self.column:  # that of the field before goes on
            fields = self.found[self.name]
            fields[self.last] = f"{fields[self.last]} {_text([token])}".strip()
            return
        apart = not self.above or self.above[-1].start[0] != token.start[0] - 1
        self.above = [token] if apart else [*self.above, token]

    @property
    def name(self) -> str:
        return ".".join(block for block in self.blocks if block)

    def statement(self, words: list[tokenize.TokenInfo]) -> None:
        self.last, self.column, self.opens = "", -1, ""
        texts = [t.string for t in words[:3]]
        if texts[:1] == ["class"]:
            self.opens = texts[1]
        elif "def" in texts[:2]:
            self.opens = f"{texts[texts.index('def') + 1]}.<locals>"
        elif len(words) > 2 and words[0].type == tokenize.NAME and texts[1] == ":" and self.blocks:
            own = [t for t in self.line if t.type == tokenize.COMMENT]
            near = bool(self.above) and self.above[-1].start[0] == words[0].start[0] - 1
            text = _text(own) or (_text(self.above) if near else "")
            if text:
                self.found.setdefault(self.name, {})[texts[0]] = text
                self.last, self.column = texts[0], own[-1].start[1] if own else -1


def _text(tokens: list[tokenize.TokenInfo]) -> str:
    cleaned = (_PRAGMA.sub("", t.string).lstrip("#: ").strip() for t in tokens)
    return " ".join(c for c in cleaned if c)
