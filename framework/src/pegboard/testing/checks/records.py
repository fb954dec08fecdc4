"""Records and the config classes in them, without building anything."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator
from typing import Any

from ...contract.records import Part, Regularizer
from ...contract.tricks import ROLES, Trick
from ...registry.hook_checks import CALLS, MORE_CALLS, bare_fields, hooks, wrong_calls
from ..kit import ALL, Failed, check
from ..subjects import Subject


@check()
def loads(subject: Subject) -> None:
    """It is ready: imported, registered, its hooks answered with sound records."""
    plugin = subject.plugin
    if plugin.status != "ready":
        at = f" ({plugin.where})" if plugin.where and plugin.where not in plugin.reason else ""
        raise Failed(f"{subject.what} is {plugin.state}: {plugin.reason}{at}")
    if plugin.empty:
        raise Failed(f"{subject.what} offers nothing: {plugin.reason}")


@check(level="advised")
def core_range(subject: Subject) -> None:
    """It says with which releases of the core it works, from the oldest to before the next major one."""
    from importlib import metadata

    from packaging.requirements import Requirement

    from ..kit import Skipped

    if subject.plugin.version == "local":
        raise Skipped("a local file has no requirements")
    needs = [Requirement(text) for text in metadata.requires(subject.plugin.dist) or ()]
    own = [need.specifier for need in needs if need.name.lower() == "pegboard"]
    operators = {spec.operator for found in own for spec in found}
    if not ({">=", ">", "~=", "=="} & operators and {"<", "<=", "~=", "=="} & operators):
        raise Failed(
            f"{subject.what} does not say with which releases of the core it works; "
            'dependencies = ["pegboard>=0.2,<1"] in its pyproject.toml'
        )


@check()
def hooks_are_plain(subject: Subject) -> None:
    """Its hooks are functions without parameters, and none wraps those of others."""
    module = subject.module
    for name in hooks():
        function = getattr(module, name, None)
        if function is None:
            continue
        options = getattr(function, "pegboard_impl", None) or {}
        if options.get("wrapper") or options.get("hookwrapper"):
            raise Failed(
                f"{name} of {subject.what} is a wrapper; hooks are called one by one, so it wraps none"
            )
        if inspect.signature(function).parameters:
            raise Failed(f"{name} of {subject.what} has parameters; it is called without any")


@check(*ALL)
def record(subject: Subject) -> None:
    """What the record declares is so: its functions take what they are called with, its stages exist."""
    wrong = [*_functions(subject.part), *_stages(subject.part)]
    if wrong:
        raise Failed(f"{subject.what}: {'; '.join(wrong)}")


def _functions(part: Part[Any, Any]) -> Iterator[str]:
    yield from wrong_calls(part, CALLS | MORE_CALLS)
    for name in (*CALLS, "restore"):
        if (function := getattr(part, name, None)) is not None:
            yield from _annotated(part, name, function)


def _annotated(part: Part[Any, Any], name: str, function: Any) -> Iterator[str]:
    """The first parameter of a function that takes the config is annotated with its class, or not at all."""
    function = inspect.unwrap(function)
    try:
        first = next(iter(inspect.signature(function).parameters.values()), None)
    except ValueError:  # something built in, which has no signature
        return
    hint = first.annotation if first else Any
    if isinstance(hint, str):
        hint = getattr(function, "__globals__", {}).get(hint, Any)  # Any: imported for type checkers alone
    if (
        hint not in (Any, inspect.Parameter.empty)
        and isinstance(hint, type)
        and not issubclass(part.config, hint)
    ):
        yield f"{name} takes a {hint.__name__}, but the config class is {part.config.__name__}"


def _stages(part: Part[Any, Any]) -> Iterator[str]:
    if not isinstance(part, Regularizer):
        return
    if not part.stages:
        yield "stages is empty, so it never acts"
    own = {(role.stage, role.name) for role in part.roles}
    for stage, role in part.stages.items():
        if stage not in ROLES:
            yield f"there is no stage {stage!r}; there are {', '.join(ROLES)}"
        elif role not in [r.name for r in ROLES[stage]] and (stage, role) not in own:
            yield f"there is no role {role!r} in {stage}, and its record adds none of that name"
    for added in part.roles:
        if ":" not in added.name:
            yield f"the role {added.name!r} that it adds has no prefix, as in 'acme:{added.name}'"


@check("regularizer")
def stages_are_declared(subject: Subject) -> None:
    """Its trick overrides the methods that its record names, and no others."""
    tricks = subject.assembly().tricks
    trick = tricks[subject.part.name]
    overridden = {stage for stage in ROLES if getattr(type(trick), stage) is not getattr(Trick, stage)}
    declared = set(subject.part.stages)  # type: ignore[attr-defined]
    if extra := sorted(overridden - declared):
        raise Failed(
            f"{subject.what} overrides {', '.join(extra)}, which its stages do not name: never called"
        )
    if not overridden:  # of several stages a trick may use some, as its config says
        raise Failed(f"{subject.what} names {', '.join(declared)} in its stages and overrides no such method")


@check(*ALL)
def schema(subject: Subject) -> None:
    """Its config class is a frozen dataclass; what it holds survives YAML, and a wrong key is an error."""
    from ...config.fields import describe
    from ...config.schema import schema as make_schema

    config = subject.part.config
    if not config.__dataclass_params__.frozen:
        raise Failed(f"{config.__name__} of {subject.what} is not frozen: @dataclass(frozen=True)")
    if bare := bare_fields(config):
        raise Failed(
            f"{', '.join(bare)} of {config.__name__} of {subject.what} has no annotation, so it is no field: "
            f"write {bare[0]}: {type(getattr(config, bare[0])).__name__} = ..."
        )
    try:
        describe(config)
        if "schema" not in subject.shared:  # that of all plugins, once for all parts of this one
            subject.shared["schema"] = make_schema(subject.registry)
    except Exception as error:
        raise Failed(f"{config.__name__} of {subject.what}: {type(error).__name__}: {error}") from error
    _round_trip(subject)


def _round_trip(subject: Subject) -> None:
    import yaml

    from ...base.errors import PegboardError
    from ...config.check import check as check_config
    from ...config.dump import to_yaml

    once = check_config(subject.config)
    again = check_config(yaml.safe_load(to_yaml(once.plain)))
    if once.plain != again.plain:
        raise Failed(f"{subject.what}: its config is another one after it was written as YAML and read again")
    wrong = subject.with_node(no_such_field=1)
    try:
        check_config(wrong)
    except PegboardError:
        return
    raise Failed(f"{subject.what} accepts a key that it does not have")


@check(*ALL)
def fields_are_documented(subject: Subject) -> None:
    """Its config class has a docstring, and each of its fields a comment at the end of its line."""
    from ...config.fields import describe

    config = subject.part.config
    doc = (config.__doc__ or "").strip()
    if not doc or doc.startswith(f"{config.__name__}("):  # what a dataclass writes by itself
        raise Failed(f"{config.__name__} of {subject.what} has no docstring, whose first line is its summary")
    bare = [f.name for f in describe(config) if not f.comment]
    if bare:
        raise Failed(
            f"{config.__name__} of {subject.what} says nothing of {', '.join(bare)}: write a comment at the "
            f"end of the line, {bare[0]}: ... = ...  # what it is"
        )
    if not dataclasses.fields(config) and len(doc) < 10:
        raise Failed(f"the docstring of {config.__name__} says nothing")
