"""Whether the parts of a config fit each other and the data; no torch, no data read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from ..base.nearest import nearest
from ..contract.options import DataOptions, RegularizerOptions
from ..contract.records import Facts, Model, ObjectivePart, Optimizer, Part, Problem, Regularizer
from ..contract.specs import Classes, DataSpec, Spec, fits
from ..contract.tricks import ROLES, Use, order
from ..registry.discovery import Entry, Registry, UnknownPart
from .errors import Mistake, listed
from .match_fields import build
from .no_effect import Length
from .nodes import Trainer
from .sections import Parts, Read, nameable


def read_spec(parts: Parts, data: Read) -> DataSpec | None:
    """What the data set says of itself, as far as its config tells."""
    function = getattr(data.entry.part, "spec", None)
    if function is None or data.config is None:
        return None
    try:
        spec = function(data.config)
        if spec is not None and not isinstance(spec, DataSpec):
            raise TypeError(f"spec returned {spec!r}, expected a DataSpec")
        return spec
    except Exception as error:
        parts.defect(data.entry, data.path, "its spec", error)
        return None


def accepted(registry: Registry, kind: str, known: Facts) -> list[str]:
    """Names of the parts of a kind that would be right beside what is known, with their defaults.

    A `reference` is a probe that knows an optimum.
    """
    return [registry.reference(e) for e in nameable(registry, kind) if _would_fit(e.part, known)]


def accepted_data(
    registry: Registry, model: Model[Any] | None, objective: ObjectivePart[Any] | None
) -> list[str]:
    """Names of the data sets that would be right beside a model and an objective, with their defaults."""
    beside = [part for part in (model, objective) if part is not None]
    names = []
    for entry in registry.entries("dataset"):
        try:
            spec = entry.part.spec(entry.part.config())  # type: ignore[attr-defined]
        except Exception:  # a field has no default, or the part says nothing of its spec
            spec = None
        known = Facts(spec=spec, model=model, objective=objective)
        if spec is None or all(_would_fit(part, known) for part in beside):
            names.append(registry.reference(entry))
    return names


def _would_fit(part: Part[Any, Any], known: Facts) -> bool:
    """Whether neither its specs and rules nor those of model and objective beside it speak against a part."""
    spec = known.spec
    if spec is not None:
        inputs = all(fits(getattr(part, "inputs", ()), s) for s in spec.inputs)
        if not inputs or not fits(getattr(part, "targets", ()), spec.target):
            return False
    beside: list[Part[Any, Any] | None] = []
    if isinstance(part, Model):
        known, beside = replace(known, model=part), [known.objective]
    elif isinstance(part, ObjectivePart):
        known, beside = replace(known, objective=part), [known.model]
    return all(one is None or _agrees(one, known) for one in (part, *beside))


def _agrees(part: Part[Any, Any], known: Facts) -> bool:
    try:
        config = part.config()
    except Exception:  # a field has no default, so nothing can be said
        return True
    try:  # what a field is to blame for, another value of it mends; another name is another part
        return all(problem.field not in ("", "name") for problem in objections(part, config, known))
    except Exception:
        return False


def fit_model(
    model: Read, data: str, spec: DataSpec, registry: Registry, objective: ObjectivePart[Any] | None = None
) -> Iterable[Mistake]:
    """A model that cannot read the inputs or predict the target."""
    part = model.entry.part
    assert isinstance(part, Model)
    wrong = [s for s in spec.inputs if not fits(part.inputs, s)]
    if wrong:
        verb = f"reads {_types(part.inputs)}, but {data} gives {listed(wrong)}"
        verb += _apart(part.inputs, wrong, registry)
    elif not fits(part.targets, spec.target):
        verb = f"predicts {_types(part.targets)}, but the target of {data} is {spec.target or 'nothing'}"
        verb += _apart(part.targets, [spec.target], registry)
    else:
        return
    able = accepted(registry, "model", Facts(spec=spec, objective=objective))
    expected = f"a model for {spec}: {listed(able)}" if able else f"a model for {spec}; none is installed"
    yield Mistake(
        path=f"{model.path}.name",
        message=f"{model.what} {verb}",
        expected=expected,
        hint="list them: pegboard show models",
    )


def fit_target(
    read: Read, data: str, spec: DataSpec, registry: Registry, model: Read | None = None
) -> Iterable[Mistake]:
    """An objective or regularizer that does not work on the target."""
    target, works_on = spec.target, getattr(read.entry.part, "targets", ())
    if fits(works_on, target):
        return
    kind = read.entry.part.kind
    beside = model.entry.part if model is not None else None
    known = Facts(spec=spec, model=beside if isinstance(beside, Model) else None)
    able = accepted(registry, kind, known) if kind == "objective" else []
    of = target or "data without a target"
    expected = f"{kind}s for {of}: {listed(able) or 'none is installed'}" if kind == "objective" else ""
    hint = f"take it out: {read.path.rpartition('.')[2]}: null"
    if kind == "objective":
        own = isinstance(default_objective(registry, target), Entry)
        hint = "leave the key 'objective' out to take the one for this target" if own else ""
    message = f"{read.what} works on {_types(works_on)}, but the target of {data} is {target or 'nothing'}"
    message += _apart(works_on, [target], registry)
    yield Mistake(path=read.path, message=message, expected=expected, hint=hint, at_key=True)


def fit_trick(read: Read, data: str, spec: DataSpec, registry: Registry) -> Iterable[Mistake]:
    """A regularizer that does not work on the inputs, or not on the target."""
    reads: tuple[type[Spec], ...] = getattr(read.entry.part, "inputs", ())
    wrong = [s for s in spec.inputs if not fits(reads, s)]
    if not wrong:
        yield from fit_target(read, data, spec, registry)
        return
    yield Mistake(
        path=read.path,
        message=f"{read.what} works on inputs that are {_types(reads)}, but {data} gives {listed(wrong)}"
        + _apart(reads, wrong, registry),
        hint=f"take it out: {read.path.rpartition('.')[2]}: null",
        at_key=True,
    )


def fit_folds(trainer: Trainer | None, path: str) -> Iterable[Mistake]:
    """A fold that is not one of the cross-validation's."""
    if trainer is None or trainer.fold is None:
        return
    if trainer.folds is None:
        hint = f"say of how many: {path}.folds=5"
        yield Mistake(path=f"{path}.fold", message=f"fold {trainer.fold} of no folds", hint=hint)
    elif trainer.fold >= trainer.folds:
        expected = f"0 to {trainer.folds - 1}, as there are {trainer.folds} folds"
        yield Mistake(path=f"{path}.fold", message=f"found {trainer.fold}", expected=expected)


