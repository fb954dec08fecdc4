"""What the hooks of a plugin must return; whatever is wrong is told to its author."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from .errors import PegboardError
from .nearest import nearest
from .parts import (
    NAME,
    Dataset,
    Model,
    ObjectivePart,
    Optimizer,
    Part,
    ProbePart,
    Regularizer,
    Schedule,
    TrackerPart,
)
from .specs import Spec

HOOKS: dict[str, tuple[type[Part[Any, Any]], ...]] = {
    "pegboard_models": (Model,),
    "pegboard_optimizers": (Optimizer, Schedule),
    "pegboard_regularizers": (Regularizer,),
    "pegboard_datasets": (Dataset,),
    "pegboard_objectives": (ObjectivePart,),
    "pegboard_trackers": (TrackerPart,),
    "pegboard_probes": (ProbePart,),
}


def _tuple_of(fine: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, tuple) and all(map(fine, value))


_SPECS = ("a tuple of Spec classes", _tuple_of(lambda v: isinstance(v, type) and issubclass(v, Spec)))
_NAMES = ("a tuple of names", _tuple_of(lambda v: isinstance(v, str)))
_DECLARED: list[tuple[str, str, Callable[[Any], bool]]] = [
    *((name, *_SPECS) for name in ("inputs", "targets", "default_for")),
    *((name, *_NAMES) for name in ("pegs", "after", "before", "conflicts")),
    ("stages", "a mapping of stages to roles", lambda value: value == () or isinstance(value, Mapping)),
    ("synchronizes", "a text that says why", lambda value: value == () or isinstance(value, str)),
]


def check_hooks(module: Any, found: Sequence[str]) -> None:
    """Raise where a plugin has no hook, one that does not exist, or one that is not marked as a hook."""
    known = [*HOOKS, "pegboard_recipes", "pegboard_health"]
    for name in found:
        if name not in known and not _optional(module, name):
            near = nearest(name, known)
            raise PegboardError(f"unknown hook {name!r}" + (f", did you mean {near[0]!r}?" if near else ""))
    unmarked = [name for name in known if name not in found and callable(getattr(module, name, None))]
    if unmarked:
        raise PegboardError(f"{unmarked[0]} is not decorated with @pegboard.hookimpl")
    if not found:
        raise PegboardError("it has no hooks, such as a function pegboard_models decorated with hookimpl")


def _optional(module: Any, name: str) -> bool:
    """Whether a hook is marked as one that only other releases of the core may have."""
    marks = getattr(getattr(module, name, None), "pegboard_impl", None)
    return isinstance(marks, dict) and bool(marks.get("optionalhook"))


def answered(hook: str, answer: Any) -> list[Any]:
    """The records that a hook returned or generates."""
    if answer is not None and (isinstance(answer, str) or not isinstance(answer, Iterable)):
        raise PegboardError(f"{hook} returned {answer!r}, expected a list")
    return list(answer or ())


def check_record(hook: str, record: Any) -> None:
    """Raise where what a hook returned is not a record, or one that would fail in others' configs."""
    wanted = HOOKS[hook]
    if not isinstance(record, wanted):
        names = " or ".join(cls.__name__ for cls in wanted)
        raise PegboardError(f"{hook} returned {record!r}, expected {names} records")
    if not isinstance(record.name, str) or not NAME.fullmatch(record.name):
        raise PegboardError(f"{hook}: {record.name!r} is not a part name (lower case, digits, _ and -)")
    if not callable(record.build):
        raise PegboardError(f"{hook}: build of {record.name!r} is not a function")
    for name, expected, fine in _DECLARED:
        if not fine(value := getattr(record, name, ())):
            raise PegboardError(f"{hook}: {name} of {record.name!r} is {value!r}, expected {expected}")


def check_schemas(records: Sequence[Part[Any, Any]]) -> None:
    """Raise where a record's config is no schema, or two records of a plugin have one name."""
    seen = set()
    for record in records:
        if not (isinstance(record.config, type) and dataclasses.is_dataclass(record.config)):
            raise PegboardError(f"the config of {record.name!r} is {record.config!r}, expected a dataclass")
        clash = {f.name for f in dataclasses.fields(record.config)} & record.reserved
        if clash:
            raise PegboardError(
                f"{record.config.__name__} has a field {min(clash)!r}, which is the core's own"
            )
        if (record.kind, record.name) in seen:
            raise PegboardError(f"two parts are called {record.kind} {record.name!r}")
        seen.add((record.kind, record.name))
