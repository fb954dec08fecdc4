"""Configs of the models on sets and point clouds. No torch at import."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pegboard import Ge

from .configs import Activation, Size


@dataclass(frozen=True)
class DeepSets:
    """Deep Sets: a network on every point, a sum over the set, and a network on that; invariant to order.

    Where every point has a target, each gets an answer by itself and the sum: points in another order get the
    same answers in that order.
    """

    point: tuple[Size, ...] = (64, 64)  # widths of the network on every point
    pool: Literal["sum", "mean", "max"] = "sum"  # how the points of a set are put together
    rest: tuple[Size, ...] = (64,)  # widths of the network behind it
    activation: Activation = "relu"  # nonlinearity after every layer but the last of each network
    end: Activation = "identity"  # nonlinearity at the end of the network on every point


@dataclass(frozen=True)
class Equivariant:
    """Permutation-equivariant layers on sets: one matrix for a point and one for the mean of all.

    With one channel a layer has two numbers, as the only linear maps that permutations commute with.
    """

    channels: tuple[Size, ...] = (32, 32)  # of the hidden layers
    pool: Literal["mean", "sum", "max"] = "mean"  # how all points are put together
    activation: Activation = "relu"  # nonlinearity after every hidden layer
    bias: bool = True  # add a constant in every layer


@dataclass(frozen=True)
class PointNet:
    """PointNet: a network on every point, with learned transforms, and a maximum over points."""

    transform_input: bool = True  # turn the points by a matrix that is predicted from all of them
    transform_features: bool = True  # the same for their first features
    first: tuple[Size, ...] = (64, 64)  # widths up to the features of a point
    second: tuple[Size, ...] = (64, 128, 1024)  # widths up to those that the maximum is taken of
    head: tuple[Size, ...] = (
        512,
        256,
    )  # widths behind the maximum; where parts are asked for, of every point
    transform: tuple[Size, ...] = (64, 128, 1024)  # widths of the networks that predict matrices, per point
    transform_head: tuple[Size, ...] = (512, 256)  # and behind their maximum
    activation: Activation = "relu"  # nonlinearity after every hidden layer
    norm: Literal["batch", "none"] = "batch"  # normalisation before every nonlinearity


@dataclass(frozen=True)
class OrthogonalTransform:
    """Orthogonality penalty of PointNet: keep its feature transforms near rotations, by ||I - A A^T||^2."""

    weight: Annotated[float, Ge(0)] = 0.001  # of the term; 0 is none
