"""Names of the metrics that objectives give, from config and target. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pegboard import Classes, Labels, Spec, Tokens

from .torchmetrics_names import PREFIX

K = 5  # guesses that topk allows where an objective does not say


def usual_of_classes(target: Classes | Tokens, k: int, scores: bool) -> tuple[str, ...]:
    """The usual metrics of one class a sample or place; `scores` are outputs that are no logits."""
    classes = target.size or 0
    ranked = ("accuracy", "topk") if classes > k else ("accuracy",)
    if isinstance(target, Tokens):
        return ranked
    # AUROC keeps every output of an evaluation, which for two classes is one number each.
    two = ("auroc",) if classes == 2 else ()
    return (*ranked, "f1", *two, *(() if scores else ("ece",)))


USUAL_OF_LABELS = ("accuracy", "f1")
USUAL_OF_VALUES = ("r2", "mae", "rmse")


def shown(chosen: Sequence[str], k: int = K, p: float = 2.0) -> tuple[str, ...]:
    """The names in rows: topk and lp with their numbers, those of torchmetrics bare."""
    own = {"topk": f"top{k}", "lp": f"l{p:g}"}
    return tuple(own.get(name, name.removeprefix(PREFIX)) for name in chosen)


def supervised(scores: bool, config: Any, target: Spec | None) -> tuple[str, ...] | None:
    """The names for a target of classes, labels or values; None where a size is not known yet."""
    k, p, chosen = getattr(config, "k", K), float(getattr(config, "p", 2.0)), config.metrics
    if chosen is not None:
        return shown(chosen, k, p)
    if isinstance(target, Classes | Tokens):
        return None if target.size is None else shown(usual_of_classes(target, k, scores), k)
    return USUAL_OF_LABELS if isinstance(target, Labels) else USUAL_OF_VALUES


def clustering(config: Any, target: Spec | None) -> tuple[str, ...]:
    return ("ari",) if isinstance(target, Classes) else ()
