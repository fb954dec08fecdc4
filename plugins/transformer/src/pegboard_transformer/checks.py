"""Rules of the models' configs that types cannot express. No torch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pegboard import Facts, Image, Problem, Series, Spec, Tokens

from .configs import Decoder, Encoder, Translation, Vit


def check_form(config: Any) -> Iterable[Problem]:
    """Widths and heads fit each other."""
    if config.width % config.heads:
        yield Problem(
            f"{config.heads} heads do not divide the width {config.width}",
            "heads",
            expected="a number that divides model.width",
        )
    elif config.positions == "rotary" and (config.width // config.heads) % 2:
        yield Problem(
            f"rotary positions turn pairs of features, and each head has {config.width // config.heads}",
            "positions",
            expected="an even model.width / model.heads",
        )
    if config.positions == "sinusoidal" and config.width % 2:
        yield Problem(
            f"sinusoidal positions come in pairs, and the width is {config.width}",
            "width",
            expected="an even number",
        )


def _inputs(facts: Facts, *kinds: type[Spec]) -> Iterable[Problem]:
    """The data gives just these inputs."""
    if facts.spec is None:
        return
    given = facts.spec.inputs
    if len(given) != len(kinds) or not all(isinstance(s, k) for s, k in zip(given, kinds, strict=False)):
        wanted = ", ".join(kind.__name__ for kind in kinds)
        yield Problem(f"the data gives {facts.spec}", expected=f"data whose inputs are {wanted}")


def _steps(spec: Spec | None) -> bool:
    return isinstance(spec, (Tokens, Series))


def check_encoder(config: Encoder, facts: Facts) -> Iterable[Problem]:
    yield from check_form(config)
    if facts.spec is None:
        return
    if len(facts.spec.inputs) != 1:
        yield Problem(
            f"it reads one input, and the data gives {len(facts.spec.inputs)}: {facts.spec}",
            expected="data with one input",
        )
    if config.pool == "token" and _steps(facts.spec.target):
        yield Problem(
            f"{facts.spec.target} asks for an answer at every step, and a class token gives one for all",
            "pool",
            expected="mean",
            hint="leave pool out",
        )


def check_decoder(config: Decoder, facts: Facts) -> Iterable[Problem]:
    yield from check_form(config)
    yield from _inputs(facts, Tokens)
    if facts.spec is None or not facts.spec.inputs:
        return
    read, target = facts.spec.inputs[0], facts.spec.target
    if not isinstance(read, Tokens) or not isinstance(target, Tokens) or None in (read.vocab, target.vocab):
        return
    if read.vocab != target.vocab:
        yield Problem(
            f"it predicts the symbols that it reads, and the data has {read.vocab} to read and "
            f"{target.vocab} to predict",
            "name",
            expected="data whose target is its input a step further",
            hint="the model encoder gives a label for every step",
        )


def check_translation(config: Translation, facts: Facts) -> Iterable[Problem]:
    yield from check_form(config)
    yield from _inputs(facts, Tokens, Tokens)
    if facts.spec is None or len(facts.spec.inputs) != 2:
        return
    source, shifted = facts.spec.inputs
    if not isinstance(source, Tokens) or not isinstance(shifted, Tokens):
        return
    if config.shared and None not in (source.vocab, shifted.vocab) and source.vocab != shifted.vocab:
        yield Problem(
            f"one embedding cannot serve vocabularies of {source.vocab} and {shifted.vocab} symbols",
            "shared",
            expected="data with one vocabulary",
            hint="leave shared out",
        )
    if facts.spec.known and shifted.begin < 0:
        yield Problem(
            "the data does not say which symbol a target begins with, so nothing could be generated",
            "name",
            expected="a second input whose spec has `begin`",
        )


def check_vit(config: Vit, facts: Facts) -> Iterable[Problem]:
    yield from check_form(config)
    yield from _inputs(facts, Image)
    read = facts.spec.inputs[0] if facts.spec is not None and facts.spec.inputs else None
    if not isinstance(read, Image) or read.height is None or read.width is None:
        return
    if read.height % config.patch or read.width % config.patch:
        both = [n for n in range(1, 65) if read.height % n == 0 and read.width % n == 0]
        yield Problem(
            f"patches of side {config.patch} do not divide a picture of {read.height} by {read.width}",
            "patch",
            expected=f"one of {', '.join(map(str, both))}",
        )
