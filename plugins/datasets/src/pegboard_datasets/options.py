"""Configs of the embedded and the made data sets, what they hold, and the rules between fields."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import comb
from typing import Annotated, Literal, TypeVar, dataclass_transform

from pegboard import Classes, DataSpec, Facts, Ge, Gt, Image, Le, Lt, Problem, Values, Vector

Normalize = Literal["standard", "minmax", "none"]
C = TypeVar("C")


@dataclass_transform(kw_only_default=True, frozen_default=True)
def frozen(cls: type[C]) -> type[C]:
    """A frozen dataclass that inherits how it is compared and shown: made for each of so many classes, these
    methods would be most of the time that importing this plugin takes."""
    return dataclass(frozen=True, kw_only=True, eq=False, repr=False)(cls)


@frozen
class Shares:
    """How samples are shared out to train, val and test."""

    val: Annotated[float, Ge(0), Lt(1)] = 0.1  # share of the samples for validation; 0 for none
    test: Annotated[float, Ge(0), Lt(1)] = 0.2  # share of the samples for the test; 0 for none
    split_seed: Annotated[int, Ge(0)] = 0  # decides who is in which split; the run's seed does not
    limit: Annotated[int, Ge(1)] | None = None  # training samples kept, the first in split_seed's order

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self), *vars(self).values()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in vars(self).items())})"


@frozen
class Cut(Shares):
    """How samples are shared out, and scaled."""

    normalize: Normalize = "standard"  # by training statistics: mean 0 and std 1, or the range 0 to 1


@frozen
class ClassCut(Cut):
    """A cut that keeps the shares of classes."""

    stratify: bool = True  # every split has the classes in the same shares
    labelled: Annotated[float, Ge(0), Le(1)] = 1.0  # share of training labels that are shown; 0: no target


@frozen
class ValueCut(Cut):
    """A cut of samples whose target is real."""

    normalize_target: bool = False  # target with mean 0 and std 1, by training statistics


@frozen
class MadeClasses(ClassCut):
    """Made samples with classes."""

    samples: Annotated[int, Ge(1)] = 1000  # in all splits together
    seed: Annotated[int, Ge(0)] | None = None  # of all that is drawn; None takes the run's seed
    normalize: Normalize = "none"  # by training statistics: mean 0 and std 1, or the range 0 to 1


@frozen
class MadeValues(ValueCut):
    """Made samples with real targets."""

    samples: Annotated[int, Ge(1)] = 1000  # in all splits together
    seed: Annotated[int, Ge(0)] | None = None  # of all that is drawn; None takes the run's seed
    normalize: Normalize = "none"  # by training statistics: mean 0 and std 1, or the range 0 to 1


@frozen
class Digits(ClassCut):
    """Handwritten digits, 1797 grey pictures of 8x8 pixels in 10 classes."""


@frozen
class Iris(ClassCut):
    """Fisher's iris flowers, 150 samples of 4 lengths in 3 classes."""


@frozen
class Wine(ClassCut):
    """Wines of three growers, 178 samples of 13 chemical measurements in 3 classes."""


@frozen
class BreastCancer(ClassCut):
    """Tumours, malignant or benign, 569 samples of 30 measurements of cell nuclei."""


@frozen
class Diabetes(ValueCut):
    """Progress of diabetes after a year, 442 patients with 10 measurements, in their own units."""


@frozen
class Xor(MadeClasses):
    """Noisy corners of a cube, class 1 where an odd number of bits is one."""

    bits: Annotated[int, Ge(1), Le(32)] = 2  # inputs; 2 is the exclusive or, more its parity
    noise: Annotated[float, Ge(0)] = 0.1  # standard deviation added to every input


@frozen
class Moons(MadeClasses):
    """Two interleaved half circles in the plane."""

    noise: Annotated[float, Ge(0)] = 0.1  # standard deviation added to every input


@frozen
class Circles(MadeClasses):
    """A circle inside another in the plane."""

    noise: Annotated[float, Ge(0)] = 0.05  # standard deviation added to every input
    factor: Annotated[float, Gt(0), Lt(1)] = 0.5  # radius of the inner circle; the outer has 1


@frozen
class Spirals(MadeClasses):
    """Arms of a spiral in the plane, one class each, radius proportional to the angle."""

    classes: Annotated[int, Ge(2)] = 2  # arms
    turns: Annotated[float, Gt(0)] = 1.0  # how often an arm goes round
    noise: Annotated[float, Ge(0)] = 0.02  # standard deviation added to every input


@frozen
class Blobs(MadeClasses):
    """Gaussian blobs around random centres, one class each."""

    classes: Annotated[int, Ge(2)] = 3  # clouds
    features: Annotated[int, Ge(1)] = 2  # dimension of the space
    noise: Annotated[float, Ge(0)] = 1.0  # standard deviation of a cloud
    box: Annotated[float, Gt(0)] = 10.0  # centres are uniform between -box and box


@frozen
class Ring(MadeClasses):
    """Gaussian clouds on a circle in the plane, one class each."""

    modes: Annotated[int, Ge(2)] = 8  # clouds
    radius: Annotated[float, Gt(0)] = 2.0  # of the circle
    noise: Annotated[float, Gt(0)] = 0.02  # standard deviation of a cloud


