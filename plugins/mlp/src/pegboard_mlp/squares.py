"""The optimum of a squared error: least squares, ridge and lasso."""

from __future__ import annotations

import torch
from pegboard import Context, PegboardError
from torch import Tensor, nn

from .design import Design, LinearReference, split
from .reference_configs import Lasso, LeastSquares, Ridge

SWEEPS = 10  # of coordinate descent, before a lasso goes on by signs
MOVES = 50  # from signs to signs for each weight, before it is given up
GAP = 1e-10  # duality gap at which a lasso is solved, as a share of the mean square of the target


def least_squares(x: Tensor, y: Tensor) -> Tensor:
    """The matrix of least norm among those that minimise ||x w - y||^2: (features, outputs)."""
    solution: Tensor = torch.linalg.lstsq(x, y, driver="gelsd").solution
    return solution


def ridge(x: Tensor, y: Tensor, strength: float) -> Tensor:
    """What minimises ||x w - y||^2 + strength ||w||^2.

    From a system with a row for each penalty, as normal equations would square the condition of x.
    """
    rows = torch.eye(x.shape[1]).to(x) * strength**0.5
    return least_squares(torch.cat([x, rows]), torch.cat([y, torch.zeros(len(rows), y.shape[1]).to(y)]))


def soft_threshold(x: Tensor, by: float) -> Tensor:
    """Each number pulled towards zero by `by`, and 0 where it would pass it."""
    return x.sign() * (x.abs() - by).clamp(min=0)


def lasso(x: Tensor, y: Tensor, value: float) -> Tensor:
    """What minimises ||x w - y||^2 + value ||w||_1 for each column of y: (features, outputs).

    Some sweeps of coordinate descent, each step a soft threshold: where the columns of x are orthogonal, the
    first is the answer. Then the linear systems that the signs found so far give, one after another, which
    end at the answer itself.
    """
    gram, moment, size = x.T @ x, x.T @ y, y.square().sum(0)
    curvature = gram.diagonal()
    w = torch.zeros_like(moment)
    for _ in range(SWEEPS):
        for j in curvature.nonzero()[:, 0].tolist():
            pull = moment[j] - gram[j] @ w + curvature[j] * w[j]
            w[j] = soft_threshold(pull, value / 2) / curvature[j]
        if bool((_gap(x, y, w, value) <= GAP * size).all()):
            return w
    w = torch.stack([_by_signs(gram, moment[:, k], w[:, k], value / 2) for k in range(y.shape[1])], 1)
    if bool((_gap(x, y, w, value) > GAP * size).any()):
        raise PegboardError(
            f"lasso: the duality gap stayed above {GAP:g} of the target's mean square.\n"
            "The features are nearly dependent: standardise them, leave some out, or raise value."
        )
    return w


def _by_signs(gram: Tensor, moment: Tensor, w: Tensor, threshold: float) -> Tensor:
    """From `w` to the least point of w gram w - 2 moment w + 2 threshold ||w||_1, a finite number of moves.

    With the signs of weights given that is a linear system. Where its solution has other signs, the best
    point on the way there has a zero more; where a weight would rather not be zero, it gets a sign.
    """
    curvature = gram.diagonal()
    for _ in range(MOVES * len(w)):
        on = w.nonzero()[:, 0]
        if len(on):
            signs, start = w[on].sign(), w[on]
            matrix, right = gram[on][:, on], moment[on] - threshold * signs
            end = torch.linalg.lstsq(matrix, right.unsqueeze(-1), driver="gelsd").solution[:, 0]
            crossing = torch.where(end.sign() == signs, 1.0, start / (start - end))
            places: Tensor = torch.unique(crossing)
            at = start + places.unsqueeze(-1) * (end - start)  # (places, weights)
            costs = ((at @ matrix) * at).sum(-1) - 2 * at @ moment[on] + 2 * threshold * at.abs().sum(-1)
            best = places[costs.argmin()]
            there = torch.where(crossing == best, 0.0, at[costs.argmin()]) if best < 1 else end
            w = w.index_copy(0, on, there)
            if best < 1:
                continue
        pull = torch.where(w == 0, moment - gram @ w, 0.0)
        j = int(pull.abs().argmax())
        if float(pull[j].abs()) <= threshold * (1 + 1e-12) or curvature[j] == 0:
            break
        w = w.index_fill(0, torch.tensor(j), 0.0)
        w[j] = soft_threshold(pull[j], threshold) / curvature[j]
    return w


