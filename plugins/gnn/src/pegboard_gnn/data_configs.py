"""Configs of the data sets of graphs and sets. No torch at import."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pegboard import Ge, Gt, Le, Length, Lt, Matches

Count = Annotated[int, Ge(1)]
Share = Annotated[float, Gt(0), Lt(1)]
Chance = Annotated[float, Ge(0), Le(1)]
Solid = Literal["sphere", "torus", "cube", "sheet"]
Body = Literal["sphere", "cube", "torus", "cylinder", "cone"]
NodeFeatures = Literal["auto", "labels", "attributes", "both", "degrees"]
Fanouts = Annotated[tuple[Annotated[int, Ge(1)], ...], Length(1)] | None


@dataclass(frozen=True)
class Planetoid:
    """Citation graphs: Cora, CiteSeer or PubMed, with the public (Planetoid) split."""

    dataset: Literal["Cora", "CiteSeer", "PubMed"] = "Cora"  # which of the three
    root: str | None = None  # folder that holds, or will hold, DATASET/raw; null: planetoid of PEGBOARD_DATA
    normalize: bool = True  # divide the words of a paper by their number
    graph: bool = True  # give the graph; false: papers by themselves, for contrast
    fanouts: Fanouts = None  # sample so many citations at each hop instead of the whole graph


@dataclass(frozen=True)
class TuDataset:
    """Collections of graphs of TU Dortmund, as MUTAG: molecules and whether they are mutagenic."""

    dataset: Annotated[str, Matches(r"[\w-]+", "letters, digits, _ and -")] = "MUTAG"  # its name there
    root: str | None = None  # folder that holds, or will hold, DATASET/raw; null: tudataset of PEGBOARD_DATA
    features: NodeFeatures = "auto"  # of nodes; auto: labels, else attributes, else degrees
    edge_labels: bool = False  # give the labels of edges as features
    val: Share = 0.1  # share of graphs that validate
    test: Annotated[float, Ge(0), Lt(1)] = 0.1  # share of graphs that test; 0 for a cross-validation of all


@dataclass(frozen=True)
class Karate:
    """Zachary's karate club: 34 members, and which of four groups each belongs to."""

    labelled: Annotated[int, Ge(1), Le(11)] = 1  # members of each group whose group is known in training


@dataclass(frozen=True)
class Blocks:
    """Stochastic block model: a random graph of communities, dense inside and sparse between."""

    nodes: Count = 200  # nodes in all
    blocks: Annotated[int, Ge(2)] = 2  # communities of equal size
    inside: Chance = 0.1  # chance of an edge inside a community
    between: Chance = 0.01  # chance of an edge between two
    features: Count = 8  # numbers of a node, normal around the mean of its community
    shift: Annotated[float, Ge(0)] = 0.7  # distance of that mean from 0; of two communities on either side
    labelled: Count = 20  # nodes whose community is known in training
    val: Share = 0.2  # share of the others that validates
    fanouts: Fanouts = None  # sample so many edges at each hop instead of the whole graph
    seed: int = 0  # of the graph, whatever the run's


@dataclass(frozen=True)
class Cycles:
    """Cycle graphs that colour refinement (Weisfeiler-Leman) cannot tell apart, one class each."""

    family: Literal["cycles", "skip_links"] = (
        "skip_links"  # one cycle or two; or cycles with skips of a length
    )
    nodes: Annotated[int, Ge(6)] = 41  # of a graph; of cycles an even number
    skips: Annotated[tuple[Annotated[int, Ge(2)], ...], Length(2)] = (
        2,
        3,
        4,
        5,
        6,
        9,
        11,
        12,
        13,
        16,
    )  # a class each
    copies: Annotated[int, Ge(3)] = 15  # graphs of each class, with nodes in other orders
    features: Literal["constant", "triangles", "random"] = "constant"  # what is known of a node
    seed: int = 0  # of the orders, whatever the run's


@dataclass(frozen=True)
class Grids:
    """Stripes on a grid of pixels as a graph: in which of four directions do they run."""

    size: Annotated[int, Ge(3)] = 9  # pixels along an edge of the grid
    graphs: Annotated[int, Ge(10)] = 400  # grids in all
    noise: Annotated[float, Ge(0)] = 0.3  # standard deviation of what is added to each pixel
    diagonals: bool = True  # eight neighbours of a pixel, else four
    seed: int = 0  # of the stripes, whatever the run's


@dataclass(frozen=True)
class Meshes:
    """Triangle meshes of bodies: which body is it."""

    bodies: Annotated[tuple[Solid, ...], Length(2)] = ("sphere", "torus", "cube")  # a class each; sheet too
    graphs: Annotated[int, Ge(10)] = 120  # meshes in all
    resolution: Annotated[int, Ge(3)] = 6  # how fine they are
    noise: Annotated[float, Ge(0)] = 0.02  # standard deviation by which corners are moved
    turned: bool = True  # turn every body at random
    seed: int = 0  # of turns and noise, whatever the run's


@dataclass(frozen=True)
class Sets:
    """Sets of digits of different size: their sum, largest or number of different ones."""

    target: Literal["sum", "max", "distinct"] = "sum"  # what is asked of a set
    count: Count = 10  # most digits of a set in training and validation
    test_count: Count = 20  # most digits of a set in the test
    sets: Annotated[int, Ge(10)] = 2000  # sets that train; a quarter as many validate and test
    one_hot: bool = True  # a digit as ten numbers, else as one between 0 and 1
    seed: int = 0  # of the digits, whatever the run's


@dataclass(frozen=True)
class Clouds:
    """Point clouds on the surface of solids, with normals: which solid, or which part of it."""

    bodies: Annotated[tuple[Body, ...], Length(1)] = ("sphere", "cube", "torus")  # cylinder and cone too
    task: Literal["body", "part"] = "body"  # what is asked for
    points: Count = 64  # of a cloud
    normals: bool = False  # give the normal of the surface at each point
    clouds: Annotated[int, Ge(10)] = 600  # that train; a quarter as many validate and test
    noise: Annotated[float, Ge(0)] = 0.02  # standard deviation by which points are moved
    turned: Literal["none", "axis", "any"] = "axis"  # turn every cloud about the upright axis, or at random
    seed: int = 0  # of the points, whatever the run's


@dataclass(frozen=True)
class PixelClouds:
    """Images as point clouds: place and brightness of the pixels that are not dark."""

    path: str  # a data set of pictures: folder, or name on the Hugging Face hub, as ylecun/mnist
    image: str = "image"  # column of the pictures
    label: str = "label"  # column of the classes
    points: Count = 128  # of a picture; drawn from its pixels, again and again where it has fewer
    threshold: Annotated[float, Ge(0), Lt(1)] = (
        0.3  # brightness, of 1 at most, above which a pixel is a point
    )
    val: Share = 0.1  # share of the training split that validates
    limit: Count | None = None  # use so many pictures of each split at most
    seed: int = 0  # of which points are drawn, whatever the run's
