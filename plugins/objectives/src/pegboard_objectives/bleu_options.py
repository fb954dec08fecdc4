"""Config and rules of the probe that measures translations. No torch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

from pegboard import Context, Facts, Ge, Probe, ProbePart, Problem, Tokens


@dataclass(frozen=True)
class Bleu:
    """Corpus BLEU of translations (sacrebleu), 0 to 100."""

    split: Literal["train", "val", "test"] = "test"  # whose texts are translated
    beams: Annotated[int, Ge(1)] = 1  # texts followed at once; 1 takes the likeliest symbol every time
    length: Annotated[int, Ge(1)] | None = (
        None  # most symbols of a translation; null: the longest of the data
    )
    length_penalty: Annotated[float, Ge(0)] = (
        0.0  # with beams: scores are divided by the length to this power
    )
    samples: Annotated[int, Ge(1)] | None = None  # the first so many of the split; null: all
    batch_size: Annotated[int, Ge(1)] = 128  # texts translated together
    tokenizer: Literal["13a", "intl", "char", "zh", "none"] = "13a"  # how sacrebleu cuts texts into words
    lowercase: bool = False  # capitals do not count


def check_bleu(config: Bleu, facts: Facts) -> Iterator[Problem]:
    """A text that follows from another, and a model that writes one."""
    spec, model = facts.spec, facts.model
    texts = spec is None or (len(spec.inputs) > 1 and all(isinstance(s, Tokens) for s in spec.inputs))
    if spec is not None and not (texts and isinstance(spec.target, Tokens)):
        yield Problem(
            f"bleu compares translations, and the data gives {spec}", expected="Tokens, Tokens -> Tokens"
        )
    if model is not None and not model.generates:
        yield Problem(f"model {model.name!r} writes no texts", expected="a model that generates")


def build(config: Bleu, context: Context) -> Probe:
    from .bleu import BleuProbe

    return BleuProbe(config, context)


def bleu_part() -> ProbePart[Bleu]:
    """The record."""
    return ProbePart("bleu", Bleu, build, check=check_bleu)
