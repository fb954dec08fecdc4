"""Configs of the models on graphs. No torch at import."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pegboard import Ge, Gt

Size = Annotated[int, Ge(1)]
Activation = Literal["elu", "gelu", "identity", "leaky_relu", "relu", "silu", "tanh"]
Norm = Literal["none", "batch", "layer", "pair"]
Jump = Literal["none", "cat", "max", "lstm"]
Readout = Literal["sum", "mean", "max"]


@dataclass(frozen=True)
class Gcn:
    """Graph convolutional network (GCN): every layer mixes a node with its neighbours by fixed weights."""

    hidden: tuple[Size, ...] = (16,)  # widths of the hidden layers
    activation: Activation = "relu"  # nonlinearity after every hidden layer
    norm: Norm = "none"  # normalisation after every convolution
    residual: bool = False  # add what a layer reads to what it gives
    jump: Jump = "none"  # put together what all layers gave
    readout: Readout = "mean"  # how the nodes of a graph become one answer
    bias: bool = True  # add a constant in every layer


@dataclass(frozen=True)
class Gat:
    """Graph attention network (GAT): every layer mixes a node with its neighbours by attention weights."""

    hidden: tuple[Size, ...] = (8,)  # width of one head in each hidden layer
    heads: Size = 8  # attentions side by side in a hidden layer, joined
    output_heads: Size = 1  # attentions of the last layer, averaged
    slope: Annotated[float, Ge(0)] = 0.2  # of the leaky relu on what the softmax reads
    activation: Activation = "elu"  # nonlinearity after every hidden layer
    norm: Norm = "none"  # normalisation after every convolution
    residual: bool = False  # add what a layer reads to what it gives
    jump: Jump = "none"  # put together what all layers gave
    readout: Readout = "mean"  # how the nodes of a graph become one answer
    bias: bool = True  # add a constant in every layer


@dataclass(frozen=True)
class Gin:
    """Graph isomorphism network (GIN): an MLP on a node and the sum over its neighbours."""

    hidden: tuple[Size, ...] = (32, 32, 32)  # widths of the hidden layers
    learn_eps: bool = True  # learn how much a node counts beside its neighbours
    activation: Activation = "relu"  # nonlinearity after every hidden layer
    norm: Norm = "batch"  # normalisation after every convolution, and inside of it
    residual: bool = False  # add what a layer reads to what it gives
    jump: Jump = "cat"  # put together what all layers gave
    readout: Readout = "sum"  # how the nodes of a graph become one answer
    bias: bool = True  # add a constant in every linear layer


@dataclass(frozen=True)
class MessagePassing:
    """Message passing neural network (MPNN): messages along edges, an aggregation and an update to choose."""

    hidden: tuple[Size, ...] = (32, 32)  # widths of the hidden layers
    message: Literal["linear", "pair", "gated"] = "linear"  # what is sent along an edge
    aggregation: Literal["sum", "mean", "max", "min", "std"] = "sum"  # of the messages that reach a node
    update: Literal["add", "mlp", "gru"] = "add"  # what a node becomes by them
    activation: Activation = "relu"  # nonlinearity after every hidden layer
    norm: Norm = "none"  # normalisation after every convolution
    residual: bool = False  # add what a layer reads to what it gives
    jump: Jump = "none"  # put together what all layers gave
    readout: Readout = "sum"  # how the nodes of a graph become one answer


@dataclass(frozen=True)
class Cheb:
    """Chebyshev graph convolution (ChebNet): filters that are polynomials of the graph's Laplacian."""

    hidden: tuple[Size, ...] = (16,)  # widths of the hidden layers
    order: Annotated[int, Ge(0)] = 2  # degree of the polynomials: how many hops a layer sees
    basis: Literal["chebyshev", "powers"] = "chebyshev"  # what polynomials are sums of
    laplacian: Literal["normalised", "plain"] = "normalised"  # I - D^-1/2 A D^-1/2, or D - A
    top: Annotated[float, Gt(0)] = 2.0  # largest eigenvalue, to which chebyshev scales the Laplacian
    activation: Activation = "relu"  # nonlinearity after every hidden layer
    norm: Norm = "none"  # normalisation after every convolution
    residual: bool = False  # add what a layer reads to what it gives
    jump: Jump = "none"  # put together what all layers gave
    readout: Readout = "mean"  # how the nodes of a graph become one answer
    bias: bool = True  # add a constant in every layer


@dataclass(frozen=True)
class Spectral:
    """Spectral graph convolution: filters on the Laplacian's eigenvectors of one fixed graph."""

    hidden: tuple[Size, ...] = (16,)  # widths of the hidden layers
    filter: Literal["plain", "smooth"] = "smooth"  # a number for each eigenvector, or a sum of kernels
    kernels: Size = 10  # smooth: how many kernels a filter is a sum of
    kernel: Literal["gaussian", "polynomial"] = "gaussian"  # smooth: functions of the eigenvalue
    modes: Size | None = None  # eigenvectors that are used, from the lowest on; null is all
    laplacian: Literal["normalised", "plain"] = "normalised"  # I - D^-1/2 A D^-1/2, or D - A
    activation: Activation = "relu"  # nonlinearity after every hidden layer
    norm: Norm = "none"  # normalisation after every convolution
    residual: bool = False  # add what a layer reads to what it gives
    jump: Jump = "none"  # put together what all layers gave
    bias: bool = True  # add a constant in every layer


@dataclass(frozen=True)
class Monet:
    """MoNet: graph convolution by learned Gaussian kernels on coordinates around every node."""

    hidden: tuple[Size, ...] = (32,)  # widths of the hidden layers
    kernels: Size = 4  # Gaussians of a patch
    weight: Literal["gaussian", "ball"] = "gaussian"  # how far a neighbour belongs to one of them
    radius: Annotated[float, Gt(0)] = 1.0  # ball: neighbours up to this distance belong, all alike
    mean: bool = True  # divide each by the weights of all neighbours, else sum up
    activation: Activation = "relu"  # nonlinearity after every hidden layer
    norm: Norm = "none"  # normalisation after every convolution
    residual: bool = False  # add what a layer reads to what it gives
    jump: Jump = "none"  # put together what all layers gave
    readout: Readout = "mean"  # how the nodes of a graph become one answer
    bias: bool = True  # add a constant in every layer
