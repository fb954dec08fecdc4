"""Configs of the data sets that stand for a point, what they hold, and the rules between fields."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from pegboard import (
    Classes,
    DataSpec,
    Facts,
    Ge,
    Gt,
    Image,
    Le,
    Lt,
    Points,
    Problem,
    Values,
    Vector,
    Views,
    Voxels,
)

from .options import MadeClasses, MadeValues, Normalize, ValueCut, check_classes, check_cut, frozen


@frozen
class Students(MadeClasses):
    """Hours that students studied, between 0 and 6, and who passed."""

    samples: Annotated[int, Ge(1)] = 100  # in all splits together
    slope: Annotated[float, Gt(0)] = 3.0  # how sharply the chance to pass rises with an hour
    middle: float = 3.0  # hours that give an even chance


@frozen
class Plants(MadeClasses):
    """Light that plants had, between 0 and 9, and which survived: with too little or too much few do."""

    samples: Annotated[int, Ge(1)] = 300  # in all splits together
    slope: Annotated[float, Gt(0)] = 8.0  # how sharply the chance to survive rises and falls
    low: float = 3.0  # the least light with an even chance
    high: float = 6.0  # the most light with an even chance


@frozen
class Admissions(MadeClasses):
    """Grade point average and test score of applicants, and who was admitted; the two overlap."""

    samples: Annotated[int, Ge(1)] = 600  # in all splits together
    slope: Annotated[float, Gt(0)] = 3.0  # how sharply the chance rises with a deviation of either
    normalize: Normalize = "standard"  # by training statistics: mean 0 and std 1, or the range 0 to 1


@frozen
class Overlap(MadeClasses):
    """Two round clouds in the plane: apart, overlapping a little, or hardly to be told apart."""

    samples: Annotated[int, Ge(1)] = 300  # in all splits together
    regime: Literal["separable", "slight", "heavy"] = "slight"  # centres 6, 3 or 0.5 deviations apart


@frozen
class Cosine(MadeValues):
    """The curve cos(3/2 pi x) between 0 and 1 with noise, for polynomials of too low and too high degree."""

    samples: Annotated[int, Ge(1)] = 30  # in all splits together; 30 of seed 0 are scikit-learn's
    noise: Annotated[float, Ge(0)] = 0.1  # standard deviation added to every target


@frozen
class Fraud(MadeClasses):
    """Payments with a card: amount, hour, weekday, online or not; some are unlike all its habits."""

    samples: Annotated[int, Ge(1)] = 1000  # in all splits together
    share: Annotated[float, Gt(0), Lt(1)] = 0.05  # of payments that are fraud
    normalize: Normalize = "standard"  # by training statistics: mean 0 and std 1, or the range 0 to 1


@frozen
class Biased(MadeClasses):
    """Two features and a group, in data that wrongs the second group in one of three ways."""

    samples: Annotated[int, Ge(1)] = 2000  # in all splits together
    mechanism: Literal["minority", "tainted", "feedback"] = "minority"  # its rule differs and it is rare,
    # its labels are harsher, or each round of collecting looks where the last one found something
    share: Annotated[float, Gt(0), Lt(1)] = 0.1  # of the second group; under feedback in the first round
    offset: float = 1.0  # how much more tainted labels ask of the second group, in the first feature
    rounds: Annotated[int, Ge(1)] = 10  # of collecting under feedback


@frozen
class Objects(MadeClasses):
    """Drawn objects on an empty canvas: a cross in a place never trained on, or two zeros that make an 8."""

    samples: Annotated[int, Ge(1)] = 300  # in all splits together
    scene: Literal["shifted", "stacked"] = "shifted"  # trained left and tested right, or 0 above, below, both
    size: Annotated[int, Ge(12)] = 28  # height and width


Family = Literal["anscombe", "cloud", "circle", "star", "cross", "stripes", "parabola", "dino"]


@frozen
class Quartet(ValueCut):
    """Anscombe's quartet and more: pairs of equal means, deviations and correlation, of other shapes."""

    kind: Family = "anscombe"  # shape
    number: Annotated[int, Ge(1), Le(4)] = 1  # which of the four of `anscombe` or `cloud`
    samples: Annotated[int, Ge(3)] | None = None  # None: 11 of a quartet, 142 of a shape
    seed: Annotated[int, Ge(0)] | None = None  # of all that is drawn; None takes the run's seed
    val: Annotated[float, Ge(0), Lt(1)] = 0.0  # share of the samples for validation; 0 for none
    test: Annotated[float, Ge(0), Lt(1)] = 0.0  # share of the samples for the test; 0 for none
    normalize: Normalize = "none"  # by training statistics: mean 0 and std 1, or the range 0 to 1


