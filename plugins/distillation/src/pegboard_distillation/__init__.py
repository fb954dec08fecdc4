"""Knowledge distillation, a trick that trains a model to answer as another one does."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pegboard import (
    Classes,
    Context,
    Facts,
    Ge,
    Gt,
    Labels,
    Le,
    Problem,
    Regularizer,
    Tokens,
    Trick,
    Values,
    hookimpl,
)

_SOURCES = "a run folder, a checkpoint folder or zoo:name"


@dataclass(frozen=True)
class Distillation:
    """Learn from a trained teacher's outputs beside the labels."""

    teacher: str = ""  # a run folder, a checkpoint folder or zoo:name
    temperature: Annotated[float, Gt(0)] = 4.0  # divides the logits of both; unused for real targets
    alpha: Annotated[float, Ge(0), Le(1)] = 0.7  # share of the teacher in the loss; the labels have the rest


def check(config: Distillation, facts: Facts) -> Iterator[Problem]:
    """Whether there is a teacher; `zoo:` names are left to the zoo."""
    if config.alpha == 0:
        return
    if not config.teacher.strip():
        hint = "name a trained run, as teacher: runs/large/latest, or set alpha: 0"
        yield Problem("distillation has no teacher", "teacher", _SOURCES, hint)
    elif not config.teacher.startswith("zoo:") and not os.path.exists(config.teacher):
        yield Problem(
            f"there is no folder {config.teacher!r} to load the teacher from",
            "teacher",
            _SOURCES,
            nearest(Path(config.teacher)),
        )


def nearest(path: Path) -> str:
    """What does exist near a path that does not."""
    missing, folder = path.name, path.parent
    while not os.path.isdir(folder) and folder != folder.parent:
        missing, folder = folder.name, folder.parent
    try:
        inside = sorted(p.name for p in folder.iterdir() if p.is_dir())
    except OSError:
        inside = []
    close = difflib.get_close_matches(missing, inside, n=1)
    if close:
        return f"did you mean {str(folder / close[0])!r}?"
    # A folder can hold hundreds of runs; a few show the manner.
    some = ", ".join(inside[:5]) + (", ..." if len(inside) > 5 else "")
    return f"the nearest folder is {str(folder)!r}, which holds {some or 'no folders'}"


def build(config: Distillation, context: Context) -> Trick:
    from .trick import DistillationTrick, load_teacher

    teacher = load_teacher(config.teacher, context.device) if config.alpha else None
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
            stages={"edit_loss": "mix"},
            targets=(Classes, Tokens, Labels, Values),
            neutral={"alpha": 0.0},
            trial=trial,
        )
    ]
