"""Configs of the parts. No torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pegboard import Ge, Gt, Le, Length, Lt

Activation = Literal["elu", "gelu", "leaky_relu", "relu", "sigmoid", "silu", "softplus", "tanh"]
Size = Annotated[int, Ge(1)]
Sizes = tuple[Size, ...]
Form = Literal["dense", "convolutional"]
Share = Annotated[float, Ge(0), Lt(1)]
Amount = Annotated[float, Ge(0)]


@dataclass(frozen=True)
class Pca:
    """Linear autoencoder, whose codes span the principal components of the data."""

    latent: Size = 2  # numbers of a code


@dataclass(frozen=True)
class Autoencoder:
    """A network to a short code and one back, trained to give what they read."""

    latent: Size = 8  # numbers of a code
    form: Form = "dense"  # layers of both networks; convolutions that halve pictures, and double them again
    hidden: Sizes = (128,)  # dense: widths of the encoder's layers; the decoder has them in reverse
    channels: Annotated[Sizes, Length(1)] = (16, 32)  # convolutional: of each layer of the encoder
    activation: Activation = "relu"  # nonlinearity after every hidden layer
    loss: Literal["squared", "bernoulli"] = "squared"  # of a number; bernoulli: cross entropy from 0 to 1
    corruption: Literal["mask", "noise"] = "mask"  # zeros in random places, or normal numbers that are added
    corrupt: Amount = 0.0  # share of the places, or deviation of the noise, in training alone; 0 is none


@dataclass(frozen=True)
class Vae:
    """Variational autoencoder: codes are normal distributions, close to one that new samples come from."""

    latent: Size = 20  # numbers of a code
    form: Form = "dense"  # layers of both networks; convolutions that halve pictures, and double them again
    hidden: Sizes = (256,)  # dense: widths of the encoder's layers; the decoder has them in reverse
    channels: Annotated[Sizes, Length(1)] = (32, 64)  # convolutional: of each layer of the encoder
    activation: Activation = "relu"  # nonlinearity after every hidden layer
    decoder: Literal["bernoulli", "gaussian"] = "gaussian"  # of a number, given the code; bernoulli: 0 to 1
    deviation: Annotated[float, Gt(0)] = 1.0  # gaussian: standard deviation of a number around its mean
    learn_deviation: bool = False  # gaussian: train it too, one for all numbers


@dataclass(frozen=True)
class Gan:
    """Two networks: a generator of samples, and a discriminator that tells them from those of the data."""

    latent: Size = 32  # numbers that a sample is made of
    form: Form = "dense"  # layers of both networks; convolutional ones are those of DCGAN, for pictures
    hidden: Sizes = (128, 128)  # dense: widths of the layers of each network
    channels: Annotated[Sizes, Length(1)] = (32, 64)  # convolutional: of each layer of the discriminator
    activation: Activation = "relu"  # of the generator
    slope: Annotated[float, Ge(0), Lt(1)] = 0.2  # of the discriminator's leaky relu below 0
    output: Literal["linear", "sigmoid", "tanh"] = "linear"  # what bounds the numbers of a sample
    norm: Literal["batch", "none"] = "none"  # in the generator, after every layer but the last


@dataclass(frozen=True)
class Flow:
    """Invertible layers between samples and normal numbers, with the exact likelihood of every sample."""

    layers: Annotated[int, Ge(2)] = 8  # couplings; each changes half of the numbers by the other half
    hidden: Annotated[Sizes, Length(1)] = (64, 64)  # widths of the network in each coupling
    activation: Activation = "relu"  # nonlinearity after every hidden layer
    coupling: Literal["affine", "spline"] = "affine"  # what a number goes through
    bins: Annotated[int, Ge(2), Le(500)] = 8  # spline: pieces
    bound: Annotated[float, Gt(0)] = 4.0  # spline: beyond it numbers stay as they are


@dataclass(frozen=True)
class Diffusion:
    """A network that takes noise away, step by step, until a sample is left."""

    steps: Annotated[int, Ge(2), Le(10_000)] = 1000  # from a sample to noise
    schedule: Literal["linear", "cosine"] = "linear"  # how the noise grows
    width: Size = 32  # channels of the first level, or units of a dense layer for vectors
    levels: Annotated[Sizes, Length(1)] = (1, 2)  # channels of each level, in widths; each halves the picture
    blocks: Size = 1  # residual blocks of a level, or dense layers for vectors
    sample_steps: Size = 50  # steps of sampling, spread over all
    eta: Annotated[float, Ge(0), Le(1)] = 0.0  # noise in sampling: 0 is DDIM, 1 is DDPM


@dataclass(frozen=True)
class Hopfield:
    """Memory of patterns, recalled by letting an energy fall; one gradient step stores them."""

    # pairs of neurons (Hopfield); powers of the overlap with a pattern; its softmax, which is attention
    kind: Literal["binary", "dense", "continuous"] = "binary"
    power: Annotated[int, Ge(2)] = 3  # dense: of the overlap
    beta: Annotated[float, Gt(0)] = 1.0  # continuous: sharpness of the softmax
    slots: Size = 100  # dense, continuous: patterns there is room for, one for each training sample
    sweeps: Size = 20  # most rounds over all neurons, or updates of the whole state where continuous


@dataclass(frozen=True)
class Reconstruction:
    """How far what an autoencoder gives is from what it read, with penalties on its codes."""

    contractive: Amount = 0.0  # strength of the squared derivatives of the code by the input
    sparse: Amount = 0.0  # strength of the absolute numbers of the code


@dataclass(frozen=True)
class Elbo:
    """The bound on the log-likelihood that a variational autoencoder climbs, negated."""

    beta: Amount = 1.0  # factor of the divergence of codes from the prior
    free_bits: Amount = 0.0  # nats of divergence that each number of a code has for nothing


@dataclass(frozen=True)
class Adversarial:
    """The game of a generator and a discriminator, each with a loss of its own."""

    variant: Literal["non_saturating", "minimax", "wasserstein", "hinge"] = "non_saturating"  # both losses
    penalty: Amount | None = None  # on the discriminator's gradient; null: 10 for wasserstein, else 0
    steps: Size = 1  # updates of the discriminator for each of the generator


@dataclass(frozen=True)
class Likelihood:
    """The exact log-likelihood of samples, negated."""

    levels: Annotated[int, Ge(2)] | None = None  # values of a pixel from 0 to 1; noise spreads each evenly


@dataclass(frozen=True)
class Denoising:
    """How far the noise that a diffusion model finds in a sample is from the noise that was put there."""

    draws: Size = 1  # times and noises of a sample in an evaluation


@dataclass(frozen=True)
class Energy:
    """The energy of patterns; the first step of descent on it stores them."""

    flips: Annotated[float, Ge(0), Le(0.5)] = 0.1  # share of a pattern that is changed before it is recalled


@dataclass(frozen=True)
class PrincipalComponents:
    """Reference: the best linear autoencoder, from the eigenvectors of the covariance."""


@dataclass(frozen=True)
class ImportanceWeighted:
    """Log-likelihood of a variational autoencoder by importance weights, a closer bound than the elbo."""

    draws: Size = 100  # codes for each sample
    samples: Size = 1000  # first samples of the test split that are measured


@dataclass(frozen=True)
class Modes:
    """Which clouds of a mixture, or which classes of data, samples of the model reach, and how evenly."""

    samples: Size = 2500  # that are generated
    within: Annotated[float, Gt(0)] = 4.0  # deviations from a centre, in the plane, within which one counts


@dataclass(frozen=True)
class Entropy:
    """How far a model's log-likelihood is from that of the true density of a mixture in the plane."""


@dataclass(frozen=True)
class Frechet:
    """Distance of samples from the data by the features of a trained classifier, and its classes of them."""

    classifier: str = ""  # a run folder, a checkpoint folder or zoo:name, trained on the same inputs
    samples: Annotated[int, Ge(2)] = 5000  # that are generated, and taken from the data


@dataclass(frozen=True)
class Capacity:
    """Crosstalk of the patterns in a memory, which of them are stable, and how well they are recalled."""

    flips: Annotated[float, Ge(0), Le(0.5)] = 0.0  # share of a pattern that is changed first
    patterns: Size = 100  # first training patterns that are recalled
