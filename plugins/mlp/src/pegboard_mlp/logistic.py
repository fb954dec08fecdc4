"""The optimum of logistic and softmax regression, by Newton's method in float64."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from pegboard import Context, Labels, PegboardError
from torch import Tensor, nn

from .design import Design, LinearReference, split
from .reference_configs import Logistic

TOLERANCE = 1e-9  # norm of the gradient at the optimum, for features of size 1
STEPS = 200  # of Newton's method; 10 to 20 is usual
DENSE = 1500  # parameters up to which the Hessian is a matrix, and beyond which only its products are formed
CONSTANT = 1e-12  # deviation of a feature, as a share of its size, up to which it is a constant
SETTLED = 1e-3  # change of a logit in one more step, above which weights are on their way to infinity


class Likelihood:
    """The mean negative log likelihood of logits `x w` with a penalty of each row of `w`.

    `target` (samples, outputs) holds probabilities: of classes with `softmax`, of each label without.
    """

    def __init__(self, x: Tensor, target: Tensor, share: Tensor, penalties: Tensor, softmax: bool) -> None:
        self.x, self.target, self.penalties, self.softmax = x, target, penalties.unsqueeze(-1), softmax
        # The loss of a sample is the mean over its labels.
        self.share = share.unsqueeze(-1) / (1 if softmax else target.shape[1])

    def value(self, w: Tensor) -> float:
        return float((self.share * likelihoods(self.x @ w, self.target, self.softmax)).sum()) + float(
            (self.penalties * w.square()).sum() / 2
        )

    def probabilities(self, w: Tensor) -> Tensor:
        logits = self.x @ w
        return logits.softmax(-1) if self.softmax else logits.sigmoid()

    def gradient(self, w: Tensor) -> Tensor:
        return self.x.T @ (self.share * (self.probabilities(w) - self.target)) + self.penalties * w

    def product(self, w: Tensor, direction: Tensor) -> Tensor:
        """The Hessian at `w` times a direction of its shape."""
        p, change = self.probabilities(w), self.x @ direction
        slope = p * (change - (p * change).sum(-1, keepdim=True)) if self.softmax else p * (1 - p) * change
        return self.x.T @ (self.share * slope) + self.penalties * direction

    def hessian(self, w: Tensor) -> Tensor:
        """(outputs, features, outputs, features); without softmax outputs do not meet."""
        p, (features, outputs) = self.probabilities(w), w.shape
        result = self.x.new_zeros(outputs, features, outputs, features)
        for a in range(outputs):
            for b in range(a + 1) if self.softmax else (a,):
                curvature = p[:, a] * ((1.0 if a == b else 0.0) - p[:, b])
                block = self.x.T @ ((self.share[:, 0] * curvature).unsqueeze(-1) * self.x)
                result[a, :, b], result[b, :, a] = block, block
            result[a, :, a] += torch.diag(self.penalties[:, 0])
        return result

    def newton(self, w: Tensor, gradient: Tensor) -> Tensor:
        """The step of Newton's method, with next to nothing along what the Hessian does not see."""
        if w.numel() > DENSE:
            return self._conjugate(w, gradient)
        hessian = self.hessian(w).reshape(w.numel(), w.numel())
        damping = 1e-13 * hessian.diagonal().mean().clamp(min=1e-300)
        while True:
            damped = hessian + damping * torch.eye(w.numel()).to(hessian)
            factor, failed = torch.linalg.cholesky_ex(damped)
            if not failed:
                flat = torch.cholesky_solve(-gradient.T.reshape(-1, 1), factor)
                step = flat.reshape(w.shape[1], w.shape[0]).T
                # What all classes have in common changes no probability, and is nothing but rounding here.
                return step - step.mean(1, keepdim=True) if self.softmax else step
            damping = damping * 10

    def _conjugate(self, w: Tensor, gradient: Tensor) -> Tensor:
        """The same by conjugate gradients, to an accuracy that grows as the gradient vanishes."""
        step, rest = torch.zeros_like(w), -gradient
        direction, size = rest, rest.square().sum()
        enough = size * torch.clamp(size.sqrt(), max=0.01)
        for _ in range(1000):
            image = self.product(w, direction)
            curvature = (direction * image).sum()
            if size <= enough or curvature <= 0:
                break
            length = size / curvature
            step, rest = step + length * direction, rest - length * image
            size, before = rest.square().sum(), size
            direction = rest + size / before * direction
        return step

    def separated(self, w: Tensor) -> bool:
        """Whether every sample is decided right, so that weights twice as large are better still."""
        logits = self.x @ w
        # A target between 0 and 1 is missed by logits that are too large, on the right side too.
        hard = bool(((self.target == 0) | (self.target == 1)).all())
        if not self.softmax:
            return hard and bool(((logits > 0) == (self.target > 0.5)).all() and (logits != 0).all())
        right = self.target.argmax(-1, keepdim=True)
        others = logits.scatter(-1, right, float("-inf")).max(-1, keepdim=True).values
        return hard and bool((logits.gather(-1, right) > others).all())


