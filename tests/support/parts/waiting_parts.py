"""A local plugin whose parts wait for the device in a way of one's choice, in a place of one's choice."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pegboard import (
    Batch,
    Context,
    Model,
    Objective,
    ObjectivePart,
    Optimizer,
    Regularizer,
    Schedule,
    Trick,
    hookimpl,
)

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn


@dataclass(frozen=True)
class Seeded:
    """Does something in every step."""

    do: str = "nothing"  # a key of WAITING or FINE
    lr: float = 0.1  # for the optimizer


def looked(x: Tensor) -> int:
    return 1 if x.sum() > 0 else 0


def handed_over(x: Tensor) -> None:
    import torch

    x.copy_(torch.zeros(x.shape))


def set_rows(x: Tensor) -> None:
    x[x.sum(-1) > 0] = x[:1]


def set_mean(x: Tensor) -> None:
    x[x > 0] = x.mean()


def counted(x: Tensor) -> None:
    total = torch_().tensor(0.0)
    total += x.sum()


def caught(x: Tensor) -> None:
    try:
        x.sum().item()
    except Exception:
        return


def torch_() -> Any:
    import torch

    return torch


def numpy_() -> Any:
    import numpy

    return numpy


def like(x: Tensor) -> Tensor:
    """Numbers of the same shape, on the CPU."""
    return torch_().rand(x.shape)  # type: ignore[no-any-return]


# What somebody may write, given a matrix -> what is said of it.
READS, SHAPES = "reads numbers from the device", "needs a shape that depends on numbers"
COPIES, STRAY = "copies from the host to the device", "mixes a tensor on the CPU with those on the device"
WAITING: dict[str, tuple[Callable[[Tensor], Any], str]] = {
    "item": (lambda x: x.sum().item(), READS),
    "float": (lambda x: float(x.sum()), READS),
    "int": (lambda x: int(x.sum()), READS),
    "if": (looked, READS),
    "in": (lambda x: 3.0 in x, READS),
    "max": (lambda x: max(x[:, 0]), READS),
    "tolist": (lambda x: x.tolist(), READS),
    "cpu": (lambda x: x.cpu(), READS),
    "to cpu": (lambda x: x.to("cpu", non_blocking=True), READS),
    "copy to cpu": (lambda x: like(x).copy_(x), READS),
    "numpy": (lambda x: x.numpy(), READS),
    "asarray": (lambda x: numpy_().asarray(x), READS),
    "print": (lambda x: f"{x}", READS),
    "print rounded": (lambda x: f"{x.sum():.2f}", READS),
    "repr": (lambda x: repr(x), READS),
    "equal": (lambda x: torch_().equal(x, x), READS),
    "allclose": (lambda x: torch_().allclose(x, x), READS),
    "inverse": (lambda x: torch_().linalg.inv(x.T @ x), READS),
    "place": (lambda x: x[x.sum().long()], READS),
    "slice": (lambda x: x[: x.sum().long()], READS),
    "caught": (caught, READS),
    "tensor of tensors": (lambda x: torch_().tensor([x.sum(), x.mean()]), READS),
    "svd": (lambda x: torch_().linalg.svdvals(x), READS),
    "eigh": (lambda x: torch_().linalg.eigh(x.T @ x), READS),
    "spectral norm": (lambda x: torch_().linalg.matrix_norm(x, 2), READS),
    "pinv": (lambda x: torch_().linalg.pinv(x), READS),
    "matrix_exp": (lambda x: torch_().linalg.matrix_exp(x.T @ x), READS),
    "gradient of a product": (lambda x: x.requires_grad_().prod(), READS),
    "draw": (lambda x: x.softmax(-1).multinomial(1), READS),
    "histc": (lambda x: x.histc(4), READS),
    "linspace": (lambda x: torch_().linspace(x.min(), x.max(), 4, device=x.device), READS),
    "max_norm": (lambda x: torch_().nn.functional.embedding(x.argmax(-1), x, max_norm=1.0), READS),
    "fill by mask": (lambda x: x.masked_fill(x > 0, x.mean()), READS),
    "mask": (lambda x: x[x > 0], SHAPES),
    "set rows": (set_rows, SHAPES),
    "set mean": (set_mean, SHAPES),
    "nonzero": (lambda x: x.nonzero(), SHAPES),
    "where alone": (lambda x: torch_().where(x > 0), SHAPES),
    "unique": (lambda x: x.unique(), SHAPES),
    "masked_select": (lambda x: x.masked_select(x > 0), SHAPES),
    "bincount": (lambda x: torch_().bincount(x[:, 0].long()), SHAPES),
    "repeat": (lambda x: x.repeat_interleave(x[:, 0].long(), 0), SHAPES),
    "tensor": (lambda x: torch_().tensor(0.5, device=x.device), COPIES),
    "tensor of a list": (lambda x: torch_().tensor([0.5, 1.0], device=x.device), COPIES),
    "as_tensor": (lambda x: torch_().as_tensor([0.5], device=x.device), COPIES),
    "asarray of torch": (lambda x: torch_().asarray([0.5], device=x.device), COPIES),
    "new_tensor": (lambda x: x.new_tensor([0.5]), COPIES),
    "to device": (lambda x: like(x).to(x.device), COPIES),
    "number to device": (lambda x: torch_().tensor(0.5).to(x), COPIES),
    "copy_": (handed_over, COPIES),
    "list": (lambda x: x[[0, 1]], COPIES),
    "tuple": (lambda x: x[:, (0, 0)], COPIES),
    "range": (lambda x: x[range(2)], COPIES),
    "new": (lambda x: x.new([0.5, 1.0]), COPIES),
    "array": (lambda x: x[numpy_().array([0, 1])], COPIES),
    "stray": (lambda x: x + like(x), STRAY),
    "stray product": (lambda x: x.T @ like(x), STRAY),
    "stray places": (lambda x: x[torch_().randperm(len(x))], STRAY),
    "stray number in where": (lambda x: torch_().where(x > 0, torch_().tensor(0.5), x), STRAY),
    "stray sum": (counted, STRAY),
    "stray quantiles": (lambda x: x.quantile(torch_().tensor([0.1, 0.9])), STRAY),
    "stray bound": (lambda x: x.clamp(max=torch_().tensor(1.0)), STRAY),
    "stray number in stack": (lambda x: torch_().stack([x.sum(), torch_().tensor(0.5)]), STRAY),
}


def set_number(x: Tensor) -> None:
    x[x > 0] = 0.5


# What looks alike and does not wait.
FINE: dict[str, Callable[[Tensor], Any]] = {
    "nothing": lambda x: None,
    "number": lambda x: x * torch_().tensor(0.5),  # becomes an argument of the kernel
    "sum with a number": lambda x: torch_().tensor(0.5) + x.sum(),
    "set a number": set_number,
    "masked_fill": lambda x: x.masked_fill(x > 0, 0.5),
    "product": lambda x: x.prod(),
    "many draws": lambda x: x.softmax(-1).multinomial(3, replacement=True),
    "histc between bounds": lambda x: x.histc(4, 0, 1),
    "linspace of numbers": lambda x: torch_().linspace(0, 1, 4, device=x.device),
    "solve_ex": lambda x: torch_().linalg.solve_ex(x.T @ x, x.T),
    "qr": lambda x: torch_().linalg.qr(x),
    "where": lambda x: torch_().where(x > 0, x, 0.5),
    "quiet log": lambda x: logging.getLogger("waiting_parts").debug("%s", x),
    "new of a shape": lambda x: x.new(2, 3),
    "full": lambda x: torch_().full((3,), 0.5, device=x.device),
    "index": lambda x: x[x[:, 0].argsort()],
    "permutation": lambda x: x[torch_().randperm(len(x), device=x.device)],
    "shape": lambda x: x[: len(x) // 2].sum() / x.numel(),
    "queued copy": lambda x: like(x).to(x.device, non_blocking=True),
    "on the cpu alone": lambda x: float(like(x).sum()) + len(like(x).nonzero()),
    "one_hot": lambda x: torch_().nn.functional.one_hot(x.argmax(-1), x.shape[-1]),
}


def without_kernel(x: Tensor) -> None:
    """An operation that somebody wrote for the CPU and for nothing else."""
    import torch

    if not hasattr(torch.ops.waiting_parts, "halve"):
        torch.library.custom_op(
            "waiting_parts::halve", lambda x: x / 2, mutates_args=(), schema="(Tensor x) -> Tensor"
        )
    torch.ops.waiting_parts.halve(x)


OTHER = {"wrong shapes": lambda x: x @ x, "no kernel": without_kernel}  # mistakes of another kind


def act(do: str, x: Tensor) -> None:
    """Do it to the numbers of a tensor, as a matrix that nobody else sees."""
    matrix = x.detach().float().clone()
    matrix = matrix.reshape(len(matrix), -1) if matrix.dim() > 1 else matrix.reshape(-1, 1)
    (WAITING[do][0] if do in WAITING else (FINE | OTHER)[do])(matrix)


class SeededTrick(Trick):
    """Acts in one stage, as a subclass that `acting` makes."""

    def __init__(self, do: str) -> None:
        self.do = do


def _hang(self: SeededTrick, peg: Any) -> Any:
    from torch import nn

    do = self.do

    class Hung(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            act(do, x)
            return x

    return Hung()


def _edit_batch(self: SeededTrick, batch: Batch) -> Batch:
    act(self.do, batch.inputs[0])
    return batch


def _edit_target(self: SeededTrick, target: Tensor) -> Tensor:
    act(self.do, target)
    return target


def _edit_loss(self: SeededTrick, loss: Tensor, output: Any, batch: Batch) -> Tensor:
    act(self.do, output)
    return loss


def _backward(self: SeededTrick, loss: Tensor, output: Any, batch: Batch) -> Tensor:
    import torch

    do = self.do

    class Watched(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
            act(do, grad)
            return grad

    return loss + Watched.apply(output).mean()  # type: ignore[no-any-return,no-untyped-call]


def _edit_grads(
    self: SeededTrick, grads: list[Tensor | None], params: list[nn.Parameter]
) -> list[Tensor | None]:
    assert grads[0] is not None
    act(self.do, grads[0])
    return grads


def _after_step(self: SeededTrick, model: nn.Module) -> None:
    act(self.do, next(model.parameters()))


STAGES = {
    "hang": ("hang", "drop", _hang),
    "edit_batch": ("edit_batch", "augment", _edit_batch),
    "edit_target": ("edit_target", "mix", _edit_target),
    "edit_loss": ("edit_loss", "term", _edit_loss),
    "backward": ("edit_loss", "term", _backward),
    "edit_grads": ("edit_grads", "noise", _edit_grads),
    "after_step": ("after_step", "constrain", _after_step),
}


def acting(name: str, **more: Any) -> Regularizer[Any]:
    stage, role, method = STAGES[name]
    kind = type(f"Seeded{name}", (SeededTrick,), {stage: method})

    def build(config: Seeded, context: Context) -> Trick:
        trick: Trick = kind(config.do)
        return trick

    return Regularizer(f"in_{name}{'_said' if more else ''}", Seeded, build, stages={stage: role}, **more)


def build_net(config: Seeded, context: Context) -> nn.Module:
    from torch import nn

    (entry,) = context.spec.inputs

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(entry.example(1, "meta").flatten(1).shape[1], context.outputs or 1)

        def forward(self, x: Tensor) -> Tensor:
            act(config.do, x)
            out: Tensor = self.layer(x.flatten(1))
            return out

    return Net()


def build_loss(config: Seeded, context: Context) -> Objective:
    from torch.nn import functional

    class Loss(Objective):
        def loss(self, output: Any, target: Tensor, weight: Tensor | None = None) -> Tensor:
            act(config.do, output)
            return functional.cross_entropy(output, target)

    return Loss()


def build_descent(
    config: Seeded, context: Context
) -> Callable[[list[dict[str, Any]]], torch.optim.Optimizer]:
    import torch

    class Descent(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            act(config.do, self.param_groups[0]["params"][0])
            return super().step(closure)

    return lambda groups: Descent(groups, lr=config.lr)


def build_factor(config: Seeded, context: Context) -> Callable[[int], float]:
    import torch

    numbers = torch.ones(4, 3, device=context.device)

    def factor(step: int) -> float:
        act(config.do, numbers)
        return 1.0

    return factor


@hookimpl
def pegboard_regularizers() -> list[Regularizer[Any]]:
    names = [acting(name) for name in STAGES]
    return names + [acting(name, synchronizes=f"it must, in {name}") for name in STAGES]


@hookimpl
def pegboard_models() -> list[Model[Any]]:
    return [
        Model("in_model", Seeded, build_net),
        Model("in_model_said", Seeded, build_net, synchronizes="it must, in model"),
    ]


@hookimpl
def pegboard_objectives() -> list[ObjectivePart[Any]]:
    return [
        ObjectivePart("in_objective", Seeded, build_loss, soft=True),
        ObjectivePart(
            "in_objective_said", Seeded, build_loss, soft=True, synchronizes="it must, in objective"
        ),
    ]


@hookimpl
def pegboard_optimizers() -> list[Any]:
    said = {"synchronizes": "it must, in optimizer"}
    return [
        Optimizer("in_optimizer", Seeded, build_descent),
        Optimizer("in_optimizer_said", Seeded, build_descent, **said),
        Schedule("in_schedule", Seeded, build_factor),
        Schedule("in_schedule_said", Seeded, build_factor, synchronizes="it must, in schedule"),
    ]
