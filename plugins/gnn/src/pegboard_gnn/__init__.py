"""Networks on graphs, sets and point clouds for Pegboard. No torch at import."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pegboard import (
    Classes,
    Context,
    Dataset,
    Facts,
    Labels,
    Model,
    PegboardError,
    Points,
    Prefixed,
    Probe,
    ProbePart,
    Problem,
    Regularizer,
    Role,
    Series,
    Site,
    Tokens,
    Trick,
    Values,
    hookimpl,
)

from . import configs, data_parts, probe_configs, set_configs
from .checks import GRAPH, check_fixed, check_graph, check_unweighted, check_weighted, sizes_of
from .specs import Asked, Bounds, EdgeFeatures, Edges, Nodes

if TYPE_CHECKING:
    from torch import nn

    from .graphs import Graph, GraphSet, WholeGraph, sampled

__all__ = [
    "Asked",
    "Bounds",
    "EdgeFeatures",
    "Edges",
    "Graph",
    "GraphSet",
    "Nodes",
    "WholeGraph",
    "sampled",
]

TARGETS = (Classes, Labels, Values)
PEGS: tuple[Site, ...] = ("input", "affine", "hidden", "residual", "logits")


def __getattr__(name: str) -> Any:
    if name in ("Graph", "GraphSet", "WholeGraph", "sampled"):  # they need torch
        from . import graphs

        return getattr(graphs, name)
    raise AttributeError(f"module 'pegboard_gnn' has no attribute {name!r}")


def _graph_model(name: str, config: type[Any], check: Any, trial: dict[str, Any], *pegs: Site) -> Model[Any]:
    """The record of a model on graphs, which the function of its name in `build` makes."""

    def build(config: Any, context: Context) -> nn.Module:
        from . import build as made

        result: nn.Module = getattr(made, name)(config, sizes_of(name, context))
        return result

    return Model(
        name, config, build, check=check, inputs=GRAPH, targets=TARGETS,
        # One that belongs to a graph predicts its nodes, and pools nothing.
        pegs=(*PEGS, *pegs) if check is check_fixed else (*PEGS, "pooled", *pegs),
        trial=lambda folder: trial,
    )  # fmt: skip


def check_set(config: Any, facts: Facts) -> Iterator[Problem]:
    """Anything but one set of points."""
    spec = facts.spec
    if spec is not None and (len(spec.inputs) != 1 or not isinstance(spec.inputs[0], Points)):
        yield Problem(
            f"the data gives {', '.join(map(str, spec.inputs)) or 'nothing'}", expected="one set of points"
        )


def _set_model(name: str, config: type[Any], trial: dict[str, Any]) -> Model[Any]:
    """The record of a model on sets, whose module takes the fields of its config."""

    def build(config: Any, context: Context) -> nn.Module:
        from . import point_sets, pointnet

        kinds: dict[str, Any] = {
            "deepsets": point_sets.DeepSets,
            "equivariant": point_sets.Equivariant,
            "pointnet": pointnet.PointNet,
        }
        match context.spec.inputs:
            case (Points(features=int(features), padded=padded),) if context.outputs is not None:
                each = isinstance(context.spec.target, Tokens | Series)
                made = kinds[name](features, context.outputs, each=each, padded=padded, **vars(config))
                result: nn.Module = made
                return result
        raise PegboardError(f"{name} reads sets of points of known sizes, but the data gives {context.spec}")

    return Model(
        name, config, build, check=check_set, inputs=(Points,), targets=(*TARGETS, Tokens, Series),
        pegs=("input", "affine", "hidden", "pooled", "logits"), trial=lambda folder: trial,
    )  # fmt: skip


@hookimpl
def pegboard_models() -> list[Model[Any]]:
    small = {"hidden": [8]}
    narrow = {"first": [8, 8], "second": [8, 16], "head": [8], "transform": [8, 16], "transform_head": [8]}
    return [
        _graph_model("gcn", configs.Gcn, check_weighted, small),
        _graph_model("gat", configs.Gat, check_graph, {"hidden": [4], "heads": 2}, "attention"),
        _graph_model("gin", configs.Gin, check_unweighted, small),
        _graph_model("message_passing", configs.MessagePassing, check_graph, small),
        _graph_model("cheb", configs.Cheb, check_weighted, small),
        _graph_model("spectral", configs.Spectral, check_fixed, {**small, "kernels": 4}),
        _graph_model("monet", configs.Monet, check_graph, {**small, "kernels": 2}),
        _set_model("deepsets", set_configs.DeepSets, {"point": [8], "rest": [8]}),
        _set_model("equivariant", set_configs.Equivariant, {"channels": [8]}),
        _set_model("pointnet", set_configs.PointNet, narrow),
    ]


@hookimpl
def pegboard_datasets() -> list[Dataset[Any]]:
    return data_parts.datasets()


def check_transform(config: set_configs.OrthogonalTransform, facts: Facts) -> Iterator[Problem]:
    """A model that predicts no matrix."""
    if facts.model is not None and facts.model.name != "pointnet":
        yield Problem(
            f"{facts.model.name} predicts no matrix for features", expected="model: {name: pointnet}"
        )


def build_transform(config: set_configs.OrthogonalTransform, context: Context) -> Trick:
    from .pointnet import OrthogonalTransformTrick

    return OrthogonalTransformTrick(config)


@hookimpl
def pegboard_regularizers() -> list[Regularizer[set_configs.OrthogonalTransform]]:
    return [
        Regularizer(
            "orthogonal_transform", set_configs.OrthogonalTransform, build_transform, check=check_transform,
            stages={"edit_model": Prefixed("gnn:watch"), "edit_loss": "term"}, neutral={"weight": 0.0},
            roles=(Role(Prefixed("gnn:watch"), "edit_model", after="reparametrize", by_name=True),),
            inputs=(Points,),
        )
    ]  # fmt: skip


def build_order(config: probe_configs.NodeOrder, context: Context) -> Probe:
    from .symmetry import NodeOrderProbe

    return NodeOrderProbe(config, context)


def build_smoothing(config: probe_configs.Smoothing, context: Context) -> Probe:
    from .smoothing import SmoothingProbe

    return SmoothingProbe(config, context)


@hookimpl
def pegboard_probes() -> list[ProbePart[Any]]:
    return [
        ProbePart("node_order", probe_configs.NodeOrder, build_order, check=probe_configs.check_order),
        ProbePart("smoothing", probe_configs.Smoothing, build_smoothing, check=probe_configs.check_smoothing),
    ]