def fit_pictures(trainer: Trainer | None, path: str, model: Read | None) -> Iterable[Mistake]:
    """Pictures of samples that the model does not generate."""
    if trainer is None or trainer.sample_every is None or model is None or model.guessed:
        return
    if not getattr(model.entry.part, "samples", False):
        found = f"found {trainer.sample_every}, but the {model.what} generates no samples to draw"
        yield Mistake(path=f"{path}.sample_every", message=found, expected="null, or a model that does")


def fit_batches(data: Read, spec: DataSpec | None) -> Iterable[Mistake]:
    """Batches that shrink, draws that have no order, and classes that are not there."""
    options = data.options
    if not isinstance(options, DataOptions):
        return
    stages = options.stages()
    for (_, before), (epoch, size) in pairwise(stages):
        if before == "all" or (size != "all" and size <= before):
            yield Mistake(
                path=f"{data.path}.batch_schedule.{epoch}",
                message=f"batches of {size} from epoch {epoch} on, after batches of {before}",
                expected="sizes that grow from epoch to epoch, beginning with that of data.batch_size",
            )
    if options.sampling != "epoch" and not options.shuffle:
        yield Mistake(
            path=f"{data.path}.shuffle",
            message=f"found false, but what sampling: {options.sampling} draws is in no order",
            hint="take shuffle: false out, or take each sample once: sampling: epoch",
        )
    if options.sampling == "balanced" and spec is not None and not isinstance(spec.target, Classes):
        yield Mistake(
            path=f"{data.path}.sampling",
            message=f"found balanced, but the target of {data.what} is {spec.target or 'nothing'}",
            expected="epoch, replacement or weighted; balanced draws need a target of Classes",
        )


def told(spec: DataSpec, objective: Read | None) -> DataSpec:
    """The spec as regularizers see it: with the target that the players of the objective learn."""
    own = getattr(objective.entry.part, "target", None) if objective is not None else None
    return spec if own is None else replace(spec, target=own)


