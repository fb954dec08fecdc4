"""One update of a player: forward, gradients, guard, apply, as the methods of `Step`, in the order they act.

Everything that a step calls is collected once, when it is made: nothing is looked up in it, a stage that
nobody uses costs a truth test, and nothing waits for the device. `update` is the step as Python runs it.
`update_in_graph` is the same for a graph, where the rates are tensors and an update with numbers that are not
finite is undone instead of left out. An optimizer that evaluates the loss again has a `ClosureStep`, and
training in fp16 a `ScaledStep`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

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
ALONE = (None,)  # the share of a batch that is all of an update


def make_step(assembly: Assembly, kit: PlayerKit, precision: Precision, watch: Watch | None = None) -> Step:
    """The step of a player. With `watch`, each part is called through what it returns."""
    kind = ClosureStep if kit.closure else Step if precision.scaler is None else ScaledStep
    return kind(assembly, kit, precision, watch or _unwatched)


class Step:
    """What one player does in an update."""

    guard: Guard | None

    def __init__(self, assembly: Assembly, kit: PlayerKit, precision: Precision, watch: Watch) -> None:
        self.model, self.optimizer, self.scaler = assembly.model, kit.optimizer, precision.scaler
        self.groups, self.schedule, self.functional = kit.optimizer.param_groups, kit.schedule, kit.functional
        self.params = [p for group in self.groups for p in group["params"]]
        # Gradients that nobody needs in the parameters are not kept there.
        self.lean = all(p.requires_grad for p in self.params)
        # Where others play too, a loss must leave no gradients in their parameters.
        self.only = tuple(self.params) if len(assembly.kits) > 1 else ()
        self.strides = [p.stride() for p in self.params]
        self.direct: Update | None = None  # the optimizer's function, past its bookkeeping
        self.collect_parts(assembly, kit, precision, watch)
        self.collect_weights(assembly, kit, watch)
        self.guard = self.make_guard(assembly, kit, watch)

    # What it calls, collected once.

    def collect_parts(self, assembly: Assembly, kit: PlayerKit, precision: Precision, watch: Watch) -> None:
        """The methods of tricks, objective and optimizer, each under the name that `watch` knows."""

        def stage(name: str) -> tuple[Callable[..., Any], ...]:
            methods = assembly.linked(name, kit.player.name)
            return tuple(watch(f"{name} {key}", method) for key, method in methods)

        player = kit.player
        self.compute = precision.wrap(watch(f"forward and loss of {player.name}", player.loss))
        self.own_target, self.mass = player.target, assembly.objective.mass
        self.edit_batch, self.edit_loss = stage("edit_batch"), stage("edit_loss")
        self.edit_target = stage("edit_target") if player.learns else ()
        self.edit_grads, self.after_step = stage("edit_grads"), stage("after_step")
        self.differentiate = watch("backward", self.differentiate)  # type: ignore[method-assign]
        self.move = watch("update", self.move)  # type: ignore[method-assign]

    def collect_weights(self, assembly: Assembly, kit: PlayerKit, watch: Watch) -> None:
        """The weights that decay, those that others follow, and those that tricks may move in memory."""
        self.decays = _decays(kit)
        # Detached, tensors can be changed in place without a context manager, which costs calls.
        self.shrunk = [(group, value, [p.detach() for p in decayed]) for group, value, decayed in self.decays]
        self.follow: Callable[[list[Tensor]], None] | None = None  # brings weights for evaluation up to date
        self.followed = list(kit.followed.values())
        self.weights = [p.detach() for p in self.followed]
        self.followers: list[Tensor] = []
        if kit.eval_weights is not None and (follow := kit.eval_weights[1].follow) is not None:
            key, kept = kit.eval_weights
            self.follow = watch(f"eval_weights {key}", follow)
            self.followers = [*kept.weights.values(), *kept.state]
        edited = self.edit_grads or self.after_step
        self.owned = [(p, p.detach(), p.data_ptr()) for p in assembly.model.parameters()] if edited else []

    def make_guard(self, assembly: Assembly, kit: PlayerKit, watch: Watch) -> Guard | None:
        """What looks for numbers that are not finite before anything moves."""
        mode: Any = "stop" if kit.closure else assembly.plan.settings.trainer.nonfinite
        guard = Guard(kit.player.name, kit.player.parameters, kit.optimizer, assembly.device, mode)
        self.shrink = watch("decay", guard.shrink)
        guard.refuses = watch("guard", guard.refuses)  # type: ignore[method-assign]
        return guard

    # One update.

    def update(self, batches: Sequence[Batch], step: int) -> Tensor:
        """The update number `step` of the run on these batches; returns their mean loss."""
        if self.schedule is not None:
            self.set_rates(step)
        loss, grads = self.gradients(batches)
        if self.refuses(loss, grads, step):
            self.forget_gradients()
            return loss
        if self.shrunk:
            self.decay()
        self.move(grads)
        for act in self.after_step:
            act(self.model)
        if self.owned:
            self.restore_memory()
        if self.follow is not None:
            self.follow(self.weights)
        return loss

    def set_rates(self, step: int) -> None:
        """The learning rates that the schedule has for this step."""
        assert self.schedule is not None
        factor = self.schedule(step)
        for group in self.groups:
            group["lr"] = group["initial_lr"] * factor

    def shares(self, batches: Sequence[Batch]) -> Sequence[Tensor | float]:
        """By these the losses of batches sum up to the mean over all that counts in them."""
        masses = [self.mass(batch) for batch in batches]
        total = sum(masses)
        if isinstance(total, Tensor):  # where nothing counts; to look would be to wait for the device
            total = total.where(total != 0, 1.0)
        return [found / total for found in masses]

    def forward(self, batch: Batch) -> Tensor:
        """The loss of a batch, as tricks have edited both."""
        for edit in self.edit_batch:
            batch = edit(batch)
        if self.own_target is not None:
            batch = Batch(batch.inputs, self.own_target(batch), batch.weight, batch.rows)
        if self.edit_target:
            target = batch.target
            for edit in self.edit_target:
                target = edit(target)
            batch = Batch(batch.inputs, target, batch.weight, batch.rows)
        loss, output = self.compute(self.model, batch)
        for edit in self.edit_loss:
            loss = edit(loss, output, batch)
        return loss  # type: ignore[no-any-return]

    def differentiate(self, loss: Tensor) -> Sequence[Tensor | None]:
        """The gradient of every parameter; where some are frozen, in the parameters, for `collected`."""
        if self.lean:
            return _differentiate(loss, tuple(self.params), False)
        return _differentiate(loss, self.only, True)

    def gradients(self, batches: Sequence[Batch], in_graph: bool = False) -> tuple[Tensor, Grads]:
        """The mean loss of batches and its gradients, as tricks have edited them."""
        total: Tensor | None = None
        grads: Grads = []
        for batch, share in zip(batches, self.shares(batches) if len(batches) > 1 else ALONE, strict=True):
            loss = self.forward(batch)
            if share is not None:
                loss = loss * share
            found = torch.autograd.grad(loss, self.params) if in_graph else self.differentiate(loss)
            grads = _sums(grads, found, in_graph) if grads else list(found)
            total = loss.detach() if total is None else total + loss.detach()
        assert total is not None
        if not (self.lean or in_graph):
            grads = self.collected()
        if self.edit_grads:
            for edit in self.edit_grads:
                grads = edit(grads, self.params)
            if not in_graph:
                self.restore_memory()
        return total, grads

    def collected(self) -> Grads:
        """The gradients that lie in the parameters."""
        return [p.grad for p in self.params]

    def refuses(self, loss: Tensor, grads: Grads, step: int) -> bool:
        """Whether the update must not be made, because a number in it is not finite."""
        assert self.guard is not None
        return self.guard.refuses(loss, grads, self.params, step)

    def decay(self) -> None:
        """Weights shrink apart from their gradients."""
        for group, value, tensors in self.shrunk:
            self.shrink(tensors, 1 - group["lr"] * value)

    def move(self, grads: Grads) -> None:
        """The optimizer's step, past its bookkeeping where it has a function for that."""
        complete = True
        for at, stride in enumerate(self.strides):
            g = grads[at]
            if g is None:
                complete = False
            elif not g.is_sparse and g.stride() != stride:  # kernels take for granted that both lie alike
                grads[at] = torch.empty_like(self.params[at]).copy_(g)
        if complete and self.direct is not None:
            self.direct(grads, [group["lr"] for group in self.groups])  # type: ignore[arg-type]
            return
        for p, g in zip(self.params, grads, strict=True):
            p.grad = g
        self.call_optimizer()
        for p in self.params:
            p.grad = None
        wanted = self.lean and self.direct is None and self.functional is not None
        if wanted and not torch_private.is_hooked(self.optimizer):
            self.direct = self.functional(self.optimizer, False)  # type: ignore[misc]

    def call_optimizer(self) -> None:
        """The optimizer's own step on the gradients in the parameters."""
        self.optimizer.step()

    def forget_gradients(self) -> None:
        """Leave none of a refused update in the parameters."""
        for p in () if self.lean else self.params:
            p.grad = None

    def restore_memory(self) -> None:
        """Copy what a trick put elsewhere (`p.data = x`) to where step and optimizer know the weights."""
        for p, memory, address in self.owned:
            if p.data_ptr() != address:
                p.data = memory.copy_(p.data)

    # The same in a graph.

    def update_in_graph(self, batches: Sequence[Batch], rates: Sequence[Tensor], apply: Update) -> Tensor:
        """The loss of an update that is undone where a number was not finite; all happens in place."""
        assert self.guard is not None
        loss, grads = self.gradients(batches, in_graph=True)
        with torch.no_grad():
            bad = self.guard.refused(loss, grads)  # type: ignore[arg-type]
            tensors = [*self.params, *_state_tensors(self.optimizer)]
            before = [t.clone() for t in tensors]
            for group, value, decayed in self.decays:
                shrinking = 1 - rates[_place(self.groups, group)] * value
                for p in decayed:
                    p.mul_(shrinking)
            apply(grads, rates)  # type: ignore[arg-type]
            for t, old in zip(tensors, before, strict=True):
                t.copy_(torch.where(bad, old, t))
            for act in self.after_step:
                act(self.model)
            if self.follow is not None:
                before = [t.clone() for t in self.followers]
                self.follow(self.followed)  # type: ignore[arg-type]
                for t, old in zip(self.followers, before, strict=True):
                    t.copy_(torch.where(bad, old, t))
        return loss


