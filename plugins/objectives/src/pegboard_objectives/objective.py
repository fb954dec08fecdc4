"""Objectives that compare an output with a target: classes, sets of labels, real values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from pegboard import Batch, Classes, Labels, Metric, Objective, Player, Spec, Table, Tokens, Values
from torch import Tensor, nn

from .functional import IGNORED

Loss = Callable[..., Tensor]  # (output, target, weight=None) -> the mean loss of a batch

LARGEST_TABLE = 100  # classes past which a confusion matrix is no use to a person


class Supervised(Objective):
    """A loss of output and target. `plain` is `full` without weights, as directly as it can be called."""

    def __init__(self, name: str, plain: Loss, full: Loss, target: Spec) -> None:
        self.formula = f"{name}(f(x), y)"
        self.plain, self.full, self.target = plain, full, target

    def loss(self, output: Any, target: Tensor, weight: Tensor | None = None) -> Tensor:
        return self.plain(output, target) if weight is None else self.full(output, target, weight)

    def players(self, model: nn.Module) -> list[Player]:
        plain, full = self.plain, self.full

        # The loss is called from here and not by way of `self.loss`: one call less in every step.
        def loss(model: nn.Module, batch: Batch) -> tuple[Tensor, Any]:
            output = model(*batch.inputs)
            if batch.weight is None:
                return plain(output, batch.target), output
            return full(output, batch.target, batch.weight), output

        return [replace(player, loss=loss) for player in super().players(model)]


class Classification(Supervised):
    """One class for each sample, or for each place of a sequence.

    `single` is an output of one number, positive for class 1; `scores` says that outputs are not
    logits, so that nothing is said of probabilities. `metrics` None chooses the usual ones.
    """

    def __init__(
        self,
        name: str,
        plain: Loss,
        full: Loss,
        target: Classes | Tokens,
        *,
        metrics: Sequence[str] | None = None,
        k: int = 5,
        single: bool = False,
        scores: bool = False,
    ) -> None:
        super().__init__(name, plain, full, target)
        self.single, self.scores, self.k = single, scores, k
        self.classes = target.size or 0
        self.names = target.names if isinstance(target, Classes) else ()
        self.padding = target.padding if isinstance(target, Tokens) else -1
        self.chosen = tuple(metrics) if metrics is not None else self._usual(target)
        if "accuracy" in self.chosen and isinstance(target, Classes):
            self.monitor = ("accuracy", "max")

    def _usual(self, target: Classes | Tokens) -> tuple[str, ...]:
        ranked = ("accuracy", "topk") if self.classes > self.k else ("accuracy",)
        if isinstance(target, Tokens):
            return ranked
        # AUROC keeps every output of an evaluation, which for two classes is one number each.
        two = ("auroc",) if self.classes == 2 else ()
        return (*ranked, "f1", *two, *(() if self.scores else ("ece",)))

    def logits(self, output: Tensor) -> Tensor:
        """One number for each class: (..., classes)."""
        return torch.cat([torch.zeros_like(output), output], -1) if self.single else output

    def flat(self, output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Logits (places, classes) and indices (places,), -100 for a place that does not count."""
        if target.is_floating_point():
            target = target.argmax(-1)
        if self.padding != -1:
            target = target.masked_fill(target == self.padding, IGNORED)
        return self.logits(output).reshape(-1, self.classes), target.reshape(-1)

    def metrics(self) -> dict[str, Metric]:
        from .metrics import classification

        return classification(self.chosen, self.classes, self.k, self.flat)

    def predict(self, output: Any) -> dict[str, Tensor]:
        logits = self.logits(output)
        if self.scores:
            best = logits.topk(2, -1)
            # How far the class is ahead of the next one.
            return {"class": best.indices[..., 0], "margin": best.values[..., 0] - best.values[..., 1]}
        probability, index = logits.softmax(-1).max(-1)
        return {"class": index, "probability": probability}

    def tables(self, output: Any, target: Tensor) -> dict[str, Table]:
        if isinstance(self.target, Tokens) or self.classes > LARGEST_TABLE:
            return {}
        logits, true = self.flat(output, target)
        known = true != IGNORED
        pairs = true[known] * self.classes + logits.argmax(-1)[known]
        counts = pairs.bincount(minlength=self.classes**2).reshape(self.classes, -1).tolist()
        names = self.names or tuple(map(str, range(self.classes)))
        rows = [[name, *row] for name, row in zip(names, counts, strict=True)]
        return {"confusion": Table(["true", *names], rows)}


class LabelSet(Supervised):
    """Any subset of labels for each sample; outputs are logits (batch, labels)."""

    def __init__(
        self, name: str, plain: Loss, full: Loss, target: Labels, *, metrics: Sequence[str] | None = None
    ) -> None:
        super().__init__(name, plain, full, target)
        self.labels, self.names = target.count or 0, target.names
        self.chosen = tuple(metrics) if metrics is not None else ("accuracy", "f1")
        if "accuracy" in self.chosen:
            self.monitor = ("accuracy", "max")

    def metrics(self) -> dict[str, Metric]:
        from .metrics import label_set

        return label_set(self.chosen, self.labels)

    def predict(self, output: Any) -> dict[str, Tensor]:
        return {"labels": (output > 0).long(), "probability": output.sigmoid()}

    def tables(self, output: Any, target: Tensor) -> dict[str, Table]:
        on, true = output > 0, target > 0.5
        counts = [(on & true).sum(0), (on & ~true).sum(0), (~on & true).sum(0), (~on & ~true).sum(0)]
        names = self.names or tuple(map(str, range(self.labels)))
        rows = [[name, *row] for name, row in zip(names, torch.stack(counts, -1).tolist(), strict=True)]
        columns = ["label", "true positive", "false positive", "false negative", "true negative"]
        return {"labels": Table(columns, rows)}


class Regression(Supervised):
    """Real values for each sample: outputs are (batch, features)."""

    def __init__(
        self, name: str, plain: Loss, full: Loss, target: Values, *, metrics: Sequence[str] | None = None
    ) -> None:
        super().__init__(name, plain, full, target)
        self.chosen = tuple(metrics) if metrics is not None else ("r2", "mae", "rmse")

    def metrics(self) -> dict[str, Metric]:
        from .metrics import regression

        return regression(self.chosen)

    def predict(self, output: Any) -> dict[str, Tensor]:
        return {"value": output.squeeze(-1) if output.dim() > 1 else output}