def default_objective(registry: Registry, target: Spec | None, model: Read | None = None) -> Entry | Mistake:
    """The one objective that the model asks for, or that is made for a target; or why there is none."""
    if model is not None and (name := getattr(model.entry.part, "objective", "")):
        try:
            own = [e for e in model.entry.plugin.parts if e.kind == "objective" and e.name == name]
            return registry.lookup("objective", f"{model.entry.plugin.dist}:{name}" if own else name)
        except UnknownPart as error:
            hint = f"the {model.what} is trained by the objective {name!r}"
            return Mistake(path="objective", message=str(error), absent=True, hint=hint)
    for entry in registry.indexed_entries("objective"):  # a target is that of one of them
        if _default_for(entry, target, exact=True):
            return entry
    made = [e for e in registry.entries("objective") if _default_for(e, target, exact=True)]
    made = made or [e for e in registry.entries("objective") if _default_for(e, target, exact=False)]
    # A stranger's plugin, installed but not named, must not change what a config means.
    made = [e for e in made if registry.indexed(e)] or made
    if len(made) == 1:
        return made[0]
    every = [
        registry.reference(e)
        for e in registry.entries("objective")
        if fits(getattr(e.part, "targets", ()), target)
    ]
    if made:
        names = [registry.reference(e) for e in made]
        return Mistake(
            path="objective",
            message=f"{len(made)} objectives are made for the target {target}: {listed(names)}",
            expected="one of them named",
            absent=True,
            hint=f"objective: {{name: {names[0]}}}",
        )
    what = f"for the target {target}" if target is not None else "for data without a target"
    return Mistake(
        path="objective",
        message=f"no installed objective is the default {what}",
        expected=f"{'one of ' if every[1:] else ''}{listed(every)}, by name"
        if every
        else "an objective that takes it; none is installed",
        hint="list them: pegboard show objectives",
        absent=True,
    )


def _default_for(entry: Entry, target: Spec | None, *, exact: bool) -> bool:
    part = entry.part
    if not isinstance(part, ObjectivePart) or target is None:
        return False
    return type(target) in part.default_for if exact else isinstance(target, part.default_for or ())


def fit_tricks(
    tricks: Mapping[str, tuple[Read, Any, tuple[str, ...]]], model: Read | None
) -> Iterable[Mistake]:
    """Conflicts between regularizers, and orders that nothing decides."""
    uses = {
        key: Use(read.entry.part, config, players)
        for key, (read, config, players) in tricks.items()
        if isinstance(read.entry.part, Regularizer)
    }
    sites = getattr(model.entry.part, "pegs", ()) if model else ()
    _, problems = order(uses, sites)
    for problem in problems:
        yield _mistake(problem, f"regularizers.{problem.field}", at_key=True)
    for key, use in uses.items():
        if use.players and use.part.stages.get("edit_model") in {role.name for role in ROLES["edit_model"]}:
            yield Mistake(
                path=f"regularizers.{key}.players",
                message=f"{use.part.name} changes the model itself, before there are players",
                expected="no players",
                hint="leave players out; a field of the part may choose parameters by name",
            )
        wanted = getattr(use.config, "sites", ())
        if model and sites and wanted and set(use.part.stages) == {"hang"} and not set(wanted) & set(sites):
            yield Mistake(
                path=f"regularizers.{key}.sites",
                message=f"{key} hangs on {listed(wanted)}, where the {model.what} has no pegs",
                expected=f"at least one of {listed(sites)}",
            )


def objections(part: Part[Any, Any], config: Any, facts: Facts) -> list[Problem]:
    """What a record's own `check` says."""
    problems = list(part.check(config, facts) or ()) if part.check is not None else []
    if bad := [p for p in problems if not isinstance(p, Problem)]:
        raise TypeError(f"check gave {bad[0]!r}, expected a Problem")
    return problems


def own_rules(parts: Parts, reads: Iterable[Read], facts: Facts) -> Iterable[Mistake]:
    """What the records' own `check` functions say."""
    for read in reads:
        if read.entry.part.check is None or read.config is None or read.guessed:
            continue
        try:
            problems = objections(read.entry.part, read.config, facts)
        except Exception as error:
            parts.defect(read.entry, read.path, "its check", error)
            continue
        yield from (_mistake(p, f"{read.path}.{p.field}") for p in problems if p.field)
        if whole := [p for p in problems if not p.field]:  # it does not go with the rest: one mistake
            yield _together(whole, read.path)


def facts(
    reads: Mapping[str, Read], spec: DataSpec | None, objective: Read | None, length: Length | None = None
) -> Facts:
    """What records may know of the plan when they check their own config."""
    length = length or Length()
    model, optimizer = reads.get("model"), reads.get("optimizer")
    tricks = [r.entry.part.name for r in reads.values() if isinstance(r.entry.part, Regularizer)]
    part = model.entry.part if model else None
    moved = optimizer.entry.part if optimizer else None
    aim = objective.entry.part if objective else None
    return Facts(
        spec=spec,
        model=part if isinstance(part, Model) else None,
        optimizer=moved if isinstance(moved, Optimizer) else None,
        objective=aim if isinstance(aim, ObjectivePart) else None,
        tricks=tuple(sorted(tricks)),
        steps=length.steps,
        epochs=length.epochs,
        smallest_batch=length.smallest_batch,
        players=None if objective is None else getattr(aim, "players", None),
        metrics=None if objective is None else metrics(objective, None if spec is None else spec.target),
    )


