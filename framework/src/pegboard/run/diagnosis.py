"""Whether a trained model underfits, overfits, is behind a rule without learning, or is fine, and why."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from ..contract.results import Batch, Objective

UNDERFIT = 0.2  # share of the loss of a constant answer that the loss on the training split may keep
BEHIND = 0.1  # share by which an error may exceed that of the best rule without learning
OVERFIT = 0.1  # share of it by which the loss on held-out samples may exceed that on the training split
MOST = 10_000  # training samples that are measured where they are read from disk
NUMBERS = 1_000_000  # outputs of a constant answer that are compared with targets at a time

Figures = Mapping[str, float]


@dataclass(frozen=True)
class Diagnosis:
    """The gap between seen and held-out samples, and what it means."""

    gap: float | None  # loss on held-out samples above that on the training split
    verdict: str | None  # underfits, overfits, behind the rule that it names, or fine
    rule: str  # why, in words and numbers

    def __str__(self) -> str:
        return f"{self.verdict or 'no verdict'}: {self.rule}"


def diagnose(figures: Mapping[str, Figures], constant: float | str) -> Diagnosis:
    """The diagnosis of figures by split; `constant` is the loss of the best constant answer, or why not."""
    train = figures["train"]["loss"]
    split = next((name for name in ("test", "val") if name in figures), None)
    held_out = math.nan if split is None else figures[split]["loss"]
    gap = held_out - train if math.isfinite(held_out - train) else None
    if isinstance(constant, str):
        return Diagnosis(gap, None, constant)
    if not math.isfinite(train) or (split is not None and gap is None):
        return Diagnosis(gap, None, "a loss is not finite")
    share, scale = f"{UNDERFIT:.0%}", f"what a constant answer loses ({constant:.4g})"
    if train > UNDERFIT * constant:
        return Diagnosis(gap, "underfits", f"train loss {train:.4g} is more than {share} of {scale}")
    small = f"train loss {train:.4g} is at most {share}"
    if gap is None:
        return Diagnosis(None, None, f"{small} of {scale}, and no samples are held out to compare it with")
    if gap > OVERFIT * constant:
        beside = f"{split} loss {held_out:.4g} exceeds train loss {train:.4g} by {gap:.4g}"
        return Diagnosis(gap, "overfits", f"{beside}, more than {OVERFIT:.0%} of {scale}")
    beside = f"{split} loss {held_out:.4g} exceeds it by at most {OVERFIT:.0%}"
    return Diagnosis(gap, "fine", f"{small}, and {beside}, of {scale}")


@dataclass(frozen=True)
class Beside:
    """An error of a model as a share of that of rules without learning, on the same samples."""

    figure: str  # split/name of the error
    value: float
    rules: Mapping[str, float]  # the same figure of each

    @property
    def ratios(self) -> dict[str, float]:
        """The model's error over that of each rule."""
        return {name: self.value / other if other else math.inf for name, other in self.rules.items()}

    @property
    def behind(self) -> str | None:
        """The best rule, where the model is clearly behind it."""
        best = min(self.rules, key=self.rules.__getitem__)
        return best if not self.value <= (1 + BEHIND) * self.rules[best] else None

    def __str__(self) -> str:
        shares = ", ".join(f"{ratio:.3g} of {name}" for name, ratio in self.ratios.items())
        return f"{self.figure} is {self.value:.4g}: {shares}"

    def judge(self, judged: Diagnosis) -> Diagnosis:
        """The verdict of a model that is behind says so first."""
        name = self.behind
        if name is None:
            return judged
        ratio, other = self.ratios[name], self.rules[name]
        rule = f"{self.figure} {self.value:.4g} is {ratio:.3g} times that of {name} ({other:.4g})"
        more = (
            f"; besides, it {judged.verdict}: {judged.rule}"
            if judged.verdict in ("underfits", "overfits")
            else ""
        )
        return replace(judged, verdict=f"behind {name}", rule=rule + more)


