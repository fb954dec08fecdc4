"""A local plugin for proofs: a trick that keeps a journal, one that spoils numbers, one of every role."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pegboard import Batch, Context, Ge, Regularizer, Stop, Trick, hookimpl

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


@dataclass(frozen=True)
class Factor:
    """Multiplies something by a number, so that the order of two of them and of others shows."""

    by: float = 0.9  # the number
    plus: float = 0.01  # what is added afterwards


class FactorTrick(Trick):
    """Acts in one stage, as a subclass that `acting` makes."""

    def __init__(self, config: Factor) -> None:
        self.by, self.plus = config.by, config.plus

    def change(self, x: Tensor) -> Tensor:
        return x * self.by + self.plus if x.is_floating_point() else x


def _hang(self: FactorTrick, peg: Any) -> Any:
    from torch import nn

    class Affine(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * by + plus

    by, plus = self.by, self.plus
    return Affine()


def _edit_model(self: FactorTrick, model: nn.Module) -> None:
    for p in model.parameters():
        p.data = self.change(p.data)


def _edit_groups(self: FactorTrick, groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**g, "decoupled_decay": g.get("decoupled_decay", 0.0) + self.plus} for g in groups]


def _edit_batch(self: FactorTrick, batch: Batch) -> Batch:
    return batch._replace(inputs=tuple(self.change(x) for x in batch.inputs))


def _edit_target(self: FactorTrick, target: Tensor) -> Tensor:
    return self.change(target)


def _edit_loss(self: FactorTrick, loss: Tensor, output: Any, batch: Batch) -> Tensor:
    return self.change(loss) + self.plus * output.square().mean()


def _edit_grads(self: FactorTrick, params: list[nn.Parameter]) -> None:
    for p in params:
        if p.grad is not None:
            p.grad = self.change(p.grad)


def _after_step(self: FactorTrick, model: nn.Module) -> None:
    _edit_model(self, model)


def _after_eval(self: FactorTrick, metrics: Any) -> Stop | None:
    return None


ACTS = {
    "hang": _hang, "edit_model": _edit_model, "edit_groups": _edit_groups, "edit_batch": _edit_batch,
    "edit_target": _edit_target, "edit_loss": _edit_loss, "edit_grads": _edit_grads,
    "after_step": _after_step, "after_eval": _after_eval,
}  # fmt: skip


def acting(name: str, stage: str, role: str, **more: Any) -> Regularizer[Any]:
    """A trick that acts in one stage."""
    kind = type(f"Toy{name}", (FactorTrick,), {stage: ACTS[stage]})

    def build(config: Factor, context: Context) -> Trick:
        trick: Trick = kind(config)
        return trick

    return Regularizer(name, Factor, build, stages={stage: role}, **more)


@hookimpl
def pegboard_regularizers() -> list[Regularizer[Any]]:
    from pegboard.regularizer import ROLES

    roles = [role for stage in ROLES.values() for role in stage]
    return [
        Regularizer("journal", Journal, lambda c, x: JournalTrick(c), stages={"after_step": "average"}),
        Regularizer("poison", Poison, lambda c, x: PoisonTrick(c), stages={"edit_loss": "term"}),
        *(acting(f"toy_{role.stage}_{role.name}", role.stage, role.name) for role in roles),
        acting("toy_second_clip", "edit_grads", "clip"),
        acting("toy_late_noise", "edit_grads", "noise", after=("toy_edit_grads_noise",)),
        acting("toy_alone", "edit_batch", "augment", conflicts=("dropout", "toy_edit_batch_mix")),
    ]
