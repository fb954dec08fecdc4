"""Muon and AdamW as one optimizer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


class MuonAdamW(torch.optim.Optimizer):
    """Muon for groups of matrices and AdamW for the others, with one state and one list of groups.

    The two share their groups and their state with this one, so that schedules, checkpoints and
    anything else that knows `torch.optim.Optimizer` sees a single optimizer.
    """

    def __init__(
        self,
        matrices: list[dict[str, Any]],
        others: list[dict[str, Any]],
        muon: dict[str, Any],
        adamw: dict[str, Any],
    ) -> None:
        self.parts: list[torch.optim.Optimizer] = [torch.optim.Muon(matrices, **muon)]
        if others:
            self.parts.append(torch.optim.AdamW(others, **adamw))
        super().__init__([group for part in self.parts for group in part.param_groups], {})
        self._share()

    def _share(self) -> None:
        start = 0
        for part in self.parts:
            end = start + len(part.param_groups)
            part.param_groups = self.param_groups[start:end]
            part.state = self.state
            start = end

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"parts": self.parts}

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Loading a state dict comes through here too, and brings new groups and a new state.
        super().__setstate__(state)
        self._share()

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One update of every parameter; `closure` is evaluated once, before it."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for part in self.parts:
            part.step()
        return loss
