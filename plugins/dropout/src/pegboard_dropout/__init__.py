"""Dropout of units and of weights: zero a random share in training. This module imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pegboard import Context, Ge, Length, Lt, Regularizer, Site, Trick, hookimpl


@dataclass(frozen=True)
class Dropout:
    """Dropout: zero a random share of units in training, and scale up the rest.

    `p` is the share that is dropped. What is kept is divided by `1 - p`, so that nothing is left
    to do in evaluation. Without `p` the shares are the usual ones: 0.2 of the inputs and 0.5 elsewhere.
    """

    p: Annotated[float, Ge(0), Lt(1)] | None = None  # share dropped; null: 0.2 of the inputs, 0.5 elsewhere
    sites: Annotated[tuple[Site, ...], Length(1)] = ("hidden",)  # pegs it hangs on
    form: Literal["element", "feature"] = "element"  # drop single numbers, or whole features of a sample


def build(config: Dropout, context: Context) -> Trick:
    from .trick import DropoutTrick

    return DropoutTrick(config)


Layers = Literal["linear", "recurrent", "convolution"]  # recurrent: from state to state


@dataclass(frozen=True)
class DropConnect:
    """Zero a random share of weights in training, and scale up the rest.

    Dropout of connections instead of units: every step multiplies with matrices of which the share `p`
    is zero and the rest divided by `1 - p`. Evaluation uses the whole matrices. Biases, embeddings and
    normalisations stay whole.
    """

    p: Annotated[float, Ge(0), Lt(1)] = 0.5  # share dropped
    layers: Annotated[tuple[Layers, ...], Length(1)] = ("linear", "recurrent")  # what the weights belong to
    only: tuple[str, ...] = ()  # names of the weights that are dropped, with * for any text; empty is all


def build_connect(config: DropConnect, context: Context) -> Trick:
    from .connect import DropConnectTrick

    return DropConnectTrick(config)


@hookimpl
def pegboard_regularizers() -> list[Regularizer[Any]]:
    return [
        Regularizer(
            "dropout", Dropout, build, stages={"hang": "drop"}, after=("batchnorm",), neutral={"p": 0.0}
        ),
        Regularizer(
            "dropconnect",
            DropConnect,
            build_connect,
            stages={"edit_model": "reparametrize"},
            neutral={"p": 0.0},
        ),
    ]
