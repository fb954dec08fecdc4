"""Config of the recurrent networks. No torch."""

from __future__ import annotations

from dataclasses import dataclass
from math import pi
from typing import Annotated, Literal

from pegboard import Ge, Gt, Le, Length

Cell = Literal["elman", "lstm", "gru", "mingru", "lru"]
FULL_TURN = round(2 * pi, 6)

# Fields that one kind of cell has, or several.
OWN_FIELDS: dict[str, tuple[Cell, ...]] = {
    "gate_bias": ("lstm", "gru", "mingru"),
    "activation": ("elman",),
    "transition": ("elman",),
    "output_matrix": ("lstm",),
    "reset": ("gru",),
    "state": ("lru",),
    "radius": ("lru",),
    "phase": ("lru",),
}


@dataclass(frozen=True)
class Rnn:
    """Recurrent network (RNN, LSTM, GRU, minGRU, LRU) on series, tokens or images read step by step.

    A target of the whole sequence is read from the last state or the mean of all; one for every step, as the
    next symbol or a forecast, from the state of that step.
    """

    cell: Cell = "lstm"  # what carries the state on; mingru and lru are computed for all steps at once
    hidden: Annotated[int, Ge(1)] = 128  # width of a layer, in each direction
    layers: Annotated[int, Ge(1)] = 1  # how many, each reading the states of the one below
    bidirectional: bool = False  # read every sequence from its end too; both states stand side by side
    pool: Literal["last", "mean"] = "last"  # what a target of the whole sequence is read from
    image: Literal["rows", "columns", "pixels"] = "rows"  # what a step of a picture is
    embedding: Annotated[int, Ge(1)] | None = None  # width of a symbol's vector; None is that of a layer
    bias: bool = True  # add constants in cells and head
    block: bool | None = None  # put each cell into a residual block with norm and gate; None: lru alone
    gate_bias: float | None = None  # constant of the gate that keeps the state, at first; None is torch's
    activation: Literal["tanh", "relu"] = "tanh"  # elman: its nonlinearity
    transition: Annotated[int, Ge(1)] = 1  # elman: layers between two steps
    output_matrix: bool = False  # lstm: a matrix before the last tanh, the identity at first
    reset: Literal["after", "before"] = "after"  # gru: forget after the state is multiplied, or before
    state: Annotated[int, Ge(1)] | None = None  # lru: complex numbers of its state; None is hidden
    # lru: range of the absolute values of its eigenvalues, at first
    radius: Annotated[tuple[Annotated[float, Ge(0), Le(1)], ...], Length(2, 2)] = (0.9, 0.999)
    phase: Annotated[float, Gt(0), Le(FULL_TURN)] = FULL_TURN  # lru: most of the angles of its eigenvalues