class ClosureStep(Step):
    """For an optimizer that evaluates the loss again, as often as it likes, inside its own step."""

    def __init__(self, assembly: Assembly, kit: PlayerKit, precision: Precision, watch: Watch) -> None:
        if precision.scaler is not None:
            raise PegboardError(
                "an optimizer that evaluates the loss again cannot train in fp16; use bf16 or fp32"
            )
        super().__init__(assembly, kit, precision, watch)
        self.lean = False
        self.step_with = watch("update", self.optimizer.step)

    def update(self, batches: Sequence[Batch], step: int) -> Tensor:
        """The update number `step` of the run on these batches; returns their mean loss."""
        if self.schedule is not None:
            self.set_rates(step)
        if self.shrunk:
            self.decay()
        loss = torch.as_tensor(self.step_with(lambda: self.evaluate(batches, step)))
        self.forget_gradients()
        for act in self.after_step:
            act(self.model)
        if self.owned:
            self.restore_memory()
        if self.follow is not None:
            self.follow(self.weights)
        return loss

    def evaluate(self, batches: Sequence[Batch], step: int) -> Tensor:
        """The loss, with its gradients in the parameters; what is not finite ends the run."""
        self.forget_gradients()
        loss, grads = self.gradients(batches)
        self.refuses(loss, grads, step)
        for p, g in zip(self.params, grads, strict=True):
            p.grad = g
        return loss