@frozen
class PointShapes(MadeClasses):
    """Sets of points of one of six shapes, all with the same means, deviations and correlation."""

    samples: Annotated[int, Ge(1)] = 400  # sets in all splits together
    points: Annotated[int, Ge(8)] = 142  # of a set
    normalize: Normalize = "standard"  # by training statistics: mean 0 and std 1, or the range 0 to 1


@frozen
class Hyperplanes(MadeClasses):
    """Even points of a cube, cut by hyperplanes into cells, a class each."""

    samples: Annotated[int, Ge(1)] = 400  # in all splits together
    features: Annotated[int, Ge(1)] = 2  # of a point, each in [-1, 1]
    count: Annotated[int, Ge(1), Le(8)] = 2  # of hyperplanes; classes are 2 to that power


@frozen
class SwissRoll(MadeValues):
    """Swiss roll: a sheet rolled, folded or flat in space, never stretched; the target is the place on it."""

    embedding: Literal["roll", "flat", "cylinder", "fold"] = "roll"  # how the sheet lies in space
    noise: Annotated[float, Ge(0)] = 0.0  # standard deviation added to every input


@frozen
class SparseFourier(MadeValues):
    """Signals from a few of their Fourier coefficients, which infinitely many signals explain."""

    length: Annotated[int, Ge(2)] = 64  # of a signal
    measured: Annotated[int, Ge(1)] = 12  # frequencies, drawn once for all samples
    prior: Literal["spikes", "white"] = "spikes"  # what signals look like: three bumps, or noise


@frozen
class SquaresAndLine(MadeValues):
    """A grey square, a white one and a line, each alone, and the picture in which they cover each other."""

    samples: Annotated[int, Ge(1)] = 200  # in all splits together
    size: Annotated[int, Ge(8)] = 16  # height and width


@frozen
class Texture(MadeValues):
    """A pattern with a hole; the target is what was in the hole."""

    samples: Annotated[int, Ge(1)] = 200  # in all splits together
    pattern: Literal["periodic", "noise"] = "periodic"  # a tile that repeats, or nothing that does
    size: Annotated[int, Ge(4)] = 16  # height and width
    period: Annotated[int, Ge(1)] = 4  # height and width of the tile
    hole: Annotated[int, Ge(1)] = 4  # height and width of what is missing


@frozen
class Relighting(MadeValues):
    """Pictures of a ball under a light that moves; the target is the light, or the picture itself."""

    samples: Annotated[int, Ge(1)] = 500  # in all splits together
    size: Annotated[int, Ge(4)] = 12  # height and width
    shadows: bool = True  # no light below 0; without, a picture is linear in the light
    target: Literal["light", "image"] = "light"  # its three coordinates and intensity, or all pixels


@frozen
class Solids(MadeClasses):
    """Cubes, balls and pyramids, as voxels or as pictures from several sides."""

    samples: Annotated[int, Ge(1)] = 300  # in all splits together
    form: Literal["voxels", "views"] = "voxels"  # cells that are full or empty, or what is seen of them
    size: Annotated[int, Ge(4)] = 12  # depth, height and width
    views: Annotated[int, Ge(1)] = 6  # sides, evenly around, where the form is views


@dataclass(frozen=True)
class GroupDisparity:
    """Group disparity: how much more often a classifier is right in one group than in the other."""

    column: int = -1  # the feature that says the group: above the middle of its range is the second
    split: Literal["train", "val", "test"] = "test"  # whose samples are asked


def check_disparity(config: GroupDisparity, facts: Facts) -> Iterable[Problem]:
    """Groups are told by a feature, and a classifier is right or wrong."""
    if facts.spec is None:
        return
    if not isinstance(facts.spec.target, Classes):
        yield Problem(f"the target is {facts.spec.target or 'nothing'}", expected="classes")
    one = facts.spec.inputs[0] if facts.spec.inputs else None
    if not isinstance(one, Vector) or len(facts.spec.inputs) > 1:
        yield Problem(f"the data gives {facts.spec}", expected="one vector as input")
    elif one.features is not None and not -one.features <= config.column < one.features:
        yield Problem(
            f"there are {one.features} features and none has number {config.column}",
            "column",
            f"{-one.features} to {one.features - 1}",
        )