def _gap(x: Tensor, y: Tensor, w: Tensor, value: float) -> Tensor:
    """How far the value at `w` is at most above the least one, for each column of y."""
    rest = y - x @ w
    primal = rest.square().sum(0) + value * w.abs().sum(0)
    # The residual, shrunk until it is a point of the dual problem.
    largest = 2 * (x.T @ rest).abs().amax(0)
    shrink = torch.where(largest > value, value / largest, 1.0)
    dual = 2 * shrink * (rest * y).sum(0) - shrink.square() * rest.square().sum(0)
    return primal - dual


class _Squares(LinearReference):
    """Squared errors of real values, or of scores against one-hot targets."""

    def __init__(self, config: LeastSquares, context: Context) -> None:
        self.features = config.features
        mean = "mean" if config.features == "mean" else "mean over samples of the sum"
        self.formula = f"{mean} (f(x) - y)^2"

    def loss(self, output: Tensor, data: Design) -> Tensor:
        squares = (output - data.values()).square()
        return squares.mean(-1) if self.features == "mean" else squares.sum(-1)

    def factor(self, data: Design) -> float:
        """What makes a penalty of the mean over features one of the sum over them."""
        return data.outputs if self.features == "mean" else 1.0


class LeastSquaresReference(_Squares):
    """Least squares; of several optima the one of least norm."""

    name = "least_squares"

    def fit(self, data: Design) -> tuple[Tensor, Tensor | None]:
        root = data.share.sqrt().unsqueeze(-1)
        return split(least_squares(root * data.extended(), root * data.values()), data.bias)


class RidgeReference(_Squares):
    """Least squares with weight decay."""

    name = "ridge"

    def __init__(self, config: Ridge, context: Context) -> None:
        super().__init__(config, context)
        self.strength, self.with_bias = config.value, config.bias
        self.formula += f" + {config.value:g}/2 ||w||^2"

    def penalty(self, head: nn.Linear) -> float:
        squares = head.weight.double().square().sum()
        if self.with_bias and head.bias is not None:
            squares = squares + head.bias.double().square().sum()
        return self.strength / 2 * float(squares)

    def fit(self, data: Design) -> tuple[Tensor, Tensor | None]:
        root, y = data.share.sqrt().unsqueeze(-1), data.values()
        strength = self.strength / 2 * self.factor(data)
        if data.bias and not self.with_bias and strength > 0:
            # The best bias makes the mean error 0; a column for it would drown beside a large strength.
            middle, height = data.share @ data.x, data.share @ y
            w = ridge(root * (data.x - middle), root * (y - height), strength)
            return w.T, height - middle @ w
        return split(ridge(root * data.extended(), root * y, strength), data.bias)


class LassoReference(_Squares):
    """Least squares with a cost of the absolute values of weights; a bias costs nothing."""

    name = "lasso"

    def __init__(self, config: Lasso, context: Context) -> None:
        super().__init__(config, context)
        self.strength = config.value
        self.formula += f" + {config.value:g} ||w||_1"

    def penalty(self, head: nn.Linear) -> float:
        return self.strength * float(head.weight.double().abs().sum())

    def fit(self, data: Design) -> tuple[Tensor, Tensor | None]:
        root, y = data.share.sqrt().unsqueeze(-1), data.values()
        if self.strength == 0:
            return split(least_squares(root * data.extended(), root * y), data.bias)
        # The best bias makes the mean error 0, so that what is left are deviations from means.
        middle, height = (data.share @ data.x, data.share @ y) if data.bias else (0.0, 0.0)
        w = lasso(root * (data.x - middle), root * (y - height), self.strength * self.factor(data))
        return w.T, (height - middle @ w if data.bias else None)  # type: ignore[operator]
