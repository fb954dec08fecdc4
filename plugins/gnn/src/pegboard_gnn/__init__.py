"""Networks on graphs, sets and point clouds for Pegboard. No torch at import."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pegboard import Classes, Context, Dataset, DataSpec, Labels, Model, Splits, Values, hookimpl

from . import configs, data_configs
from .checks import GRAPH, check_fixed, check_graph, check_unweighted, check_weighted, sizes_of

if TYPE_CHECKING:
    from torch import nn

TARGETS = (Classes, Labels, Values)
PEGS = ("input", "affine", "hidden", "residual", "pooled", "logits")


def _graph_model(name: str, config: type[Any], check: Any, trial: dict[str, Any], *pegs: str) -> Model[Any]:
    """The record of a model on graphs, which the function of its name in `build` makes."""

    def build(config: Any, context: Context) -> nn.Module:
        from . import build as made

        result: nn.Module = getattr(made, name)(config, sizes_of(name, context))
        return result

    return Model(
        name, config, build, check=check, inputs=GRAPH, targets=TARGETS, pegs=(*PEGS, *pegs),
        trial=lambda folder: trial,
    )  # fmt: skip


@hookimpl
def pegboard_models() -> list[Model[Any]]:
    small = {"hidden": [8]}
    return [
        _graph_model("gcn", configs.Gcn, check_weighted, small),
        _graph_model("gat", configs.Gat, check_graph, {"hidden": [4], "heads": 2}, "attention"),
        _graph_model("gin", configs.Gin, check_unweighted, small),
        _graph_model("message_passing", configs.MessagePassing, check_graph, small),
        _graph_model("cheb", configs.Cheb, check_weighted, small),
    ]


def _build(module: str, function: str) -> Callable[[Any, Context], Splits]:
    """Splits that a function of a module makes, which is imported when it is needed."""

    def build(config: Any, context: Context) -> Splits:
        from importlib import import_module

        splits: Splits = getattr(import_module(f".{module}", __package__), function)(config, context)
        return splits

    return build


def _spec_of_karate(config: data_configs.Karate) -> DataSpec:
    from pegboard import Asked, Edges, Nodes

    return DataSpec((Nodes(34, 34), Edges(True), Asked()), Classes(4))


def _small_citations(folder: Path) -> dict[str, Any]:
    from .trials import write_citations

    write_citations(folder / "Cora" / "raw")
    return {"root": str(folder)}


def _small_molecules(folder: Path) -> dict[str, Any]:
    from .trials import write_molecules

    write_molecules(folder / "MUTAG" / "raw")
    return {"root": str(folder)}


@hookimpl
def pegboard_datasets() -> list[Dataset[Any]]:
    return [
        Dataset(
            "planetoid", data_configs.Planetoid, _build("citations", "planetoid"), trial=_small_citations
        ),
        Dataset(
            "tudataset",
            data_configs.TuDataset,
            _build("molecules", "tudataset"),
            folds=True,
            trial=_small_molecules,
        ),
        Dataset("karate", data_configs.Karate, _build("citations", "karate"), spec=_spec_of_karate),
    ]
