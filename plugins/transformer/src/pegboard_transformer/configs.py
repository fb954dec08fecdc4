"""Configs of the models. No torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pegboard import Ge, Gt

Activation = Literal["relu", "gelu", "gelu_tanh", "silu", "swiglu"]
Norm = Literal["pre", "post"]
Places = Literal["learned", "sinusoidal", "rotary", "none"]
Count = Annotated[int, Ge(1)]


@dataclass(frozen=True)
class Encoder:
    """Transformer encoder: a label for each sequence of tokens or vectors, or for each step of it."""

    layers: Count = 4  # blocks
    width: Count = 128  # features of a place
    heads: Count = 4  # of attention
    feed: Count | None = None  # units of the feed-forward layers; None is four times the width
    activation: Activation = "gelu"  # nonlinearity of the feed-forward layers
    norm: Norm = "pre"  # layer normalisation before each branch, or after its sum
    eps: Annotated[float, Gt(0)] = 1e-5  # added to the variance by the normalisations
    bias: bool = True  # constants in linear maps and normalisations
    positions: Places = "learned"  # how the order of the places is told
    pool: Literal["mean", "token"] = "mean"  # over the places that last, or the place of a class token


@dataclass(frozen=True)
class Decoder:
    """Decoder-only transformer (GPT): a language model that predicts each token from those before it."""

    layers: Count = 4  # blocks
    width: Count = 128  # features of a place
    heads: Count = 4  # of attention
    feed: Count | None = None  # units of the feed-forward layers; None is four times the width
    activation: Activation = "gelu"  # nonlinearity of the feed-forward layers
    norm: Norm = "pre"  # layer normalisation before each branch, or after its sum
    eps: Annotated[float, Gt(0)] = 1e-5  # added to the variance by the normalisations
    bias: bool = True  # constants in linear maps and normalisations
    positions: Places = "learned"  # how the order of the places is told
    tied: bool = True  # the map to symbols has the weights of the embedding


@dataclass(frozen=True)
class Translation:
    """Encoder-decoder transformer: one sequence of tokens to another, as in translation."""

    layers: Count = 3  # blocks of the encoder
    decoder_layers: Count | None = None  # blocks of the decoder; None is as many
    width: Count = 256  # features of a place
    heads: Count = 4  # of attention
    feed: Count | None = None  # units of the feed-forward layers; None is four times the width
    activation: Activation = "relu"  # nonlinearity of the feed-forward layers
    norm: Norm = "pre"  # layer normalisation before each branch, or after its sum
    eps: Annotated[float, Gt(0)] = 1e-5  # added to the variance by the normalisations
    bias: bool = True  # constants in linear maps and normalisations
    positions: Places = "sinusoidal"  # how the order of the places is told
    shared: bool = False  # one embedding for both languages, which have one vocabulary
    tied: bool = True  # the map to symbols has the weights of the target's embedding


@dataclass(frozen=True)
class Vit:
    """Vision transformer (ViT): a transformer encoder on square patches of an image."""

    patch: Count = 4  # side of a patch; it divides height and width
    layers: Count = 6  # blocks
    width: Count = 128  # features of a place
    heads: Count = 4  # of attention
    feed: Count | None = None  # units of the feed-forward layers; None is four times the width
    activation: Activation = "gelu"  # nonlinearity of the feed-forward layers
    norm: Norm = "pre"  # layer normalisation before each branch, or after its sum
    eps: Annotated[float, Gt(0)] = 1e-6  # added to the variance by the normalisations
    bias: bool = True  # constants in linear maps and normalisations
    positions: Places = "learned"  # how the order of the patches is told
    pool: Literal["token", "mean"] = "token"  # the place of a class token, or the mean over patches
