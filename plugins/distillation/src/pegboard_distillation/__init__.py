"""Knowledge distillation, a trick that trains a model to answer as another one does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pegboard import (
    Choices,
    Classes,
    Context,
    DataSpec,
    Facts,
    Ge,
    Gt,
    Labels,
    Le,
    Prefixed,
    Problem,
    Regularizer,
    Role,
    SavedModel,
    Series,
    Tokens,
    Trick,
    Values,
    hookimpl,
)

TEACH = Role(Prefixed("distillation:teach"), "edit_batch")  # before a batch is changed for the student
_SOURCES = "a run folder, a checkpoint folder or zoo:name"


@dataclass(frozen=True)
class Distillation:
    """Knowledge distillation: learn from a trained teacher's outputs beside the labels."""

    teacher: Annotated[str, SavedModel(alike=True)] = ""  # a run folder, a checkpoint folder or zoo:name
    temperature: Annotated[float, Gt(0)] = 4.0  # divides the logits of both; unused for real targets
    alpha: Annotated[float, Ge(0), Le(1)] = 0.7  # share of the teacher in the loss; the labels have the rest
    # learn the outputs for each class, symbol or value; or, of a translation, the texts that it writes itself
    level: Literal["output", "sequence"] = "output"
    cache: bool = True  # ask the teacher once about every sample, where samples are the same in every epoch


def check(config: Distillation, facts: Facts) -> Iterator[Problem]:
    """Whether a teacher is named, and what it could write."""
    if config.level == "sequence" and facts.spec is not None and not _translates(facts.spec):
        yield Problem(
            f"there are no texts to learn from a teacher: the data is {facts.spec}",
            "level",
            "output, or data with a text to read and one to write (a translation)",
        )
    if config.alpha == 0:
        return
    model = getattr(facts, "model", None)
    if model is not None and model.samples:
        yield Problem(
            f"the model {model.name!r} generates samples and answers nothing that a teacher's answers "
            "could be compared with",
            "",
            "a model that predicts a target",
            "leave distillation out",
        )
    if not config.teacher.strip():
        hint = "name a trained run, as teacher: runs/large/latest, or set alpha: 0"
        yield Problem("distillation has no teacher", "teacher", _SOURCES, hint)


def _translates(spec: DataSpec) -> bool:
    """Whether a text is read and another one written."""
    texts = len(spec.inputs) > 1 and all(isinstance(s, Tokens) for s in spec.inputs[:2])
    return texts and isinstance(spec.target, Tokens) and spec.target.end >= 0


def build(config: Distillation, context: Context) -> Trick:
    from .trick import DistillationTrick, SequenceTrick, load_teacher

    teacher = load_teacher(config.teacher, context.device) if config.alpha else None
    if config.level == "sequence":
        return SequenceTrick(config, teacher, context.spec, context.generator())
    return DistillationTrick(config, teacher, context.spec.target, context.outputs)


def trial(folder: Path) -> dict[str, str]:
    """A short run to learn from."""
    from pegboard.testing import partner_run

    return {"teacher": str(partner_run(folder))}


@hookimpl
def pegboard_regularizers() -> list[Regularizer[Any]]:
    return [
        Regularizer(
            "distillation",
            Distillation,
            build,
            check=check,
            stages={"edit_loss": "mix", "edit_batch": TEACH.name},
            roles=(TEACH,),
            targets=(Classes, Choices, Labels, Values, Series),
            neutral={"alpha": 0.0},
            trial=trial,
        )
    ]
