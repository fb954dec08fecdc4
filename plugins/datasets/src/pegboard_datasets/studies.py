"""The data sets that stand for a point, as splits."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

from pegboard import Context, DataSpec, Splits
from torch import Tensor

from . import chances, curves, scenes
from . import solids as shapes
from . import study_options as options
from .assembly import Origin, cut_samples, vector_splits
from .made import Points
from .made_splits import MADE, sample_stream
from .options import Cut
from .reading import Columns, number_table

ANSCOMBE = Origin("Anscombe, Graphs in statistical analysis, 1973", "none needed")
SKLEARN = Origin("made by formula, as scikit-learn's example of under- and overfitting", "none needed")


def students(config: options.Students, context: Context) -> Splits:
    """Hours of study and who passed."""
    stream = sample_stream(config, context, "students")
    points = chances.students(config.samples, config.slope, config.middle, generator=stream)
    return _cut(points, config, context, options.STUDENTS, ["hours"])


def plants(config: options.Plants, context: Context) -> Splits:
    """Light and which plants survived."""
    stream = sample_stream(config, context, "plants")
    points = chances.plants(config.samples, config.slope, config.low, config.high, generator=stream)
    return _cut(points, config, context, options.PLANTS, ["light"])


def admissions(config: options.Admissions, context: Context) -> Splits:
    """Grades and scores of applicants, and who was admitted."""
    stream = sample_stream(config, context, "admissions")
    points = chances.admissions(config.samples, config.slope, generator=stream)
    return _cut(points, config, context, options.ADMISSIONS, ["gpa", "gre"])


def overlap(config: options.Overlap, context: Context) -> Splits:
    """Two clouds."""
    stream = sample_stream(config, context, "overlap")
    points = chances.overlap(config.samples, config.regime, generator=stream)
    return _cut(points, config, context, options.OVERLAP, ["x0", "x1"])


def cosine(config: options.Cosine, context: Context) -> Splits:
    """A curve with noise."""
    seed = context.seed if config.seed is None else config.seed
    points = curves.cosine(config.samples, config.noise, seed=seed)
    return _cut(points, config, context, options.COSINE, ["x"], SKLEARN)


def fraud(config: options.Fraud, context: Context) -> Splits:
    """Payments and which were fraud."""
    stream = sample_stream(config, context, "fraud")
    points = chances.fraud(config.samples, config.share, generator=stream)
    return _cut(points, config, context, options.FRAUD, ["amount", "hour", "weekday", "online"])


def biased(config: options.Biased, context: Context) -> Splits:
    """Two groups."""
    x, y, shares = chances.biased(
        config.samples,
        config.mechanism,
        config.share,
        config.offset,
        config.rounds,
        generator=sample_stream(config, context, "biased"),
    )
    extra = {"shares": shares}
    return _cut(Points(x, y), config, context, options.BIASED, ["x0", "x1", "group"], extra=extra)


def quartet(config: options.Quartet, context: Context) -> Splits:
    """Pairs of given statistics."""
    stream = sample_stream(config, context, "quartet")
    samples = config.samples or (11 if config.kind in ("anscombe", "cloud") else 142)
    points = curves.quartet(samples, config.kind, config.number, generator=stream)
    origin = ANSCOMBE if config.kind == "anscombe" else MADE
    return _cut(points, config, context, options.QUARTET, ["x"], origin)


def point_shapes(config: options.PointShapes, context: Context) -> Splits:
    """Sets of points, as many of each shape."""
    stream = sample_stream(config, context, "point_shapes")
    x, y = curves.point_shapes(config.samples, config.points, options.SHAPES, generator=stream)
    spec = options.point_shapes_spec(config)
    return _cut_pictures(Points(x, y), config, context, spec)


def hyperplanes(config: options.Hyperplanes, context: Context) -> Splits:
    """Cells, and what cut them."""
    stream = sample_stream(config, context, "hyperplanes")
    points, normals, offsets = chances.hyperplanes(
        config.samples, config.features, config.count, generator=stream
    )
    spec, columns = options.hyperplanes_spec(config), [f"x{i}" for i in range(config.features)]
    extra = {"teacher": {"normals": normals.tolist(), "offsets": offsets.tolist()}}
    return _cut(points, config, context, spec, columns, extra=extra)


def swiss_roll(config: options.SwissRoll, context: Context) -> Splits:
    """A sheet in space."""
    stream = sample_stream(config, context, "swiss_roll")
    sheet = curves.swiss_roll(config.samples, config.embedding, config.noise, generator=stream)
    return _cut(Points(*sheet), config, context, options.SWISS_ROLL, ["x0", "x1", "x2"])


def sparse_fourier(config: options.SparseFourier, context: Context) -> Splits:
    """Measured signals."""
    stream = sample_stream(config, context, "sparse_fourier")
    x, y, found = curves.sparse_fourier(
        config.samples, config.length, config.measured, config.prior, generator=stream
    )
    columns = [f"{part}_{k}" for part in ("real", "imaginary") for k in found.tolist()]
    spec, extra = options.sparse_fourier_spec(config), {"frequencies": found.tolist()}
    return _cut(Points(x, y), config, context, spec, columns, extra=extra)


def objects(config: options.Objects, context: Context) -> Splits:
    """Crosses, of which the test has its own in the other half, or zeros and eights."""
    stream, spec = sample_stream(config, context, "objects"), options.objects_spec(config)
    points = getattr(scenes, config.scene)(config.samples, config.size, generator=stream)
    if config.scene == "shifted":
        test = cut_samples(points.y, spec, config, context.fold).test
        if test is not None:
            points.x[test] = points.x[test].roll(config.size - config.size // 2, -1)
    return _cut_pictures(points, config, context, spec)


def squares_and_line(config: options.SquaresAndLine, context: Context) -> Splits:
    """Shapes that cover each other."""
    stream = sample_stream(config, context, "squares_and_line")
    scene = scenes.squares_and_line(config.samples, config.size, generator=stream)
    return _cut_pictures(Points(*scene), config, context, options.squares_and_line_spec(config))


def texture(config: options.Texture, context: Context) -> Splits:
    """A pattern with a hole."""
    scene = scenes.texture(
        config.samples,
        config.size,
        config.period,
        config.hole,
        config.pattern,
        generator=sample_stream(config, context, "texture"),
    )
    return _cut_pictures(Points(*scene), config, context, options.texture_spec(config))


def relighting(config: options.Relighting, context: Context) -> Splits:
    """A ball under a light."""
    stream = sample_stream(config, context, "relighting")
    x, y = scenes.relighting(config.samples, config.size, config.shadows, generator=stream)
    points = Points(x, y if config.target == "light" else x.flatten(1))
    return _cut_pictures(points, config, context, options.relighting_spec(config))


def solids(config: options.Solids, context: Context) -> Splits:
    """Cubes, balls and pyramids."""
    stream = sample_stream(config, context, "solids")
    if config.form == "voxels":
        points = shapes.as_voxels(config.samples, config.size, generator=stream)
    else:
        points = shapes.as_views(config.samples, config.size, config.views, generator=stream)
    return _cut_pictures(points, config, context, options.solids_spec(config))


def _cut(
    points: Points,
    config: Cut,
    context: Context,
    spec: DataSpec,
    columns: Sequence[str],
    origin: Origin = MADE,
    **more: Any,
) -> Splits:
    return vector_splits(points.x, points.y, spec, config, origin, columns, fold=context.fold, **more)


def _cut_pictures(points: Points, config: Cut, context: Context, spec: DataSpec) -> Splits:
    """A table names the pixels by their places: of a picture channel, row and column."""
    shape = points.x.shape[1:]
    columns = ["_".join(map(str, ("pixel", *place))) for place in product(*map(range, shape))]

    def read(table: Columns) -> Tensor:
        return number_table(table, columns).reshape(-1, *shape)

    return _cut(points, config, context, spec, columns, read=read)
