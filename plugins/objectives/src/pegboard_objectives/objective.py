"""Objectives that compare an output with a target: classes, sets of labels, real values, or with none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from pegboard import (
    Batch,
    Classes,
    Labels,
    Metric,
    Objective,
    PegboardError,
    Player,
    Series,
    Spec,
    Table,
    Tokens,
    Values,
)
from torch import Tensor, nn

from .from_torchmetrics import FromTorchmetrics, Read
from .functional import IGNORED, along, class_counts
from .names import USUAL_OF_LABELS, USUAL_OF_VALUES, K, usual_of_classes
from .torchmetrics_names import PREFIX

Loss = Callable[..., Tensor]  # (output, target, weight=None) -> the mean loss of a batch

LARGEST_TABLE = 100  # classes past which a confusion matrix is no use to a person


class Supervised(Objective):
    """A loss of output and target. `plain` is `full` without weights, as directly as it can be called."""

    chosen: tuple[str, ...] = ()  # names of metrics

    def __init__(self, name: str, plain: Loss, full: Loss, target: Spec | None) -> None:
        self.formula = f"{name}(f(x), y)"
        self.plain, self.full, self.target = plain, full, target

    def loss(self, output: Any, target: Tensor, weight: Tensor | None = None) -> Tensor:
        # A sum over an evaluation is no place for half precision.
        narrow = output.dtype in (torch.bfloat16, torch.float16)
        with self.explained(output, target):
            return self.full(output.float() if narrow else output, target, weight)

    def players(self, model: nn.Module) -> list[Player]:
        plain, full = self.plain, self.full

        # The loss is called from here and not by way of `self.loss`: fewer calls in every step.
        def loss(model: nn.Module, batch: Batch) -> tuple[Tensor, Any]:
            output = model(*batch.inputs)
            try:
                if batch.weight is None:
                    return plain(output, batch.target), output
                return full(output, batch.target, batch.weight), output
            except (IndexError, RuntimeError):
                with self.explained(output, batch.target):
                    raise

        return [replace(player, loss=loss) for player in super().players(model)]

    @contextmanager
    def explained(self, output: Any, target: Tensor | None) -> Iterator[None]:
        """What torch says of a target that cannot be, in the words of a person."""
        try:
            yield
        except (IndexError, RuntimeError) as error:
            if wrong := self.wrong(output, target):
                raise PegboardError(wrong) from error
            raise

    def wrong(self, output: Any, target: Tensor | None) -> str | None:
        """What is wrong with a target, where something is."""
        return None

    @property
    def own(self) -> tuple[str, ...]:
        """The metrics that were chosen but those of torchmetrics."""
        return tuple(name for name in self.chosen if not name.startswith(PREFIX))

    def named(self, read: Read, sizes: dict[str, int]) -> dict[str, Metric]:
        """The metrics of torchmetrics that were chosen; `read` gives what they compare."""
        names = [name for name in self.chosen if name.startswith(PREFIX)]
        made = [FromTorchmetrics(name, self.target, sizes, read) for name in names]
        return {metric.name: metric for metric in made}


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
        k: int = K,
        single: bool = False,
        scores: bool = False,
        class_weights: Tensor | None = None,
    ) -> None:
        super().__init__(name, plain, full, target)
        self.class_weights = class_weights
        self.single, self.scores, self.k = single, scores, k
        self.classes = target.size or 0
        self.names = target.names if isinstance(target, Classes) else ()
        self.padding = target.padding if isinstance(target, Tokens) else -1
        self.chosen = tuple(metrics if metrics is not None else usual_of_classes(target, k, scores))
        if "accuracy" in self.chosen and isinstance(target, Classes):
            self.monitor = ("accuracy", "max")

    def logits(self, output: Tensor) -> Tensor:
        """One number for each class: (..., classes)."""
        return torch.cat([torch.zeros_like(output), output], -1) if self.single else output

    def flat(self, output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Logits (places, classes) and indices (places,), -100 for a place that does not count."""
        if target.is_floating_point():
            target = target.argmax(-1).masked_fill((target == 0).all(-1), IGNORED)
        return self.logits(output).reshape(-1, self.classes), self._indices(target)

    def _indices(self, target: Tensor) -> Tensor:
        flat = target.reshape(-1)
        return flat if self.padding == -1 else flat.masked_fill(flat == self.padding, IGNORED)

    def mass(self, batch: Batch) -> Tensor | float:
        target = batch.target
        assert target is not None
        soft = target.is_floating_point()
        places = target.reshape(-1, target.shape[-1]) if soft else self._indices(target)
        return class_counts(places, batch.weight, self.class_weights).sum()

    def wrong(self, output: Any, target: Tensor | None) -> str | None:
        if target is None or target.is_floating_point():
            return None
        index = self._indices(target)
        bad = index[(index != IGNORED) & ((index < 0) | (index >= self.classes))]
        if not len(bad):
            return None
        return (
            f"a target is class {int(bad[0])}, and there are {self.classes} classes: expected 0 to "
            f"{self.classes - 1}, or {IGNORED} where the class is not known"
        )

    def metrics(self) -> dict[str, Metric]:
        from .metrics import classification

        ours = classification(self.own, self.classes, self.k, self.flat)
        return ours | self.named(self._compared, {"num_classes": self.classes})

    def _compared(self, output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """What metrics of torchmetrics read: probabilities, or scores, and classes."""
        logits, index = self.flat(output, target)
        known = index != IGNORED
        return logits[known].float() if self.scores else logits[known].float().softmax(-1), index[known]

    def predict(self, output: Any) -> dict[str, Tensor]:
        logits = self.logits(output)
        if self.scores:
            best = logits.topk(2, -1)
            # How far the class is ahead of the next one.
            return {"class": best.indices[..., 0], "margin": best.values[..., 0] - best.values[..., 1]}
        return {"class": logits.argmax(-1), "probability": logits.softmax(-1).amax(-1)}

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
        self,
        name: str,
        plain: Loss,
        full: Loss,
        target: Labels,
        *,
        metrics: Sequence[str] | None = None,
        missing: bool = False,
    ) -> None:
        super().__init__(name, plain, full, target)
        self.missing = missing
        self.labels, self.names = target.count or 0, target.names
        self.chosen = tuple(metrics if metrics is not None else USUAL_OF_LABELS)
        if "accuracy" in self.chosen:
            self.monitor = ("accuracy", "max")

    def metrics(self) -> dict[str, Metric]:
        from .metrics import label_set

        return label_set(self.own, self.labels) | self.named(self._compared, {"num_labels": self.labels})

    def _compared(self, output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """What metrics of torchmetrics read: probabilities and labels of samples with all of them."""
        known = ~target.isnan().any(-1)
        return output[known].float().sigmoid(), (target[known] > 0.5).long()

    def mass(self, batch: Batch) -> Tensor | float:
        return known_mass(batch) if self.missing else super().mass(batch)

    def predict(self, output: Any) -> dict[str, Tensor]:
        return {"labels": (output > 0).long(), "probability": output.sigmoid()}

    def tables(self, output: Any, target: Tensor) -> dict[str, Table]:
        on, true, known = output > 0, target > 0.5, ~target.isnan()
        cases = (on & true, on & ~true, ~on & true, ~on & ~true)
        counts = [(case & known).sum(0) for case in cases]
        names = self.names or tuple(map(str, range(self.labels)))
        rows = [[name, *row] for name, row in zip(names, torch.stack(counts, -1).tolist(), strict=True)]
        columns = ["label", "true positive", "false positive", "false negative", "true negative"]
        return {"labels": Table(columns, rows)}


class Regression(Supervised):
    """Real values: outputs are (batch, features), or (batch, steps, features) for every step of a series."""

    def __init__(
        self,
        name: str,
        full: Loss,
        target: Values | Series,
        *,
        metrics: Sequence[str] | None = None,
        p: float = 2.0,
        missing: bool = False,
        whole: bool = False,
    ) -> None:
        super().__init__(name, full, full, target)
        self.p, self.missing = p, missing
        self.whole = whole  # the loss is one number a sample, not one a value
        self.chosen = tuple(metrics if metrics is not None else USUAL_OF_VALUES)
        # Values that were scaled, in the units of the data: those of metrics and predictions.
        self.units: Callable[[Tensor], Tensor] = target.invert if isinstance(target, Values) else lambda y: y

    def metrics(self) -> dict[str, Metric]:
        from .metrics import regression

        return regression(self.own, self.p, self.units) | self.named(self._compared, {})

    def _compared(self, output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """What metrics of torchmetrics read: all known values, in the units of the data."""
        values, known = self.units(target).flatten(), ~target.isnan().flatten()
        return self.units(output).flatten()[known], values[known]

    def mass(self, batch: Batch) -> Tensor | float:
        return known_mass(batch, self.whole) if self.missing else super().mass(batch)

    def predict(self, output: Any) -> dict[str, Tensor]:
        output = self.units(output)
        return {"value": output.squeeze(-1) if output.dim() > 1 else output}


def known_mass(batch: Batch, whole: bool = False) -> Tensor:
    """How many values of a batch are known, weighted; or how many samples have one that is."""
    assert batch.target is not None
    known = ~batch.target.flatten(1).isnan()
    counts = known.any(-1) if whole else known.sum(-1)
    return (counts if batch.weight is None else counts * along(batch.weight, counts)).sum()


class Clustering(Supervised):
    """Distances to centres, which need no target; classes, where there are any, only measure the groups."""

    def __init__(self, loss: Loss, target: Spec | None) -> None:
        super().__init__("clustering", loss, loss, target)
        self.formula = "clustering(f(x))"

    def metrics(self) -> dict[str, Metric]:
        from .metrics import clustering

        return clustering(self.target.count or 0) if isinstance(self.target, Classes) else {}

    def predict(self, output: Any) -> dict[str, Tensor]:
        nearest = output.max(-1)
        return {"cluster": nearest.indices, "distance": (-nearest.values).clamp(min=0).sqrt()}
