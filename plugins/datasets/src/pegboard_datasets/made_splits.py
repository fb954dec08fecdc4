"""The made data sets as splits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pegboard import Context, DataSpec, Splits
from torch import Generator, Tensor

from . import made, options
from .assembly import Origin, vector_splits
from .copying_options import Copying
from .made import Lesson, Points
from .options import MadeClasses, MadeValues, teacher_spec
from .remembering_options import Remembered
from .study_options import Quartet

MADE = Origin("made by formula", "none needed")
SHOWN = 1000  # weights of a teacher that the notes hold at most


def xor(config: options.Xor, context: Context) -> Splits:
    """Corners of a cube with their parity."""
    points = made.xor(
        config.samples, config.bits, config.noise, generator=sample_stream(config, context, "xor")
    )
    return _classes(points, config, options.xor_spec(config), context)


def moons(config: options.Moons, context: Context) -> Splits:
    """Two half circles."""
    points = made.moons(config.samples, config.noise, generator=sample_stream(config, context, "moons"))
    return _classes(points, config, options.moons_spec(config), context)


def circles(config: options.Circles, context: Context) -> Splits:
    """Two circles."""
    stream = sample_stream(config, context, "circles")
    points = made.circles(config.samples, config.noise, config.factor, generator=stream)
    return _classes(points, config, options.circles_spec(config), context)


def spirals(config: options.Spirals, context: Context) -> Splits:
    """Arms of a spiral."""
    stream = sample_stream(config, context, "spirals")
    points = made.spirals(config.samples, config.classes, config.turns, config.noise, generator=stream)
    return _classes(points, config, options.spirals_spec(config), context)


def blobs(config: options.Blobs, context: Context) -> Splits:
    """Gaussian clouds."""
    stream = sample_stream(config, context, "blobs")
    points = made.blobs(
        config.samples, config.classes, config.features, config.noise, config.box, generator=stream
    )
    return _classes(points, config, options.blobs_spec(config), context)


def ring(config: options.Ring, context: Context) -> Splits:
    """Clouds on a circle."""
    stream = sample_stream(config, context, "ring")
    points = made.ring(config.samples, config.modes, config.radius, config.noise, generator=stream)
    modes = _modes(made.ring_centres(config.modes, config.radius), config.noise)
    return _classes(points, config, options.ring_spec(config), context, modes)


def mixture(config: options.Mixture, context: Context) -> Splits:
    """Clouds on a grid."""
    stream = sample_stream(config, context, "mixture")
    points = made.mixture(config.samples, config.side, config.spacing, config.noise, generator=stream)
    modes = _modes(made.mixture_centres(config.side, config.spacing), config.noise)
    return _classes(points, config, options.mixture_spec(config), context, modes)


def checkerboard(config: options.Checkerboard, context: Context) -> Splits:
    """Dark cells of a board."""
    stream = sample_stream(config, context, "checkerboard")
    points = made.checkerboard(config.samples, config.cells, config.size, generator=stream)
    return _classes(points, config, options.checkerboard_spec(config), context)


def _modes(centres: Tensor, noise: float) -> dict[str, Any]:
    """What a note says of clouds, so that a probe can count which of them a model reaches."""
    return {"modes": {"centres": centres.tolist(), "deviation": noise}}


def linear_teacher(config: options.LinearTeacher, context: Context) -> Splits:
    """An affine map."""
    stream = sample_stream(config, context, "linear_teacher")
    lesson = made.linear_teacher(
        config.samples, config.features, config.outputs, config.noise, generator=stream
    )
    return _values(lesson, config, teacher_spec(config), context)


def polynomial_teacher(config: options.PolynomialTeacher, context: Context) -> Splits:
    """A polynomial."""
    lesson = made.polynomial_teacher(
        config.samples,
        config.features,
        config.degree,
        config.outputs,
        config.coefficients,
        config.noise,
        generator=sample_stream(config, context, "polynomial_teacher"),
    )
    return _values(lesson, config, teacher_spec(config), context)


def sample_stream(
    config: MadeClasses | MadeValues | Quartet | Copying | Remembered, context: Context, name: str
) -> Generator:
    """The stream that a made data set of this name draws from."""
    # A context of its own: the samples depend on the seed and on nothing else in the run.
    seed = context.seed if config.seed is None else config.seed
    return Context(seed=seed, key=name).generator("samples", "cpu")


def _classes(
    points: Points,
    config: MadeClasses,
    spec: DataSpec,
    context: Context,
    extra: Mapping[str, Any] | None = None,
) -> Splits:
    columns = [f"x{i}" for i in range(points.x.shape[1])]
    return vector_splits(points.x, points.y, spec, config, MADE, columns, extra=extra, fold=context.fold)


def _values(lesson: Lesson, config: MadeValues, spec: DataSpec, context: Context) -> Splits:
    columns = [f"x{i}" for i in range(lesson.x.shape[1])]
    teacher = {"weight": lesson.weight.tolist(), "bias": lesson.bias.tolist()}
    extra = {"teacher": teacher} if lesson.weight.numel() <= SHOWN else {}
    return vector_splits(lesson.x, lesson.y, spec, config, MADE, columns, extra=extra, fold=context.fold)
