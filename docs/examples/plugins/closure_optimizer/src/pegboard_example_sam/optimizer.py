"""SAM as a `torch.optim.Optimizer` over another one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from . import SamAdamW, SamSgd
from .functional import ascent, moved

Groups = list[dict[str, Any]]


class Sam(torch.optim.Optimizer):
    """Evaluates the loss at the worst point near the weights, and lets another optimizer do the step.

    The two share their groups and their state, so that schedules, checkpoints and anything else that knows
    `torch.optim.Optimizer` sees a single one.
    """

    def __init__(self, base: torch.optim.Optimizer, rho: float) -> None:
        self.base = base
        super().__init__(base.param_groups, {**base.defaults, "rho": rho})
        self._share()

    def _share(self) -> None:
        self.base.param_groups = self.param_groups
        self.base.state = self.state

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"base": self.base}

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Loading a state dict comes through here too, and brings new groups and a new state.
        super().__setstate__(state)
        self._share()

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One update. `closure` computes loss and gradients; it is called twice, once where rho is 0."""
        if closure is None:
            raise TypeError("SAM evaluates the loss itself: step(closure)")
        with torch.enable_grad():
            loss = closure()
        near = [(p, group["rho"]) for group in self.param_groups for p in group["params"] if group["rho"]]
        found = [(p, p.grad, rho) for p, rho in near if p.grad is not None]
        if found:
            params, grads, radii = zip(*found, strict=True)
            with moved(params, ascent(grads, radii)), torch.enable_grad():
                closure()
        self.base.step()
        return loss


# Constructors write into the groups they are given, and those are the caller's.
def over_sgd(config: SamSgd, groups: Groups) -> Sam:
    return Sam(torch.optim.SGD([{**g} for g in groups], lr=config.lr, momentum=config.momentum), config.rho)


def over_adamw(config: SamAdamW, groups: Groups) -> Sam:
    # No decay of its own: that is a trick, which works beside every optimizer.
    base = torch.optim.AdamW(
        [{**g} for g in groups], lr=config.lr, betas=config.betas, eps=config.eps, weight_decay=0.0
    )
    return Sam(base, config.rho)