class ScaledStep(Step):
    """For fp16: the loss is scaled before it is differentiated, and the scaler looks for what overflows."""

    scaler: torch.amp.GradScaler

    def __init__(self, assembly: Assembly, kit: PlayerKit, precision: Precision, watch: Watch) -> None:
        super().__init__(assembly, kit, precision, watch)
        self.lean = False
        # An update that is left out must leave no trace: the scaler sees to that where nothing else acts.
        self.looks = bool(self.shrunk or self.after_step or self.follow)

    def make_guard(self, assembly: Assembly, kit: PlayerKit, watch: Watch) -> None:
        """None: the scaler looks for itself."""
        self.shrink = watch("decay", torch_private.foreach_mul_)

    def differentiate(self, loss: Tensor) -> Sequence[Tensor | None]:
        """Scaled gradients, in the parameters."""
        return _differentiate(self.scaler.scale(loss), self.only, True)

    def collected(self) -> Grads:
        """The gradients that lie in the parameters, unscaled."""
        self.scaler.unscale_(self.optimizer)
        return super().collected()

    def refuses(self, loss: Tensor, grads: Grads, step: int) -> bool:
        """Whether unscaling found a gradient that is not finite."""
        if not self.looks or not torch_private.overflowed(self.scaler, self.optimizer):
            return False
        self.scaler.update()
        return True

    def call_optimizer(self) -> None:
        """The optimizer's own step, unless a gradient was not finite."""
        self.scaler.step(self.optimizer)
        self.scaler.update()


def _unwatched(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    return call


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
    found: Sequence[Tensor | None] | None = torch_private.run_backward(
        (loss,), (seed,), False, False, params, True, accumulate_grad=keep
    )
    return found or ()


def _sums(grads: Grads, more: Sequence[Tensor | None], in_graph: bool) -> Grads:
    """The gradients of two batches, never added in place: autograd may give one tensor to two parameters."""
    if in_graph:
        return torch_private.foreach_add(grads, more)  # type: ignore[no-any-return]
    both = zip(grads, more, strict=True)
    return [b if a is None else a if b is None else a + b for a, b in both]


def _place(groups: Sequence[dict[str, Any]], group: dict[str, Any]) -> int:
    return next(i for i, g in enumerate(groups) if g is group)


def _state_tensors(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [v for state in optimizer.state.values() for v in state.values() if isinstance(v, Tensor)]


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
