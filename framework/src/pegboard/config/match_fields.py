"""Plain data to instances of config dataclasses by their type hints, with every mistake noted."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import math
import operator
import re
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from ..base.nearest import meant, nearest, score
from ..contract.records import Ge, Gt, Le, Length, Lt, Matches
from .errors import Mistake, flow, join, listed, shown
from .fields import REQUIRED, Field, describe, members, options, split, words
from .yaml_reader import scalar, switched

C = TypeVar("C")
BAD: Any = object()  # what stands for a value that was wrong

_LISTS = (list, tuple, Sequence, set, frozenset)
_RANGES: dict[type[Any], Callable[[float, float], bool]] = {
    Ge: operator.ge,
    Gt: operator.gt,
    Le: operator.le,
    Lt: operator.lt,
}


@dataclass(frozen=True, kw_only=True)
class About:
    """What a message says of the node whose keys are checked."""

    what: str = "it"  # "model 'name'"
    also: Mapping[str, Any] = field(default_factory=dict)  # keys beside those of the dataclass, their types
    listing: str = ""  # the command that lists its keys


def build(
    cls: type[C], data: Mapping[str, Any], path: str, found: list[Mistake], about: About | None = None
) -> C | None:
    """An instance of `cls` from plain data, or None with what is wrong added to `found`."""
    about = about or About(what=path or "the config")
    known = {f.name: f for f in describe(cls)}
    guessed = _unknown_keys(known, data, path, found, about)
    before = len(found)  # keys that stand for no other are told, and the rest is looked at all the same
    values: dict[str, Any] = {}
    for name, key in known.items():
        place = f"{path}.{name}" if path else name  # the name of a field has no dot
        if name in data:
            values[name] = convert(key.hint, data[name], place, found)
        elif key.default is REQUIRED and name not in guessed:
            note = f" ({key.comment})" if key.comment else ""
            found.append(
                Mistake(
                    path=place,
                    message=f"{about.what} needs the key {name!r}{note}",
                    expected=key.type,
                    hint=about.listing and f"all keys: {about.listing}",
                    absent=True,
                )
            )
    if guessed or len(found) > before:
        return None
    try:
        return cls(**values)
    except Exception as error:
        own = isinstance(error, ValueError | TypeError)  # the dataclass's own rule
        message = str(error) if own and str(error) else f"{cls.__name__} failed: {error!r}"
        found.append(Mistake(path=path, message=message.split("\n")[0]))
        return None


def _unknown_keys(
    known: Mapping[str, Field], data: Mapping[str, Any], path: str, found: list[Mistake], about: About
) -> set[str]:
    """Note keys that nobody knows; gives the known keys that they were probably meant for."""
    types = {name: field.hint for name, field in known.items()} | dict(about.also)
    names = list(types)
    guessed = set()
    for key, value in data.items():
        if key in types:
            continue
        near = meant(key, names, data) or _by_comment(key, known) or _by_value(value, known, data)
        guessed.update(near[:1])
        glued = _glued(key, value, names)
        found.append(
            Mistake(
                path=join(path, key),
                message=f"unknown key {key!r} of {about.what}",
                expected=f"one of {listed(names)}" if names else "no keys here",
                nearest=tuple(near),
                hint=glued or (about.listing and f"all keys: {about.listing}"),
                at_key=True,
                unknown=key,
            )
        )
        if near and near[0] not in data and not glued and score(key, near[0]) >= 0.75:
            wrong: list[Mistake] = []
            convert(types[near[0]], value, join(path, key), wrong)  # its value may be wrong as well
            found += [dataclasses.replace(m, hint=m.hint.replace(f"{key}:", f"{near[0]}:")) for m in wrong]
    return guessed


def _glued(key: str, value: Any, names: Collection[str]) -> str:
    """A hint for `{epochs:10}` and `{epochs 10}`, which YAML reads as one key without a value."""
    match = re.fullmatch(r"([\w-]+)\s*([:=\s])\s*(\S.*)", key)
    if value is None and match and nearest(match[1], names, 1):
        how = "a space after the colon" if match[2] == ":" else "a colon and a space"
        return f"write {how}: {match[1]}: {match[3]}"
    return ""


def _by_comment(key: str, known: Mapping[str, Field]) -> list[str]:
    """The one field whose comment uses the word, where no name is like it."""
    tokens = [t for t in re.split(r"[^a-z]+", key.lower()) if len(t) > 3]
    fits = [n for n, f in known.items() if tokens and all(t in f.comment.lower() for t in tokens)]
    return fits if len(fits) == 1 else []


def _by_value(value: Any, known: Mapping[str, Field], data: Mapping[str, Any]) -> list[str]:
    """The first field, where it is the only one left that takes the value: a share is a share."""
    fits = [n for n, f in known.items() if n not in data and convert(f.hint, value, n, []) is not BAD]
    return fits if value is not None and fits == [*known][:1] else []


class Shape(NamedTuple):
    """What a type hint is made of."""

    bare: Any  # without its annotation
    ranges: tuple[Any, ...]
    members: tuple[Any, ...]  # of a union, or the one type
    choices: tuple[Any, ...]


_SHAPES: dict[Any, Shape] = {}


def _shape(hint: Any) -> Shape:
    """The shape of a hint, which is taken apart once; one without a hash each time."""
    try:
        return _SHAPES[hint]
    except (KeyError, TypeError):
        bare, ranges = split(hint)
        shape = Shape(bare, ranges, members(bare), options(bare))
        with contextlib.suppress(TypeError):
            _SHAPES[hint] = shape
        return shape


def convert(hint: Any, value: Any, path: str, found: list[Mistake]) -> Any:
    """The value as its type wants it, or BAD with what is wrong added to `found`."""
    shape = _shape(hint)
    ranges = shape.ranges
    if len(shape.members) > 1:
        return _union(hint, shape, value, path, found)
    before = len(found)
    result = _single(shape, value, path, found)
    if len(found) > before:
        return BAD
    if result is not BAD and _outside(ranges, result):
        result = BAD
    if result is BAD:
        found.append(_wrong(hint, value, path))
    return result


def _union(hint: Any, shape: Shape, value: Any, path: str, found: list[Mistake]) -> Any:
    """The first type of a union that takes the value as it is, then the first that takes it at all."""
    if value is None and type(None) in shape.members:
        return None
    ranges = shape.ranges
    attempts: list[tuple[Any, list[Mistake]]] = []
    alternatives = [m for m in shape.members if m is not type(None)]
    for member in sorted(alternatives, key=lambda m: not _shaped(m, value, exact=True)):
        wrong: list[Mistake] = []
        result = convert(typing.Annotated[member, *ranges] if ranges else member, value, path, wrong)
        if not wrong:
            return result
        attempts.append((member, wrong))
    shaped = [wrong for member, wrong in attempts if _shaped(member, value, exact=False)]
    best = attempts[0][1] if len(attempts) == 1 else shaped[0] if len(shaped) == 1 else []
    whole = len(best) == 1 and best[0].path == path
    if whole:  # say all that is allowed, not only the alternative that came closest
        reason = best[0].hint or _reason(hint, value, path.rpartition(".")[2])
        best = [dataclasses.replace(best[0], expected=words(hint), hint=reason)]
    found += best or [_wrong(hint, value, path)]
    return BAD


def _shaped(hint: Any, value: Any, *, exact: bool) -> bool:
    """Whether a value has the shape of a type, right or wrong in detail."""
    shape = _shape(hint)
    bare = shape.bare
    container = typing.get_origin(bare) or bare
    if shape.choices:
        return any(isinstance(c, type(value)) for c in shape.choices)
    if isinstance(value, bool):
        return bare is bool
    if isinstance(value, int | float):
        return bare is (type(value) if exact else float) or (not exact and bare is int)
    if isinstance(value, str):
        return bare in (str, Path)
    if isinstance(value, list | tuple):
        return container in _LISTS
    return isinstance(value, Mapping) and (container in (dict, Mapping) or dataclasses.is_dataclass(bare))


def _single(shape: Shape, value: Any, path: str, found: list[Mistake]) -> Any:
    """A value of one type, its range aside; BAD where it is of another."""
    hint = shape.bare
    container = typing.get_origin(hint) or hint
    if hint is Any or hint is object:
        return value
    if hint is type(None):
        return None if value is None else BAD
    if shape.choices:
        return _choice(hint, value)
    if hint is bool:
        return BAD if (on := switched(value)) is None else on
    if hint in (int, float):
        return _number(hint, value)
    if hint in (str, Path):
        return hint(value) if isinstance(value, str) else BAD
    if container in _LISTS:
        return _list(hint, container, value, path, found)
    if container in (dict, Mapping):
        return _dict(hint, value, path, found)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        if not isinstance(value, Mapping):
            return BAD
        made = build(hint, value, path, found)
        return BAD if made is None else made
    return value


def _number(hint: Any, value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return BAD
    try:
        if hint is float:
            return float(value)
        return int(value) if value == int(value) and abs(value) < 2**63 else BAD  # torch's are of 64 bits
    except (OverflowError, ValueError):  # infinite, or an integer larger than any float
        return BAD


def _choice(hint: Any, value: Any) -> Any:
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        for member in hint:
            if value == member.value or value == member.name:
                return member
        return BAD
    # type() besides ==, as True == 1
    return next((c for c in typing.get_args(hint) if c == value and type(c) is type(value)), BAD)


def _list(hint: Any, container: Any, value: Any, path: str, found: list[Mistake]) -> Any:
    if not isinstance(value, list | tuple):
        return BAD
    args = typing.get_args(hint)
    if container is tuple and args and args[-1] is not Ellipsis:
        if len(value) != len(args):
            return BAD
        inner = args
    else:
        inner = (args[0] if args else Any,) * len(value)
    items = [convert(h, v, f"{path}.{i}", found) for i, (h, v) in enumerate(zip(inner, value, strict=True))]
    if any(item is BAD for item in items):
        return BAD
    try:
        return (tuple if container is Sequence else container)(items)
    except TypeError:  # a set of lists
        return BAD


def _dict(hint: Any, value: Any, path: str, found: list[Mistake]) -> Any:
    if not isinstance(value, Mapping):
        return BAD
    keyed, inner = typing.get_args(hint) or (str, Any)
    return {_key(keyed, k, path, found): convert(inner, v, join(path, k), found) for k, v in value.items()}


def _key(hint: Any, key: Any, path: str, found: list[Mistake]) -> Any:
    """The key of a mapping; one of another type than a text is written as such."""
    if split(hint)[0] is not int:
        return str(key)
    made = convert(hint, scalar(str(key)), path, [])
    if made is BAD:
        wanted = f"{words(hint)} before the colon"
        found.append(Mistake(path=join(path, key), message=f"found {key!r}", expected=wanted, at_key=True))
    return made


def _outside(ranges: tuple[Any, ...], value: Any) -> bool:
    for limit in ranges:
        if type(limit) in _RANGES and isinstance(value, int | float):
            if (isinstance(value, float) and not math.isfinite(value)) or not _RANGES[type(limit)](
                value, limit.bound
            ):
                return True
        elif isinstance(limit, Length) and hasattr(value, "__len__"):
            if len(value) < limit.least or (limit.most is not None and len(value) > limit.most):
                return True
        elif isinstance(limit, Matches) and isinstance(value, str) and not re.fullmatch(limit.pattern, value):
            return True
    return False


def _wrong(hint: Any, value: Any, path: str) -> Mistake:
    """The mistake of a value that does not fit its type, with the likeliest reason."""
    near: list[str] = []
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        near = nearest(str(value), _texts(hint))
    return Mistake(
        path=path,
        message="no value is given" if value is None else f"found {shown(value)}",
        expected=words(hint),
        nearest=tuple(near),
        hint=_reason(hint, value, path.rpartition(".")[2]),
    )


def _texts(hint: Any) -> list[str]:
    """The texts that a type names as choices."""
    bare, ranges = split(hint)
    found = [c for m in members(bare) for c in options(split(m)[0]) if isinstance(c, str)]
    for limit in (r for m in members(bare) for r in (*ranges, *split(m)[1]) if isinstance(r, Matches)):
        found += [w for w in re.split(r",\s+|\s+or\s+", limit.shown) if re.fullmatch(limit.pattern, w)]
    return found


def _reason(hint: Any, value: Any, key: str) -> str:
    bare, _ = split(hint)
    wanted = [split(m)[0] for m in members(bare) if m is not type(None)]
    containers = [typing.get_origin(w) or w for w in wanted]
    key = "" if key.isdecimal() else f"{key}: "
    if value == "None" and type(None) in members(bare):
        return f"for none: {key}null"
    if isinstance(value, int | float) and int in wanted and abs(value) >= 2**63:
        return "a whole number has at most 64 bits"
    if isinstance(value, str) and (int in wanted or float in wanted):
        return _text_for_number(value, key, float in wanted)
    if isinstance(value, str) and bool in wanted and value.lower() in ("true", "false"):
        return f"without quotes: {key}{value.lower()}"
    if isinstance(value, int | float) and not isinstance(value, bool) and bool in wanted and value in (0, 1):
        return f"write {key}{'true' if value else 'false'}"
    if any(c in _LISTS for c in containers):
        return _for_list(hint, wanted, value, key)
    quoted = isinstance(value, bool | int | float) and str in wanted
    if quoted and convert(hint, shown(value), "", []) is not BAD:
        return f'in quotes, if the text is meant: {key}"{shown(value)}"'
    if isinstance(value, list) and len(value) == 1:
        return f"without brackets: {key}{flow(value[0])}"
    return ""


def _for_list(hint: Any, wanted: list[Any], value: Any, key: str) -> str:
    if isinstance(value, Mapping) and value and all(str(k).isdecimal() for k in value):
        return f"give the whole list: {key}[{', '.join(flow(v) for v in value.values())}]"
    if isinstance(value, list | tuple | Mapping | None):
        return ""
    args = next(typing.get_args(w) for w in wanted if (typing.get_origin(w) or w) in _LISTS)
    inner = {m for a in args if a is not Ellipsis for m in members(split(a)[0])}
    bare = scalar(value) if isinstance(value, str) and str not in inner else value
    more = ", ..." if len(args) > 1 and args[-1] is not Ellipsis else ""
    if more or convert(hint, [bare], "", []) is not BAD:
        return f"in brackets: {key}[{flow(bare)}{more}]"
    return f"a list takes brackets and commas: {key}[a, b]"


def _text_for_number(text: str, key: str, fraction: bool) -> str:
    text = text.strip()
    if isinstance(scalar(text), int | float) and not isinstance(scalar(text), bool):
        return f"without quotes: {key}{text}"
    if "_" in text and isinstance(scalar(text.replace("_", "")), int | float):
        return f"without underscores: {key}{text.replace('_', '')}"
    if re.fullmatch(r"[-+]?\d+,\d+", text):
        return f"with a decimal point: {key}{text.replace(',', '.')}"
    if fraction and re.fullmatch(r"\d+(\.\d+)?\s*%", text):
        return f"as a share: {key}{float(text.rstrip('% ')) / 100:g}"
    if match := re.fullmatch(r"(\d+)\s*(?:\^|\*\*)\s*(-?\d+)", text):
        return f"as a number: {key}1e{match[2]}" if match[1] == "10" else "as a number, written out"
    return ""
