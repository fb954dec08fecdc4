"""The metrics of objectives, each fed with raw outputs, the original targets and weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import torch
from pegboard import Metric
from torch import Tensor
from torch.nn import functional as F

from . import running
from .functional import IGNORED
from .measures import logit_entropy, lp_norm
from .names import shown

Flat = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]  # (output, target) -> logits and indices of places
Read = Callable[[Tensor, Tensor], tuple[Tensor, ...]]  # (output, target) -> what a metric reads
Make = Callable[[ModuleType], Any]  # the module `running` -> the metric


class Fed:
    """A running measurement behind a function that gives it what it reads."""

    def __init__(self, make: Make, read: Read, higher_is_better: bool | None) -> None:
        self.metric, self.read = make(running), read
        self.higher_is_better = higher_is_better  # which checkpoint is best depends on it
        self.fed = False

    def update(self, preds: Tensor, target: Tensor, weight: Tensor | None = None) -> None:
        self.fed = True
        read = self.read(preds, target)
        if weight is not None and target.dim() == 3:  # every step weighs what its sample does
            weight = weight.repeat_interleave(len(read[0]) // len(weight))
        self.metric.update(*read, weight=weight)

    def compute(self) -> Tensor:
        value: Tensor = self.metric.compute() if self.fed else torch.tensor(torch.nan)
        return value

    def reset(self) -> None:
        self.fed = False
        self.metric.reset()

    def to(self, device: str) -> Fed:
        self.metric.to(device)
        return self


def log_odds(logits: Tensor) -> Tensor:
    """log(p / (1 - p)) of each class: orders samples as the probability does, and never saturates."""
    first = logits.argmax(-1, keepdim=True)
    others = logits.scatter(-1, first, float("-inf")).logsumexp(-1, keepdim=True)
    p = logits.log_softmax(-1)
    # 1 - p is exact enough for every class but the likeliest.
    return (p - torch.log1p(-p.exp())).scatter(-1, first, logits.gather(-1, first) - others)


def classification(chosen: Sequence[str], classes: int, k: int, flat: Flat) -> dict[str, Metric]:
    """Metrics of one class a place; `flat` gives logits (places, classes) and indices (places,)."""

    def hit(output: Tensor, target: Tensor) -> tuple[Tensor, ...]:
        logits, index = flat(output, target)
        return logits.argmax(-1) == index, index != IGNORED

    def hit_k(output: Tensor, target: Tensor) -> tuple[Tensor, ...]:
        logits, index = flat(output, target)
        return (logits.topk(k, -1).indices == index.unsqueeze(-1)).any(-1), index != IGNORED

    def decisions(output: Tensor, target: Tensor) -> tuple[Tensor, ...]:
        logits, index = flat(output, target)
        return logits.argmax(-1), index, index != IGNORED

    def confidence(output: Tensor, target: Tensor) -> tuple[Tensor, ...]:
        logits, index = flat(output, target)
        # Of classes whose probabilities round alike, the first would win, and not the one that is decided.
        return logits.float().softmax(-1).amax(-1), logits.argmax(-1) == index, index != IGNORED

    def spread(output: Tensor, target: Tensor) -> tuple[Tensor, ...]:
        logits, index = flat(output, target)
        return logit_entropy(logits.float()), index != IGNORED

    def surprise(output: Tensor, target: Tensor) -> tuple[Tensor, ...]:
        logits, index = flat(output, target)
        losses = F.cross_entropy(logits.float(), index, reduction="none", ignore_index=IGNORED)
        return losses, index != IGNORED

    def ranking(output: Tensor, target: Tensor) -> tuple[Tensor, ...]:
        logits, index = flat(output, target)
        logits, known = logits.float(), (index != IGNORED).unsqueeze(-1)
        if classes == 2:  # the difference orders samples as the probability does, and never saturates
            return logits[:, 1:] - logits[:, :1], index.unsqueeze(-1) == 1, known
        positive = index.unsqueeze(-1) == torch.arange(classes, device=index.device)
        return log_odds(logits), positive, known.expand_as(positive)

    made: dict[str, Fed] = {
        "accuracy": Fed(lambda m: m.Share(), hit, True),
        "topk": Fed(lambda m: m.Share(), hit_k, True),
        "f1": Fed(lambda m: m.F1(classes), decisions, True),
        "auroc": Fed(lambda m: m.Auroc(), ranking, True),
        "ece": Fed(lambda m: m.CalibrationError(), confidence, False),
        "entropy": Fed(lambda m: m.Share(), spread, None),
        "perplexity": Fed(lambda m: m.Perplexity(), surprise, False),
    }
    return {shown([name], k=k)[0]: made[name] for name in chosen}


def label_set(chosen: Sequence[str], labels: int) -> dict[str, Metric]:
    """Metrics of logits (batch, labels) against zeros and ones of the same shape; nan is not known."""

    def hit(output: Tensor, target: Tensor) -> tuple[Tensor, ...]:
        return (output > 0) == (target > 0.5), ~target.isnan()

    def decisions(output: Tensor, target: Tensor) -> tuple[Tensor, ...]:
        return output > 0, target > 0.5, ~target.isnan()

    def ranking(output: Tensor, target: Tensor) -> tuple[Tensor, ...]:
        return output, target > 0.5, ~target.isnan()

    def probabilities(output: Tensor, target: Tensor) -> tuple[Tensor, ...]:
        return output.float().sigmoid(), target > 0.5, ~target.isnan()

    def spread(output: Tensor, target: Tensor) -> tuple[Tensor, ...]:
        two = torch.stack([torch.zeros_like(output), output], -1)
        return logit_entropy(two.float()), ~target.isnan()

    made: dict[str, Fed] = {
        "accuracy": Fed(lambda m: m.Share(), hit, True),
        "f1": Fed(lambda m: m.F1(labels), decisions, True),
        "auroc": Fed(lambda m: m.Auroc(), ranking, True),
        "ece": Fed(lambda m: m.CalibrationError(), probabilities, False),
        "entropy": Fed(lambda m: m.Share(), spread, None),
    }
    return {name: made[name] for name in chosen}


def regression(
    chosen: Sequence[str], p: float, units: Callable[[Tensor], Tensor] = lambda y: y
) -> dict[str, Metric]:
    """Metrics of real values (batch, features) or (batch, steps, features); nan is not known.

    `units` gives back what values were before they were scaled.
    """

    def precise(output: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        # Sums of squares cancel; MPS has nothing finer than single precision.
        dtype = torch.float32 if output.device.type == "mps" else torch.float64
        rows = target.shape[0] * (target.shape[1] if target.dim() == 3 else 1)
        values = units(target.to(dtype)).reshape(rows, -1)
        return units(output.to(dtype)).reshape(rows, -1), values, ~values.isnan()

    def errors(output: Tensor, target: Tensor) -> tuple[Tensor, ...]:
        output, target, known = precise(output, target)
        return (output - target).abs(), known

    def squares(output: Tensor, target: Tensor) -> tuple[Tensor, ...]:
        error, known = errors(output, target)
        return error.square(), known

    def distances(output: Tensor, target: Tensor) -> tuple[Tensor, ...]:
        error, known = errors(output, target)
        return lp_norm(torch.where(known, error, 0), p), known.any(-1)

    made: dict[str, Fed] = {
        "r2": Fed(lambda m: m.R2(), precise, True),
        "mae": Fed(lambda m: m.Share(), errors, False),
        "rmse": Fed(lambda m: m.Share(root=True), squares, False),
        "mse": Fed(lambda m: m.Share(), squares, False),
        "max_error": Fed(lambda m: m.Largest(), errors, False),
        "lp": Fed(lambda m: m.Share(), distances, False),
    }
    return {shown([name], p=p)[0]: made[name] for name in chosen}


def clustering(classes: int) -> dict[str, Metric]:
    """How far the groups agree with classes."""

    def groups(output: Tensor, target: Tensor) -> tuple[Tensor, ...]:
        return output, target, target != IGNORED

    return {"ari": Fed(lambda m: m.RandIndex(classes), groups, True)}
