"""From configs to networks on graphs."""

from __future__ import annotations

from typing import Any

from pegboard import PegboardError
from torch import nn

from . import configs, layers
from .checks import Sizes
from .monet import Ball, Gaussians, Located, PatchConv
from .network import GraphNetwork, own_norm
from .spectral import Decomposed, SpectralConv
from .structure import Laplacian, Prepared, ScaledLaplacian, coupled, looped, plain


def _around(config: Any, sizes: Sizes) -> dict[str, Any]:
    """The fields that all networks share."""
    names = ("activation", "norm", "residual", "jump")
    found = {name: getattr(config, name) for name in names}
    return found | {"graphs": sizes.graphs, "readout": getattr(config, "readout", "sum")}


def gcn(config: configs.Gcn, sizes: Sizes) -> GraphNetwork:
    def make(inputs: int, outputs: int, last: bool) -> nn.Module:
        return layers.Gcn(inputs, outputs, config.bias)

    return GraphNetwork(
        make, Prepared(coupled, sizes.fixed), sizes.inputs, sizes.outputs,
        hidden=config.hidden, sparse=True, **_around(config, sizes),
    )  # fmt: skip


def gat(config: configs.Gat, sizes: Sizes) -> GraphNetwork:
    edges = sizes.edges or None

    def make(inputs: int, outputs: int, last: bool) -> nn.Module:
        heads = config.output_heads if last else config.heads
        return layers.Gat(inputs, outputs, heads, not last, config.slope, edges, config.bias)

    return GraphNetwork(
        make, Prepared(looped, sizes.fixed, matrix=False), sizes.inputs, sizes.outputs,
        hidden=config.hidden, widths=[config.heads * width for width in config.hidden], sparse=True,
        **_around(config, sizes),
    )  # fmt: skip


def gin(config: configs.Gin, sizes: Sizes) -> GraphNetwork:
    def make(inputs: int, outputs: int, last: bool) -> nn.Module:
        norm = own_norm(config.norm, outputs)
        return layers.Gin(inputs, outputs, config.activation, norm, config.learn_eps, config.bias)

    return GraphNetwork(
        make, Prepared(plain, sizes.fixed), sizes.inputs, sizes.outputs,
        hidden=config.hidden, **_around(config, sizes),
    )  # fmt: skip


def message_passing(config: configs.MessagePassing, sizes: Sizes) -> GraphNetwork:
    def make(inputs: int, outputs: int, last: bool) -> nn.Module:
        message: nn.Module
        update: nn.Module
        match config.message:
            case "linear":
                message = layers.LinearMessage(inputs, outputs, sizes.edges)
            case "pair":
                message = layers.PairMessage(inputs, outputs, sizes.edges, config.activation)
            case "gated":
                message = layers.GatedMessage(inputs, outputs, sizes.edges)
        match config.update:
            case "add":
                update = layers.AddUpdate(inputs, outputs)
            case "mlp":
                update = layers.MlpUpdate(inputs, outputs, config.activation)
            case "gru":
                update = layers.GruUpdate(inputs, outputs)
        return layers.Passing(message, config.aggregation, update)

    return GraphNetwork(
        make, Prepared(plain, sizes.fixed, matrix=False), sizes.inputs, sizes.outputs,
        hidden=config.hidden, **_around(config, sizes),
    )  # fmt: skip


def cheb(config: configs.Cheb, sizes: Sizes) -> GraphNetwork:
    powers, normalised = config.basis == "powers", config.laplacian == "normalised"

    def make(inputs: int, outputs: int, last: bool) -> nn.Module:
        return layers.Cheb(inputs, outputs, config.order, powers, config.bias)

    prepare = Laplacian(normalised) if powers else ScaledLaplacian(config.top, normalised)
    return GraphNetwork(
        make, Prepared(prepare, sizes.fixed), sizes.inputs, sizes.outputs,
        hidden=config.hidden, sparse=True, **_around(config, sizes),
    )  # fmt: skip


def spectral(config: configs.Spectral, sizes: Sizes) -> GraphNetwork:
    smooth = config.kernels if config.filter == "smooth" else None
    factors = smooth or config.modes or sizes.nodes
    if not factors:
        raise PegboardError(
            "spectral with filter: plain needs to know how many nodes the graph has, or modes"
        )

    def make(inputs: int, outputs: int, last: bool) -> nn.Module:
        return SpectralConv(inputs, outputs, factors, config.bias)

    prepare = Decomposed(
        config.modes or sizes.nodes or None, config.laplacian == "normalised", smooth, config.kernel
    )
    return GraphNetwork(
        make, prepare, sizes.inputs, sizes.outputs, hidden=config.hidden, **_around(config, sizes)
    )


def monet(config: configs.Monet, sizes: Sizes) -> GraphNetwork:
    coordinates = sizes.edges or 2
    kernels = config.kernels if config.weight == "gaussian" else 1

    def make(inputs: int, outputs: int, last: bool) -> nn.Module:
        weights: nn.Module = Ball(config.radius)
        if config.weight == "gaussian":
            weights = Gaussians(kernels, coordinates)
        return PatchConv(inputs, outputs, weights, kernels, config.mean, config.bias)

    return GraphNetwork(
        make, Prepared(Located(bool(sizes.edges)), sizes.fixed, matrix=False), sizes.inputs, sizes.outputs,
        hidden=config.hidden, **_around(config, sizes),
    )  # fmt: skip