def likelihoods(logits: Tensor, target: Tensor, softmax: bool) -> Tensor:
    """The cross entropy of every sample and class, or label."""
    if softmax:
        return -target * logits.log_softmax(-1)
    return F.binary_cross_entropy_with_logits(logits, target, reduction="none")


def minimise(problem: Likelihood, decays: bool) -> Tensor:
    """The minimum from zero weights; an error where there is none."""
    w = problem.x.new_zeros(problem.x.shape[1], problem.target.shape[1])
    value = problem.value(w)
    for _ in range(STEPS):
        gradient = problem.gradient(w)
        step = problem.newton(w, gradient)
        moved = float((problem.x @ step).abs().max())
        if float(gradient.norm()) <= TOLERANCE and moved <= SETTLED:
            return w + step
        if not decays and (problem.separated(w) or float(gradient.norm()) <= TOLERANCE):
            raise PegboardError(
                "logistic: the classes of the training data can be separated, all or in part, so that larger "
                "weights are always better and there is no optimum.\n"
                "Give the reference a value above 0, as in reference: {name: logistic, value: 1e-3}, and the "
                "run weight_decay of the same value."
            )
        length, slope = 1.0, float((gradient * step).sum())
        # What rounding hides may look like a rise.
        while problem.value(w + length * step) > value + 1e-4 * length * slope + 1e-15 * (1 + abs(value)):
            length /= 2
            if length < 1e-10:
                break
        w = w + length * step
        value = problem.value(w)
    raise PegboardError(
        f"logistic: Newton's method did not bring the gradient to {TOLERANCE:g} in {STEPS} steps.\n"
        "The features are nearly dependent: standardise them, leave some out, or raise value."
    )


class LogisticReference(LinearReference):
    """Logistic regression for one output or a set of labels, softmax regression for several classes."""

    name = "logistic"

    def __init__(self, config: Logistic, context: Context) -> None:
        self.strength, self.labels = config.value, isinstance(context.spec.target, Labels)
        self.formula = "mean cross entropy(f(x), y)"
        if config.value:
            self.formula += f" + {config.value:g}/2 ||w||^2"

    def target(self, data: Design) -> Tensor:
        if data.outputs == 1 and not self.labels:
            return (
                (data.signs().unsqueeze(-1) + 1) / 2
                if data.target.dim() == 1
                else data.target[:, 1:].double()
            )
        return data.values()

    def softmax(self, data: Design) -> bool:
        return data.outputs > 1 and not self.labels

    def loss(self, output: Tensor, data: Design) -> Tensor:
        softmax = self.softmax(data)
        losses = likelihoods(output, self.target(data), softmax)
        return losses.sum(-1) if softmax else losses.mean(-1)

    def penalty(self, head: nn.Linear) -> float:
        return self.strength / 2 * float(head.weight.double().square().sum())

    def refuse_absent(self, data: Design) -> None:
        """A class that no sample has, or all have, has no best bias: further away is always better."""
        share = data.share @ self.target(data)
        for what, sure in (("no", share == 0), ("every", share >= 1 - 1e-12)):
            if bool(sure.any()) and not (self.softmax(data) and what == "every"):
                name = "label" if self.labels else "class"
                number = int(sure.nonzero()[0, 0]) if data.outputs > 1 else 1
                raise PegboardError(
                    f"logistic: {what} training sample has {name} {number}, so that a bias further away is "
                    "always better and there is no optimum.\n"
                    f"Use data in which every {name} occurs, or give the model no bias."
                )

    def fit(self, data: Design) -> tuple[Tensor, Tensor | None]:
        # In units of its deviation each feature is as steep as the others, and the optimum is the same.
        middle = data.share @ data.x if data.bias else torch.zeros_like(data.x[0])
        x = data.x - middle
        scale = (data.share @ x.square()).sqrt()
        flat = scale <= CONSTANT * data.x.abs().amax(0)  # all that varies is rounding
        scale = torch.where(flat, 1.0, scale)
        x = torch.where(flat, 0.0, x) / scale
        penalties = self.strength / scale.square()
        if data.bias:
            self.refuse_absent(data)
            x = torch.cat([x, torch.ones_like(x[:, :1])], 1)
            penalties = torch.cat([penalties, torch.zeros_like(penalties[:1])])
        problem = Likelihood(x, self.target(data), data.share, penalties, self.softmax(data))
        weight, bias = split(minimise(problem, self.strength > 0), data.bias)
        weight = weight / scale
        return weight, None if bias is None else bias - weight @ middle