@frozen
class Mixture(MadeClasses):
    """Gaussian clouds on a square grid in the plane, one class each."""

    side: Annotated[int, Ge(2)] = 5  # clouds in a line of the grid
    spacing: Annotated[float, Gt(0)] = 2.0  # from one cloud to the next
    noise: Annotated[float, Gt(0)] = 0.05  # standard deviation of a cloud


@frozen
class Checkerboard(MadeClasses):
    """The dark cells of a checkerboard in the plane, one class each."""

    cells: Annotated[int, Ge(2)] = 4  # in a line of the board
    size: Annotated[float, Gt(0)] = 4.0  # side of the board


@frozen
class LinearTeacher(MadeValues):
    """Normal inputs, and targets from a random affine map with noise."""

    features: Annotated[int, Ge(1)] = 10  # inputs
    outputs: Annotated[int, Ge(1)] = 1  # targets
    noise: Annotated[float, Ge(0)] = 0.1  # standard deviation added to every target


@frozen
class PolynomialTeacher(MadeValues):
    """Inputs uniform between -1 and 1, and targets from a polynomial with noise."""

    features: Annotated[int, Ge(1)] = 1  # inputs
    degree: Annotated[int, Ge(0)] = 3  # every monomial up to this degree takes part
    outputs: Annotated[int, Ge(1)] = 1  # targets
    coefficients: tuple[float, ...] | None = None  # of 1, x, x^2, ... ; None draws normal ones
    noise: Annotated[float, Ge(0)] = 0.1  # standard deviation added to every target


MONOMIALS = 100_000  # above this a polynomial teacher is a mistake rather than a wish


def check_cut(config: Shares, facts: Facts) -> Iterable[Problem]:
    """Something must be left to train on."""
    if config.val + config.test >= 1:
        yield Problem(
            f"val {config.val:g} and test {config.test:g} leave nothing to train on",
            "val",
            "shares whose sum is below 1",
        )


def check_classes(config: MadeClasses, facts: Facts) -> Iterable[Problem]:
    """Every class must have a sample."""
    yield from check_cut(config, facts)
    if isinstance(config, Ring | Mixture | Checkerboard):
        return  # they are drawn
    classes = config.classes if isinstance(config, Spirals | Blobs) else 2
    if config.samples < classes:
        yield Problem(
            f"{config.samples} samples cannot hold {classes} classes", "samples", f"at least {classes}"
        )


def check_polynomial(config: PolynomialTeacher, facts: Facts) -> Iterable[Problem]:
    """The number of coefficients follows from features and degree."""
    yield from check_cut(config, facts)
    count = comb(config.features + config.degree, config.degree)
    if count > MONOMIALS:
        yield Problem(
            f"a polynomial of degree {config.degree} in {config.features} inputs has {count} monomials",
            "degree",
            f"at most {MONOMIALS} monomials",
            "lower degree or features",
        )
    elif config.coefficients is not None and len(config.coefficients) != count * config.outputs:
        yield Problem(
            f"{len(config.coefficients)} coefficients",
            "coefficients",
            f"{count * config.outputs}: one for every monomial of degree {config.degree} in "
            f"{config.features} inputs and every output",
        )


DIGITS = DataSpec((Image(1, 8, 8),), Classes(10, tuple("0123456789")), ("image",))
IRIS = DataSpec((Vector(4),), Classes(3, ("setosa", "versicolor", "virginica")), ("features",))
WINE = DataSpec((Vector(13),), Classes(3, ("class_0", "class_1", "class_2")), ("features",))
BREAST_CANCER = DataSpec((Vector(30),), Classes(2, ("malignant", "benign")), ("features",))
DIABETES = DataSpec((Vector(10),), Values(1, ("progression",)), ("features",))


def _points(features: int, names: Iterable[str]) -> DataSpec:
    names = tuple(names)
    return DataSpec((Vector(features),), Classes(len(names), names), ("features",))


def xor_spec(config: Xor) -> DataSpec:
    """What `xor` holds."""
    return _points(config.bits, ("even", "odd"))


def moons_spec(config: Moons) -> DataSpec:
    """What `moons` holds."""
    return _points(2, ("upper", "lower"))


def circles_spec(config: Circles) -> DataSpec:
    """What `circles` holds."""
    return _points(2, ("outer", "inner"))


def spirals_spec(config: Spirals) -> DataSpec:
    """What `spirals` holds."""
    return _points(2, (f"arm {k}" for k in range(config.classes)))


def blobs_spec(config: Blobs) -> DataSpec:
    """What `blobs` holds."""
    return _points(config.features, (f"blob {k}" for k in range(config.classes)))


def ring_spec(config: Ring) -> DataSpec:
    """What `ring` holds."""
    return _points(2, (f"mode {k}" for k in range(config.modes)))


def mixture_spec(config: Mixture) -> DataSpec:
    """What `mixture` holds."""
    return _points(2, (f"mode {k}" for k in range(config.side**2)))


def checkerboard_spec(config: Checkerboard) -> DataSpec:
    """What `checkerboard` holds."""
    return _points(2, (f"cell {k}" for k in range(-(-(config.cells**2) // 2))))


def teacher_spec(config: LinearTeacher | PolynomialTeacher) -> DataSpec:
    """What the teachers' data sets hold."""
    return DataSpec((Vector(config.features),), Values(config.outputs), ("features",))
