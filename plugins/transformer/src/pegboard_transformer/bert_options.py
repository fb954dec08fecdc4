"""The config of `bert`, what it cannot be combined with, and how it is built. No torch at import."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from pegboard import (
    Classes,
    Context,
    Facts,
    Gt,
    Labels,
    Model,
    Problem,
    Tokens,
    Values,
)

from .configs import Count
from .specs import Masked, Span

if TYPE_CHECKING:
    from torch import nn

SEGMENTS = 2  # a text is of one sentence or of two


@dataclass(frozen=True)
class Bert:
    """BERT: a transformer encoder pretrained on masked tokens, with a head for each kind of target."""

    layers: Count = 4  # blocks; 12 in BERT-base
    width: Count = 128  # features of a place; 768 in BERT-base
    heads: Count = 4  # of attention; 12 in BERT-base
    feed: Count | None = None  # units of the feed-forward layers; None is four times the width
    longest: Count = 512  # places that have a position; no text may have more
    eps: Annotated[float, Gt(0)] = 1e-12  # added to the variance by the normalisations
    std: Annotated[float, Gt(0)] = 0.02  # of the weights at the start
    # where spans are: in all, the first place for none; or in the second sentence, where all texts have one
    answers: Literal["anywhere", "second"] = "anywhere"


def check_bert(config: Bert, facts: Facts) -> Iterator[Problem]:
    """What the types of the fields cannot say; see `pegboard.Problem`."""
    if config.width % config.heads:
        yield Problem(
            f"width is {config.width}, which {config.heads} heads cannot share",
            "heads",
            f"a divisor of {config.width}",
        )
    if facts.spec is None:
        return
    inputs, target = facts.spec.inputs, facts.spec.target
    if len(inputs) not in (1, 2):
        yield Problem(f"bert reads a text and its segments, and the data gives {facts.spec}")
        return
    text = inputs[0]
    if len(inputs) == 2 and isinstance(inputs[1], Tokens) and (inputs[1].vocab or 0) > SEGMENTS:
        yield Problem(
            f"the second input of bert says of each place whether it is of the first or the second sentence, "
            f"and the data gives {inputs[1]}",
            "",
            f"Tokens({SEGMENTS}, ...)",
            "a model that translates reads two texts",
        )
    if isinstance(text, Tokens) and (text.length or 0) > config.longest:
        yield Problem(
            f"texts have up to {text.length} places, and there are {config.longest} positions",
            "longest",
            f"at least {text.length}",
            "or shorten the texts",
        )
    if isinstance(target, Masked) and isinstance(text, Tokens) and target.vocab != text.vocab:
        yield Problem(f"the symbols to uncover are {target.vocab}, and those of the text {text.vocab}")
    if config.answers == "second" and (len(inputs) < 2 or not isinstance(target, Span)):
        yield Problem(
            f"answers in the second sentence ask for segments and a target that is a span, not {facts.spec}",
            "answers",
            "anywhere",
        )


def build_bert(config: Bert, context: Context) -> nn.Module:
    from . import outputs_of, sizes
    from .bert import Bert as Module
    from .blocks import Form
    from .heads import Classifier, Pretraining, SpanHead, Tagger

    text, target, width = context.spec.inputs[0], context.spec.target, config.width
    assert isinstance(text, Tokens)
    vocab, length = sizes("bert", text)
    head: nn.Module
    if isinstance(target, Masked):
        head = Pretraining(width, vocab, config.eps)
    elif isinstance(target, Span):
        head = SpanHead(width, length, (text.begin, text.end) if config.answers == "second" else None)
    elif isinstance(target, Tokens):
        head = Tagger(width, outputs_of("bert", context))
    else:
        head = Classifier(width, outputs_of("bert", context))
    form = Form(
        width=width,
        heads=config.heads,
        feed=config.feed or 4 * width,
        activation="gelu",
        norm="post",
        eps=config.eps,
    )
    return Module(vocab, config.longest, config.layers, form, head, padding=text.padding, std=config.std)


BERT = Model(
    "bert",
    Bert,
    build_bert,
    check=check_bert,
    inputs=(Tokens,),
    targets=(Masked, Classes, Labels, Values, Tokens, Span),
    pegs=("embedding", "attention", "affine", "hidden", "residual", "pooled", "logits"),
    trial=lambda folder: {"layers": 1, "width": 8, "heads": 2, "longest": 16},
)