def metrics(objective: Read, target: Spec | None) -> tuple[str, ...] | None:
    """Names of the metrics of an objective besides the loss, where its record tells them."""
    names = getattr(objective.entry.part, "metrics", None)
    if names is None or objective.config is None:
        return None
    try:
        found = names(objective.config, target)
        return None if found is None else tuple(found)
    except Exception:  # the objective's own check says what it does not like of a target
        return None


def fit_monitor(name: str | None, path: str, known: Facts, validated: bool = True) -> Iterable[Mistake]:
    """A figure to choose checkpoints by that the run does not give; of no validation split there is none."""
    metrics, players = known.metrics, known.players
    if name is None or metrics is None or players is None:
        return
    losses = ["train/loss"] if len(players) == 1 else [f"train/{player}/loss" for player in players]
    measured = [f"val/{metric}" for metric in ("loss", *metrics)]
    figures = sorted([*losses, *(measured if validated else ())])
    if name not in figures:
        absent = ": the validation split is empty" if name in measured else ""
        yield Mistake(
            path=f"{path}.monitor",
            message=f"found the text {name!r}, which this run does not measure{absent}",
            expected=f"one of {listed(figures)}",
            nearest=tuple(nearest(name, figures)),
        )


def fit_players(reads: Mapping[str, Read], places: Mapping[str, str], known: Facts) -> Iterable[Mistake]:
    """Players that a config names and the objective does not have; `places` are those of the optimizer."""
    if known.players is None:
        return
    named = [(path, player) for player, path in places.items()]
    for path, read in reads.items():
        if isinstance(read.options, RegularizerOptions):
            named += [(f"{path}.players.{i}", player) for i, player in enumerate(read.options.players)]
    for path, player in named:
        if player not in known.players:
            what = known.objective.name if known.objective is not None else ""
            yield Mistake(
                path=path,
                message=f"there is no player {player!r}: the objective {what!r} has {listed(known.players)}",
                expected=f"one of {listed(known.players)}" if known.players[1:] else "no players here",
                nearest=tuple(nearest(player, known.players)),
                at_key=player in places,
            )


def fit_closure(trainer: Trainer | None, path: str, optimizer: Read | None) -> Iterable[Mistake]:
    """Half precision with an optimizer that evaluates the loss again."""
    part = optimizer.entry.part if optimizer is not None else None
    if trainer is not None and trainer.precision == "fp16" and getattr(part, "closure", False):
        assert optimizer is not None
        yield Mistake(
            path=f"{path}.precision",
            message=f"found fp16, in which {optimizer.what} cannot train: it evaluates the loss again",
            expected="auto, fp32 or bf16",
        )


def defaults(entry: Entry, path: str, parts: Parts) -> Read:
    """A part that the config does not name, with the defaults of its fields."""
    config = None
    try:
        config = build(entry.part.config, {}, path, parts.found)
    except Exception as error:
        parts.defect(entry, path, "its config class", error)
    return Read(path=path, entry=entry, config=config)


def _mistake(problem: Problem, path: str, *, at_key: bool = False) -> Mistake:
    return Mistake(
        path=path, message=problem.message, expected=problem.expected, hint=problem.hint, at_key=at_key
    )


def _together(problems: list[Problem], path: str) -> Mistake:
    """One mistake of a part as a whole, with all reasons."""
    first, *more = problems
    lines = [first.hint] if first.hint else []
    for problem in more:
        wanted = f"; expected {problem.expected}" if problem.expected else ""
        lines.append(f"also, {problem.message}{wanted}")
        lines += [problem.hint] if problem.hint and problem.hint not in lines else []
    return replace(_mistake(first, path, at_key=True), hint="\n".join(lines))


def alike(one: Read, other: Read) -> bool:
    """Whether two parts want the same kind of target, so that one data set is wrong for both of them."""
    ours, theirs = (getattr(read.entry.part, "targets", ()) for read in (one, other))
    return any(issubclass(a, b) or issubclass(b, a) for a in ours for b in theirs)


def _types(specs: tuple[type[Spec], ...]) -> str:
    return " or ".join(s.__name__ for s in specs) or "anything"


def _apart(accepted: tuple[type[Spec], ...], found: Sequence[Spec | None], registry: Registry) -> str:
    """Whose specs they are, where two of one name are not the same."""
    names = registry.specs
    pairs = [(a, type(s)) for s in found if s for a in accepted if a.__name__ == type(s).__name__]
    return "".join(f": {names.owner(a)}'s {a.__name__} is not {names.owner(b)}'s" for a, b in pairs)
