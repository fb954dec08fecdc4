"""Data sets: scikit-learn's, made ones, and any from the Hugging Face hub or local files."""

from __future__ import annotations

from typing import Any

from pegboard import Context, Dataset, DataSpec, Splits, hookimpl

from . import options
from .hub_options import Hub, Input, SplitNames, Target, check_hub, hub_spec
from .options import (
    Blobs,
    BreastCancer,
    Circles,
    Diabetes,
    Digits,
    Iris,
    LinearTeacher,
    Moons,
    PolynomialTeacher,
    Spirals,
    Wine,
    Xor,
    check_classes,
    check_cut,
    check_polynomial,
)

__all__ = [
    "Blobs",
    "BreastCancer",
    "Circles",
    "Diabetes",
    "Digits",
    "Hub",
    "Input",
    "Iris",
    "LinearTeacher",
    "Moons",
    "PolynomialTeacher",
    "Spirals",
    "SplitNames",
    "Target",
    "Wine",
    "Xor",
    "pegboard_datasets",
]


def _digits(config: Digits, context: Context) -> Splits:
    from . import embedded

    return embedded.digits(config)


def _iris(config: Iris, context: Context) -> Splits:
    from . import embedded

    return embedded.iris(config)


def _wine(config: Wine, context: Context) -> Splits:
    from . import embedded

    return embedded.wine(config)


def _breast_cancer(config: BreastCancer, context: Context) -> Splits:
    from . import embedded

    return embedded.breast_cancer(config)


def _diabetes(config: Diabetes, context: Context) -> Splits:
    from . import embedded

    return embedded.diabetes(config)


def _xor(config: Xor, context: Context) -> Splits:
    from . import made_splits

    return made_splits.xor(config, context)


def _moons(config: Moons, context: Context) -> Splits:
    from . import made_splits

    return made_splits.moons(config, context)


def _circles(config: Circles, context: Context) -> Splits:
    from . import made_splits

    return made_splits.circles(config, context)


def _spirals(config: Spirals, context: Context) -> Splits:
    from . import made_splits

    return made_splits.spirals(config, context)


def _blobs(config: Blobs, context: Context) -> Splits:
    from . import made_splits

    return made_splits.blobs(config, context)


def _linear_teacher(config: LinearTeacher, context: Context) -> Splits:
    from . import made_splits

    return made_splits.linear_teacher(config, context)


def _polynomial_teacher(config: PolynomialTeacher, context: Context) -> Splits:
    from . import made_splits

    return made_splits.polynomial_teacher(config, context)


def _hub(config: Hub, context: Context) -> Splits:
    from . import hub

    return hub.build(config)


def _always(spec: DataSpec) -> Any:
    return lambda config: spec


@hookimpl
def pegboard_datasets() -> list[Dataset[Any]]:
    """All data sets of this plugin."""
    return [
        Dataset("digits", Digits, _digits, check=check_cut, spec=_always(options.DIGITS)),
        Dataset("iris", Iris, _iris, check=check_cut, spec=_always(options.IRIS)),
        Dataset("wine", Wine, _wine, check=check_cut, spec=_always(options.WINE)),
        Dataset(
            "breast_cancer",
            BreastCancer,
            _breast_cancer,
            check=check_cut,
            spec=_always(options.BREAST_CANCER),
        ),
        Dataset("diabetes", Diabetes, _diabetes, check=check_cut, spec=_always(options.DIABETES)),
        Dataset("xor", Xor, _xor, check=check_classes, spec=options.xor_spec),
        Dataset("moons", Moons, _moons, check=check_classes, spec=options.moons_spec),
        Dataset("circles", Circles, _circles, check=check_classes, spec=options.circles_spec),
        Dataset("spirals", Spirals, _spirals, check=check_classes, spec=options.spirals_spec),
        Dataset("blobs", Blobs, _blobs, check=check_classes, spec=options.blobs_spec),
        Dataset("linear_teacher", LinearTeacher, _linear_teacher, check=check_cut, spec=options.teacher_spec),
        Dataset(
            "polynomial_teacher",
            PolynomialTeacher,
            _polynomial_teacher,
            check=check_polynomial,
            spec=options.teacher_spec,
        ),
        Dataset("hub", Hub, _hub, check=check_hub, spec=hub_spec),
    ]
