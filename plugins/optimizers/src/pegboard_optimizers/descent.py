"""Descent that looks where it goes: the full gradient with a tolerance and a line search, and Nesterov's."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from pegboard import PegboardError
from torch import Tensor

from .search import backtracking, exact

Groups = list[dict[str, Any]]
Closure = Callable[[], Any]  # evaluates the loss and its gradients, and returns the loss


def _trained(optimizer: torch.optim.Optimizer) -> list[tuple[Tensor, dict[str, Any]]]:
    """Every parameter that has a gradient, with its group."""
    return [(p, group) for group in optimizer.param_groups for p in group["params"] if p.grad is not None]


def _evaluate(closure: Closure) -> Any:
    with torch.enable_grad():
        return closure()


def _number(loss: Any) -> float:
    return float(torch.as_tensor(loss).detach())


class GradientDescent(torch.optim.Optimizer):
    """theta <- theta - lr * gradient, until the gradient is at most `tolerance` long.

    With a line search `lr` is the first length it tries. All parameters go along one ray, each group
    in proportion to its own `lr`.
    """

    def __init__(
        self,
        params: Groups,
        lr: float,
        tolerance: float = 0.0,
        line_search: str = "none",
        armijo: float = 1e-4,
        shrink: float = 0.5,
        max_eval: int = 50,
    ) -> None:
        defaults = {"lr": lr, "tolerance": tolerance, "line_search": line_search}
        super().__init__(params, defaults | {"armijo": armijo, "shrink": shrink, "max_eval": max_eval})

    def step(self, closure: Closure | None = None) -> Any:
        """One update; `closure` is evaluated once, and again for every length that is tried."""
        if closure is None:
            raise TypeError("GradientDescent.step needs a closure that evaluates the loss and its gradients")
        loss = _evaluate(closure)
        found = _trained(self)
        if not found:
            return loss
        note = self._note
        note["norm"] = float(torch.nn.utils.get_total_norm([_wide(p.grad) for p, _ in found]))
        note["stuck"] = False
        if note["norm"] <= self.defaults["tolerance"]:
            return loss
        rate = found[0][1]["lr"]
        if self.defaults["line_search"] == "none":
            with torch.no_grad():
                for p, group in found:
                    p.add_(p.grad, alpha=-group["lr"])  # type: ignore[arg-type]
            note["length"] = rate
        else:
            share = self._search(closure, _number(loss), found)
            note["length"], note["stuck"] = share * rate, share == 0
        return loss

    def _search(
        self, closure: Closure, value: float, found: Sequence[tuple[Tensor, dict[str, Any]]]
    ) -> float:
        """Move to the point that the line search finds; returns the share of `lr` that it went."""
        start = [p.detach().clone() for p, _ in found]
        grads = [p.grad.detach().clone() for p, _ in found]  # type: ignore[union-attr]
        rates = [group["lr"] for _, group in found]

        def move(share: float) -> None:
            with torch.no_grad():
                for (p, _), x, g, rate in zip(found, start, grads, rates, strict=True):
                    torch.add(x, g, alpha=-share * rate, out=p)

        def slope() -> float:
            terms = [
                rate * torch.dot(_wide(g).flatten(), _wide(p.grad).flatten())
                for (p, _), g, rate in zip(found, grads, rates, strict=True)
                if p.grad is not None
            ]
            return -float(torch.stack(terms).sum()) if terms else 0.0

        def along(share: float) -> tuple[float, float]:
            """The loss and its slope at a share of `lr` along the ray; infinite where it does not exist."""
            move(share)
            try:
                loss = _number(_evaluate(closure))
            except PegboardError:  # the core refuses what is not finite, and a shorter step may do
                return math.inf, math.nan
            return loss, slope()

        first, options = slope(), self.defaults
        precision, most = max(torch.finfo(x.dtype).eps for x in start), options["max_eval"]
        if options["line_search"] == "exact":
            share = exact(along, value, first, precision, most)
        else:
            share = backtracking(along, value, first, options["armijo"], options["shrink"], precision, most)
        move(share)
        return share

    @property
    def _note(self) -> dict[str, Any]:
        """What is kept from the last update, with the state of the first parameter."""
        note: dict[str, Any] = self.state[self.param_groups[0]["params"][0]]
        return note

    @property
    def norm(self) -> float:
        """How long the gradient of the last update was."""
        return float(self._note.get("norm", math.nan))

    @property
    def length(self) -> float:
        """How far along the gradient the last update that moved went."""
        return float(self._note.get("length", math.nan))

    def finished(self) -> str | None:
        """Why no update will change anything any more, or None."""
        tolerance = self.defaults["tolerance"]
        if self.norm <= tolerance:
            return f"gradient norm {self.norm:.3g} is at most tolerance {tolerance:.3g}"
        if self._note.get("stuck"):
            return (
                f"no step along the gradient lowers the loss; its norm {self.norm:.3g} is above tolerance "
                f"{tolerance:.3g}"
            )
        return None


def _wide(x: Tensor | None) -> Tensor:
    """In double precision, where the device has it."""
    assert x is not None
    return x.detach() if x.device.type == "mps" else x.detach().double()


class Nesterov(torch.optim.Optimizer):
    """Nesterov's accelerated gradient: the slope is taken ahead, and the weights stay behind.

    chi = theta + beta (theta - theta before), theta <- chi - lr * gradient at chi. The parameters are
    theta between updates, so that what is measured and saved is theta. Without `momentum`, beta rises
    as the sequence for convex functions does.
    """

    def __init__(self, params: Groups, lr: float, momentum: float | None = 0.9) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum})

    def step(self, closure: Closure | None = None) -> Any:
        """One update; `closure` is evaluated once, at the point ahead."""
        if closure is None:
            raise TypeError("Nesterov.step needs a closure that evaluates the loss and its gradients")
        params = [(p, group) for group in self.param_groups for p in group["params"] if p.requires_grad]
        behind = [p.detach().clone() for p, _ in params]
        with torch.no_grad():
            for (p, group), theta in zip(params, behind, strict=True):
                if state := self.state[p]:
                    p.add_(theta - state["before"], alpha=_momentum(group["momentum"], state["weight"]))
        try:
            loss = _evaluate(closure)
        except BaseException:  # what is not finite ends the run, and leaves the weights where they were
            with torch.no_grad():
                for (p, _), theta in zip(params, behind, strict=True):
                    p.copy_(theta)
            raise
        with torch.no_grad():
            for (p, group), theta in zip(params, behind, strict=True):
                state = self.state[p]
                state["before"] = theta
                state["weight"] = _next_weight(state["weight"]) if "weight" in state else 1.0
                if p.grad is None:
                    p.copy_(theta)
                else:
                    p.add_(p.grad, alpha=-group["lr"])
        return loss


def _momentum(constant: float | None, weight: float) -> float:
    return (weight - 1) / _next_weight(weight) if constant is None else constant


def _next_weight(weight: float) -> float:
    """The weights 1, 1.618, 2.194, ... whose quotients are the momentum for convex functions."""
    return (1 + math.sqrt(1 + 4 * weight**2)) / 2
