"""The perceptron's rule: a step for every mistake, and an end when a pass had none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .updates import Rate, Update


def correct(
    params: Sequence[Tensor], grads: Sequence[Tensor], rates: Sequence[Rate], counts: Sequence[Tensor]
) -> None:
    """Subtract each gradient times its rate, in place; unless all are 0, every count grows by 1."""
    moved = torch.stack([g.count_nonzero() for g in grads]).any()
    for count in counts:
        count.add_(moved)
    for p, g, rate in zip(params, grads, rates, strict=True):
        p.sub_(g * rate)


class PerceptronRule(torch.optim.Optimizer):
    """Subtracts the gradient of the perceptron loss, which is 0 where a sample is decided right.

    The state of the first parameter holds `step`, the updates so far that changed something, and `fresh`,
    those of the current pass.
    """

    def __init__(self, groups: list[dict[str, Any]], lr: float = 1.0) -> None:
        # The constructor writes into groups, and those it is given are the caller's.
        super().__init__([dict(g) for g in groups], {"lr": lr})
        first = self._params()[0]
        self.state[first]["step"] = torch.zeros((), dtype=torch.long, device=first.device)
        self.state[first]["fresh"] = torch.zeros((), device=first.device)

    def _params(self) -> list[Tensor]:
        return [p for group in self.param_groups for p in group["params"]]

    @property
    def mistakes(self) -> int:
        """Updates that changed something, over all passes."""
        return int(self.state[self._params()[0]]["step"])

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One correction; `closure` is evaluated once, before it."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in self._params()]
        functional(self)(grads, [group["lr"] for group in self.param_groups])
        return loss

    def finished(self) -> str | None:
        """Asked after every pass: why there is nothing left to learn, or None."""
        fresh = self.state[self._params()[0]]["fresh"]
        if not fresh:
            return f"a pass without a mistake, after {self.mistakes} update{'s'[: self.mistakes != 1]}"
        fresh.zero_()
        return None


def functional(optimizer: PerceptronRule) -> Update:
    """The rule as a function of the gradients of all groups and the rate of each."""
    sizes = [len(group["params"]) for group in optimizer.param_groups]
    params = [p.detach() for p in optimizer._params()]
    state = optimizer.state[optimizer._params()[0]]
    counts = [state["step"], state["fresh"]]

    def update(grads: Sequence[Tensor], rates: Sequence[Rate]) -> None:
        each = [rate for rate, size in zip(rates, sizes, strict=True) for _ in range(size)]
        correct(params, grads, each, counts)

    return update
