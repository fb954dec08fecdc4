"""PointNet: clouds of points by the maximum over what is seen at each of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from pegboard import Batch, Peg, PegboardError, Trick
from torch import Tensor, nn

from .point_sets import Dense, pool, split
from .set_configs import OrthogonalTransform


class Transform(nn.Module):
    """Predicts a square matrix from all points of a cloud; before training it is the identity."""

    def __init__(
        self, size: int, point: Sequence[int], head: Sequence[int], activation: str, norm: bool
    ) -> None:
        super().__init__()
        self.size = size
        self.phi = Dense(size, point, None, activation, layout="NLC", norm=norm)
        self.rho = Dense(self.phi.width, head, size * size, activation, norm=norm)
        assert self.rho.last is not None
        nn.init.zeros_(self.rho.last.weight)
        with torch.no_grad():
            self.rho.last.bias.copy_(torch.eye(size).flatten())

    def forward(self, x: Tensor, there: Tensor | None) -> Tensor:
        """The matrices (batch, size, size)."""
        whole = pool(self.phi(x, there), there, "max")
        found: Tensor = self.rho(whole)
        return found.view(-1, self.size, self.size)


class Last:
    """The matrices that were predicted last; of no copy and no state."""

    wanted = False  # by a trick, which takes them away again
    matrices: Tensor | None = None

    def __deepcopy__(self, memo: Any) -> Last:
        return Last()

    def __reduce__(self) -> Any:
        return (Last, ())


class PointNet(nn.Module):
    """An answer for every cloud, or for every point where `each`: then with the features of point and cloud.

    Of points with more than three numbers, as normals, the input matrix turns every three of them alike where
    that is possible, else all of them.
    """

    def __init__(
        self, inputs: int, outputs: int, *, first: Sequence[int] = (64, 64),
        second: Sequence[int] = (64, 128, 1024), head: Sequence[int] = (512, 256),
        transform: Sequence[int] = (64, 128, 1024), transform_head: Sequence[int] = (512, 256),
        transform_input: bool = True, transform_features: bool = True, activation: str = "relu",
        norm: str = "batch", each: bool = False, padded: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.each, self.padded, normed = each, padded, norm == "batch"
        self.input = Peg("input", inputs, "NLC")
        self.turned = 3 if inputs % 3 == 0 else inputs
        self.turn: Transform | None = None
        if transform_input:
            self.turn = Transform(self.turned, transform, transform_head, activation, normed)
        self.first = Dense(inputs, first, None, activation, layout="NLC", norm=normed)
        self.turn_features: Transform | None = None
        if transform_features:
            width = self.first.width
            self.turn_features = Transform(width, transform, transform_head, activation, normed)
        self.second = Dense(self.first.width, second, None, activation, layout="NLC", norm=normed)
        self.pooled = Peg("pooled", self.second.width)
        width = self.second.width + (self.first.width if each else 0)
        layout = "NLC" if each else "NC"
        self.head = Dense(width, head, outputs, activation, layout=layout, norm=normed)
        self.logits = Peg("logits", outputs, layout)
        self.predicted = Last()

    def forward(self, x: Tensor) -> Tensor:
        x, there = split(x, self.padded)
        x = self.input(x, there)
        local, whole = self.see(x, there)
        if not self.each:
            return self.logits(self.head(whole))
        beside = whole.unsqueeze(1).expand(-1, x.shape[1], -1)
        return self.logits(self.head(torch.cat((local, beside), -1), there), there)

    def see(self, x: Tensor, there: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The features of every point (batch, points, 64) and of every cloud (batch, 1024)."""
        local, high = self.climb(x, there)
        return local, self.pooled(pool(high, there, "max"))

    def climb(self, x: Tensor, there: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The first and the last features of every point, before the maximum is taken."""
        if self.turn is not None:
            matrices = self.turn(x[..., : self.turned], there)
            parts = torch.split(x, self.turned, -1)
            x = torch.cat([part @ matrices for part in parts], -1)
        local = self.first(x, there)
        if self.turn_features is not None:
            matrices = self.turn_features(local, there)
            if self.predicted.wanted:
                self.predicted.matrices = matrices
            local = local @ matrices
        return local, self.second(local, there)


def orthogonality(matrices: Tensor) -> Tensor:
    """The mean of ||I - A A^T||^2 over matrices (batch, size, size): 0 for rotations."""
    eye = torch.eye(matrices.shape[-1], device=matrices.device, dtype=matrices.dtype)
    return (eye - matrices @ matrices.mT).square().sum((-2, -1)).mean()


class OrthogonalTransformTrick(Trick):
    """Adds the term for the matrices that the model predicted in this step."""

    def __init__(self, config: OrthogonalTransform) -> None:
        self.weight = config.weight
        self.last: Last | None = None

    def edit_model(self, model: nn.Module) -> None:
        if not isinstance(model, PointNet) or model.turn_features is None:
            raise PegboardError(
                "orthogonal_transform found nothing to act on: the model predicts no matrix for features.\n"
                "  expected: model: {name: pointnet, transform_features: true}"
            )
        self.last = model.predicted
        self.last.wanted = self.weight > 0

    def edit_loss(self, loss: Tensor, output: Any, batch: Batch) -> Tensor:
        if self.weight == 0 or self.last is None or self.last.matrices is None:
            return loss
        matrices, self.last.matrices = self.last.matrices, None
        return loss + self.weight * orthogonality(matrices)

    def formula(self, loss: str) -> str:
        return f"{loss} + {self.weight:g} ||I - A A^T||^2" if self.weight else loss
