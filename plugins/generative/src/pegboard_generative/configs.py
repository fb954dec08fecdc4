"""Configs of the parts. No torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pegboard import Ge, Gt, Le, Length, Lt, SavedModel

Activation = Literal["elu", "gelu", "leaky_relu", "relu", "sigmoid", "silu", "softplus", "tanh"]
Size = Annotated[int, Ge(1)]
Sizes = tuple[Size, ...]
Form = Literal["dense", "convolutional"]
Share = Annotated[float, Ge(0), Lt(1)]
Amount = Annotated[float, Ge(0)]


@dataclass(frozen=True)
class Pca:
    """Principal component analysis (PCA) as a linear autoencoder."""

    latent: Size = 2  # numbers of a code


@dataclass(frozen=True)
class Autoencoder:
    """Autoencoder: an encoder to a short code and a decoder back, trained to reconstruct the input."""

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
    """Variational autoencoder (VAE): codes are normal distributions, close to the prior of new samples."""

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
    """Generative adversarial network (GAN): a generator, and a discriminator of its samples from the data."""

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
    """Normalizing flow: invertible layers between samples and normal noise, with exact likelihood."""

    layers: Annotated[int, Ge(2)] = 8  # couplings; each changes half of the numbers by the other half
    hidden: Annotated[Sizes, Length(1)] = (64, 64)  # widths of the network in each coupling
    activation: Activation = "relu"  # nonlinearity after every hidden layer
    coupling: Literal["affine", "spline"] = "affine"  # what a number goes through
    bins: Annotated[int, Ge(2), Le(500)] = 8  # spline: pieces
    bound: Annotated[float, Gt(0)] = 4.0  # spline: beyond it numbers stay as they are


@dataclass(frozen=True)
class Diffusion:
    """Denoising diffusion (DDPM, DDIM sampling) with a small U-Net, or a dense network for vectors."""

    steps: Annotated[int, Ge(2), Le(10_000)] = 1000  # from a sample to noise
    schedule: Literal["linear", "cosine"] = "linear"  # how the noise grows
    width: Size = 32  # channels of the first level, or units of a dense layer for vectors
    levels: Annotated[Sizes, Length(1)] = (1, 2)  # channels of each level, in widths; each halves the picture
    blocks: Size = 1  # residual blocks of a level, or dense layers for vectors
    sample_steps: Size = 50  # steps of sampling, spread over all
    eta: Annotated[float, Ge(0), Le(1)] = 0.0  # noise in sampling: 0 is DDIM, 1 is DDPM


@dataclass(frozen=True)
class Hopfield:
    """Hopfield network: an associative memory of patterns, recalled by descending an energy."""

    # pairs of neurons (Hopfield); powers of the overlap with a pattern; its softmax, which is attention
    kind: Literal["binary", "dense", "continuous"] = "binary"
    power: Annotated[int, Ge(2)] = 3  # dense: of the overlap
    beta: Annotated[float, Gt(0)] = 1.0  # continuous: sharpness of the softmax
    slots: Size = 100  # dense, continuous: patterns there is room for, one for each training sample
    sweeps: Size = 20  # most rounds over all neurons, or updates of the whole state where continuous


@dataclass(frozen=True)
class Reconstruction:
    """Reconstruction loss of an autoencoder, with penalties on its codes."""

    contractive: Amount = 0.0  # strength of the squared derivatives of the code by the input
    sparse: Amount = 0.0  # strength of the absolute numbers of the code


@dataclass(frozen=True)
class Elbo:
    """Negative ELBO: the evidence lower bound of a variational autoencoder, to be minimised."""

    beta: Amount = 1.0  # factor of the divergence of codes from the prior
    likelihood: Amount = 1.0  # factor of the log-likelihood; 0 leaves the divergence alone
    free_bits: Amount = 0.0  # nats of divergence that each number of a code has for nothing


@dataclass(frozen=True)
class Adversarial:
    """Adversarial loss of a GAN: one for the generator and one for the discriminator."""

    variant: Literal["non_saturating", "minimax", "wasserstein", "hinge"] = "non_saturating"  # both losses
    penalty: Amount | None = None  # on the discriminator's gradient; null: 10 for wasserstein, else 0
    steps: Size = 1  # updates of the discriminator for each of the generator


@dataclass(frozen=True)
class Likelihood:
    """Negative log-likelihood (NLL) of samples, exact."""

    levels: Annotated[int, Ge(2)] | None = None  # values of a pixel from 0 to 1; noise spreads each evenly


@dataclass(frozen=True)
class Denoising:
    """Denoising loss of a diffusion model: squared error of the predicted noise."""

    draws: Size = 1  # times and noises of a sample in an evaluation


@dataclass(frozen=True)
class Energy:
    """Hopfield energy of the patterns, whose first gradient step stores them."""

    flips: Annotated[float, Ge(0), Le(0.5)] = 0.1  # share of a pattern that is changed before it is recalled


@dataclass(frozen=True)
class PrincipalComponents:
    """PCA reference: the best linear autoencoder, from the eigenvectors of the covariance."""

    method: Literal["eigenvectors", "deflation"] = (
        "eigenvectors"  # all at once, or by power iteration, in turn
    )


@dataclass(frozen=True)
class ImportanceWeighted:
    """Importance-weighted log-likelihood (IWAE) of a VAE, a closer bound than the ELBO."""

    draws: Size = 100  # codes for each sample
    samples: Size = 1000  # first samples of the test split that are measured


@dataclass(frozen=True)
class LatentCodes:
    """Latent codes: numbers in use (posterior collapse), classes by nearest codes, mutual information gap."""

    split: Literal["train", "val", "test"] = "test"  # whose codes are read
    samples: Annotated[int, Ge(2)] = 2000  # first samples of the split, and of the training split
    neighbours: Size = 9  # nearest codes of the training split that vote for the class of a sample
    bins: Annotated[int, Ge(2)] = 20  # of each number of a code, for its mutual information with the target


@dataclass(frozen=True)
class Modes:
    """Mode coverage: which components of a mixture, or classes, samples reach, and how evenly."""

    samples: Size = 2500  # that are generated
    within: Annotated[float, Gt(0)] = 4.0  # deviations from a centre, in the plane, within which one counts


@dataclass(frozen=True)
class Entropy:
    """Entropy gap: a model's log-likelihood beside that of the true density of a mixture in the plane."""


@dataclass(frozen=True)
class Frechet:
    """Fréchet distance of samples from the data by a classifier's features, and their classes."""

    classifier: Annotated[str, SavedModel()] = (
        ""  # a run folder, a checkpoint folder or zoo:name, trained on the same inputs
    )
    samples: Annotated[int, Ge(2)] = 5000  # that are generated, and taken from the data


@dataclass(frozen=True)
class Capacity:
    """Capacity of a Hopfield memory: crosstalk, stable patterns, and how well they are recalled."""

    flips: Annotated[float, Ge(0), Le(0.5)] = 0.0  # share of a pattern that is changed first
    patterns: Size = 100  # first training patterns that are recalled
