"""What the hooks of a plugin must return; whatever is wrong is told to its author."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import FunctionType, ModuleType
from typing import Any, get_args

from ..base.errors import PegboardError
from ..base.nearest import nearest
from ..contract import hookspecs
from ..contract.kinds import KINDS
from ..contract.records import NAME, CoreRole, Part, Stage, known_site
from ..contract.sampling import SampleMethod
from ..contract.specs import Spec

HEAVY = frozenset(
    """torch numpy pandas scipy sklearn matplotlib torchmetrics torchvision torchaudio torch_geometric
    datasets transformers tokenizers diffusers lightning timm jax tensorflow tensorboard keras mlflow optuna
    pyarrow polars PIL cv2 numba sympy networkx h5py safetensors""".split()
)
# How the core calls the functions of a record. Without those of the first line a part cannot be used.
CALLS: dict[str, tuple[str, ...]] = {
    "build": ("config", "context"), "check": ("config", "facts"), "spec": ("config",),
    "outputs": ("config", "target"),
}  # fmt: skip
MORE_CALLS: dict[str, tuple[str, ...]] = {
    "trial": ("folder",), "functional": ("optimizer", "traced"), "plot": ("splits", "figure"),
    "restore": ("config", "folder"),
}  # fmt: skip


def hooks() -> list[str]:
    """The names of all hooks that a plugin may implement."""
    return [name for name, function in vars(hookspecs).items() if hasattr(function, "pegboard_spec")]


def _tuple_of(fine: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, tuple) and all(map(fine, value))


_SPECS = ("a tuple of Spec classes", _tuple_of(lambda v: isinstance(v, type) and issubclass(v, Spec)))
_NAMES = ("a tuple of names", _tuple_of(lambda v: isinstance(v, str)))
REASONS = ("synchronizes", "nondeterministic", "full_precision")
_DECLARED: list[tuple[str, str, Callable[[Any], bool]]] = [
    *((name, *_SPECS) for name in ("inputs", "targets", "default_for")),
    *((name, *_NAMES) for name in ("pegs", "after", "before", "conflicts")),
    ("stages", "a mapping of stages to roles", lambda value: value == () or isinstance(value, Mapping)),
    ("replaces", "a mapping of paths to fields", lambda value: not value or isinstance(value, Mapping)),
    ("neutral", "a mapping of fields to values", lambda value: not value or isinstance(value, Mapping)),
    *((name, "a text that says why", lambda v: v == () or isinstance(v, str)) for name in REASONS),
]


def check_hooks(module: Any, found: Sequence[str]) -> None:
    """Raise where a plugin has no hook, one that does not exist, or one that is not marked as a hook."""
    known = hooks()
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


def check_records(hook: str, records: Sequence[Any]) -> None:
    """Raise where one of what a hook returned is no record of its kinds, or would fail in others' configs."""
    wanted = tuple(kind.record for kind in KINDS.values() if kind.hook == hook)
    for record in records:
        _check_record(hook, record, wanted)


def _check_record(hook: str, record: Any, wanted: tuple[type[Part[Any, Any]], ...]) -> None:
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
    if wrong := next(wrong_calls(record, CALLS), ""):
        raise PegboardError(f"{hook}: {record.kind} {record.name!r}: {wrong}")


def check_sample_methods(answers: Sequence[Any]) -> list[SampleMethod]:
    """The sample_methods of a plugin; raises where one is none, or cannot be called."""
    for method in answers:
        if not isinstance(method, SampleMethod):
            raise PegboardError(f"pegboard_sample_methods returned {method!r}, expected SampleMethod records")
        if not isinstance(method.name, str) or not method.name.isidentifier():
            raise PegboardError(f"pegboard_sample_methods: {method.name!r} is not the name of a method")
        if not callable(method.sample) or not _takes(method.sample, 2):
            raise PegboardError(
                f"pegboard_sample_methods: sample of {method.name!r} is {method.sample!r}, "
                "expected a function of (trained, request)"
            )
    return list(answers)


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


