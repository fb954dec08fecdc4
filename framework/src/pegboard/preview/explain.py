"""`explain`: the plan in one screen, measured by running one step on the meta device."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from itertools import chain, groupby
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from ..base.errors import PegboardError
from ..config.build_errors import as_config_errors
from ..contract.records import Context
from ..contract.results import Batch
from ..data import (
    Resident,
    about,
    data_warnings,
    least_samples,
    padding_share,
    say_fold,
    say_where,
    shown_bytes,
    widths_of,
)
from ..engine.precision import choose_precision, full_precision, planned_device
from ..engine.precompute import prepare
from ..engine.step import UNTOLD, make_step, turns
from ..engine.torch_private import compiler_absent
from ..planning.plan import (
    Assembly,
    Plan,
    PlayerKit,
    assemble,
    begin_eval_weights,
    build,
    overrides,
    read_data,
)
from ..report.console import plain_table
from .determinism import Finding, refuses, scanning
from .device_differences import eager_waits, refused_in_evaluation, repeatability
from .example import counted, example, largest
from .repeated_blocks import folded
from .sync_lint import (
    NotOnMeta,
    building,
    culprit,
    declared,
    leave_behind,
    looking,
    place,
    stand_ins,
    telling,
)

FEW = 4  # samples with which an evaluation is tried


@dataclass
class Cost:
    """What one step takes."""

    flops: int = 0
    saved: int = 0  # bytes of activations kept for the backward pass
    state: int = 0  # bytes of the optimizers' state
    events: list[str] = field(default_factory=list)  # what was called, in order
    refused: list[Finding] = field(default_factory=list)  # what CUDA has no deterministic kernel for


class _Untold:
    """Instead of torch's tracker of modules, for all are counted together.

    Its hooks fail in `torch.autograd.grad` where a module is called on a parameter.
    """

    parents = frozenset({"Global"})

    def __enter__(self) -> None: ...

    def __exit__(self, *args: object) -> None: ...


def trace(plan: Plan, device: str) -> list[str]:
    """What one step calls, in order, recorded while it runs on a device."""
    plan = counted(plan)
    if device == "meta":
        if why := _unmeasured(plan):
            raise PegboardError(f"the step cannot run on the meta device: {why}; name another device")
        return _run_step(_on_meta(plan), example(plan)).events
    splits = plan.splits or read_data(plan.settings)
    rows = torch.arange(min(len(splits.train), largest(plan)), device=device)
    return _run_step(assemble(plan, device), splits.train.to(device).gather(rows)).events


def _on_meta(plan: Plan) -> Assembly:
    with building(plan):
        return assemble(plan, "meta")


def _run_step(assembly: Assembly, batch: Batch) -> Cost:
    """Run one step of every player of the first turn that all share, and measure it.

    On the meta device a second one follows, which is a steady one: nothing in it may wait for the device.
    """
    cost, inside = Cost(), list[str]()
    assembly.model.train()
    trainer = assembly.plan.settings.trainer
    meta = assembly.device == "meta"
    precision = choose_precision("fp32" if meta else trainer.precision, assembly.device)
    batches = [batch] * trainer.accumulate
    counter = FlopCounterMode(display=False)
    counter.mod_tracker = _Untold()  # type: ignore[assignment]
    begin_eval_weights(assembly)
    if meta:
        leave_behind(assembly.model)
        _prepare(assembly, batch)
    with _hooks(assembly, cost.events.append), stand_ins(assembly) if meta else nullcontext():
        updates = []
        for player in turns(assembly.kits)[-1]:
            kit = assembly.kits[player]
            watch = functools.partial(_recorded, cost.events, inside, assembly.plan, kit)
            kit = replace(kit, schedule=watch("schedule", kit.schedule) if kit.schedule else None)
            updates.append(make_step(assembly, kit, precision, watch).update)
        tell = telling(assembly, inside) if meta else nullcontext()
        there = refuses(planned_device(trainer.device))
        scan = scanning(culprit(assembly, inside)) if there else nullcontext(())
        with tell, looking() if meta else nullcontext() as look, scan as refused:
            with _saved_bytes(assembly.model, cost), counter:
                for update in updates:
                    update(batches, 0)
            cost.events = list(cost.events)  # what comes now is the same again
            cost.state = sum(_state_bytes(kit.optimizer) for kit in assembly.kits)
            if look is not None:
                look.steady = True
                for update in updates:
                    update(batches[:1], 1)
    cost.flops, cost.refused = counter.get_total_flops(), list(refused)
    return cost


def _prepare(assembly: Assembly, batch: Batch) -> None:
    """Tricks that look at all samples before the first step do so, that a step costs what it will."""
    splits = assembly.plan.splits
    # Of data that was not read, samples that are rows are taken to have room in memory.
    rows = len({len(t) for t in (*batch.inputs, batch.target) if t is not None}) == 1
    if rows if splits is None else splits.train.resident is not None:
        with suppress(RuntimeError, TypeError):  # one that needs numbers acts in every step, as it also can
            prepare(assembly, Resident(batch.inputs, batch.target))


def _recorded(events: list[str], inside: list[str], plan: Plan, kit: PlayerKit, name: str, call: Any) -> Any:
    """What says its name whenever it is called; a closure evaluates the step again, and is told once."""
    where = place(plan, kit, name)

    def recorded(*args: Any) -> Any:
        if name not in UNTOLD and not (kit.closure and name in events):
            events.append(name)
        inside.append(where)
        result = call(*args)
        inside.pop()  # not where it fails: then it is known what was being called
        return result

    return recorded


def _schedule(assembly: Assembly, kit: PlayerKit) -> str | None:
    settings = assembly.plan.settings
    chosen = settings.player_optimizers.get(kit.player.name, (settings.optimizer, settings.schedule))[1]
    return None if chosen is None else chosen.entry.part.name


@contextmanager
def _hooks(assembly: Assembly, record: Any) -> Iterator[None]:
    """Modules that hang on pegs say their names when they are called."""
    handles = []
    for name, peg, keys in assembly.hung:
        for key in keys:
            event = f"  {name} {key}"
            say = functools.partial(lambda event, module, args: record(event), event)
            handles.append(peg.get_submodule(key).register_forward_pre_hook(say))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def _saved_bytes(model: nn.Module, cost: Cost) -> Iterator[None]:
    """Count what autograd keeps for the backward pass, besides the parameters; parts of one tensor once."""
    own = [t.untyped_storage() for t in (*model.parameters(), *model.buffers())]
    kept = list(own)  # torch gives the same object as long as there is one
    seen = set(map(id, own))

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if id(storage) not in seen:
            seen.add(id(storage))
            kept.append(storage)
            cost.saved += storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        yield


def _state_bytes(optimizer: torch.optim.Optimizer) -> int:
    tensors = (v for state in optimizer.state.values() for v in state.values() if isinstance(v, Tensor))
    return sum(t.numel() * t.element_size() for t in tensors)


class Preview(NamedTuple):
    """What a plan will do, in one screen, and what a person should know before it does."""

    text: str
    warnings: tuple[str, ...] = ()


def explain(plan: Plan, strict: bool = False) -> str:
    """What a plan will do, in one screen; a step of it runs on the meta device."""
    return preview(plan, strict).text


def preview(plan: Plan, strict: bool = False) -> Preview:
    """The text of `explain`, with warnings of what would wait on a GPU; `strict` makes these errors."""
    with as_config_errors(plan.settings, plan.path_of, parts_alone=True):
        return _preview(counted(plan), strict)


def _preview(plan: Plan, strict: bool) -> Preview:
    device, found = planned_device(plan.settings.trainer.device), list[NotOnMeta]()

    def tried(error: NotOnMeta) -> None:
        """Go on without a step, but where it could not run on the device of the plan either."""
        if strict or (error.stray and not device.startswith("cpu")):
            raise error
        found.append(error)

    with compiler_absent():
        batch, why = example(plan), _unmeasured(plan)
        cost = Cost(events=[f"not tried: {why}"])
        assembly: Assembly | None = None
        try:
            assembly = _on_meta(plan)
            if not why:
                cost = _run_step(assembly, batch)
        except NotOnMeta as error:
            tried(error)
            cost = Cost(events=[f"not tried: {_first_line(error)}"])
            assembly = assemble(plan, "cpu" if assembly is None else "meta")  # a step left half of it changed
        if refuses(device) and not found:
            cost.refused += refused_in_evaluation(assembly, example(plan, FEW))
    sections = [
        _heading(plan, assembly.model),
        _parts(plan),
        _pegs(plan, assembly),
        _groups(assembly),
        _loss(plan, assembly),
        _reference(plan),
        _probes(plan),
        _order(plan, assembly),
        _step(cost.events),
        _cost(plan, assembly, cost, measured=not (why or found)),
        repeatability(plan, cost.refused, device),
        _stepping(plan, assembly, batch, list(map(_first_line, found))),
    ]
    text = "\n\n".join(filter(None, sections)) + "\n"
    return Preview(text, tuple(f"on a GPU: {error}" for error in found))


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]


def measure_memory(plan: Plan) -> dict[str, int]:
    """Bytes that a step takes, of each kind, and those of a batch; a step runs on the meta device."""
    plan = counted(plan)
    with compiler_absent():
        assembly, batch = _on_meta(plan), example(plan)
        cost = Cost() if _unmeasured(plan) else _run_step(assembly, batch)
    weights = [p.nbytes for p in assembly.model.parameters()]
    trained = [p.nbytes for p in assembly.model.parameters() if p.requires_grad]
    return {
        "weights": sum(weights),
        "gradients": sum(trained),
        "optimizer": cost.state,
        "activations": cost.saved,
        "batch": sum(t.nbytes for t in (*batch.inputs, batch.target) if t is not None),
    }


def _heading(plan: Plan, model: nn.Module) -> str:
    s = plan.settings
    device = planned_device(s.trainer.device)
    precision = choose_precision(s.trainer.precision, device, full_precision(plan, model))
    why = f" ({precision.why})" if precision.why and precision.device != "cpu" else ""
    text = f"{s.name}: seed {s.seed}, on {device} in {precision.name}{why}\n{plan.spec}"
    length = f"{plan.epochs} epochs" if plan.epochs else f"{plan.steps} steps"
    length += f", {_batches(plan)}"
    if s.trainer.accumulate > 1:
        length += f", {s.trainer.accumulate} batches to an update"
    length += f"\nsamples: {_drawn(plan)}"
    where = [say_where(plan.splits, device)] if plan.splits is not None else []
    if s.trainer.cut is not None:
        where.append(say_fold(s.trainer.cut, own=getattr(s.data.entry.part, "folds", False)))
        if s.trainer.fold is None:
            length += f"; {s.trainer.folds} such runs, one for each fold, of which this is the first"
    where += [] if plan.splits is None else [*about(plan.splits), *data_warnings(plan.splits)]
    return "\n".join([text, length, *(f"data: {line}" for line in where if line)])


def _batches(plan: Plan) -> str:
    """How large batches are, and how they grow."""
    options, sampler = plan.settings.batches, plan.sampler
    (_, first), *later = options.stages()
    steps = "" if sampler is None else f", {plan.steps} steps"
    if sampler is not None and not later:
        return f"{sampler.batches(0)} batches of {sampler.size(0)} each{steps}"
    grown = "".join(f", from epoch {epoch} on of {size}" for epoch, size in later)
    return f"batches of {first}{grown}{steps}"


def _drawn(plan: Plan) -> str:
    """How the samples of an epoch are drawn."""
    options = plan.settings.batches
    once = "each once an epoch" + (", in a new order" if options.shuffle else ", in the order of the data")
    return {
        "epoch": "all in every update" if options.batch_size == "all" else once,
        "replacement": "drawn with replacement, all alike",
        "weighted": "drawn with replacement, by their weights, which do not weigh the loss besides",
        "balanced": "drawn with replacement, every class as likely as another",
    }[options.sampling]


def _parts(plan: Plan) -> str:
    rows = [[path, e.part.name, f"{e.plugin.dist} {e.plugin.version}"] for path, e in plan.entries()]
    return plain_table("", ["part", "name", "plugin"], rows)


def _pegs(plan: Plan, assembly: Assembly) -> str:
    roles = {p.key: p.role for p in plan.order.get("hang", ())}
    rows = []
    for name, peg, keys in assembly.hung:
        shown = ", ".join(f"{key} ({roles[key]})" for key in keys) or "-"
        rows.append((name, peg.site, f"{peg.features} {peg.layout}", shown))
    if not rows:
        return "pegs: none"
    return plain_table("", ["peg", "site", "features", "hangs, in order"], folded(rows))


def _step(events: list[str]) -> str:
    """What a step calls, in order; what hangs in blocks that are all alike is told once."""
    lines = []
    for inside, group in groupby(events, lambda event: event.startswith("  ")):
        lines += [event for (event,) in folded([(event,) for event in group])] if inside else list(group)
    return "\n".join(["one step", *(f"  {line}" for line in lines)])


def _groups(assembly: Assembly) -> str:
    rows = []
    for kit in assembly.kits:
        rates = {id(p): g["initial_lr"] for g in kit.optimizer.param_groups for p in g["params"]}
        schedule = _schedule(assembly, kit)
        for group in (g for g in kit.groups if g["params"]):
            rate = f"lr {rates[id(group['params'][0])]}" + (f" x {schedule}" if schedule else "")
            extras = sorted(set(group) - {"params", "names", "lr"})
            settings = ", ".join([rate, *(f"{k} {group[k]}" for k in extras)])
            names = group["names"]
            shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
            count = sum(p.numel() for p in group["params"])
            rows.append([kit.player.name, f"{count:,}", settings, shown])
    return plain_table("", ["player", "parameters", "settings", "names"], rows)


def _loss(plan: Plan, assembly: Assembly) -> str:
    formula = assembly.objective.formula
    for stage in ("edit_target", "edit_loss"):
        for placed in plan.order.get(stage, ()):
            formula = assembly.tricks[placed.key].formula(formula)
    return f"loss\n  {formula}"


def _reference(plan: Plan) -> str:
    """The optimum that the run will be measured beside, and what it minimises."""
    chosen = plan.settings.reference
    if chosen is None:
        return ""
    formula = build(chosen, Context(spec=plan.spec, outputs=plan.outputs, key=chosen.key)).formula
    return f"reference\n  {chosen.entry.part.name}: {formula}"


def _probes(plan: Plan) -> str:
    """What will be measured at the end; each is built, as what it lacks is better told now than then."""
    lines = []
    for key, chosen in plan.settings.probes.items():
        build(chosen, Context(spec=plan.spec, outputs=plan.outputs, seed=plan.settings.seed, key="probe"))
        lines.append(f"  {key}: {chosen.entry.part.summary}")
    return "\n".join(["probes, of the best weights at the end", *lines]) if lines else ""


def _order(plan: Plan, assembly: Assembly) -> str:
    rows = [
        [stage, p.key, p.rule]
        for stage, placed in plan.order.items()
        for p in placed
        if overrides(assembly.tricks[p.key], stage)
    ]
    return plain_table("", ["stage", "trick", "why there"], rows) if rows else "tricks: none"


def _cost(plan: Plan, assembly: Assembly, cost: Cost, measured: bool) -> str:
    parameters = sum(p.numel() * p.element_size() for p in assembly.model.parameters())
    count = sum(p.numel() for p in assembly.model.parameters())
    total = 2 * parameters + cost.state + cost.saved
    lines = [
        f"parameters  {count:,}",
        f"a step      {cost.flops:,} floating point operations in matrix products and convolutions"
        + (f", with batches of {largest(plan)}" if plan.settings.batches.batch_schedule else ""),
        f"memory      {shown_bytes(total)}: weights {shown_bytes(parameters)}, "
        f"gradients {shown_bytes(parameters)}, optimizer {shown_bytes(cost.state)}, "
        f"activations {shown_bytes(cost.saved)}",
    ]
    if not measured:
        del lines[1:]
    for path, (entry, why) in declared(plan).items():
        lines.append(f"waits       for the device in every step: {path} ({entry.part.name}), {why}")
    device, trainer = planned_device(plan.settings.trainer.device), plan.settings.trainer
    precision = choose_precision(trainer.precision, device, full_precision(plan, assembly.model)).name
    for why in eager_waits(assembly, device, precision) if assembly.stepping.eager else ():
        lines.append(f"waits       on {device} in every eager step: {why}")
    widths = widths_of(plan.splits.train) if plan.splits is not None else None
    if widths is not None and plan.sampler is not None:
        order = plan.sampler.order(0)
        whole = torch.split(order, plan.sampler.size(0))
        found = plan.sampler.pieces(0, order, least_samples(assembly.model))
        pieces = found or [(batch,) for batch in whole]
        share, cut = padding_share(widths, list(chain(*pieces))), sum(len(p) > 1 for p in pieces)
        how = f", {cut} of {len(whole)} computed in pieces of like length" if cut else ""
        lines.append(f"padding     {share:.1%} of the symbols in the batches of an epoch{how}")
    return "\n".join(lines)


def _unmeasured(plan: Plan) -> str:
    """Why a step cannot run on the meta device, as its parts declare; "" where it can."""
    told = []
    for path, (entry, why) in declared(plan).items():
        # What a trick changed in the model cannot be left out either.
        if path in ("model", "objective") or "edit_model" in getattr(entry.part, "stages", ()):
            told.append(f"{path} waits for the device: {why}")
    return ", ".join(told)


def _stepping(plan: Plan, assembly: Assembly, batch: Batch, waits: Sequence[str]) -> str:
    """What makes the updates, where it is not the ordinary step."""
    trainer = plan.settings.trainer
    kinds = ("model", "objective", "regularizers.")  # an optimizer's functional form need not wait
    declares = [f"{path} waits for the device" for path in declared(plan) if path.startswith(kinds)]
    precision = choose_precision(trainer.precision, planned_device(trainer.device))
    return assembly.stepping.preview(assembly, precision, batch, [*declares, *waits])
