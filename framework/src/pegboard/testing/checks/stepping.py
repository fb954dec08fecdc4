"""What an optimizer, a schedule, a trick and an objective do with what a step gives them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ..kit import Failed, Skipped, check
from ..subjects import Subject

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from ...contract.records import Site
    from ...contract.results import Batch
    from ...contract.tricks import Trick
    from ...planning.plan import Assembly

ZERO_AT = (*range(2001), 5_000, 10_000, 20_000, 50_000, 100_000)  # steps at which a schedule is looked at
GROUPS = 3  # of parameters, with which an optimizer is tried: a first one, a last one and one between


def _descent(subject: Subject, slower: Iterable[int] = (), late: bool = False) -> list[Tensor]:
    """Three groups of a matrix and a vector after three steps down a bowl.

    The rates of the groups `slower` are a quarter, from the first step on or `late` from the second.
    """
    import torch

    from ...contract.records import Context

    factory = subject.part.build(subject.built_config(), Context(seed=1, steps=3))
    target = torch.tensor([[1.0, -2.0], [0.5, 3.0]])
    every = [torch.zeros(shape, requires_grad=True) for _ in range(GROUPS) for shape in ((2, 2), (2,))]
    groups = [{"params": every[2 * i : 2 * i + 2], "names": [f"w{i}", f"b{i}"]} for i in range(GROUPS)]
    optimizer = factory(groups)
    chosen = {id(p) for i in slower for p in every[2 * i : 2 * i + 2]}

    def closure() -> Tensor:
        optimizer.zero_grad()
        goals = (target if p.dim() == 2 else target[1] for p in every)
        loss = sum(((p - goal).square().sum() for p, goal in zip(every, goals, strict=True)), torch.zeros(()))
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    for step in range(3):
        for group in optimizer.param_groups if step == int(late) else ():
            if any(id(p) in chosen for p in group["params"]):
                group["lr"] = 0.25 * group["lr"]
        if subject.part.closure:  # type: ignore[attr-defined]
            optimizer.step(closure)
        else:
            closure()
            optimizer.step()
    return [p.detach() for p in every]


@check("optimizer")
def heeds_every_group(subject: Subject) -> None:
    """It moves all parameters of every group, each by the rate of its own group."""
    import torch

    plain = _descent(subject)
    still = [number for number, p in enumerate(plain) if not bool(p.any())]
    if len(still) == GROUPS and len({number % 2 for number in still}) == 1:
        kind = "vectors, as biases are" if still[0] % 2 else "matrices"
        raise Failed(f"{subject.what} does not move {kind}; step all in group['params']")
    if still:
        at, whole = still[0] // 2, {still[0], still[0] ^ 1} <= {*still}
        missed = f"{'the' if whole else 'all'} parameters of group {at}"
        raise Failed(
            f"{subject.what} does not move {missed}; step all in group['params'] of all of self.param_groups"
        )
    every = _descent(subject, range(GROUPS))
    ignored = {i // 2 for i, (a, b) in enumerate(zip(plain, every, strict=True)) if torch.equal(a, b)}
    if len(ignored) == GROUPS:
        raise Failed(
            f"{subject.what} moves as far at a quarter of the rate: read group['lr'] in every step, which "
            "the schedule changes"
        )
    for index in range(GROUPS):
        own = slice(2 * index, 2 * index + 2)
        if index in ignored or any(map(torch.equal, plain[own], _descent(subject, [index])[own])):
            raise Failed(
                f"{subject.what} does not heed group['lr'] of group {index}; read the rate of each group"
            )


@check("optimizer", level="advised")  # a rate may be where lengths of steps begin, as in Rprop
def heeds_the_schedule(subject: Subject) -> None:
    """A rate that changes after the first step, as a schedule changes it, changes how far it moves."""
    import torch

    if subject.part.closure:  # type: ignore[attr-defined]
        raise Skipped("with a closure it may be at the bottom after one step")
    plain, late = _descent(subject), _descent(subject, range(GROUPS), late=True)
    if any(torch.equal(a, b) for a, b in zip(plain, late, strict=True)):
        raise Failed(
            f"{subject.what} moves as far though the rate fell to a quarter after the first step: read "
            "group['lr'] in every step and keep none, or no schedule acts"
        )


@check("optimizer")
def functional_is_its_step(subject: Subject) -> None:
    """The function that its record gives for an update gives the numbers of its `step`."""
    import torch

    from ...contract.records import Context

    functional = subject.part.functional  # type: ignore[attr-defined]
    if functional is None:
        raise Skipped("its record gives no function")
    # What is made for a graph may be made for nothing else, so only the other form is called here.
    ends = []
    for direct in (False, True):
        factory = subject.part.build(subject.built_config(), Context(seed=1, steps=8))
        params = [torch.full((3, 2), 0.5, requires_grad=True), torch.full((2,), -0.5, requires_grad=True)]
        optimizer = factory([{"params": [p], "names": [n]} for p, n in zip(params, "ab", strict=True)])
        for step in range(6):
            grads = [(p.detach() * (1 + step) + 0.1).contiguous() for p in params]
            update = functional(optimizer, False) if direct and step >= 2 else None
            if direct and step >= 2 and update is None:
                raise Skipped("its record gives no function beside the one for graphs")
            if update is not None:
                with torch.no_grad():
                    update(grads, [group["lr"] for group in optimizer.param_groups])
                continue
            for p, g in zip(params, grads, strict=True):
                p.grad = g
            optimizer.step()
        ends.append([p.detach() for p in params])
    if not all(torch.allclose(a, b, 1e-4, 1e-6) for a, b in zip(*ends, strict=True)):
        raise Failed(f"{subject.what}: `functional` of its record moves parameters otherwise than its step")


@check("schedule")
def heeds_the_length(subject: Subject) -> None:
    """A rate that falls to nothing does so by the end of the run, however long that is."""
    from ...contract.records import Context

    config = subject.built_config()
    ends = []
    for steps in (50, 400):
        factor = subject.part.build(config, Context(steps=steps, epochs=steps // 10))
        factors = [(at, float(factor(at))) for at in ZERO_AT]
        ends.append(next((at for at, value in factors if at and abs(value) < 1e-12), None))
    own = (
        {v for v in vars(config).values() if isinstance(v, int | float)}
        if hasattr(config, "__dict__")
        else set()
    )
    if ends[0] is not None and ends[0] == ends[1] and ends[0] not in own:
        raise Failed(
            f"{subject.what} is at zero in step {ends[0]} whether the run has 50 steps or 400; how many it "
            "has is context.steps"
        )


@check("regularizer")
def keeps_what_it_is_given(subject: Subject) -> None:
    """Its trick loses nothing: weights and rows of a batch, targets, parameters of groups, gradients."""
    import torch

    from ...engine.monitor import loss_names
    from ...planning.plan import overrides, private_rng
    from ..observed import rows_of

    assembly = trained(subject)
    trick: Trick = assembly.tricks[subject.part.name]
    splits = assembly.plan.splits
    assert splits is not None
    batch = rows_of(splits.train, range(6))
    weight = torch.linspace(0.5, 1.5, batch.samples)
    batch = batch.replace(weight=weight, rows=torch.arange(batch.samples))
    counted = all(spec.counted for spec in assembly.plan.spec.inputs)
    acts: dict[str, Callable[[], Iterator[str]]] = {
        "edit_batch": lambda: _batch_lost(trick, batch, counted, assembly.generators),
        "edit_target": lambda: _target_lost(trick, batch),
        "edit_groups": lambda: _groups_lost(trick, assembly.kits[0].player.parameters),
        "edit_grads": lambda: _grads_lost(trick, assembly.kits[0].player.parameters),
        "after_eval": lambda: _stop_lost(trick, assembly.objective.metrics(), loss_names(assembly)),
    }
    used = [stage for stage in acts if overrides(trick, stage)]
    if not used:
        raise Skipped("it edits neither batches nor targets, groups or gradients")
    for stage in used:
        with private_rng(0, "kit"):
            if lost := next(acts[stage](), ""):
                raise Failed(f"{subject.what}: {stage} {lost}")


def trained(subject: Subject) -> Assembly:
    """What its config builds, after some updates where it makes any."""
    try:
        return subject.observed.assembly
    except Exception:  # as other checks tell
        return subject.assembly()


def _batch_lost(
    trick: Trick, batch: Batch, counted: bool, streams: Mapping[str, torch.Generator]
) -> Iterator[str]:
    from ...contract.results import Batch
    from ...planning.plan import private_rng
    from ..observed import cloned, same

    states = {key: stream.get_state() for key, stream in streams.items()}
    edited: Any = trick.edit_batch(cloned(batch))
    if not isinstance(edited, Batch):
        yield f"gives a {type(edited).__name__}, expected a Batch: batch.replace(inputs=...)"
        return
    for name in ("weight", "rows"):
        value = getattr(edited, name)
        if value is None:
            yield f"drops `{name}` of the batch: batch.replace(inputs=...) keeps what is not named"
        elif len(value) != (count := len(edited.inputs[0]) if counted else edited.samples):
            yield f"gives {len(value)} numbers in `{name}` for {count} samples"
    if batch.target is not None and edited.target is None:
        yield "drops the target of the batch"
    if len(edited.inputs) != len(batch.inputs):
        yield f"gives {len(edited.inputs)} inputs of {len(batch.inputs)}"
    assert batch.weight is not None
    for key, state in states.items():
        streams[key].set_state(state)
    with private_rng(0, "kit"):
        other = trick.edit_batch(cloned(batch.replace(weight=batch.weight.flip(0))))
    if same(edited.weight, other.weight):
        yield "gives the same weights whatever those of the batch are: multiply batch.weight by its own"


def _target_lost(trick: Trick, batch: Batch) -> Iterator[str]:
    import torch

    if batch.target is None:
        return
    edited: Any = trick.edit_target(batch.target)
    if not isinstance(edited, torch.Tensor):
        yield f"gives a {type(edited).__name__}, expected a tensor"
    elif len(edited) != len(batch.target):
        yield f"gives targets of {len(edited)} samples for {len(batch.target)}"


def _groups_lost(trick: Trick, named: Any) -> Iterator[str]:
    given = [{"params": [p for _, p in named], "names": [n for n, _ in named], "lr": 0.5, "kit": 1}]
    groups = trick.edit_groups(given)
    held = [id(p) for group in groups for p in group["params"]]
    if lost := [name for name, p in named if id(p) not in held]:
        yield f"loses {', '.join(lost[:3])}: every parameter stays in one group"
    if len(held) != len(set(held)):
        yield "puts a parameter into two groups"
    if lost := [key for key in ("lr", "kit") if any(key not in group for group in groups)]:
        option = "`lr`" if "lr" in lost else "what others have written into a group"
        yield f"loses {option}: copy the group, {{**group, 'params': ..., 'names': ...}}"
    counts = [(len(group.get("names", ())), len(group["params"])) for group in groups]
    if wrong := next((pair for pair in counts if pair[0] != pair[1]), None):
        yield f"gives a group with {wrong[0]} names for {wrong[1]} parameters"


def _grads_lost(trick: Trick, named: Any) -> Iterator[str]:
    import torch

    params = [p for _, p in named]
    grads: list[torch.Tensor | None] = [torch.full_like(p, 0.01) for p in params]
    before = [None if grad is None else grad.clone() for grad in grads]
    edited: Any = trick.edit_grads(list(grads), params)
    if not isinstance(edited, list | tuple) or len(edited) != len(params):
        yield f"gives a {type(edited).__name__}, expected a list of gradients, one for each parameter"
        return
    for (name, p), grad in zip(named, edited, strict=True):
        if grad is None or grad.shape != p.shape:
            yield f"loses the gradient of {name}"
    for (name, _), old, given in zip(named, before, grads, strict=True):
        if old is not None and given is not None and not torch.equal(old, given):
            yield f"changes the gradient of {name} in place: return new ones, as [g * scale for g in grads]"


def _stop_lost(trick: Trick, metrics: Iterable[str], losses: Iterable[str]) -> Iterator[str]:
    from ...contract.tricks import Stop

    figures = {f"val/{name}": 1.0 for name in ("loss", *metrics)} | dict.fromkeys(losses, 1.0)
    answer: Any = trick.after_eval({"step": 3, "epoch": 1, "lr": 0.01, **figures})
    if answer is not None and not isinstance(answer, Stop):
        yield f'gives {answer!r}, expected None or Stop("why")'


@check("regularizer")
def hangs_on_any_peg(subject: Subject) -> None:
    """What it hangs fits the features and axes of its peg, and is a module of its own for each."""
    import torch

    from ...planning.pegs import Peg
    from ...planning.plan import overrides, private_rng

    assembly = trained(subject)
    trick: Any = assembly.tricks[subject.part.name]
    if not overrides(trick, "hang"):
        raise Skipped("it hangs nothing")
    config = assembly.plan.settings.regularizers[subject.part.name].config
    site: Site = next(iter(getattr(config, "sites", ())), "hidden")
    hung: list[torch.nn.Module] = []
    for layout, shape in {"NC": (4, 5), "NLC": (4, 3, 5), "NCL": (4, 5, 3), "NCHW": (4, 5, 3, 2)}.items():
        for features in (5, 5):
            with private_rng(0, "kit"):
                module = trick.hang(Peg(site, features, layout))
                if module is None:
                    continue
                if any(module is other for other in hung) and [*module.state_dict()]:
                    raise Failed(f"{subject.what} hangs one module on two pegs, which then share its numbers")
                hung.append(module)
                x = torch.randn(shape)
                before = x.clone()
                given = _answer(subject, module, x, f"on a peg {layout!r} of {features} features")
            if given.shape != x.shape or given.dtype != x.dtype:
                raise Failed(
                    f"{subject.what}: on a peg {layout!r} of {features} features its module makes "
                    f"{tuple(given.shape)} of {given.dtype} from {tuple(x.shape)} of {x.dtype}"
                )
            if not torch.equal(before, x):
                raise Failed(f"{subject.what}: its module changes in place what it is given on a peg")


def _answer(subject: Subject, module: torch.nn.Module, x: Tensor, where: str) -> Tensor:
    """What a module makes of a tensor."""
    try:
        answer: Tensor = module(x)
    except Exception as error:
        why = str(error).partition("\n")[0]
        raise Failed(
            f"{subject.what}: {where} its module cannot read a tensor {tuple(x.shape)} "
            f"({type(error).__name__}: {why}); the axis of the features is peg.axis"
        ) from error
    return answer


@check("objective")
def averages_samples(subject: Subject) -> None:
    """Its loss is a mean over samples: the same samples twice have the same loss. Metrics heed weights."""
    import inspect
    import math
    from operator import itemgetter

    import torch

    from ...contract.results import Objective
    from ..observed import rows_of

    assembly = subject.assembly()
    splits = assembly.plan.splits
    assert splits is not None
    batch = rows_of(splits.train, range(6))
    with torch.no_grad():
        output = assembly.model.eval()(*batch.inputs)
    target, objective = batch.target, assembly.objective
    own = type(objective).loss is not Objective.loss and type(objective).evaluate is Objective.evaluate
    if target is None or not own or {len(t) for t in _tensors(output)} != {6}:
        raise Skipped("it compares no output with a target")
    once = objective.loss(output, target)
    twice = objective.loss(_each(lambda t: torch.cat((t, t)), output), torch.cat((target, target)))
    if abs(float(once)) > 1e-6 and abs(float(twice / once) - 2) < 1e-3:
        raise Failed(
            f"{subject.what}: its loss is a sum over samples, expected their mean: twice as many double it"
        )
    # By weight and by number; outputs that err here and there, as an untrained model's may not.
    drawn = torch.Generator().manual_seed(0)
    output = _each(
        lambda t: t + torch.randn(t.shape, generator=drawn) if t.is_floating_point() else t, output
    )
    for weights in ([2.0, 1, 1, 1, 0, 0], [0.0, 0, 3, 1, 1, 1], [1.0, 0, 1, 0, 2, 2]):
        index = torch.arange(6).repeat_interleave(torch.tensor(weights).long())
        metrics, others = objective.metrics(), objective.metrics()
        for name, weighed in metrics.items():
            if list(inspect.signature(weighed.update).parameters)[2:3] != ["weight"]:
                continue
            other: Any = others[name]
            weighed.update(output, target, torch.tensor(weights))  # type: ignore[call-arg]
            other.update(_each(itemgetter(index), output), target[index], torch.ones(len(index)))
            found, expected = float(weighed.compute()), float(other.compute())
            near = abs(found - expected) < 1e-3 * max(1.0, abs(expected))
            if not (near or found == expected or math.isnan(found)):
                raise Failed(
                    f"{subject.what}: the metric {name!r} takes weights and does not heed them: it is "
                    f"{found:.4g} with weights {weights} and {expected:.4g} for the same samples by number"
                )


def _each(change: Callable[[Tensor], Tensor], output: Any) -> Any:
    """A nest of tensors with each of them changed."""
    if isinstance(output, dict):
        return {name: _each(change, value) for name, value in output.items()}
    if isinstance(output, list | tuple):
        values = [_each(change, value) for value in output]
        return type(output)(*values) if hasattr(output, "_fields") else type(output)(values)
    return change(output) if hasattr(output, "dim") else output


def _tensors(output: Any) -> list[Tensor]:
    """All tensors of a nest."""
    found: list[Tensor] = []
    _each(lambda t: found.append(t) or t, output)  # type: ignore[func-returns-value]
    return found
