"""The configs and records of the objectives of texts. No torch at import."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Annotated, Any

from pegboard import Context, Ge, Objective, ObjectivePart, Spec

from .specs import Masked, Span


@dataclass(frozen=True)
class SpanAnswer:
    """Span loss for extractive question answering: cross entropy of the answer's first and last token."""

    longest: Annotated[int, Ge(1)] | None = None  # places that an answer may have; null: any number


@dataclass(frozen=True)
class Pretraining:
    """BERT pretraining loss: cross entropy of the masked tokens, plus that of next-sentence prediction."""


def build_span(config: SpanAnswer, context: Context) -> Objective:
    from .objectives import Answering

    assert isinstance(context.spec.target, Span)
    return Answering(context.spec.target, config.longest)


def build_pretraining(config: Pretraining, context: Context) -> Objective:
    from .objectives import Uncovering

    assert isinstance(context.spec.target, Masked)
    return Uncovering(context.spec.target)


def span_metrics(config: SpanAnswer, target: Spec | None) -> tuple[str, ...]:
    return ("exact_match", "f1")


def pretraining_metrics(config: Pretraining, target: Spec | None) -> tuple[str, ...]:
    return ("masked_accuracy", "next_accuracy", "perplexity")


def objective_parts() -> list[ObjectivePart[Any]]:
    """The objectives, where the losses that they are made of are installed."""
    if find_spec("pegboard_objectives") is None:
        return []
    return [
        ObjectivePart(
            "span",
            SpanAnswer,
            build_span,
            players=("model",),
            metrics=span_metrics,
            targets=(Span,),
            default_for=(Span,),
        ),
        ObjectivePart(
            "pretraining",
            Pretraining,
            build_pretraining,
            players=("model",),
            metrics=pretraining_metrics,
            targets=(Masked,),
            default_for=(Masked,),
            soft=True,
        ),
    ]
