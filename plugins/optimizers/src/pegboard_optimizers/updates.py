"""An optimizer's update as a function of gradients and rates, past `Optimizer.step`.

`Optimizer.step` looks up groups, states and hooks anew in every step, which costs a small model as much as
the arithmetic, and it cannot be traced into a graph. What it computes in the end is one function of torch
over lists of tensors that stay the same during a run; here those lists are made once.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import adadelta, adagrad, adam, adamax, asgd, nadam, radam, rmsprop, rprop, sgd

from .adafactor import adafactor
from .muon import MuonAdamW
from .sgd import Sgd

Rate = float | Tensor
Update = Callable[[Sequence[Tensor], Sequence[Rate]], None]  # gradients of all groups, rate of each group
Bound = Callable[[list[Tensor], Rate], None]  # the same for one group

# The function of torch behind an optimizer, and the state it takes as lists, in the order of its arguments.
FUNCTIONS: dict[type[torch.optim.Optimizer], tuple[Callable[..., None], tuple[str, ...]]] = {
    Sgd: (sgd.sgd, ("momentum_buffer",)),
    torch.optim.Adam: (adam.adam, ("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "step")),
    torch.optim.AdamW: (adam.adam, ("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "step")),
    torch.optim.NAdam: (nadam.nadam, ("exp_avg", "exp_avg_sq", "mu_product", "step")),
    torch.optim.RAdam: (radam.radam, ("exp_avg", "exp_avg_sq", "step")),
    torch.optim.Adamax: (adamax.adamax, ("exp_avg", "exp_inf", "step")),
    torch.optim.Adadelta: (adadelta.adadelta, ("square_avg", "acc_delta", "step")),
    torch.optim.Adagrad: (adagrad.adagrad, ("sum", "step")),
    torch.optim.ASGD: (asgd.asgd, ("ax", "mu", "eta", "step")),
    torch.optim.RMSprop: (rmsprop.rmsprop, ("square_avg", "grad_avg", "momentum_buffer", "step")),
    torch.optim.Rprop: (rprop.rprop, ("prev", "step_size", "step")),
    torch.optim.Adafactor: (adafactor, ("row_var", "col_var", "variance", "step")),
}
_MUON = "torch.optim._muon"
if (_muon := getattr(torch.optim, "_muon", None)) is not None:  # else Muon has no functional form
    FUNCTIONS[torch.optim.Muon] = (_muon.muon, ("momentum_buffer",))
# Torch's fused kernels, which are private; None where one is gone, and `Optimizer.step` makes the update.
KERNELS: dict[str, Callable[..., Any] | None] = {
    name: getattr(torch, f"_fused_{name}_", None) for name in ("adam", "adamw", "sgd")
}
for _gone in [*(f"torch._fused_{k}_" for k, v in KERNELS.items() if v is None), *([] if _muon else [_MUON])]:
    warnings.warn(
        f"torch {torch.__version__} has no {_gone}: updates go through Optimizer.step", stacklevel=2
    )
WITHOUT_FOREACH = (torch.optim.Muon, torch.optim.Adafactor)  # their lists may hold None, or they have none
# A group's key with several numbers -> the arguments they are.
PAIRS = {"betas": ("beta1", "beta2"), "etas": ("etaminus", "etaplus"), "eps": ("eps1", "eps2"),
         "step_sizes": ("step_size_min", "step_size_max")}  # fmt: skip


def functional(optimizer: torch.optim.Optimizer, traced: bool) -> Update | None:
    """The update of an optimizer that has made its state, or None where there is no such function.

    A `traced` one is for a graph: it takes rates as tensors and nothing in it waits for the device. The
    other calls the fused kernel, with the same numbers as `Optimizer.step` bit for bit.
    """
    if isinstance(optimizer, MuonAdamW):
        found = [(part, group) for part in optimizer.parts for group in part.param_groups]
    else:
        found = [(optimizer, group) for group in optimizer.param_groups]
    bind = _traced if traced else _fused
    bounds = [bind(part, group) for part, group in found if type(part) in FUNCTIONS]
    if len(bounds) != len(optimizer.param_groups) or None in bounds:
        return None
    if len(bounds) == 1:
        (only,) = bounds
        return lambda grads, rates: only(grads, rates[0])  # type: ignore[misc,arg-type]
    sizes = [len(group["params"]) for group in optimizer.param_groups]

    def update(grads: Sequence[Tensor], rates: Sequence[Rate]) -> None:
        start = 0
        for bound, size, rate in zip(bounds, sizes, rates, strict=True):
            bound(list(grads[start : start + size]), rate)  # type: ignore[misc]
            start += size

    return update


def _lists(optimizer: torch.optim.Optimizer, group: dict[str, Any]) -> list[list[Any]]:
    """The state of a group as lists; one that no parameter has is empty, as torch's functions expect."""
    keys = FUNCTIONS[type(optimizer)][1]
    states = [optimizer.state.get(p, {}) for p in group["params"]]
    lists = [[state.get(key) for state in states] for key in keys]
    if isinstance(optimizer, (WITHOUT_FOREACH, torch.optim.SGD)):
        return lists
    return [[] if all(x is None for x in values) else values for values in lists]


