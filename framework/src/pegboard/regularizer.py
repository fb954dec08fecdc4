"""The trick contract, and the order in which tricks act. No torch at import."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .parts import Role

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch
    from torch import Tensor, nn

    from .contracts import Batch
    from .pegs import Peg


# The stages of a step in the order they act, and in each its roles in order. Inside a role that is
# `by_name` the order cannot matter, so names decide it; elsewhere two tricks that meet must say it.
ROLES: dict[str, tuple[Role, ...]] = {
    "edit_model": (Role("initialize", "edit_model"), Role("reparametrize", "edit_model")),
    "hang": (Role("normalize", "hang"), Role("drop", "hang")),
    "edit_groups": (
        Role("rate", "edit_groups", by_name=True),
        Role("decay", "edit_groups", by_name=True),
    ),
    "edit_batch": (Role("augment", "edit_batch"), Role("mix", "edit_batch"), Role("attack", "edit_batch")),
    "edit_target": (Role("mix", "edit_target"), Role("smooth", "edit_target")),
    "edit_loss": (Role("mix", "edit_loss"), Role("term", "edit_loss", by_name=True)),
    "edit_grads": (Role("noise", "edit_grads"), Role("clip", "edit_grads")),
    "after_step": (Role("constrain", "after_step"), Role("average", "after_step")),
    "after_eval": (Role("stop", "after_eval", by_name=True),),
}


class Stop(str):
    """Returned by `after_eval` to end the run; the text says why."""


class Trick:
    """A regularizer at work. Every method is optional; the core links only those overridden.

    The record's `stages` names the methods that a class overrides and the role of each. All but
    `hang`, `edit_model` and `edit_groups`, which act once, are part of the training step: they
    must not wait for the device (`.item()`, indexing by a mask) and must not draw from the
    global random stream of another device.
    """

    def hang(self, peg: Peg) -> nn.Module | None:
        """A module for this peg, or None to leave it alone."""
        raise NotImplementedError

    def edit_model(self, model: nn.Module) -> None:
        """Change the built model before its optimizer exists; may keep a reference to it."""
        raise NotImplementedError

    def edit_groups(self, groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Parameter groups for the optimizer. Every group has `params` and the names in `names`."""
        raise NotImplementedError

    def edit_batch(self, batch: Batch) -> Batch:
        """The batch to train on instead of this one."""
        raise NotImplementedError

    def edit_target(self, target: Tensor) -> Tensor:
        """The target to compare with instead of this one; metrics still see the original."""
        raise NotImplementedError

    def edit_loss(self, loss: Tensor, output: Any, batch: Batch) -> Tensor:
        """The loss to descend instead of this one; `batch` is the edited one."""
        raise NotImplementedError

    def edit_grads(self, params: list[nn.Parameter]) -> None:
        """Change the gradients in place, after the last backward of an update and before it."""
        raise NotImplementedError

    def after_step(self, model: nn.Module) -> None:
        """Called after every update."""
        raise NotImplementedError

    def after_eval(self, metrics: Mapping[str, float]) -> Stop | None:
        """Called after every evaluation during training; `Stop("why")` ends the run."""
        raise NotImplementedError

    def formula(self, loss: str) -> str:
        """How the trick changes the written formula of the loss; for `explain`."""
        return loss

    def state_dict(self) -> dict[str, torch.Tensor | int | float | str]:
        """What a resumed run needs besides the modules that hang on pegs."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what `state_dict` gave."""
