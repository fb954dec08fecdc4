"""Fields of the trainer that choose what makes the updates: they stay where users know them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..contract.records import Stepper
from .errors import Mistake
from .nodes import Trainer
from .sections import Parts, Read

SECTION = Stepper.kind


@dataclass(frozen=True)
class Choice:
    """A field of the trainer by which a stepper is chosen."""

    name: str  # of the stepper
    off: str  # the value that chooses none
    fields: tuple[str, ...]  # of the trainer that are fields of the stepper under the same names


CHOICES = {"compile": Choice("compiled", "off", ("compile", "compile_mode", "steps_per_call"))}


def choice(trainer: Trainer | Mapping[str, Any]) -> str:
    """The field that chooses a stepper; "" where none does."""
    given = trainer if isinstance(trainer, Mapping) else vars(trainer)
    return next((f for f, c in CHOICES.items() if given.get(f, c.off) != c.off), "")


def read_choice(
    trainer: Trainer, where: str, parts: Parts, given: bool, locate: Callable[[str, str], None]
) -> Read | None:
    """The stepper that the trainer chooses; `locate` notes where what it has was written."""
    field = choice(trainer)
    if not field:
        return None
    chosen, value, path = CHOICES[field], getattr(trainer, field), f"{where}.{field}"
    if given:
        message = f"{path}={value} chooses what makes the updates, and {SECTION} is given too"
        parts.note(path, message, hint=f"leave one of them out: {SECTION}=null, or {path}={chosen.off}")
        return None
    node = {"name": chosen.name, **{name: getattr(trainer, name) for name in chosen.fields}}
    inner: list[Mistake] = []
    read = Parts(parts.registry, inner).read(Stepper, SECTION, node)
    for mistake in inner:
        name = mistake.path.removeprefix(SECTION).lstrip(".")
        parts.found.append(replace(mistake, path=f"{where}.{name if name in chosen.fields else field}"))
    locate(SECTION, path)
    for name in chosen.fields:
        locate(f"{SECTION}.{name}", f"{where}.{name}")
    return read


def without_choice(trainer: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a trainer but for those that belong to a stepper."""
    ours = {name for chosen in CHOICES.values() for name in chosen.fields}
    return {name: value for name, value in trainer.items() if name not in ours}
