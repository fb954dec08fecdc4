"""Rules between fields, and between a field and the target; no torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pegboard import Classes, Facts, Labels, Problem, Series, Spec, Tokens, Values

from .torchmetrics_names import PREFIX, check_named

REGRESSION = ("r2", "mae", "rmse", "mse", "max_error", "lp")
CLASSIFICATION = ("accuracy", "topk", "f1", "auroc", "ece", "entropy")
OF_LABELS = tuple(name for name in CLASSIFICATION if name != "topk")


def _target(facts: Facts) -> Spec | None:
    return None if facts.spec is None else facts.spec.target


def check_class_weights(weights: Sequence[float] | None, facts: Facts) -> Iterator[Problem]:
    """One weight for each class, and not all of them 0."""
    if weights is None:
        return
    target = _target(facts)
    size = None if target is None else target.size
    if size is not None and len(weights) != size:
        yield Problem(
            f"class_weights has {len(weights)} numbers, and the target is {target}",
            "class_weights",
            f"{size} numbers, one for each class",
        )
    elif not any(weights):
        yield Problem(
            "class_weights gives no class any weight",
            "class_weights",
            "at least one number above 0",
            "set it to null to weigh all classes alike",
        )


def check_classes(facts: Facts) -> Iterator[Problem]:
    """Where there is a single class every answer is right."""
    target = _target(facts)
    if isinstance(target, Classes) and target.count == 1:
        only = f", {target.names[0]!r}" if target.names else ""
        yield Problem(
            f"the target has a single class{only}: there is nothing to tell apart",
            "",
            "a target of two classes or more",
            "look at the column of the target, and at what was kept of the data",
        )


def check_centres(facts: Facts) -> Iterator[Problem]:
    """A model with hidden layers answers with classes or values, not with distances."""
    model = facts.model
    if model is not None and {"affine", "attention"} & set(model.pegs):
        yield Problem(
            f"beside the model {model.name}: clustering reads minus the squared distances to centres, "
            "and it has none",
            expected="the model prototypes",
            hint="name that model, or another objective",
        )


def check_two_classes(facts: Facts) -> Iterator[Problem]:
    """A single sigmoid tells two classes apart, not more."""
    target = _target(facts)
    if isinstance(target, Classes) and target.count not in (None, 2):
        yield Problem(
            f"binary_cross_entropy tells two classes apart, and the target is {target}",
            "",
            "Classes(2), or Labels",
            "use the objective cross_entropy",
        )


def check_pos_weight(weights: Sequence[float] | None, facts: Facts) -> Iterator[Problem]:
    """One number for all, or one for each label."""
    if weights is None or len(weights) == 1:
        return
    target = _target(facts)
    if isinstance(target, Labels):
        expected = f"1 number, or {target.count}: one for each label"
        wrong = target.count not in (None, len(weights))
    else:
        expected, wrong = "1 number, the weight of class 1", isinstance(target, Classes)
    if wrong:
        yield Problem(
            f"pos_weight has {len(weights)} numbers, and the target is {target}", "pos_weight", expected
        )


def check_metrics(metrics: Sequence[str] | None, facts: Facts, k: int | None = None) -> Iterator[Problem]:
    """Each metric once, one that the target has, and a top-k that can be wrong."""
    chosen = metrics or ()
    for name in sorted({m for m in chosen if chosen.count(m) > 1}):
        yield Problem(f"the metric {name!r} stands twice", "metrics", "each metric once")
    target = _target(facts)
    fitting: tuple[str, ...]
    if isinstance(target, Values | Series):
        fitting = REGRESSION
    elif isinstance(target, Labels):
        fitting = OF_LABELS
    elif isinstance(target, Classes | Tokens):
        fitting = CLASSIFICATION
    else:
        return
    yield from check_named(tuple(chosen), target)
    for name in (n for n in chosen if not n.startswith(PREFIX)):
        # Perplexity is a field of cross_entropy alone, so it is not among what others may have.
        if name not in fitting and not (name == "perplexity" and fitting is CLASSIFICATION):
            yield Problem(f"{name!r} does not measure {target}", "metrics", f"of {', '.join(fitting)}")
    if "topk" in chosen and k is not None and target.size is not None and k >= target.size:
        yield Problem(
            f"the top {k} of {target.size} classes always hold the right one",
            "k",
            f"k below {target.size}",
            "lower k, or leave topk out of metrics",
        )


def check_missing(missing: bool, facts: Facts) -> Iterator[Problem]:
    """Only values and labels can be nan."""
    target = _target(facts)
    if missing and isinstance(target, Classes | Tokens):
        yield Problem(
            f"missing is for values and labels that are nan, and the target is {target}",
            "missing",
            "false",
            "a class that is not known is -100, and a sample without one has weight 0",
        )
