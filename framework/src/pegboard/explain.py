"""`explain`: the plan in one screen, measured by running one step on the meta device."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from .config.nodes import Chosen
from .contracts import Batch
from .engine.precision import choose_device, choose_precision
from .engine.step import link, turns
from .planning import Assembly, Plan, PlayerKit, assemble, overrides, read_data
from .report.console import plain_table


@dataclass
class Cost:
    """What one step takes."""

    flops: int = 0
    saved: int = 0  # bytes of activations kept for the backward pass
    state: int = 0  # bytes of the optimizers' state
    events: list[str] = field(default_factory=list)  # what was called, in order


def trace(plan: Plan, device: str) -> list[str]:
    """What one step calls, in order, recorded while it runs on a device."""
    if device == "meta":
        return _run_step(assemble(plan, "meta"), _example(plan)).events
    splits = plan.splits or read_data(plan.settings)
    rows = torch.arange(min(len(splits.train), plan.settings.batches.batch_size), device=device)
    return _run_step(assemble(plan, device), splits.train.to(device).gather(rows)).events


def _example(plan: Plan) -> Batch:
    size, spec = plan.settings.batches.batch_size, plan.spec
    target = None if spec.target is None else spec.target.example(size, "meta")
    rows = torch.empty(size, dtype=torch.long, device="meta")
    return Batch(tuple(s.example(size, "meta") for s in spec.inputs), target, None, rows)


def _run_step(assembly: Assembly, batch: Batch) -> Cost:
    """Run one step of every player of the first turn that all share, and measure it."""
    cost = Cost()
    assembly.model.train()
    trainer = assembly.plan.settings.trainer
    precision = choose_precision(trainer.precision if assembly.device != "meta" else "fp32", assembly.device)
    batches = [batch] * trainer.accumulate
    counter = FlopCounterMode(display=False)
    with _hooks(assembly, cost.events.append), _saved_bytes(assembly.model, cost), counter:
        for player in turns(assembly.kits)[-1]:
            kit = assembly.kits[player]
            record = _once(cost.events) if kit.closure else cost.events.append
            restore = kit.optimizer.step
            if assembly.device == "meta" and _synchronizes(assembly, kit):
                kit.optimizer.step = _stand_in  # type: ignore[method-assign]
            link(assembly, kit, precision, record).update(batches, 0)
            kit.optimizer.step = restore  # type: ignore[method-assign]
            cost.state += _state_bytes(kit.optimizer)
    cost.flops = counter.get_total_flops()
    return cost


def _stand_in(closure: Any = None) -> Any:
    """In place of an optimizer that cannot step on the meta device: evaluates the loss, if it would."""
    return closure() if closure is not None else None


def _once(events: list[str]) -> Any:
    """Records an event the first time only: an optimizer with a closure evaluates the step again."""
    return lambda event: None if event in events else events.append(event)


def _optimizer(assembly: Assembly, kit: PlayerKit) -> tuple[Chosen, Chosen | None]:
    settings = assembly.plan.settings
    return settings.player_optimizers.get(kit.player.name, (settings.optimizer, settings.schedule))


def _synchronizes(assembly: Assembly, kit: PlayerKit) -> bool:
    return bool(getattr(_optimizer(assembly, kit)[0].entry.part, "synchronizes", False))


def _schedule(assembly: Assembly, kit: PlayerKit) -> str | None:
    chosen = _optimizer(assembly, kit)[1]
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
    """Count what autograd keeps for the backward pass, besides the parameters."""
    seen = {id(p) for p in (*model.parameters(), *model.buffers())}
    kept: list[Tensor] = []  # so that no id is given twice

    def pack(tensor: Tensor) -> Tensor:
        if id(tensor) not in seen:
            seen.add(id(tensor))
            kept.append(tensor)
            cost.saved += tensor.numel() * tensor.element_size()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        yield


def _state_bytes(optimizer: torch.optim.Optimizer) -> int:
    tensors = (v for state in optimizer.state.values() for v in state.values() if isinstance(v, Tensor))
    return sum(t.numel() * t.element_size() for t in tensors)


def explain(plan: Plan) -> str:
    """The plan as text."""
    assembly = assemble(plan, "meta")
    cost = _run_step(assembly, _example(plan))
    sections = [
        _heading(plan),
        _parts(plan),
        _pegs(plan, assembly),
        _groups(assembly),
        _loss(plan, assembly),
        _order(plan, assembly),
        "one step\n" + "\n".join(f"  {event}" for event in cost.events),
        _cost(plan, assembly, cost),
    ]
    return "\n\n".join(filter(None, sections)) + "\n"


def _heading(plan: Plan) -> str:
    s = plan.settings
    device = choose_device(s.trainer.device)
    precision = choose_precision(s.trainer.precision, device).name
    text = f"{s.name}: seed {s.seed}, on {device} in {precision}\n{plan.spec}"
    length = f"{plan.epochs} epochs" if plan.epochs else f"{plan.steps} steps"
    if plan.batches_per_epoch is not None:
        length += f", {plan.batches_per_epoch} batches of {s.batches.batch_size} each, {plan.steps} steps"
    else:
        length += f", batches of {s.batches.batch_size}"
    if s.trainer.accumulate > 1:
        length += f", {s.trainer.accumulate} batches to an update"
    return f"{text}\n{length}"


def _parts(plan: Plan) -> str:
    rows = [[path, e.part.name, f"{e.plugin.dist} {e.plugin.version}"] for path, e in plan.entries()]
    return plain_table("", ["part", "name", "plugin"], rows)


def _pegs(plan: Plan, assembly: Assembly) -> str:
    roles = {p.key: p.role for p in plan.order.get("hang", ())}
    rows = []
    for name, peg, keys in assembly.hung:
        shown = ", ".join(f"{key} ({roles[key]})" for key in keys) or "-"
        rows.append([name, peg.site, f"{peg.features} {peg.layout}", shown])
    if not rows:
        return "pegs: none"
    return plain_table("", ["peg", "site", "features", "hangs, in order"], rows)


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


def _order(plan: Plan, assembly: Assembly) -> str:
    rows = [
        [stage, p.key, p.rule]
        for stage, placed in plan.order.items()
        for p in placed
        if overrides(assembly.tricks[p.key], stage)
    ]
    return plain_table("", ["stage", "trick", "why there"], rows) if rows else "tricks: none"


def _cost(plan: Plan, assembly: Assembly, cost: Cost) -> str:
    parameters = sum(p.numel() * p.element_size() for p in assembly.model.parameters())
    count = sum(p.numel() for p in assembly.model.parameters())
    total = 2 * parameters + cost.state + cost.saved
    waits = [k.player.name for k in assembly.kits if _synchronizes(assembly, k)]
    lines = [
        f"parameters  {count:,}",
        f"a step      {cost.flops:,} floating point operations in matrix products and convolutions",
        f"memory      {_bytes(total)}: weights {_bytes(parameters)}, gradients {_bytes(parameters)}, "
        f"optimizer {_bytes(cost.state)}, activations {_bytes(cost.saved)}",
    ]
    if waits:
        lines.append(f"waits       the optimizer of {', '.join(waits)} waits for the device in every step")
    return "\n".join(lines)


def _bytes(size: int) -> str:
    value = float(size)
    for unit in ("B", "KiB", "MiB"):
        if value < 999.5:  # as far as three digits go
            return f"{value:.3g} {unit}"
        value /= 1024
    return f"{value:.3g} GiB"
