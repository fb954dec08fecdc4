"""A local plugin for proofs: tricks that keep a journal, spoil numbers, or stand in the way of others."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pegboard import Batch, Ge, Regularizer, Trick, hookimpl
from pegboard.testing.partners import acting

if TYPE_CHECKING:
    from torch import Tensor, nn


@dataclass(frozen=True)
class Journal:
    """Writes the number of every update to a file, and takes its time."""

    path: str = "journal.txt"  # the file
    pause: Annotated[float, Ge(0)] = 0.0  # seconds after every update
    stall_at: int = 0  # update after which it waits longer
    stall: Annotated[float, Ge(0)] = 0.0  # seconds it waits there


class JournalTrick(Trick):
    def __init__(self, config: Journal) -> None:
        self.config, self.steps = config, 0

    def after_step(self, model: nn.Module) -> None:
        self.steps += 1
        handle = os.open(self.config.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(handle, f"{os.getpid()} {self.steps}\n".encode())
        os.close(handle)
        end = time.monotonic() + (self.config.stall if self.steps == self.config.stall_at else 0)
        while time.monotonic() < end:  # a signal must not cut it short
            time.sleep(0.01)
        if self.config.pause:
            time.sleep(self.config.pause)

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.steps = state["steps"]


@dataclass(frozen=True)
class Poison:
    """Makes a number nan in every update that sees one training sample."""

    row: Annotated[int, Ge(0)] = 0  # number of the sample
    what: Literal["loss", "gradient"] = "loss"  # what becomes nan


class PoisonTrick(Trick):
    def __init__(self, config: Poison) -> None:
        self.config = config

    def edit_loss(self, loss: Tensor, output: Any, batch: Batch) -> Tensor:
        import torch

        class Spoiled(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Tensor) -> Tensor:
                return x.clone()

            @staticmethod
            def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
                return grad * float("nan")

        if batch.rows is None or not bool((batch.rows == self.config.row).any()):
            return loss
        if self.config.what == "loss":
            return loss * float("nan")
        spoiled: Tensor = Spoiled.apply(loss)  # type: ignore[no-untyped-call]
        return spoiled


@hookimpl
def pegboard_regularizers() -> list[Regularizer[Any]]:
    return [
        Regularizer("journal", Journal, lambda c, x: JournalTrick(c), stages={"after_step": "average"}),
        Regularizer("poison", Poison, lambda c, x: PoisonTrick(c), stages={"edit_loss": "term"}),
        acting("toy_second_clip", "edit_grads", "clip"),
        acting("toy_late_noise", "edit_grads", "noise", after=("partner_edit_grads_noise",)),
        acting("toy_alone", "edit_batch", "augment", conflicts=("dropout", "partner_edit_batch_mix")),
    ]
