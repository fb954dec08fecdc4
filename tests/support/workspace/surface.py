"""The public surface of the core as text: a line for every name, parameter, method, hook, role and site.

    pegboard.train()                             a function, a method, or a class that is called
    pegboard.train(1 config: str | Path)         its parameters: by place, by name (=), all others (*)
    pegboard.train() -> Run                      what it returns
    pegboard.Context.device: str = 'cpu'         an attribute

Run as a script, this writes `tests/surface.txt` anew. `changes` says what a new text takes from plugins that
were written for the old one, by the rules of docs/compatibility.md.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import types
import typing
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

FILE = Path(__file__).resolve().parents[2] / "surface.txt"
WRITTEN_BY_AUTHORS = ("Metric", "Objective", "Probe", "Source", "Tracker", "Trick")  # the core calls these
PLACES = {
    inspect.Parameter.POSITIONAL_ONLY: "{}",
    inspect.Parameter.POSITIONAL_OR_KEYWORD: "{}",
    inspect.Parameter.KEYWORD_ONLY: "=",
    inspect.Parameter.VAR_POSITIONAL: "*",
    inspect.Parameter.VAR_KEYWORD: "**",
}


def surface() -> list[str]:
    """The lines of the surface as it is now."""
    import pegboard
    import pegboard.contract.hookspecs
    import pegboard.testing
    import pegboard.testing.checks
    from pegboard.contract.records import SITES
    from pegboard.contract.tricks import ROLES

    lines: list[str] = []
    for module in (pegboard, pegboard.testing):
        for name in sorted([*module.__all__, *getattr(module, "_MOVED", ())]):
            with warnings.catch_warnings(action="ignore", category=pegboard.PegboardDeprecationWarning):
                lines += _describe(f"{module.__name__}.{name}", getattr(module, name))
    for name, hook in sorted(vars(pegboard.contract.hookspecs).items()):
        if hasattr(hook, "pegboard_spec"):
            lines += _function(f"hook {name}", hook)
    lines += [f"role {stage} {role.name}" for stage, roles in ROLES.items() for role in roles]
    lines += [f"site {site}" for site in SITES]
    kit = [c.name for c in pegboard.testing.CHECKS.values() if c.run.__module__.startswith("pegboard.")]
    lines += [f"check {name}" for name in sorted(kit)]
    return lines


def _describe(path: str, thing: Any) -> Iterator[str]:
    if isinstance(thing, type):
        yield from _class(path, thing)
    elif isinstance(thing, types.FunctionType):
        yield from _function(path, thing)
    elif isinstance(thing, str) and not path.endswith("__"):
        yield f"{path}: str = {thing!r}"
    else:
        yield f"{path}: {'Path' if isinstance(thing, Path) else type(thing).__name__}"


def _class(path: str, cls: type[Any]) -> Iterator[str]:
    import pegboard
    from pegboard.contract.records import Part

    yield f"{path}()"
    builtin = next((base for base in cls.__mro__ if base.__module__ == "builtins"), object)
    shown = [base for base in cls.__mro__[1:] if getattr(pegboard, base.__name__, None) is base]
    for base in cls.__mro__[1:]:
        if base in shown or (base is builtin and base is not object):
            yield f"{path} is a {base.__name__}"
    if issubclass(cls, Part):
        yield f"{path} builds {_text(typing.get_args(vars(cls)['__orig_bases__'][0])[1])}"
        yield from (f"{path} keeps the field {name} of configs for the core" for name in sorted(cls.reserved))
    ours = [base for base in cls.__mro__ if base.__module__.startswith("pegboard")]
    made = dataclasses.is_dataclass(cls) or hasattr(cls, "_fields")
    if made or any("__init__" in vars(base) for base in ours if not getattr(cls, "_is_protocol", False)):
        yield from _parameters(path, inspect.signature(cls))
    fields = {*getattr(cls, "_fields", ()), "reserved"}
    fields |= {field.name for field in dataclasses.fields(cls)} if dataclasses.is_dataclass(cls) else set()
    for name in sorted({name for base in ours for name in vars(base)}):
        if name not in fields and (not name.startswith("_") or name in ("__len__", "__call__")):
            lines = [*_member(f"{path}.{name}", inspect.getattr_static(cls, name), cls)]
            if not any(lines == _inherited(f"{path}.{name}", base) for base in shown):
                yield from lines
    for name in sorted({n for base in ours for n in vars(base).get("__annotations__", {})}):
        if not name.startswith("_") and not made and not hasattr(cls, name):
            yield f"{path}.{name}: {_annotation(cls, name)}"


def _inherited(path: str, base: type[Any]) -> list[str] | None:
    """The lines of a member as a base has it that is listed itself; None where it has none."""
    name = path.rpartition(".")[2]
    return [*_member(path, inspect.getattr_static(base, name), base)] if hasattr(base, name) else None


def _member(path: str, member: Any, cls: type[Any]) -> Iterator[str]:
    name = path.rpartition(".")[2]
    if isinstance(member, staticmethod | classmethod):
        yield from _function(path, member.__func__, bound=isinstance(member, classmethod))
    elif isinstance(member, types.FunctionType):
        yield from _function(path, member, bound=True)
    elif isinstance(member, property) or hasattr(member, "attrname"):  # a cached one
        getter = member.fget if isinstance(member, property) else member.func
        yield f"{path}: {_text(inspect.signature(getter).return_annotation)}"
    elif annotation := _annotation(cls, name):
        yield f"{path}: {annotation} = {member!r}"


def _annotation(cls: type[Any], name: str) -> str:
    for base in cls.__mro__:
        if name in vars(base).get("__annotations__", {}):
            return _text(vars(base)["__annotations__"][name])
    return ""


def _function(path: str, function: Any, bound: bool = False) -> Iterator[str]:
    signature = inspect.signature(function)
    yield f"{path}()"
    yield from _parameters(path, signature, skip=int(bound))
    yield f"{path}() -> {_text(signature.return_annotation)}"


def _parameters(path: str, signature: inspect.Signature, skip: int = 0) -> Iterator[str]:
    for number, parameter in enumerate(list(signature.parameters.values())[skip:], start=1):
        place = PLACES[parameter.kind].format(number)
        default = "" if parameter.default is parameter.empty else f" = {_shown(parameter.default)}"
        yield f"{path}({place} {parameter.name}: {_text(parameter.annotation)}{default})"


def _text(annotation: Any) -> str:
    """An annotation as it is written in the source."""
    if annotation is inspect.Parameter.empty:
        return "Any"
    if isinstance(annotation, typing.ForwardRef):
        return annotation.__forward_arg__
    return (
        annotation.replace('"', "'") if isinstance(annotation, str) else inspect.formatannotation(annotation)
    )


def _shown(default: Any) -> str:
    """A default, without addresses in memory."""
    if isinstance(default, types.FunctionType | types.BuiltinFunctionType | type):
        return str(default.__name__)
    return re.sub(r" at 0x[0-9a-f]+", "", repr(default))


class Changes(NamedTuple):
    """What a new surface means for plugins that were written for the old one."""

    broken: list[str]  # they may fail
    added: list[str]  # they go on as before


def changes(old: Sequence[str], new: Sequence[str]) -> Changes:
    """Compare two surfaces; a line that changed is one that is gone and one that is new."""
    gone = [line for line in old if line not in set(new)]
    added = [line for line in new if line not in set(old)]
    asks = [line for line in added if _asks(line, set(old))]
    return Changes(
        [*gone, *(f"{line}  <- asks more of them" for line in asks)], [x for x in added if x not in asks]
    )


def _asks(line: str, old: set[str]) -> bool:
    """Whether a new line asks something of plugins: a parameter that callers, or those who override, lack; a
    method that whoever stands in for a protocol lacks; a field that a config may no longer have.
    """
    if kept := re.fullmatch(r"(.+) keeps the field \w+ of configs for the core", line):
        return f"{kept[1]}()" in old
    if method := re.fullmatch(r"(pegboard\.Metric)\.\w+\(\)", line):
        return f"{method[1]}()" in old
    parameter = re.fullmatch(r"(?P<call>[^(]+)\((?P<place>\d+|=) .*?(?P<default> = .*)?\)", line)
    if parameter is None or f"{parameter['call']}()" not in old:
        return False
    owner = parameter["call"].split(".")[1:2]
    overridden = bool(owner) and owner[0] in WRITTEN_BY_AUTHORS and parameter["call"].count(".") > 1
    return overridden or not parameter["default"]


if __name__ == "__main__":
    FILE.write_text("\n".join(surface()) + "\n", encoding="utf-8")
    print(f"wrote {FILE.relative_to(FILE.parents[1])}")
