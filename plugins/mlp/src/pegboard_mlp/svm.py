"""The exact linear support vector machine: a quadratic program, then the equations of its support vectors."""

from __future__ import annotations

from typing import NamedTuple

import torch
from pegboard import Batch, Context, PegboardError
from torch import Tensor, nn

from .design import Design, LinearReference, design, head_of
from .quadratic import Program
from .reference_configs import Svm

ON_MARGIN = 1e-6  # how close to 1 the output of a support vector is
SOLVED = 1e-8  # duality gap above which an answer is none


class Separator(NamedTuple):
    """A hyperplane w x + b between classes -1 and +1."""

    weight: Tensor  # (features,)
    bias: Tensor  # a scalar; 0 without one
    support: Tensor  # numbers of the samples with y (w x + b) <= 1

    @property
    def width(self) -> float:
        """Between the planes at -1 and +1."""
        return 2 / float(self.weight.norm())


def nearest_points(x: Tensor, y: Tensor, bias: bool = True) -> Tensor:
    """The vector from the hull of class -1 to that of class +1 where they are closest: (features,).

    Without a bias the point of the hull of all y x that is closest to the origin. It is 0 where a hyperplane
    cannot separate the classes. `x` (samples, features), `y` (samples,) of -1 and +1.
    """
    size: Tensor = x.norm(dim=-1).max().clamp(min=1e-300)
    root = y.unsqueeze(-1) * x / size
    groups = torch.stack([y > 0, y < 0]) if bias else torch.ones(1, len(y), dtype=torch.bool)
    equations = groups.to(x)
    done = Program(root, torch.zeros_like(y), equations, torch.ones_like(equations[:, 0])).solve()
    first: Tensor = root.T @ done.x
    used = done.x > done.low
    if used.any():  # on those that carry weight the answer is a linear system
        some, among = root[used], equations[:, used]
        count = len(among)
        upper = torch.cat([some @ some.T, among.T], 1)
        matrix = torch.cat([upper, torch.cat([among, torch.zeros(count, count).to(x)], 1)])
        right = torch.cat([torch.zeros_like(y[used]), torch.ones(count).to(x)])
        shares = torch.linalg.lstsq(matrix, right.unsqueeze(-1), driver="gelsd").solution[: len(some), 0]
        second = some.T @ shares
        if bool((shares > -1e-9).all()) and _lead(second, root, groups) >= _lead(first, root, groups) - 1e-15:
            first = second
    return first * size


def _lead(direction: Tensor, root: Tensor, groups: Tensor) -> float:
    """How far a direction keeps the classes apart, in units of its length."""
    along = root @ direction / direction.norm().clamp(min=1e-300)
    return sum(float(along[group].min()) for group in groups)


def hard_margin(x: Tensor, y: Tensor, bias: bool = True) -> Separator | None:
    """The separator of least norm with y (w x + b) >= 1 everywhere; None where there is none."""
    between = nearest_points(x, y, bias)
    weight = between / between.square().sum().clamp(min=1e-300) * (2 if bias else 1)
    along = x @ weight
    shift = -(along[y > 0].min() + along[y < 0].max()) / 2 if bias else torch.zeros(()).to(x)
    least = (y * (along + shift)).min()
    # A true answer has 1 here, and where nothing separates no direction has more than 0.
    if not least > 0.5:
        return None
    weight, shift = weight / least, shift / least
    return Separator(weight, shift, _support(x, y, weight, shift))


