"""The kinds of part, a row each. Registry, config, schema, kit, scaffold, `show` and the site read them here.

A new kind is a record (`records`), a hook (`hookspecs`) and a row.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from .options import DataOptions, ModelOptions, RegularizerOptions
from .records import (
    Dataset,
    Model,
    ObjectivePart,
    Optimizer,
    Part,
    ProbePart,
    Regularizer,
    Schedule,
    StepPart,
    Stepper,
    TrackerPart,
)


@dataclass(frozen=True, kw_only=True)
class Section:
    """A place in a config where parts of a kind are named: one of them, or any number by keys."""

    name: str  # dotted where it is a key of another part's node
    about: str  # what an editor shows of it
    keyed: bool = False
    stated: bool = False  # a config names one; keyed: a config in full has it, empty or not
    only: str = ""  # flag of a record without which a part of the kind is not named here
    taken: Mapping[str, str] = field(default_factory=dict)  # what cannot be a key, and what it is instead


@dataclass(frozen=True, kw_only=True, eq=False)  # each is itself alone, so that `_by_section` is kept by them
class Kind:
    """What the core knows of a kind of part."""

    record: type[Part[Any, Any]]
    hook: str
    section: Section
    special: Section | None = None  # where those with its flag are named first of all
    options: type[Any] | None = None  # keys of the core in the node of a part
    trains: bool = True  # its parts may leave a trace in the weights; else they measure or report
    used_later: bool = True  # what was trained may need its parts to be used
    beside: tuple[str, ...] = ()  # kinds that a part is tried with, those of its own plugin where it has some

    @property
    def name(self) -> str:
        return self.record.kind

    @property
    def plural(self) -> str:
        return f"{self.name}s"

    @property
    def in_step(self) -> bool:
        """Whether its parts act in a training step."""
        return issubclass(self.record, StepPart)

    def home(self, part: Part[Any, Any]) -> Section:
        """Where a part is named first of all."""
        flagged = self.special is not None and getattr(part, self.special.only, False)
        return self.special if self.special is not None and flagged else self.section


_SPLIT = "a split, by which its figures are named"
_ROWS = (
    Kind(
        record=Model,
        hook="pegboard_models",
        section=Section(
            name="model", stated=True, about="what is trained, and the weights that it starts from"
        ),
        options=ModelOptions,
        beside=("dataset", "objective"),
    ),
    Kind(
        record=Optimizer,
        hook="pegboard_optimizers",
        section=Section(
            name="optimizer",
            stated=True,
            about="how the weights follow the gradient, and how the learning rate changes",
        ),
    ),
    Kind(
        record=Schedule,
        hook="pegboard_optimizers",
        section=Section(name="optimizer.schedule", about="how the learning rate changes"),
    ),
    Kind(
        record=Regularizer,
        hook="pegboard_regularizers",
        section=Section(
            name="regularizers",
            keyed=True,
            stated=True,
            about="tricks by name, each with its settings; {} takes its defaults, null takes it out",
        ),
        options=RegularizerOptions,
        beside=("model",),
    ),
    Kind(
        record=Dataset,
        hook="pegboard_datasets",
        section=Section(
            name="data", stated=True, about="the data set, and how its samples are put into batches"
        ),
        options=DataOptions,
        beside=("model", "objective"),
    ),
    Kind(
        record=ObjectivePart,
        hook="pegboard_objectives",
        section=Section(
            name="objective",
            about="the loss and its metrics; chosen by the data's target where it is left out",
        ),
        beside=("model", "dataset"),
    ),
    Kind(
        record=Stepper,
        hook="pegboard_steppers",
        used_later=False,
        section=Section(
            name="stepper",
            about="what makes the updates; one after the other, as Python runs them, where it is left out",
        ),
    ),
    Kind(
        record=TrackerPart,
        hook="pegboard_trackers",
        trains=False,
        section=Section(
            name="trackers",
            keyed=True,
            stated=True,
            about="where figures, pictures and checkpoints go besides the run folder, by name",
        ),
    ),
    Kind(
        record=ProbePart,
        hook="pegboard_probes",
        trains=False,
        section=Section(
            name="probes",
            keyed=True,
            about="what is measured of the best weights at the end of the run, by name",
            taken={"train": _SPLIT, "val": _SPLIT, "test": _SPLIT},
        ),
        special=Section(
            name="reference",
            only="reference",
            about="the exact optimum of the problem, beside which the run is measured at its end",
        ),
        beside=("model",),
    ),
)
KINDS: dict[str, Kind] = {kind.name: kind for kind in _ROWS}


def sections() -> Mapping[str, tuple[Section, Kind]]:
    """Every section by its name, in the order of a config: those that it states, those it may, keyed ones."""
    return _by_section(tuple(KINDS.values()))


@functools.cache
def _by_section(kinds: tuple[Kind, ...]) -> Mapping[str, tuple[Section, Kind]]:
    found = [(section, kind) for kind in kinds for section in (kind.special, kind.section) if section]
    found.sort(key=lambda row: (row[0].keyed, not (row[0].keyed or row[0].stated), row[0].name))
    return MappingProxyType({section.name: (section, kind) for section, kind in found})


def traceless_sections() -> list[str]:
    """The sections whose parts leave no trace in the weights: free in a run."""
    return _section_names(lambda kind: not kind.trains)


def spare_sections() -> list[str]:
    """The sections whose parts nobody needs who uses a saved model."""
    return _section_names(lambda kind: not (kind.trains and kind.used_later))


def _section_names(wanted: Callable[[Kind], bool]) -> list[str]:
    kinds = [kind for kind in KINDS.values() if wanted(kind)]
    return [section.name for kind in kinds for section in (kind.section, kind.special) if section]
