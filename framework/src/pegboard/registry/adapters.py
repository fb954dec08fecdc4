"""Records that were written for an earlier API of the core, made records of today's.

An API is a number for the form of records, hooks and contracts; `RELEASES` says which release began it. A
plugin's API is that of the oldest core that its own range allows. Where a record has a form that its API had
and today's has not, an adapter puts it into today's form, and its author is told at the line in question. A
plugin whose range begins later must know better: what it has of an earlier form is a mistake in its record.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import linecache
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..base.deprecation import Place, deprecated
from ..base.errors import PegboardError
from ..base.version import API
from ..contract.records import Optimizer, Part
from ..contract.tricks import Trick
from .installed import Plugin, core_range

if TYPE_CHECKING:
    from torch import Tensor, nn

# The release that began each API.
RELEASES = {1: "0.1", 2: "0.2", 3: "0.3"}


@dataclass(frozen=True)
class Adapter:
    """One field of a record that had another form in earlier APIs."""

    api: int  # the first that has the new form
    record: type[Part[Any, Any]]
    field: str
    old: Callable[[Any], bool]  # whether a value has the old form
    new: Callable[[Any], Mapping[str, Any]]  # an old value as fields of the new form
    instead: str  # what its author does


ADAPTERS: tuple[Adapter, ...] = (
    Adapter(
        api=2,
        record=Optimizer,
        field="synchronizes",
        old=lambda value: isinstance(value, bool),
        new=lambda value: {"synchronizes": "its plugin does not say why" if value else ""},
        instead='write why it waits, synchronizes="it reads the loss", or leave it out where it does not',
    ),
)

# Hooks that are going away: since which release, and what to do instead. pluggy could warn of them too
# (`warn_on_impl`), but not by the name of a plugin, and again each time plugins are discovered.
HOOKS: dict[str, tuple[str, str]] = {}


def adapt(plugin: Plugin, answers: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
    """What the hooks of a plugin returned, with the records of earlier APIs in today's form."""
    for hook in answers:
        if hook in HOOKS:
            since, instead = HOOKS[hook]
            deprecated(f"the hook {hook}", instead, since, plugin.title, _hook_place(plugin, hook))
    return {hook: [_adapted(plugin, hook, record) for record in found] for hook, found in answers.items()}


def _adapted(plugin: Plugin, hook: str, record: Any) -> Any:
    for adapter in ADAPTERS:
        value = getattr(record, adapter.field, None)
        if not (isinstance(record, adapter.record) and adapter.old(value)):
            continue
        if plugin_api(plugin.needs) < adapter.api:
            what = f"{adapter.field}={value!r} of {record.kind} {record.name!r}"
            place = _field_place(plugin, hook, record, adapter.field)
            deprecated(what, adapter.instead, RELEASES[adapter.api], plugin.title, place)
            record = replace(record, **adapter.new(value))
    return record


def adapt_trick(plugin: Plugin, name: str, trick: Trick) -> None:
    """Give a trick that changes gradients in the parameters, as API 2 had it, the form of today."""
    edit: Any = trick.edit_grads
    if len(inspect.signature(edit).parameters) != 1:
        return
    what = f"edit_grads(params) of regularizer {name!r}"
    instead = "write edit_grads(grads, params): it returns the gradients, and changes none in place"
    if plugin_api(plugin.needs) >= 3:
        raise PegboardError(f"{plugin.title}: {what} has the form of API 2\n  {instead}")
    code = inspect.unwrap(type(trick).edit_grads).__code__
    deprecated(what, instead, RELEASES[3], plugin.title, (code.co_filename, code.co_firstlineno))

    def edit_grads(grads: list[Tensor | None], params: list[nn.Parameter]) -> list[Tensor | None]:
        for p, grad in zip(params, grads, strict=True):
            p.grad = None if grad is None else grad.clone()  # two parameters may have got one tensor
        edit(params)
        edited = [p.grad for p in params]
        for p in params:
            p.grad = None
        return edited

    trick.edit_grads = edit_grads  # type: ignore[method-assign]


def plugin_api(needs: Sequence[str]) -> int:
    """The API that a plugin is written for: that of the oldest core that its requirements allow."""
    from packaging.version import InvalidVersion, Version

    oldest = Version(RELEASES[1])
    for bound in core_range(needs):
        if bound.operator in (">=", ">", "==", "===", "~="):
            with contextlib.suppress(InvalidVersion):
                version = Version(bound.version.removesuffix(".*"))
                oldest = max(oldest, Version(version.base_version))  # 0.2rc1 has the API of 0.2
    return max(api for api, release in RELEASES.items() if api <= API and Version(release) <= oldest)


def _hook_place(plugin: Plugin, hook: str) -> Place:
    """Where a plugin defines a hook."""
    code = inspect.unwrap(getattr(plugin.module, hook)).__code__
    return code.co_filename, code.co_firstlineno


def _field_place(plugin: Plugin, hook: str, record: Part[Any, Any], field: str) -> Place:
    """Where the author of a record gives one of its fields; the hook, where no such line is found."""
    at_hook = _hook_place(plugin, hook)
    build = getattr(inspect.unwrap(record.build), "__code__", None)
    config = getattr(sys.modules.get(getattr(record.config, "__module__", "")), "__file__", None)
    for file in dict.fromkeys((at_hook[0], config, getattr(build, "co_filename", None))):
        found = max(_given(file, record.name, field), default=None) if file else None
        if file and found:
            return file, -found[1]
    return at_hook


def _given(file: str, name: str, field: str) -> Iterator[tuple[int, int]]:
    """Calls in a file that may have made the record: how likely, and the line of the field, negative.

    The name of the record may be a variable there, and its fields may come from a mapping (`**common`).
    """
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call):
            continue
        words = {word.arg: word for word in call.keywords}
        called = words["name"].value if "name" in words else call.args[0] if call.args else None
        said = called.value if isinstance(called, ast.Constant) else None
        if said not in (name, None):
            continue
        likely = 2 * (said == name) + (field in words)
        if likely and (field in words or None in words):
            yield likely, -(words.get(field) or call).lineno
