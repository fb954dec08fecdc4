"""The linked step: everything a plan does in one update, as one function and plain tuples.

Nothing is looked up here. A stage that nobody uses costs a truth test; nothing waits for the device.
`update` is the step as Python runs it. `traced` is the same as a function for a graph, where the rates are
tensors and an update with numbers that are not finite is undone instead of left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..base.errors import PegboardError
from ..contract.results import Batch, Update
from ..planning.plan import Assembly, PlayerKit
from . import torch_private
from .guard import Guard
from .precision import Precision

Grads = list[Tensor | None]
Watch = Callable[[str, Callable[..., Any]], Callable[..., Any]]  # wraps what is called under a name
UNTOLD = ("schedule", "guard", "decay")  # names of what the core does between the parts


class Linked(NamedTuple):
    """What one player does in a step. `update`: (batches to accumulate, number of the step) -> mean loss."""

    update: Callable[[Sequence[Batch], int], Tensor]
    gradients: Callable[[Sequence[Batch]], tuple[Tensor, Grads]]  # without the update, for a second look
    traced: Callable[[Sequence[Batch], Sequence[Tensor], Update], Tensor]
    guard: Guard | None
    params: list[nn.Parameter]


ALONE = (None,)  # the share of a batch that is all of an update


def link(assembly: Assembly, kit: PlayerKit, precision: Precision, watch: Watch | None = None) -> Linked:
    """The update of a player as one function. With `watch`, each part is called through what it returns."""

    def stage(name: str) -> tuple[Callable[..., Any], ...]:
        methods = assembly.linked(name, kit.player.name)
        return tuple(watch(f"{name} {key}", method) if watch else method for key, method in methods)

    model, optimizer, trainer = assembly.model, kit.optimizer, assembly.plan.settings.trainer
    compute = kit.player.loss
    if watch is not None:
        compute = watch(f"forward and loss of {kit.player.name}", compute)
    compute = precision.wrap(compute)
    own_target, mass = kit.player.target, assembly.objective.mass
    edit_batch, edit_loss = stage("edit_batch"), stage("edit_loss")
    edit_target = stage("edit_target") if kit.player.learns else ()
    edit_grads, after_step = stage("edit_grads"), stage("after_step")
    if trainer.clip is not None:
        bound, clip = trainer.clip, clip_norm if trainer.clip_by == "norm" else clip_value
        clip = watch("clip", clip) if watch else clip
    params = [p for group in optimizer.param_groups for p in group["params"]]
    # Where others play too, a loss must leave no gradients in their parameters.
    every = tuple(params)
    only = every if len(assembly.kits) > 1 else ()
    decays = _decays(kit)
    # Detached, tensors can be changed in place without a context manager, which costs calls.
    shrunk = [(group, value, [p.detach() for p in decayed]) for group, value, decayed in decays]
    schedule, groups, scaler, closure = kit.schedule, optimizer.param_groups, precision.scaler, kit.closure
    averages, averaged = _averages(assembly, params)
    weights = [p.detach() for p in averaged]
    strides = [p.stride() for p in params]
    # Where tricks get hold of weights: all of the model's, and the memory that they have.
    owned = [(p, p.detach(), p.data_ptr()) for p in model.parameters()] if edit_grads or after_step else []
    # Gradients that nobody changes in place need not be kept in the parameters.
    lean = scaler is None and not edit_grads and not closure and all(p.requires_grad for p in params)
    direct: Update | None = None
    if closure and scaler is not None:
        raise PegboardError(
            "an optimizer that evaluates the loss again cannot train in fp16; use bf16 or fp32"
        )

    def forward(batch: Batch) -> Tensor:
        for edit in edit_batch:
            batch = edit(batch)
        if own_target is not None:
            batch = Batch(batch.inputs, own_target(batch), batch.weight, batch.rows)
        if edit_target:
            target = batch.target
            for edit in edit_target:
                target = edit(target)
            batch = Batch(batch.inputs, target, batch.weight, batch.rows)
        loss, output = compute(model, batch)
        for edit in edit_loss:
            loss = edit(loss, output, batch)
        return loss  # type: ignore[no-any-return]

    def differentiate(loss: Tensor) -> None:
        scaled = loss if scaler is None else scaler.scale(loss)
        _differentiate(scaled, only, True)

    def derivatives(loss: Tensor) -> Sequence[Tensor | None]:
        return _differentiate(loss, every, False)

    if watch is not None:
        differentiate, derivatives = watch("backward", differentiate), watch("backward", derivatives)

    def shares(batches: Sequence[Batch]) -> Sequence[Tensor | float]:
        """By these the losses of batches sum up to the mean over all that counts in them."""
        masses = [mass(batch) for batch in batches]
        total = sum(masses)
        if isinstance(total, Tensor):  # where nothing counts; to look would be to wait for the device
            total = total.where(total != 0, 1.0)
        return [found / total for found in masses]

    def settle() -> None:
        """After `p.data = ...`: what was linked knows weights by their memory, so that takes the values."""
        for p, memory, address in owned:
            if p.data_ptr() != address:
                p.data = memory.copy_(p.data)

    def gradients(batches: Sequence[Batch]) -> tuple[Tensor, Grads]:
        total: Tensor | None = None
        grads: Grads = []
        for batch, share in zip(batches, shares(batches) if len(batches) > 1 else ALONE, strict=True):
            loss = forward(batch)
            if share is not None:
                loss = loss * share
            if lean:
                found = derivatives(loss)
                grads = [_sum(a, b) for a, b in zip(grads, found, strict=True)] if grads else list(found)
            else:
                differentiate(loss)
            total = loss.detach() if total is None else total + loss.detach()
        assert total is not None
        if not lean:
            if scaler is not None:
                scaler.unscale_(optimizer)
            for edit in edit_grads:
                edit(params)
            settle()
            grads = [p.grad for p in params]
        if trainer.clip is not None:
            grads = clip(grads, bound)
        return total, grads

    mode: Any = "stop" if closure else trainer.nonfinite
    guard = None
    if scaler is None:  # a scaler looks for itself
        guard = Guard(kit.player.name, kit.player.parameters, optimizer, assembly.device, mode)
    shrink = torch_private.foreach_mul_ if guard is None else guard.shrink
    average = torch_private.foreach_lerp_
    if watch is not None:
        shrink, average = watch("decay", shrink), watch("average", average)
        if guard is not None:
            guard.refuses = watch("guard", guard.refuses)  # type: ignore[method-assign]

    def evaluate(batches: Sequence[Batch], step: int) -> Tensor:
        for p in params:
            p.grad = None
        loss, grads = gradients(batches)
        if guard is not None:
            guard.refuses(loss, grads, params, step)
        for p, g in zip(params, grads, strict=True):
            p.grad = g
        return loss

    def move(grads: Grads) -> None:
        """The optimizer's step, past its bookkeeping where it has a function for that."""
        nonlocal direct
        complete = True
        for at, stride in enumerate(strides):
            g = grads[at]
            if g is None:
                complete = False
            elif not g.is_sparse and g.stride() != stride:  # kernels take for granted that both lie alike
                grads[at] = torch.empty_like(params[at]).copy_(g)
        if complete and direct is not None:
            direct(grads, [group["lr"] for group in groups])  # type: ignore[arg-type]
            return
        for p, g in zip(params, grads, strict=True):
            p.grad = g
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
            scaler.update()
        for p in params:
            p.grad = None
        if lean and direct is None and kit.functional is not None and not torch_private.is_hooked(optimizer):
            direct = kit.functional(optimizer, False)

    # An update that a scaler leaves out must leave no trace; where nothing else acts, it sees to that itself.
    overflows = scaler is not None and bool(shrunk or after_step or averages)
    step_with = optimizer.step
    if watch is not None:
        move, step_with = watch("update", move), watch("update", step_with)

    def update(batches: Sequence[Batch], step: int) -> Tensor:
        if schedule is not None:
            factor = schedule(step)
            for group in groups:
                group["lr"] = group["initial_lr"] * factor
        if closure:
            for group, value, tensors in shrunk:
                shrink(tensors, 1 - group["lr"] * value)
            loss = torch.as_tensor(step_with(lambda: evaluate(batches, step)))  # type: ignore[arg-type,return-value]
            for p in params:
                p.grad = None
        else:
            loss, grads = gradients(batches)
            if guard is not None and guard.refuses(loss, grads, params, step):
                for p in () if lean else params:
                    p.grad = None
                return loss
            if overflows and torch_private.overflowed(scaler, optimizer):  # type: ignore[arg-type]
                scaler.update()  # type: ignore[union-attr]
                for p in params:
                    p.grad = None
                return loss
            for group, value, tensors in shrunk:
                shrink(tensors, 1 - group["lr"] * value)
            move(grads)
        for act in after_step:
            act(model)
        if after_step:
            settle()
        if averages:
            average(averages, weights, 1 - trainer.ema)  # type: ignore[operator]
        return loss

    def traced(batches: Sequence[Batch], rates: Sequence[Tensor], apply: Update) -> Tensor:
        """The loss of an update that is undone where a number was not finite."""
        assert guard is not None
        total: Tensor | None = None
        grads: list[Tensor] = []
        for batch, share in zip(batches, shares(batches) if len(batches) > 1 else ALONE, strict=True):
            loss = forward(batch)
            if share is not None:
                loss = loss * share
            found = torch.autograd.grad(loss, params)
            grads = torch_private.foreach_add(grads, found) if grads else list(found)
            total = loss.detach() if total is None else total + loss.detach()
        assert total is not None
        if edit_grads:
            for p, g in zip(params, grads, strict=True):
                p.grad = g.clone()
            for edit in edit_grads:
                edit(params)
            grads = [p.grad for p in params]
            for p in params:
                p.grad = None
        if trainer.clip is not None:
            grads = clip(grads, bound)  # type: ignore[assignment,arg-type]
        with torch.no_grad():
            bad = guard.refused(total, grads)
            tensors = [*params, *_state_tensors(optimizer)]
            before = [t.clone() for t in tensors]
            for group, value, decayed in decays:
                shrinking = 1 - rates[_place(groups, group)] * value
                for p in decayed:
                    p.mul_(shrinking)
            apply(grads, rates)
            for t, old in zip(tensors, before, strict=True):
                t.copy_(torch.where(bad, old, t))
            for act in after_step:
                act(model)
            if averages:
                for average, p in zip(averages, averaged, strict=True):
                    average.copy_(torch.where(bad, average, average.lerp(p, 1 - trainer.ema)))  # type: ignore[operator]
        return total

    return Linked(update, gradients, traced, guard, params)


