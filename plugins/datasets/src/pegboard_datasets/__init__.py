"""Data sets: scikit-learn's, made ones, and any from the Hugging Face hub or local files."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from pegboard import Codec, Context, Dataset, DataSpec, ProbePart, Splits, hookimpl

from . import options
from .copying_options import copying_part
from .counts import sizes
from .deferred import build_of
from .hub_checks import check_hub
from .hub_options import Hub, Input, SplitNames, Target, hub_spec
from .labelling import finished
from .options import (
    Blobs,
    BreastCancer,
    Checkerboard,
    Circles,
    Diabetes,
    Digits,
    Iris,
    LinearTeacher,
    Mixture,
    Moons,
    PolynomialTeacher,
    Ring,
    Spirals,
    Wine,
    Xor,
    check_classes,
    check_cut,
    check_polynomial,
)
from .remembering_options import remembering_parts
from .seasons_options import seasons_part
from .study_parts import study_parts, study_probes

__all__ = [
    "Blobs",
    "BreastCancer",
    "Checkerboard",
    "Circles",
    "Diabetes",
    "Digits",
    "Hub",
    "Input",
    "Iris",
    "LinearTeacher",
    "Mixture",
    "Moons",
    "PolynomialTeacher",
    "Ring",
    "Spirals",
    "SplitNames",
    "Target",
    "Wine",
    "Xor",
    "pegboard_datasets",
    "pegboard_probes",
]


_embedded = partial(build_of, "embedded")
_made = partial(build_of, "made_splits")


def _hub(config: Hub, context: Context) -> Splits:
    from . import hub
    from .loading import progress_bars

    with progress_bars(not context.quiet):
        return hub.build(config, context.fold, context.seed)


def _restore(config: Hub, folder: Path) -> Codec:
    from .restoring import restore

    return restore(config, folder)


def _table(folder: Path) -> dict[str, Any]:
    """A small csv file of two numbers and the class that follows from them."""
    rows = [f"{a},{b},{'up' if (a * b) % 3 else 'down'}" for a in range(8) for b in range(8)]
    path = folder / "table.csv"
    path.write_text("\n".join(("one,two,side", *rows)) + "\n")
    return {"path": str(path), "inputs": ["one", "two"], "target": "side"}


def _counted(part: Dataset[Any]) -> Any:
    return part.samples or (None if part.config is Hub else sizes)


def _always(spec: DataSpec) -> Any:
    return lambda config: spec


@hookimpl
def pegboard_datasets() -> list[Dataset[Any]]:
    """All data sets of this plugin."""
    parts: list[Dataset[Any]] = [
        Dataset("digits", Digits, _embedded("digits"), check=check_cut, spec=_always(options.DIGITS)),
        Dataset("iris", Iris, _embedded("iris"), check=check_cut, spec=_always(options.IRIS)),
        Dataset("wine", Wine, _embedded("wine"), check=check_cut, spec=_always(options.WINE)),
        Dataset(
            "breast_cancer",
            BreastCancer,
            _embedded("breast_cancer"),
            check=check_cut,
            spec=_always(options.BREAST_CANCER),
        ),
        Dataset("diabetes", Diabetes, _embedded("diabetes"), check=check_cut, spec=_always(options.DIABETES)),
        Dataset("xor", Xor, _made("xor"), check=check_classes, spec=options.xor_spec),
        Dataset("moons", Moons, _made("moons"), check=check_classes, spec=options.moons_spec),
        Dataset("circles", Circles, _made("circles"), check=check_classes, spec=options.circles_spec),
        Dataset("spirals", Spirals, _made("spirals"), check=check_classes, spec=options.spirals_spec),
        Dataset("blobs", Blobs, _made("blobs"), check=check_classes, spec=options.blobs_spec),
        Dataset("ring", Ring, _made("ring"), check=check_classes, spec=options.ring_spec),
        Dataset("mixture", Mixture, _made("mixture"), check=check_classes, spec=options.mixture_spec),
        Dataset(
            "checkerboard",
            Checkerboard,
            _made("checkerboard"),
            check=check_classes,
            spec=options.checkerboard_spec,
        ),
        Dataset(
            "linear_teacher",
            LinearTeacher,
            _made("linear_teacher"),
            check=check_cut,
            spec=options.teacher_spec,
        ),
        Dataset(
            "polynomial_teacher",
            PolynomialTeacher,
            _made("polynomial_teacher"),
            check=check_polynomial,
            spec=options.teacher_spec,
        ),
        *study_parts(),
        copying_part(),
        *remembering_parts(),
        seasons_part(),
        Dataset("hub", Hub, _hub, check=check_hub, spec=hub_spec, trial=_table, restore=_restore),
    ]
    # All are cut by `splitting.cut` or by stretches; those of `hub` are counted when they are read.
    return [finished(replace(part, folds=True, samples=_counted(part))) for part in parts]


@hookimpl
def pegboard_probes() -> list[ProbePart[Any]]:
    """All probes of this plugin."""
    return study_probes()
