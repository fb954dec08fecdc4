"""What types of configs cannot say, and sizes that come from the data. No torch at import."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from pegboard import Context, DataSpec, Facts, PegboardError, Problem, Spec

from .specs import Asked, Bounds, EdgeFeatures, Edges, Nodes

GRAPH = (Nodes, Edges, EdgeFeatures, Asked, Bounds)


class Sizes(NamedTuple):
    """What a model on graphs knows of its data."""

    inputs: int  # features of a node
    edges: int  # features of an edge, 0 where it has none
    outputs: int
    graphs: bool  # an answer for every graph, else for nodes
    fixed: bool  # the same graph in every batch
    nodes: int  # of that graph, 0 where it is not known


def is_graph(inputs: tuple[Spec, ...]) -> bool:
    """Whether inputs are nodes, edges, perhaps features of these, and what is asked for."""
    kinds = [type(s) for s in inputs]
    return kinds[:2] == [Nodes, Edges] and kinds[2:] in (
        [Asked],
        [Bounds],
        [EdgeFeatures, Asked],
        [EdgeFeatures, Bounds],
    )


def _edge_features(spec: DataSpec) -> EdgeFeatures | None:
    found = [s for s in spec.inputs if isinstance(s, EdgeFeatures)]
    return found[0] if found else None


def check_graph(config: Any, facts: Facts) -> Iterator[Problem]:
    """Inputs that are no graph, and residual connections or jumps that do not fit."""
    if facts.spec is not None and not is_graph(facts.spec.inputs):
        shown = ", ".join(map(str, facts.spec.inputs)) or "nothing"
        yield Problem(
            f"the data gives {shown}",
            expected="nodes, edges, perhaps their features, then nodes asked for or bounds of graphs",
        )
    hidden = config.hidden
    if config.jump != "none" and not hidden:
        yield Problem(
            f"jump: {config.jump} has no hidden layer to put together", "hidden", "a width at least"
        )
    if config.jump in ("max", "lstm") and len(set(hidden)) > 1:
        yield Problem(
            f"jump: {config.jump} needs layers of one width, found {', '.join(map(str, hidden))}",
            "hidden",
            expected="equal widths",
            hint="jump: cat puts layers of any widths side by side",
        )
    elif config.jump == "lstm" and hidden and len(hidden) * hidden[0] * getattr(config, "heads", 1) < 2:
        yield Problem("jump: lstm reads a single layer of width 1", "hidden", "a wider one, or more of them")


def check_weighted(config: Any, facts: Facts) -> Iterator[Problem]:
    """The same for models that read one weight of every edge."""
    yield from check_graph(config, facts)
    known = None if facts.spec is None else _edge_features(facts.spec)
    if known is not None and known.features not in (1, None):
        yield Problem(
            f"edges have {known.features} features, and it reads a weight of each",
            expected="one feature of every edge, or none",
            hint="gat, message_passing and monet read any number of them",
        )


def check_unweighted(config: Any, facts: Facts) -> Iterator[Problem]:
    """The same for models that know edges as such alone."""
    yield from check_graph(config, facts)
    known = None if facts.spec is None else _edge_features(facts.spec)
    if known is not None:
        yield Problem(
            f"edges have features ({known}), and it reads none",
            expected="edges without features",
            hint="gat, message_passing and monet read them",
        )


def check_fixed(config: Any, facts: Facts) -> Iterator[Problem]:
    """The same for models of one graph."""
    yield from check_weighted(config, facts)
    if facts.spec is None or not is_graph(facts.spec.inputs):
        return
    nodes, edges = facts.spec.inputs[:2]
    assert isinstance(nodes, Nodes) and isinstance(edges, Edges)
    if not edges.fixed:
        yield Problem(
            "graphs differ from batch to batch, and eigenvectors belong to one graph",
            expected="nodes of one graph that is held whole",
            hint="cheb filters by polynomials, which need no eigenvectors",
        )
    elif config.modes is not None and nodes.count and config.modes > nodes.count:
        yield Problem(
            f"found {config.modes}, but the graph has {nodes.count} nodes", "modes", f"1 to {nodes.count}"
        )


def sizes_of(model: str, context: Context) -> Sizes:
    """The sizes that the data and the objective give; what they lack is an error."""
    spec = context.spec
    if not is_graph(spec.inputs) or spec.inputs[0].size is None:
        raise PegboardError(f"{model} reads nodes and edges of known sizes, but the data gives {spec}")
    if context.outputs is None:
        raise PegboardError(
            f"{model} needs to know how many numbers to predict, and neither the objective nor the "
            f"target ({spec.target or 'nothing'}) says it.\n"
            "Name an objective that fits the data, or a data set whose target has a known size."
        )
    nodes, edges = spec.inputs[:2]
    assert isinstance(nodes, Nodes) and isinstance(edges, Edges)
    known = _edge_features(spec)
    return Sizes(
        nodes.features or 0,
        0 if known is None else known.features or 0,
        context.outputs,
        isinstance(spec.inputs[-1], Bounds),
        edges.fixed,
        nodes.count,
    )
