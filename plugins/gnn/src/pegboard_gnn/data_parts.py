"""Records of the data sets. No torch at import."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pegboard import Classes, Context, Dataset, DataSpec, Facts, Points, Problem, Spec, Splits, Tokens, Values

from . import data_configs as configs
from .specs import Asked, Bounds, EdgeFeatures, Edges, Nodes

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def _made_by(module: str, function: str) -> Callable[[Any, Context], Splits]:
    """Splits that a function of a module makes, which is imported when it is needed."""

    def build(config: Any, context: Context) -> Splits:
        import importlib

        splits: Splits = getattr(importlib.import_module(f".{module}", __package__), function)(
            config, context
        )
        return splits

    return build


def _karate(config: configs.Karate) -> DataSpec:
    return DataSpec((Nodes(34, 34), Edges(True), Asked()), Classes(4))


def _blocks(config: configs.Blocks) -> DataSpec:
    whole = config.fanouts is None
    nodes = Nodes(config.features, config.nodes if whole else 0)
    return DataSpec((nodes, Edges(whole), Asked()), Classes(config.blocks))


def _cycles(config: configs.Cycles) -> DataSpec:
    known = {"constant": 1, "triangles": 2, "random": 9}[config.features]
    classes = 2 if config.family == "cycles" else len(config.skips)
    return DataSpec((Nodes(known), Edges(), Bounds()), Classes(classes))


def _grids(config: configs.Grids) -> DataSpec:
    return DataSpec((Nodes(1), Edges(), EdgeFeatures(2), Bounds()), Classes(4))


def _meshes(config: configs.Meshes) -> DataSpec:
    return DataSpec((Nodes(3), Edges(), EdgeFeatures(3), Bounds()), Classes(len(config.bodies)))


def _sets(config: configs.Sets) -> DataSpec:
    most = max(config.count, config.test_count)
    return DataSpec((Points(most, 10 if config.one_hot else 1, True),), Values(1))


PARTS = {"sphere": 2, "cube": 6, "torus": 2, "cylinder": 3, "cone": 2}  # of each body


def _clouds(config: configs.Clouds) -> DataSpec:
    target: Spec = Classes(len(config.bodies), config.bodies)
    if config.task == "part":
        target = Tokens(sum(PARTS[body] for body in config.bodies), config.points)
    return DataSpec((Points(config.points, 6 if config.normals else 3),), target)


Sizes = tuple[int, int, int]  # of train, val and test
Fold = tuple[int, int] | None


def _parted(count: int, val: float, test: float, fold: Fold) -> Sizes:
    """Sizes of so many samples that are cut as `splitting.parts` does."""
    tested = round(test * count)
    rest = count - tested
    validated = max(round(val * count), 1)
    if fold is not None:
        validated = rest * (fold[0] + 1) // fold[1] - rest * fold[0] // fold[1]
    return max(rest - validated, 0), validated, tested


def count_graphs(config: configs.Cycles | configs.Grids | configs.Meshes, fold: Fold) -> Sizes:
    """Of graphs a fifth validates and a fifth tests."""
    if isinstance(config, configs.Cycles):
        kinds = 2 if config.family == "cycles" else len(config.skips)
        return _parted(config.copies * kinds, 0.2, 0.2, fold)
    return _parted(config.graphs, 0.2, 0.2, fold)


def count_sets(config: configs.Sets | configs.Clouds, fold: Fold) -> Sizes:
    """A quarter as many validate and test as train."""
    train = config.sets if isinstance(config, configs.Sets) else config.clouds
    return train, max(train // 4, 1), max(train // 4, 1)


GROUPS = (13, 12, 4, 5)  # members of the four groups of the karate club


def count_karate(config: configs.Karate, fold: Fold) -> Sizes:
    """Half of the members that do not train validate."""
    train = sum(min(config.labelled, group) for group in GROUPS)
    rest = 34 - train
    return train, rest - rest // 2, rest // 2


def count_blocks(config: configs.Blocks, fold: Fold) -> Sizes:
    """Of the nodes that do not train a share validates."""
    train = min(config.labelled, config.nodes)
    rest = config.nodes - train
    val = min(max(round(config.val * rest), 1), rest)
    return train, val, rest - val


def check_blocks(config: configs.Blocks, facts: Facts) -> Iterator[Problem]:
    if config.labelled + 2 > config.nodes:
        yield Problem(f"{config.labelled} of {config.nodes} nodes", "labelled", "two nodes less at least")
    elif round(config.val * (config.nodes - config.labelled)) == config.nodes - config.labelled:
        rest = config.nodes - config.labelled
        yield Problem(f"{config.val:g} of {rest} nodes leaves none to test", "val", "a smaller share")
    if config.blocks > config.nodes:
        yield Problem(
            f"{config.blocks} communities of {config.nodes} nodes", "blocks", f"2 to {config.nodes}"
        )


def check_cycles(config: configs.Cycles, facts: Facts) -> Iterator[Problem]:
    nodes = config.nodes
    if config.family == "cycles":
        if nodes % 2:
            yield Problem(f"{nodes} nodes cannot be two equal cycles", "nodes", "an even number")
        return
    seen: dict[int, int] = {}
    for skip in config.skips:
        same = min(skip, nodes - skip)  # both ways around
        if not 2 <= skip <= nodes - 2:
            yield Problem(f"a skip of {skip} in {nodes} nodes", "skips", f"2 to {nodes - 2}")
        elif 2 * skip == nodes:
            yield Problem(
                f"a skip of {skip} in {nodes} nodes joins each with three others, which refinement sees",
                "skips", "any but half of the nodes",
            )  # fmt: skip
        elif same in seen:
            yield Problem(
                f"skips of {seen[same]} and {skip} in {nodes} nodes are the same graph", "skips",
                "a graph of its own for each class",
            )  # fmt: skip
        seen[same] = skip


def _small_citations(folder: Path) -> dict[str, Any]:
    from .trials import write_citations

    write_citations(folder / "Cora" / "raw")
    return {"root": str(folder)}


def _small_molecules(folder: Path) -> dict[str, Any]:
    from .trials import write_molecules

    write_molecules(folder / "MUTAG" / "raw")
    return {"root": str(folder)}


def _small_pictures(folder: Path) -> dict[str, Any]:
    from .trials import write_pictures

    write_pictures(folder / "pictures")
    return {"path": str(folder / "pictures"), "points": 12}


def _plot(splits: Splits, figure: Figure) -> None:
    from .plots import plot

    plot(splits, figure)


def datasets() -> list[Dataset[Any]]:
    """All of them."""
    return [replace(part, plot=_plot) for part in _unplotted()]


def _unplotted() -> list[Dataset[Any]]:
    return [
        Dataset(
            "planetoid", configs.Planetoid, _made_by("citations", "planetoid"), trial=_small_citations
        ),
        Dataset(
            "tudataset", configs.TuDataset, _made_by("molecules", "tudataset"), folds=True,
            trial=_small_molecules,
        ),
        Dataset(
            "karate", configs.Karate, _made_by("citations", "karate"), spec=_karate, samples=count_karate
        ),
        Dataset(
            "block_model", configs.Blocks, _made_by("made_graphs", "blocks"), check=check_blocks,
            spec=_blocks,
            samples=count_blocks,
        ),
        Dataset(
            "cycles", configs.Cycles, _made_by("made_graphs", "cycles"), check=check_cycles, spec=_cycles,
            folds=True, samples=count_graphs,
            trial=lambda folder: {"nodes": 11, "skips": [2, 3], "copies": 10},
        ),
        Dataset(
            "grids", configs.Grids, _made_by("made_graphs", "grids"), spec=_grids, folds=True,
            samples=count_graphs,
            trial=lambda folder: {"size": 4, "graphs": 40},
        ),
        Dataset(
            "meshes", configs.Meshes, _made_by("mesh", "meshes"), spec=_meshes, folds=True,
            samples=count_graphs,
            trial=lambda folder: {"graphs": 30, "resolution": 3},
        ),
        Dataset(
            "sets", configs.Sets, _made_by("clouds", "sets"), spec=_sets,
            samples=count_sets,
            trial=lambda folder: {"sets": 40},
        ),
        Dataset(
            "clouds", configs.Clouds, _made_by("clouds", "clouds"), spec=_clouds,
            samples=count_sets,
            trial=lambda folder: {"clouds": 40, "points": 8},
        ),
        Dataset(
            "pixel_clouds", configs.PixelClouds, _made_by("clouds", "pixel_clouds"), trial=_small_pictures
        ),
    ]  # fmt: skip