def beside(figures: Mapping[str, Figures], rules: Mapping[str, Mapping[str, Figures]]) -> Beside | None:
    """The error on test, or val, beside that of each rule; the mean absolute one where it is measured."""
    for split in ("test", "val"):
        there = {name: of[split] for name, of in rules.items() if split in of}
        if split in figures and there:
            error = "mae" if all("mae" in one for one in (figures[split], *there.values())) else "loss"
            return Beside(
                f"{split}/{error}", figures[split][error], {n: of[error] for n, of in there.items()}
            )
    return None


@dataclass
class Answers:
    """What the best answer loses that is the same for every sample; shown the batches of an evaluation."""

    objective: Objective
    shape: tuple[int, ...] | None = None  # of the output for one sample
    targets: list[Tensor] = field(default_factory=list)
    weights: list[Tensor] = field(default_factory=list)

    def __call__(self, output: Any, batch: Batch) -> None:
        self.shape = tuple(output.shape[1:]) if isinstance(output, Tensor) else None
        if self.shape is not None and len(self.shape) < 2 and batch.target is not None:
            self.targets.append(batch.target)
            weight = batch.weight
            self.weights.append(torch.ones(len(batch.target)) if weight is None else weight)

    def constant(self) -> float | str:
        """The loss, or why it has no meaning here."""
        if not self.targets or self.shape is None:
            return "outputs with a structure have no constant answer to compare with"
        target = torch.cat(self.targets)
        weight = torch.cat([w.to(target.device, torch.float32) for w in self.weights])
        target, weight = target[weight != 0], weight[weight != 0]
        if bool((target == target[:1]).all()):
            return "all targets are the same"
        target, weight = _fewer(target, weight, max(math.prod(self.shape), 1))
        if not len(target):
            return "there are too many classes to find the best constant answer"
        why = ""
        for dtype in (torch.float64, torch.float32):  # constants of an objective may be of the latter
            try:
                least = _least(self.objective, self.shape, target, weight, dtype)
            except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError) as error:
                why = why or str(error).split("\n")[0]
            else:
                return least if least > 0 and math.isfinite(least) else "a constant answer loses nothing"
        return f"the objective does not take a constant answer ({why})"


def _fewer(target: Tensor, weight: Tensor, outputs: int) -> tuple[Tensor, Tensor]:
    """The same targets in fewer rows: each class once, by its weight; of values some, evenly spaced."""
    if not target.is_floating_point() and target.dim() == 1:
        classes, which = torch.unique(target, return_inverse=True)
        counts = torch.zeros(len(classes), dtype=weight.dtype, device=weight.device)
        fits = len(classes) * outputs <= 10 * NUMBERS
        return classes[: len(classes) if fits else 0], counts.index_add_(0, which, weight)
    step = math.ceil(len(target) * outputs / NUMBERS)
    return target[::step], weight[::step]


def _least(
    objective: Objective, shape: tuple[int, ...], target: Tensor, weight: Tensor, dtype: torch.dtype
) -> float:
    """The least loss of one output for all samples."""
    if target.is_floating_point():
        target = target.to(dtype)
    even = bool((weight == weight[0]).all())
    weigh = None if even else weight.to(dtype)
    answer = torch.zeros(shape or (1,), dtype=dtype, device=target.device)
    if target.is_floating_point() and target.shape[1:] == answer.shape:
        known = weight.to(dtype)[:, None] * ~target.isnan()  # a value that is missing is nan
        answer = (target.nan_to_num() * known).sum(0) / known.sum(0).clamp(min=torch.finfo(dtype).tiny)
    answer.requires_grad_()
    descent = torch.optim.LBFGS([answer], max_iter=100, line_search_fn="strong_wolfe")
    seen: list[float] = []

    def closure() -> float:
        descent.zero_grad()
        loss = objective.loss(answer.expand(len(target), *shape), target, weigh)
        torch.autograd.backward(loss, inputs=[answer])
        seen.append(float(loss.detach()))
        return seen[-1]

    with torch.enable_grad():
        descent.step(closure)  # type: ignore[no-untyped-call]
    return min(seen)
