"""Transformers: encoder, language model, translation, BERT, vision transformer. No torch at import."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pegboard import (
    Classes,
    Context,
    Image,
    Labels,
    Model,
    ObjectivePart,
    PegboardError,
    Series,
    Site,
    Spec,
    Tokens,
    Values,
    hookimpl,
)

from .bert_options import BERT, Bert
from .checks import check_decoder, check_encoder, check_translation, check_vit
from .configs import Decoder, Encoder, Translation, Vit
from .objective_options import objective_parts
from .specs import Masked, Span

if TYPE_CHECKING:
    from torch import nn

    from .blocks import Form

__all__ = ["Bert", "Decoder", "Encoder", "Masked", "Span", "Translation", "Vit"]


def form_of(config: Any) -> Form:
    """The form of the blocks that a config asks for."""
    from .blocks import Form

    return Form(
        width=config.width,
        heads=config.heads,
        feed=config.feed or 4 * config.width,
        activation=config.activation,
        norm=config.norm,
        eps=config.eps,
        bias=config.bias,
        qkv_bias=config.bias,
    )


def sizes(model: str, spec: Spec) -> list[int]:
    """The sizes of an input, which must be known by now."""
    names = {
        Tokens: ("vocab", "length"),
        Series: ("length", "features"),
        Image: ("channels", "height", "width"),
    }
    wanted = next((of for kind, of in names.items() if isinstance(spec, kind)), None)
    found = [] if wanted is None else [getattr(spec, name) for name in wanted]
    if wanted is None or None in found:
        raise PegboardError(
            f"{model} cannot be built for {spec}: it must know all sizes of what it reads.\n"
            "The data set must state its sizes, or be read before the model is built."
        )
    return found


def outputs_of(model: str, context: Context) -> int:
    """How many numbers a sample, or a step of it, is answered by."""
    target = context.spec.target
    count = target.features if isinstance(target, Series) else context.outputs
    if count is None:
        raise PegboardError(
            f"{model} needs to know how many numbers to predict, and neither the objective nor the target "
            f"({target or 'nothing'}) says it.\n"
            "Name an objective that fits the data, or a data set whose target has a known size."
        )
    return count


def build_encoder(config: Encoder, context: Context) -> nn.Module:
    from .encoder import Encoder as Module

    read = context.spec.inputs[0]
    found = sizes("encoder", read)
    series = isinstance(read, Series)
    vocab, length, features = (None, *found) if series else (*found, None)
    assert length is not None
    return Module(
        vocab,
        length,
        outputs_of("encoder", context),
        config.layers,
        form_of(config),
        features=features,
        padding=read.padding if isinstance(read, Tokens) else -1,
        padded=read.padded if isinstance(read, Series) else False,
        positions=config.positions,
        pool=config.pool,
        steps=isinstance(context.spec.target, (Tokens, Series)),
    )


def build_decoder(config: Decoder, context: Context) -> nn.Module:
    from .decoder import Decoder as Module

    read = context.spec.inputs[0]
    vocab, length = sizes("decoder", read)
    assert isinstance(read, Tokens)
    return Module(
        vocab,
        length,
        config.layers,
        form_of(config),
        positions=config.positions,
        tied=config.tied,
        padding=read.padding,
        end=read.end,
    )


def build_translation(config: Translation, context: Context) -> nn.Module:
    from .translation import Translation as Module

    source, shifted = context.spec.inputs
    (read, places), (written, length) = sizes("translation", source), sizes("translation", shifted)
    assert isinstance(source, Tokens) and isinstance(shifted, Tokens)
    target = context.spec.target
    return Module(
        (read, places, source.padding),
        (written, length, shifted.padding),
        config.layers,
        config.decoder_layers or config.layers,
        form_of(config),
        begin=shifted.begin,
        end=target.end if isinstance(target, Tokens) and target.end >= 0 else shifted.end,
        positions=config.positions,
        shared=config.shared,
        tied=config.tied,
    )


def build_vit(config: Vit, context: Context) -> nn.Module:
    from .encoder import Vit as Module

    channels, height, width = sizes("vit", context.spec.inputs[0])
    return Module(
        channels,
        height,
        width,
        outputs_of("vit", context),
        config.patch,
        config.layers,
        form_of(config),
        positions=config.positions,
        pool=config.pool,
    )


SMALL = {"layers": 1, "width": 8, "heads": 2}  # what the parts are tried with


@hookimpl
def pegboard_models() -> list[Model[Any]]:
    text: tuple[Site, ...] = ("embedding", "attention", "affine", "hidden", "residual", "pooled", "logits")
    whole = (Classes, Labels, Values)
    return [
        Model(
            "encoder",
            Encoder,
            build_encoder,
            check=check_encoder,
            inputs=(Tokens, Series),
            targets=(*whole, Tokens, Series),
            pegs=("input", *text),
            trial=lambda folder: SMALL,
        ),
        Model(
            "decoder",
            Decoder,
            build_decoder,
            check=check_decoder,
            inputs=(Tokens,),
            targets=(Tokens,),
            pegs=text,
            generates=True,
            trial=lambda folder: SMALL,
        ),
        Model(
            "translation",
            Translation,
            build_translation,
            check=check_translation,
            inputs=(Tokens,),
            targets=(Tokens,),
            pegs=text,
            generates=True,
            trial=lambda folder: SMALL,
        ),
        Model(
            "vit",
            Vit,
            build_vit,
            check=check_vit,
            inputs=(Image,),
            targets=whole,
            pegs=("input", *text),
            trial=lambda folder: SMALL,
        ),
        BERT,
    ]


@hookimpl
def pegboard_objectives() -> list[ObjectivePart[Any]]:
    return objective_parts()