def check_quartet(config: Quartet, facts: Facts) -> Iterable[Problem]:
    """Anscombe's sets are given."""
    yield from check_cut(config, facts)
    if config.kind == "anscombe" and config.samples not in (None, 11):
        yield Problem(
            f"Anscombe's sets have 11 samples, not {config.samples}",
            "samples",
            "11",
            "leave samples out, or choose another kind",
        )
    if config.number > 1 and config.kind not in ("anscombe", "cloud"):
        yield Problem(f"there is one {config.kind}", "number", "1", "leave number out")


def check_sparse_fourier(config: SparseFourier, facts: Facts) -> Iterable[Problem]:
    """A signal has as many frequencies as numbers."""
    yield from check_cut(config, facts)
    if config.measured > config.length:
        yield Problem(
            f"{config.measured} of {config.length} frequencies", "measured", f"at most {config.length}"
        )


def check_texture(config: Texture, facts: Facts) -> Iterable[Problem]:
    """The hole is inside the picture."""
    yield from check_cut(config, facts)
    if config.hole >= config.size:
        yield Problem(
            f"a hole of {config.hole} in a picture of {config.size}", "hole", f"at most {config.size - 1}"
        )


def _classes(names: tuple[str, ...], features: int) -> DataSpec:
    return DataSpec((Vector(features),), Classes(len(names), names), ("features",))


def _values(features: int, names: tuple[str, ...]) -> DataSpec:
    return DataSpec((Vector(features),), Values(len(names), names), ("features",))


STUDENTS = _classes(("failed", "passed"), 1)
PLANTS = _classes(("died", "survived"), 1)
ADMISSIONS = _classes(("rejected", "admitted"), 2)
OVERLAP = _classes(("left", "right"), 2)
FRAUD = _classes(("usual", "fraud"), 4)
BIASED = _classes(("no", "yes"), 3)
COSINE = _values(1, ("y",))
QUARTET = _values(1, ("y",))
SWISS_ROLL = _values(3, ("along", "across"))
LIGHTS = ("x", "y", "z", "intensity")


def objects_spec(config: Objects) -> DataSpec:
    """What `objects` holds."""
    names = ("upright", "slanted") if config.scene == "shifted" else ("0", "8")
    return DataSpec((Image(1, config.size, config.size),), Classes(2, names), ("image",))


Shape = Literal["circle", "star", "cross", "stripes", "parabola", "dino"]
SHAPES: tuple[Shape, ...] = get_args(Shape)


def point_shapes_spec(config: PointShapes) -> DataSpec:
    """What `point_shapes` holds."""
    return DataSpec((Points(config.points, 2),), Classes(len(SHAPES), SHAPES), ("points",))


def hyperplanes_spec(config: Hyperplanes) -> DataSpec:
    """What `hyperplanes` holds."""
    names = tuple(f"{cell:0{config.count}b}"[::-1] for cell in range(2**config.count))  # a side of each
    return DataSpec((Vector(config.features),), Classes(2**config.count, names), ("features",))


def check_hyperplanes(config: Hyperplanes, facts: Facts) -> Iterable[Problem]:
    """Cells that no point is in."""
    yield from check_classes(config, facts)
    if config.count > config.features:
        yield Problem(
            f"{config.count} hyperplanes cut {config.features} features into too few cells",
            "count",
            f"at most data.features ({config.features})",
        )


def sparse_fourier_spec(config: SparseFourier) -> DataSpec:
    """What `sparse_fourier` holds."""
    return DataSpec((Vector(2 * config.measured),), Values(config.length), ("measurements",))


def squares_and_line_spec(config: SquaresAndLine) -> DataSpec:
    """What `squares_and_line` holds."""
    return DataSpec((Image(3, config.size, config.size),), Values(config.size**2), ("layers",))


def texture_spec(config: Texture) -> DataSpec:
    """What `texture` holds."""
    return DataSpec((Image(1, config.size, config.size),), Values(config.hole**2), ("image",))


def solids_spec(config: Solids) -> DataSpec:
    """What `solids` holds."""
    size, target = config.size, Classes(3, ("cube", "ball", "pyramid"))
    if config.form == "voxels":
        return DataSpec((Voxels(1, size, size, size),), target, ("voxels",))
    return DataSpec((Views(config.views, 1, size, size),), target, ("views",))


def relighting_spec(config: Relighting) -> DataSpec:
    """What `relighting` holds."""
    target = Values(4, LIGHTS) if config.target == "light" else Values(config.size**2)
    return DataSpec((Image(1, config.size, config.size),), target, ("image",))