def _ready(optimizer: torch.optim.Optimizer, group: dict[str, Any]) -> bool:
    """Whether every parameter has its state, which the first step makes."""
    stateless = isinstance(optimizer, torch.optim.SGD) and not group["momentum"]
    return stateless or all(optimizer.state.get(p) for p in group["params"])


def _traced(optimizer: torch.optim.Optimizer, group: dict[str, Any]) -> Bound | None:
    function = FUNCTIONS[type(optimizer)][0]
    params = group["params"]
    if not _ready(optimizer, group):
        return None
    for p in params:  # counts and factors that live on another device would have to be waited for
        state = optimizer.state.get(p, {})
        state.update({k: _own(v.to(p.device)) for k, v in state.items() if isinstance(v, Tensor)})
    lists = _lists(optimizer, group)
    options = {**group, "has_complex": False, "foreach": not isinstance(optimizer, WITHOUT_FOREACH),
               "capturable": True, "fused": False}  # fmt: skip
    for key, names in PAIRS.items():
        if isinstance(group.get(key), tuple | list):
            options |= zip(names, options.pop(key), strict=True)  # rprop has a list under one of these names
    known = inspect.signature(function).parameters
    given = {key: value for key, value in options.items() if key in known and key not in ("params", "lr")}
    if isinstance(optimizer, torch.optim.AdamW):
        given["decoupled_weight_decay"] = True

    if isinstance(optimizer, torch.optim.Rprop):  # its step sizes are its own

        def without_rate(grads: list[Tensor], rate: Rate) -> None:
            function(params, grads, *lists, **given)

        return without_rate

    def update(grads: list[Tensor], rate: Rate) -> None:
        function(params, grads, *lists, lr=rate, **given)

    return update


def _own(value: Tensor) -> Tensor:
    """A tensor that shares its memory with no other, which a graph that changes both could not see."""
    return value if value.untyped_storage().nbytes() == value.nbytes else value.clone()


def _join_counts(optimizer: torch.optim.Optimizer, params: Sequence[Tensor]) -> Tensor:
    """The steps that each parameter made, as one tensor to count in; the states have views of it."""
    counts = torch.stack([optimizer.state[p]["step"] for p in params])
    for p, count in zip(params, counts.unbind(), strict=True):
        optimizer.state[p]["step"] = count
    return counts


def _fused(optimizer: torch.optim.Optimizer, group: dict[str, Any]) -> Bound | None:
    """The kernel itself, where the group uses it and its tensors are of one kind."""
    params = group["params"]
    kinds = {(p.device, p.dtype) for p in params}
    if not group.get("fused") or len(kinds) != 1 or not _ready(optimizer, group):
        return None
    # Detached, parameters can be changed without a context manager, which costs calls.
    tensors = [p.detach() for p in params]
    lists = _lists(optimizer, group)
    decay, maximize = group["weight_decay"], group["maximize"]
    if isinstance(optimizer, torch.optim.Adam):  # and AdamW
        fused_adam = KERNELS["adamw" if isinstance(optimizer, torch.optim.AdamW) else "adam"]
        if fused_adam is None:
            return None
        (beta1, beta2), eps, amsgrad = group["betas"], group["eps"], group["amsgrad"]
        means, squares, largest, steps = lists
        counts, one, own = (
            _join_counts(optimizer, params),
            torch.ones_like(steps[0]),
            optimizer.state[params[0]],
        )
        steps = joined = [optimizer.state[p]["step"] for p in params]

        def update_adam(grads: list[Tensor], rate: Rate) -> None:
            nonlocal steps
            found = getattr(optimizer, "found_inf", None)
            if own["step"] is joined[0]:
                counts.add_(one)
            else:  # a graph has taken them apart since
                steps = [optimizer.state[p]["step"] for p in params]
                for step in steps:
                    step.add_(1)
            fused_adam(
                tensors, grads, means, squares, largest, steps, lr=rate, beta1=beta1, beta2=beta2,
                weight_decay=decay, eps=eps, amsgrad=amsgrad, maximize=maximize, found_inf=found,
            )  # fmt: skip
            if found is not None:
                for step in steps:
                    step.sub_(found)

        return update_adam
    if isinstance(optimizer, torch.optim.SGD):
        fused_sgd = KERNELS["sgd"]
        if fused_sgd is None:
            return None
        momentum, dampening, nesterov = group["momentum"], group["dampening"], group["nesterov"]
        buffers = lists[0] if momentum else []

        def update_sgd(grads: list[Tensor], rate: Rate) -> None:
            fused_sgd(
                tensors, grads, buffers, weight_decay=decay, momentum=momentum, lr=rate,
                dampening=dampening, nesterov=nesterov, maximize=maximize, is_first_step=False,
                found_inf=getattr(optimizer, "found_inf", None),
            )  # fmt: skip

        return update_sgd
    return None
