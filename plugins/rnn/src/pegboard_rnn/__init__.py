"""Recurrent networks for Pegboard. No torch at import."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pegboard import (
    Classes,
    Context,
    Image,
    Labels,
    Model,
    PegboardError,
    ProbePart,
    Series,
    Tokens,
    Values,
    hookimpl,
)

from .checks import check_rnn, each_step
from .configs import Rnn
from .seq2seq_options import Alignment, Seq2Seq, alignment_part, seq2seq_part

if TYPE_CHECKING:
    from torch import nn

    from .cells import Cell

__all__ = ["Alignment", "Rnn", "Seq2Seq"]


def build_rnn(config: Rnn, context: Context) -> nn.Module:
    from .model import Rnn as Module

    target = context.spec.target
    outputs = target.features if isinstance(target, Series) else context.outputs
    if outputs is None:
        raise PegboardError(
            "rnn needs to know how many numbers to predict, and neither the objective nor the "
            f"target ({target or 'nothing'}) says it.\n"
            "Name an objective that fits the data, or a data set whose target has a known size."
        )
    block = config.cell == "lru" if config.block is None else config.block
    return Module(
        context.spec.inputs[0],
        outputs,
        make_cell(config, peg=not block),
        hidden=config.hidden,
        layers=config.layers,
        bidirectional=config.bidirectional,
        block=block,
        each_step=each_step(target),
        pool=config.pool,
        image=config.image,
        embedding=config.embedding,
        bias=config.bias,
    )


def make_cell(config: Rnn, peg: bool = True) -> Callable[[int], Cell]:
    """A function that makes a cell which reads so many features; `peg`: with its own one before the gates."""
    from . import cells, linear_cells

    hidden, bias, gate = config.hidden, config.bias, config.gate_bias
    low, high = config.radius

    def make(inputs: int) -> Cell:
        match config.cell:
            case "mingru":
                return linear_cells.MinGru(inputs, hidden, bias=bias, gate_bias=gate, peg=peg)
            case "lru":
                return linear_cells.Lru(
                    inputs, hidden, state=config.state, radius=(low, high), phase=config.phase, bias=bias
                )
            case "lstm" if config.output_matrix:
                return cells.OutputMatrixLstm(inputs, hidden, bias=bias, gate_bias=gate, peg=peg)
            case "gru" if config.reset == "before":
                return cells.ResetBeforeGru(inputs, hidden, bias=bias, gate_bias=gate, peg=peg)
            case "elman" if config.transition > 1:
                return cells.DeepTransition(
                    inputs, hidden, config.transition, bias=bias, activation=config.activation, peg=peg
                )
            case kind:
                return cells.Fused(
                    kind,
                    inputs,
                    hidden,
                    bias=bias,
                    gate_bias=gate,
                    activation=config.activation,
                    peg=peg,
                )

    return make


@hookimpl
def pegboard_models() -> list[Model[Any]]:
    return [
        Model(
            "rnn",
            Rnn,
            build_rnn,
            check=check_rnn,
            inputs=(Series, Tokens, Image),
            targets=(Classes, Labels, Values, Tokens, Series),
            pegs=("input", "embedding", "affine", "hidden", "residual", "pooled", "logits"),
            generates=True,
            trial=lambda folder: {"hidden": 8},
        ),
        seq2seq_part(),
    ]


@hookimpl
def pegboard_probes() -> list[ProbePart[Any]]:
    return [alignment_part()]
