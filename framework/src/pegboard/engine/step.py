"""The linked step: everything a plan does in one update, as one function and plain tuples.

Nothing is looked up here. A stage that nobody uses costs a truth test; nothing waits for the device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..contracts import Batch
from ..errors import PegboardError
from ..planning import Assembly, PlayerKit
from .guard import Guard
from .precision import Precision

Record = Callable[[str], None]


class Linked(NamedTuple):
    """What one player does in a step. `update`: (batches to accumulate, number of the step) -> mean loss."""

    update: Callable[[Sequence[Batch], int], Tensor]
    backward: Callable[[Sequence[Batch]], Tensor]  # without the update, for a second look at bad numbers
    guard: Guard | None
    params: list[nn.Parameter]


def link(assembly: Assembly, kit: PlayerKit, precision: Precision, record: Record | None = None) -> Linked:
    """The update of a player as one function. With `record`, each part says its name when it is called."""

    def stage(name: str) -> tuple[Callable[..., Any], ...]:
        methods = assembly.linked(name, kit.player.name)
        if record is None:
            return tuple(method for _, method in methods)
        return tuple(_recorded(f"{name} {key}", method, record) for key, method in methods)

    model, optimizer = assembly.model, kit.optimizer
    compute = kit.player.loss
    if record is not None:
        compute = _recorded(f"forward and loss of {kit.player.name}", compute, record)
    compute = precision.wrap(compute)
    edit_batch, edit_target, edit_loss = stage("edit_batch"), stage("edit_target"), stage("edit_loss")
    edit_grads, after_step = stage("edit_grads"), stage("after_step")
    if record is not None:  # the parts of a step that are nobody's method
        edit_loss += (_recorded("backward", lambda loss, output, batch: loss, record),)
        edit_grads += (_recorded("update", lambda params: None, record),)
    params = [p for group in optimizer.param_groups for p in group["params"]]
    # Where others play too, a loss must leave no gradients in their parameters.
    only = params if len(assembly.kits) > 1 else None
    decays = _decays(kit)
    schedule, groups, scaler = kit.schedule, optimizer.param_groups, precision.scaler
    closure = kit.closure
    if closure and scaler is not None:
        raise PegboardError(
            "an optimizer that evaluates the loss again cannot train in fp16; use bf16 or fp32"
        )

    def backward(batches: Sequence[Batch]) -> Tensor:
        total: Tensor | None = None
        rows = sum([len(b.inputs[0]) for b in batches]) if len(batches) > 1 else 0
        for batch in batches:
            size = len(batch.inputs[0]) if rows else 0
            for edit in edit_batch:
                batch = edit(batch)
            if edit_target:
                target = batch.target
                for edit in edit_target:
                    target = edit(target)
                batch = Batch(batch.inputs, target, batch.weight, batch.rows)
            loss, output = compute(model, batch)
            for edit in edit_loss:
                loss = edit(loss, output, batch)
            if rows:  # the sum over batches is the gradient of the mean over all their samples
                loss = loss * (size / rows)
            (loss if scaler is None else scaler.scale(loss)).backward(inputs=only)
            total = loss.detach() if total is None else total + loss.detach()
        if scaler is not None:
            scaler.unscale_(optimizer)
        for edit in edit_grads:
            edit(params)
        assert total is not None
        return total

    mode: Any = "stop" if closure else assembly.plan.settings.trainer.nonfinite
    guard = None
    if scaler is None:  # a scaler looks for itself
        guard = Guard(kit.player.name, kit.player.parameters, optimizer, assembly.device, mode)
    shrink = torch._foreach_mul_ if guard is None else guard.shrink

    def evaluate(batches: Sequence[Batch], step: int) -> Tensor:
        for p in params:
            p.grad = None
        loss = backward(batches)
        if guard is not None:
            guard.refuses(loss, params, step)
        return loss

    def update(batches: Sequence[Batch], step: int) -> Tensor:
        if schedule is not None:
            factor = schedule(step)
            for group in groups:
                group["lr"] = group["initial_lr"] * factor
        if not closure:
            loss = backward(batches)
            if guard is not None and guard.refuses(loss, params, step):
                for p in params:
                    p.grad = None
                return loss
        for group, value, tensors in decays:
            shrink(tensors, 1 - group["lr"] * value)
        if closure:
            loss = torch.as_tensor(optimizer.step(lambda: evaluate(batches, step)))  # type: ignore[arg-type,return-value]
        elif scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
            scaler.update()
        for p in params:
            p.grad = None
        for act in after_step:
            act(model)
        return loss

    return Linked(update, backward, guard, params)


def _decays(kit: PlayerKit) -> list[tuple[dict[str, Any], float, list[Tensor]]]:
    """What decays apart from the gradient: the optimizer's group that has the rate, strength, tensors.

    Detached, the tensors can be changed in place without a context manager, which costs calls.
    """
    owner = {id(p): group for group in kit.optimizer.param_groups for p in group["params"]}
    found: dict[tuple[int, float], tuple[dict[str, Any], float, list[Tensor]]] = {}
    for given in kit.groups:
        value = given.get("decoupled_decay", 0.0)
        for p in given["params"] if value else ():
            group = owner[id(p)]
            found.setdefault((id(group), value), (group, value, []))[2].append(p.detach())
    return list(found.values())


def _recorded(name: str, call: Callable[..., Any], record: Record) -> Callable[..., Any]:
    def recorded(*args: Any) -> Any:
        record(name)
        return call(*args)

    return recorded


def turns(kits: Sequence[PlayerKit]) -> list[list[int]]:
    """Which players move at each position of a cycle: the one with most steps always, the others last."""
    cycle = max(kit.player.steps for kit in kits)
    return [[i for i, k in enumerate(kits) if at >= cycle - k.player.steps] for at in range(cycle)]
