"""Models of Hugging Face transformers, by the name of their architecture. No torch at import."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Annotated

from pegboard import (
    Classes,
    Context,
    Facts,
    Ge,
    Lt,
    Matches,
    Model,
    PegboardError,
    Problem,
    Tokens,
    hookimpl,
)

if TYPE_CHECKING:
    from torch import nn

Size = Annotated[int, Ge(1)]
ModelType = Annotated[str, Matches(r"[a-z0-9][a-z0-9_-]*", "a model type of transformers, as bert or gpt2")]


@dataclass(frozen=True)
class Transformers:
    """A model of Hugging Face transformers that classifies sequences, of any architecture."""

    architecture: ModelType = "bert"  # its model type: bert, distilbert, roberta, electra, gpt2, llama, ...
    width: Size = 64  # numbers that stand for a symbol
    layers: Size = 2  # blocks
    heads: Size = 4  # attention heads of a block; they divide the width
    feedforward: Size | None = None  # numbers inside a block; null is four times the width
    dropout: Annotated[float, Ge(0), Lt(1)] = 0.0  # share dropped wherever the architecture drops some
    # More of the config of its architecture, by the names it has there.
    options: dict[str, bool | int | float | str] = field(default_factory=dict)
    pretrained: str | None = None  # saved weights, a folder or a name of the hub, which decide all the above


def check(config: Transformers, facts: Facts) -> Iterable[Problem]:
    """What can be seen without transformers, whose import takes seconds."""
    if facts.spec is not None and len(facts.spec.inputs) != 1:
        yield Problem(f"it reads one sequence, and the data gives {facts.spec}")
    if config.pretrained is None:
        if config.width % config.heads:
            fitting = [str(n) for n in range(1, config.width + 1) if config.width % n == 0]
            yield Problem(
                f"{config.heads} heads do not divide a width of {config.width}",
                "heads",
                expected=f"one of {', '.join(fitting)}",
            )
        return
    plain = Transformers(pretrained=config.pretrained)
    given = [f.name for f in fields(config) if getattr(config, f.name) != getattr(plain, f.name)]
    if given:
        yield Problem(
            f"saved weights come with their own {', '.join(given)}",
            "pretrained",
            hint=f"leave {' and '.join(given)} out, or train from the start without pretrained",
        )
    if config.pretrained.startswith((".", "/", "~")) and not os.path.isdir(_path(config.pretrained)):
        yield Problem(
            f"there is no folder {config.pretrained!r}",
            "pretrained",
            expected="a folder that save_pretrained wrote, or a name of the hub",
        )


def _path(name: str) -> str:
    return os.path.expanduser(name)


def build(config: Transformers, context: Context) -> nn.Module:
    from .network import Classifier, load_network, make_network

    (symbols,) = context.spec.inputs
    if not isinstance(symbols, Tokens) or symbols.vocab is None or symbols.length is None:
        raise PegboardError(f"transformers reads sequences of symbols of a known number, not {symbols}")
    if context.outputs is None:
        raise PegboardError(f"transformers does not know how many numbers to give: {context.spec}")
    if config.pretrained is None:
        network, padding = make_network(config, symbols, context.outputs)
    else:
        path, meta = _path(config.pretrained), context.device == "meta"
        network, padding = load_network(path, symbols, context.outputs, meta=meta)
    return Classifier(network, padding, context.outputs)


WAITING = "some architectures look at numbers in every step, most often at their attention mask"


@hookimpl
def pegboard_models() -> list[Model[Transformers]]:
    return [
        Model(
            name,
            Transformers,
            build,
            check=check,
            inputs=(Tokens,),
            targets=(Classes,),
            pegs=("embedding", "hidden", "logits"),
            synchronizes=why,
            trial=lambda folder: {"width": 8, "layers": 1, "heads": 2},
        )
        for name, why in (("transformers", ""), ("transformers_waiting", WAITING))
    ]