def _differentiate(loss: Tensor, params: tuple[Tensor, ...], keep: bool) -> Sequence[Tensor | None]:
    """Gradients of a scalar, to be kept in the parameters or given back; None of those that it has not.

    Torch's engine as `backward` and `grad` call it, past what they ask of every parameter in every step.
    """
    if loss.numel() != 1:
        raise PegboardError(
            f"a loss has the shape {tuple(loss.shape)}, expected one number: the objective, or a trick that "
            "edits the loss, has to take the mean over samples"
        )
    seed = torch.ones_like(loss)
    return torch_private.run_backward((loss,), (seed,), False, False, params, True, accumulate_grad=keep)  # type: ignore[no-any-return]


def clip_norm(grads: Grads, bound: float) -> Grads:
    """Gradients scaled to a joint length of at most `bound`, by the arithmetic of torch's clip_grad_norm_."""
    present = [g for g in grads if g is not None]
    # The compiler joins norms of its own making, and cannot call torch's of a list from C++.
    norm = torch.nn.utils.get_total_norm(present, foreach=False if torch.compiler.is_compiling() else None)
    scale = torch.clamp(bound / (norm + 1e-6), max=1.0)
    # Beside longer numbers the length is one of those, and a gradient without axes would become one too.
    return [None if g is None else g * scale if g.dim() else (g * scale).to(g.dtype) for g in grads]