def wrong_calls(record: Part[Any, Any], calls: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Functions of a record that cannot be called as the core calls them."""
    for name, arguments in calls.items():
        function = getattr(record, name, None)
        if function is None or _takes(function, len(arguments)):
            continue
        if not callable(function):
            yield f"{name} is {function!s:.60}, expected a function"
            continue
        code = getattr(inspect.unwrap(function), "__code__", None)
        where = f" ({code.co_filename}:{code.co_firstlineno})" if code else ""
        yield (
            f"{name} is called as {name}({', '.join(arguments)}), which its signature "
            f"{_signature(function)} does not take{where}"
        )


def _takes(function: Any, count: int) -> bool:
    """Whether a function can be called with so many arguments by position."""
    if type(function) is FunctionType:  # what `inspect` would say, a hundred times sooner
        code, defaults = function.__code__, len(function.__defaults__ or ())
        words = set(code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount])
        most = code.co_argcount if not code.co_flags & inspect.CO_VARARGS else count
        required = code.co_argcount - defaults
        return required <= count <= most and words <= set(function.__kwdefaults__ or ())
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    except ValueError:  # something built in, which has no signature
        return True
    return True


def _signature(function: Any) -> str:
    names = str(inspect.signature(function).replace(return_annotation=inspect.Signature.empty))
    return names if len(names) < 60 else f"{names[:57]}..."


def remarks(module: Any, records: Sequence[Part[Any, Any]], fresh: Collection[str]) -> Iterator[str]:
    """What is amiss in a plugin that can be used all the same; `fresh` names what its import imported."""
    if heavy := sorted(_heavy(module, fresh)):
        yield f"imports {', '.join(heavy)}, which every command waits for: import it in the build functions"
    for record in records:
        yield from (f"{record.kind} {record.name!r}: {text}" for text in _doubts(record))


def _heavy(module: Any, fresh: Collection[str]) -> set[str]:
    """Large libraries that a light module imported: for the first time, or to hold a name of them."""
    found = {name.partition(".")[0] for name in fresh} & HEAVY
    for value in () if found else vars(module).values() if isinstance(module, ModuleType) else ():
        name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
        if isinstance(name, str) and (root := name.partition(".")[0]) in HEAVY:
            found.add(root)
    return found


def _doubts(record: Part[Any, Any]) -> Iterator[str]:
    config: Any = record.config
    if not config.__dataclass_params__.frozen:
        yield f"its config class {config.__name__} is not frozen: @dataclass(frozen=True)"
    if bare := bare_fields(config):
        yield (
            f"{', '.join(bare)} of {config.__name__} has no annotation, so it is no field: write "
            f"{bare[0]}: {type(getattr(config, bare[0])).__name__} = ..."
        )
    yield from wrong_calls(record, MORE_CALLS)
    fields = [f.name for f in dataclasses.fields(config)]
    for name in getattr(record, "neutral", None) or ():
        if name not in fields:
            near = nearest(str(name), fields)
            hint = f", did you mean {near[0]!r}?" if near else f"; it has {', '.join(fields) or 'none'}"
            yield f"neutral names {name!r}, which is no field of {config.__name__}{hint}"
    for site in getattr(record, "pegs", ()):
        if not known_site(site):
            yield f"pegs names {site!r}, which is no site: those of the core, or a plugin's own (acme:x)"
    stages = get_args(Stage)
    for stage in getattr(record, "stages", ()):
        if stage not in stages:
            near = nearest(str(stage), stages)
            yield f"there is no stage {stage!r}" + (f", did you mean {near[0]!r}?" if near else "")
    known = {*get_args(CoreRole), *(role.name for role in getattr(record, "roles", ()))}
    for stage, role in dict(getattr(record, "stages", ())).items():
        if role not in known:
            near = nearest(str(role), known)
            yield f"there is no role {role!r} in {stage}" + (f", did you mean {near[0]!r}?" if near else "")


def bare_fields(config: type[Any]) -> list[str]:
    """Values of a config class that look like fields but have no annotation. Constants are in capitals."""
    plain = (bool, int, float, str, tuple, list, dict, set, frozenset, type(None))
    known = getattr(config, "__dataclass_fields__", {})
    return [
        name
        for cls in reversed(config.__mro__[:-1])
        for name, value in vars(cls).items()
        if isinstance(value, plain) and name[0] != "_" and name == name.lower() and name not in known
    ]
