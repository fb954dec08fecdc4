"""A model that is linear in its parameters as a matrix of features, and back."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from pegboard import Batch, PegboardError, Reference
from torch import Tensor, nn

# What rounding may add to an optimum: shares of it, and of what no weights at all cost.
ROUNDED, TINY = 1e-3, 1e-9


@dataclass
class Design:
    """All training samples as the head of a model sees them, in float64.

    `share` (samples,) is what each sample counts, in all 1; samples that weigh nothing are left out.
    """

    x: Tensor  # (samples, features)
    target: Tensor
    share: Tensor
    outputs: int
    bias: bool

    def values(self) -> Tensor:
        """The target as real values (samples, outputs): one-hot rows for classes."""
        if not self.target.is_floating_point():
            return F.one_hot(self.target, self.outputs).to(self.x)
        return self.target.to(self.x).reshape(len(self.x), self.outputs)

    def signs(self) -> Tensor:
        """The target of two classes as -1 and +1 (samples,)."""
        index = self.target[..., 1] > 0.5 if self.target.is_floating_point() else self.target == 1
        return index.to(self.x) * 2 - 1

    def extended(self) -> Tensor:
        """The features, and a column of ones where the head has a bias."""
        return torch.cat([self.x, torch.ones_like(self.x[:, :1])], 1) if self.bias else self.x


def counted(train: Batch) -> tuple[tuple[Tensor, ...], Tensor | None, Tensor]:
    """Inputs, target and share of the samples that count."""
    rows = len(train.inputs[0])
    weight = torch.ones(rows) if train.weight is None else train.weight
    kept = weight > 0
    if not kept.any():
        raise PegboardError("every training sample weighs 0: there is nothing that a reference could fit.")
    share = weight[kept].double() / weight[kept].double().sum()
    target = None if train.target is None else train.target[kept]
    return tuple(x[kept] for x in train.inputs), target, share


def precise(model: nn.Module) -> nn.Module:
    """A copy of the model in float64 that evaluates."""
    return copy.deepcopy(model).cpu().double().eval()


@torch.no_grad()
def outputs_of(model: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor:
    """What the model gives, in float64: (samples, outputs)."""
    output: Tensor = precise(model)(*(x.double() for x in inputs))
    return output


def head_of(model: nn.Module, name: str) -> nn.Linear:
    """The last layer of a model; an error for people where there is none."""
    head = getattr(model, "head", None)
    if not isinstance(head, nn.Linear):
        raise PegboardError(
            f"{name} is the optimum of a linear map of features, and {type(model).__name__} has no linear "
            "layer `head`.\nUse the model linear, or one that has `features(x)` and `head`."
        )
    return head


@torch.no_grad()
def design(model: nn.Module, train: Batch, name: str) -> Design:
    """What the head of the model sees of the samples; an error where the head is not all there is."""
    head = head_of(model, name)
    inputs, target, share = counted(train)
    if target is None:
        raise PegboardError(f"{name} compares outputs with a target, and the data has none.")
    if target.is_floating_point() and not torch.isfinite(target).all():
        raise PegboardError(
            f"{name} has no closed form for targets that are missing (nan) or infinite.\n"
            "Leave such samples out of the data, or leave the reference out."
        )
    exact = precise(model)
    given = tuple(x.double() for x in inputs)
    x: Tensor = exact.features(*given) if hasattr(exact, "features") else given[0].flatten(1)  # type: ignore[operator]
    own = {id(p) for p in head.parameters()}
    others = [n for n, p in model.named_parameters() if p.requires_grad and id(p) not in own]
    same = x.shape[-1] == head.in_features and torch.allclose(exact(*given), exact.head(x))  # type: ignore[operator]
    if others or not same:
        what = f"it also trains {', '.join(others[:3])}" if others else "its output is not head(features(x))"
        raise PegboardError(
            f"{name} is the optimum of a linear map of features, and {type(model).__name__} is more than "
            f"that: {what}.\nUse the model linear, and no trick that changes what the model computes."
        )
    return Design(x, target, share, head.out_features, head.bias is not None)


@torch.no_grad()
def filled(model: nn.Module, weight: Tensor, bias: Tensor | None, name: str) -> nn.Module:
    """A copy of the model with these numbers in its head: `weight` (outputs, features), `bias` (outputs,)."""
    best = copy.deepcopy(model)
    head = head_of(best, name)
    head.weight.copy_(weight)
    if bias is not None:
        head.bias.copy_(bias)
    return best


class LinearReference(Reference):
    """The optimum over the head of a model: `fit` finds it, `loss` and `penalty` are what it minimises."""

    name = ""

    def fit(self, data: Design) -> tuple[Tensor, Tensor | None]:
        """The best weight (outputs, features) and bias (outputs,), or None where the head has none."""
        raise NotImplementedError

    def loss(self, output: Tensor, data: Design) -> Tensor:
        """The loss of every sample: (samples,)."""
        raise NotImplementedError

    def penalty(self, head: nn.Linear) -> float:
        """What the parameters cost."""
        return 0.0

    def solve(self, model: nn.Module, train: Batch) -> nn.Module:
        weight, bias = self.fit(design(model, train, self.name))
        best = filled(model, weight, bias, self.name)
        exact = self.value(filled(precise(model), weight, bias, self.name), train)
        without = filled(precise(model), weight * 0, None if bias is None else bias * 0, self.name)
        most = exact + ROUNDED * abs(exact) + TINY * abs(self.value(without, train))
        if (found := self.value(best, train)) > most:
            raise PegboardError(
                f"{self.name}: the optimum {exact:.4g} is lost in rounding: its weights, in the precision "
                f"of the model, give {found:.4g}.\nThe features are nearly dependent: standardise them, "
                "leave some out, or choose another basis, as for a polynomial model.basis=chebyshev."
            )
        return best

    @torch.no_grad()
    def value(self, model: nn.Module, train: Batch) -> float:
        inputs, target, share = counted(train)
        assert target is not None
        output = outputs_of(model, inputs)
        head = head_of(model, self.name)
        data = Design(output, target, share, head.out_features, head.bias is not None)
        return float(self.loss(output, data) @ share) + self.penalty(head)


def split(solution: Tensor, bias: bool) -> tuple[Tensor, Tensor | None]:
    """Weight and bias from a matrix (features and, with a bias, one more; outputs)."""
    return (solution[:-1].T, solution[-1]) if bias else (solution.T, None)