def _support(x: Tensor, y: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return (y * (x @ weight + bias) <= 1 + ON_MARGIN).nonzero()[:, 0]


def soft_margin(x: Tensor, y: Tensor, value: float, share: Tensor, bias: bool = True) -> Separator:
    """What minimises sum share max(0, 1 - y (w x + b)) + value ||w||^2; `share` (samples,) sums to 1."""
    z, count = y.unsqueeze(-1) * x, len(y)
    # Prices as shares of the most a sample may have, so that all numbers are of size 1.
    root = share.unsqueeze(-1) * z * (count / (2 * value)) ** 0.5
    equations = (y * share).unsqueeze(0) * count if bias else torch.zeros(0, count).to(x)
    done = Program(
        root, -count * share, equations, torch.zeros_like(equations[:, 0]), torch.ones_like(y)
    ).solve()
    candidates = [done.x * share, _polished(done, z, y, share, value, bias)]
    found = []
    for prices in candidates:
        weight = z.T @ prices / (2 * value)
        shift = best_bias(x @ weight, y, share) if bias else torch.zeros(()).to(x)
        loss = float((1 - y * (x @ weight + shift)).clamp(min=0) @ share + value * weight @ weight)
        inside = prices.clamp(min=0).minimum(share)
        least = float(inside.sum() - value * (z.T @ inside / (2 * value)).square().sum())
        found.append((loss, least, weight, shift))
    loss, _, weight, shift = min(found, key=lambda f: f[0])
    if loss - max(least for _, least, *_ in found) > SOLVED * max(1.0, loss):
        raise PegboardError(
            f"svm: the quadratic program is solved only to {loss - max(f[1] for f in found):.1g}.\n"
            "Features of very different sizes are hard on it: standardise them, or raise value."
        )
    return Separator(weight, shift, _support(x, y, weight, shift))


def _polished(done: Program, z: Tensor, y: Tensor, share: Tensor, value: float, bias: bool) -> Tensor:
    """The prices that put every sample with a price between its bounds exactly on the margin."""
    full = done.room < done.high
    free = ~full & (done.x > done.low)
    prices = torch.where(full, share, 0.0)
    if not free.any():
        return prices
    some, given = z[free], z.T @ prices / (2 * value)
    matrix, right = some @ some.T / (2 * value), 1 - some @ given
    if bias:
        signs = y[free].unsqueeze(-1)
        matrix = torch.cat([torch.cat([matrix, signs], 1), torch.cat([signs.T, torch.zeros(1, 1).to(z)], 1)])
        right = torch.cat([right, -(y @ prices).reshape(1)])
    solution = torch.linalg.lstsq(matrix, right.unsqueeze(-1), driver="gelsd").solution[:, 0]
    prices[free] = solution[: len(some)]
    return prices


def best_bias(along: Tensor, y: Tensor, share: Tensor) -> Tensor:
    """The bias of least hinge loss for given w x (samples,): the middle of them where there are several."""
    corners, order = (y - along).sort()  # the loss is a line between two of them
    # Left of all corners every positive sample is inside the margin; passing one takes it out, or in.
    slopes = torch.cumsum(share[order], 0) - share[y > 0].sum()
    tiny = 1e-12
    first = int((slopes >= -tiny).nonzero()[0, 0])
    last = int((slopes > tiny).nonzero()[0, 0]) if bool((slopes > tiny).any()) else first
    return (corners[first] + corners[last]) / 2


class SvmReference(LinearReference):
    """The soft margin, or the hard one where `value` is 0."""

    name = "svm"

    def __init__(self, config: Svm, context: Context) -> None:
        self.strength = config.value
        soft = f"mean max(0, 1 - y f(x)) + {config.value:g} ||w||^2"
        self.formula = soft if config.value else "-min y f(x) / ||w||, the widest margin"

    def separator(self, data: Design) -> Separator:
        """The answer for the features of a model, with its support vectors."""
        if data.outputs > 2:
            raise PegboardError(
                f"svm tells two classes apart, and the model has {data.outputs} outputs.\n"
                "Use the objective hinge and data with two classes."
            )
        y = data.signs()
        if self.strength:
            return soft_margin(data.x, y, self.strength, data.share, data.bias)
        if bool((y == y[0]).all()) and data.bias:
            raise PegboardError("svm: the training data has a single class, and any bias decides it right.")
        if (found := hard_margin(data.x, y, data.bias)) is None:
            raise PegboardError(
                "svm: no hyperplane separates the two classes of the training data, so that there is no hard "
                "margin.\nGive the reference a value above 0, as in reference: {name: svm, value: 0.01}: a "
                "soft margin always exists. The run then has the same optimum with weight_decay of 2 value."
            )
        return found

    def fit(self, data: Design) -> tuple[Tensor, Tensor | None]:
        found = self.separator(data)
        weight, bias = found.weight.unsqueeze(0), found.bias.reshape(1)
        if data.outputs == 2:
            weight, bias = torch.cat([-weight, weight]) / 2, torch.cat([-bias, bias]) / 2
        return weight, bias if data.bias else None

    def value(self, model: nn.Module, train: Batch) -> float:
        if self.strength:
            return super().value(model, train)
        return -margin(design(model, train, self.name), head_of(model, self.name))

    def loss(self, output: Tensor, data: Design) -> Tensor:
        decision = output[:, 1] - output[:, 0] if data.outputs == 2 else output[:, 0]
        return (1 - data.signs() * decision).clamp(min=0)

    def penalty(self, head: nn.Linear) -> float:
        return self.strength * float(plane(head)[0].square().sum())

    def gap(self, model: nn.Module, best: nn.Module, train: Batch) -> dict[str, float]:
        figures = super().gap(model, best, train)
        data, (weight, bias) = design(best, train, self.name), plane(head_of(best, self.name))
        close = data.signs() * (data.x @ weight + bias) <= 1 + 1e-4  # weights have been rounded
        # Where no weight is worth its price there is no hyperplane.
        found = {"margin": 1 / float(weight.norm())} if weight.norm() > 0 else {}
        return figures | found | {"support": float(close.sum())}


def plane(head: nn.Linear) -> tuple[Tensor, Tensor]:
    """Weight (features,) and bias of the decision f(x) > 0; two scores are decided by their difference."""
    weight = head.weight.detach().double()
    bias = head.bias.detach().double() if head.bias is not None else torch.zeros_like(weight[:, 0])
    return (weight[1] - weight[0], bias[1] - bias[0]) if len(weight) == 2 else (weight[0], bias[0])


def margin(data: Design, head: nn.Linear) -> float:
    """min y f(x) / ||w||: how far the nearest sample is on its right side; 0 for a model without weights."""
    weight, bias = plane(head)
    norm = weight.norm()
    return float((data.signs() * (data.x @ weight + bias)).min() / norm) if norm > 0 else 0.0