def clip_value(grads: Grads, bound: float) -> Grads:
    """Gradients with every number between -bound and bound; one that is not finite becomes nan."""
    return [None if g is None else _clamp(g, bound) + g * 0 for g in grads]


def _clamp(g: Tensor, bound: float) -> Tensor:
    if not g.is_complex():
        return g.clamp(-bound, bound)
    return torch.view_as_complex(torch.view_as_real(g).clamp(-bound, bound))


def _sum(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    # Never in place: autograd may give one tensor to two parameters.
    return b if a is None else a if b is None else a + b


def _place(groups: Sequence[dict[str, Any]], group: dict[str, Any]) -> int:
    return next(i for i, g in enumerate(groups) if g is group)


def _state_tensors(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [v for state in optimizer.state.values() for v in state.values() if isinstance(v, Tensor)]


def _averages(assembly: Assembly, params: Sequence[nn.Parameter]) -> tuple[list[Tensor], list[nn.Parameter]]:
    """The averages of a player's weights, and the weights."""
    own = {id(p) for p in params}
    named = [(n, p) for n, p in assembly.model.named_parameters() if n in assembly.average and id(p) in own]
    return [assembly.average[n] for n, _ in named], [p for _, p in named]


def _decays(kit: PlayerKit) -> list[tuple[dict[str, Any], float, list[nn.Parameter]]]:
    """What decays apart from the gradient: the optimizer's group that has the rate, strength, parameters."""
    owner = {id(p): group for group in kit.optimizer.param_groups for p in group["params"]}
    found: dict[tuple[int, float], tuple[dict[str, Any], float, list[nn.Parameter]]] = {}
    for given in kit.groups:
        value = given.get("decoupled_decay", 0.0)
        for p in given["params"] if value else ():
            group = owner[id(p)]
            found.setdefault((id(group), value), (group, value, []))[2].append(p)
    return list(found.values())


def turns(kits: Sequence[PlayerKit]) -> list[list[int]]:
    """Which players move at each position of a cycle: the one with most steps always, the others last."""
    cycle = max(kit.player.steps for kit in kits)
    return [[i for i, k in enumerate(kits) if at >= cycle - k.player.steps] for at in range(cycle)]
