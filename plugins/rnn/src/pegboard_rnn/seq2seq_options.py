"""Configs and rules of the model that translates and of the probe that shows where it looks. No torch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from pegboard import Context, Facts, Ge, Le, Model, PegboardError, Probe, ProbePart, Problem, Tokens

if TYPE_CHECKING:
    from torch import nn

PAIRS = "Tokens, Tokens -> Tokens: a text, the target a step later, and the target"


@dataclass(frozen=True)
class Seq2Seq:
    """Sequence to sequence (seq2seq): recurrent encoder and decoder, with attention if wanted."""

    cell: Literal["elman", "lstm", "gru"] = "gru"  # recurrence of both
    hidden: Annotated[int, Ge(1)] = 256  # width of a layer
    layers: Annotated[int, Ge(1)] = 1  # of the encoder, and as many of the decoder
    embedding: Annotated[int, Ge(1)] | None = None  # width of a symbol's vector; null: as wide as a layer
    bidirectional: bool = True  # the encoder reads forth and back, with half the width each
    attention: Literal["additive", "none"] = "additive"  # whether the decoder looks at all that was read
    # share of target symbols that are given in training; the others are the model's own guesses
    teacher_forcing: Annotated[float, Ge(0), Le(1)] = 1.0


@dataclass(frozen=True)
class Alignment:
    """Attention alignment of source and target tokens in translation: figures and a picture."""

    split: Literal["train", "val", "test"] = "test"  # whose texts are read
    samples: Annotated[int, Ge(1)] | None = 500  # the first so many are measured; null: all
    first: Annotated[int, Ge(0)] = 0  # number of the first text in the picture
    shown: Annotated[int, Ge(1), Le(16)] = 4  # texts in the picture


def check_pairs(facts: Facts) -> Iterator[Problem]:
    """Two texts as inputs, the second behind a symbol that begins it."""
    spec = facts.spec
    if spec is None:
        return
    two = len(spec.inputs) == 2 and all(isinstance(s, Tokens) for s in spec.inputs)
    if not two or not isinstance(spec.target, Tokens):
        yield Problem(f"the data gives {spec}", expected=PAIRS)


def check_seq2seq(config: Seq2Seq, facts: Facts) -> Iterator[Problem]:
    """Pairs of texts, and a width that two directions can share."""
    yield from check_pairs(facts)
    second = None if facts.spec is None or len(facts.spec.inputs) != 2 else facts.spec.inputs[1]
    if isinstance(second, Tokens) and second.vocab is not None and second.begin < 0:
        yield Problem("the second text has no symbol that begins it", expected="Tokens(begin=...)")
    if config.bidirectional and config.hidden % 2:
        yield Problem(
            f"hidden {config.hidden} is odd, and the two directions of the encoder share it",
            "hidden",
            "an even number",
            "or set bidirectional: false",
        )


def check_alignment(config: Alignment, facts: Facts) -> Iterator[Problem]:
    """Pairs of texts, and a model that writes one."""
    yield from check_pairs(facts)
    if facts.model is not None and not (facts.model.generates and "attention" in facts.model.pegs):
        lacks = "looks nowhere" if facts.model.generates else "writes no texts"
        yield Problem(f"model {facts.model.name!r} {lacks}", expected="one that writes, with attention")


def build_seq2seq(config: Seq2Seq, context: Context) -> nn.Module:
    from .seq2seq import Seq2Seq as Module

    source, shifted = context.spec.inputs
    target, outputs = context.spec.target, context.outputs
    assert isinstance(source, Tokens) and isinstance(shifted, Tokens) and isinstance(target, Tokens)
    if outputs is None:
        raise PegboardError(f"seq2seq needs to know how many symbols the target has: {context.spec}")
    return Module(
        source,
        shifted,
        outputs,
        end=target.end,
        cell=config.cell,
        hidden=config.hidden,
        layers=config.layers,
        embedding=config.embedding,
        bidirectional=config.bidirectional,
        attention=config.attention == "additive",
        teacher_forcing=config.teacher_forcing,
    )


def build_alignment(config: Alignment, context: Context) -> Probe:
    from .alignment import AlignmentProbe

    return AlignmentProbe(config, context)


def seq2seq_part() -> Model[Seq2Seq]:
    """The record of the model."""
    return Model(
        "seq2seq",
        Seq2Seq,
        build_seq2seq,
        check=check_seq2seq,
        inputs=(Tokens,),
        targets=(Tokens,),
        pegs=("embedding", "hidden", "attention", "affine", "logits"),
        generates=True,
        trial=lambda folder: {"hidden": 8},
    )


def alignment_part() -> ProbePart[Alignment]:
    """The record of the probe."""
    return ProbePart("alignment", Alignment, build_alignment, check=check_alignment)
