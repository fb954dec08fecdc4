"""Autoencoders as ordinary modules: linear, dense and convolutional."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from .functional import bernoulli_log_likelihood, wide
from .nets import decoder, encoder

KEPT = 0.99  # share of the statistics of codes that a training batch keeps


class Coded(NamedTuple):
    """What an autoencoder gives."""

    error: Tensor  # mean over the numbers of each sample: (batch,)
    code: Tensor  # (batch, latent)


class Codes(nn.Module):
    """Mean and covariance of codes in training, by which new ones are drawn."""

    mean: Tensor
    covariance: Tensor
    weight: Tensor

    def __init__(self, latent: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(latent))
        self.register_buffer("covariance", torch.zeros(latent, latent))
        self.register_buffer("weight", torch.zeros(()))  # what the averages hold of any batch

    def add(self, code: Tensor) -> None:
        """Take the codes of a training batch into the averages."""
        with torch.no_grad():
            code = code.detach().to(self.mean.dtype)
            centred = code - code.mean(0)
            spread = (centred.T @ centred).to(self.mean.dtype) / max(len(code) - 1, 1)
            self.mean.lerp_(code.mean(0), 1 - KEPT)
            self.covariance.lerp_(spread, 1 - KEPT)
            self.weight.lerp_(torch.ones_like(self.weight), 1 - KEPT)

    def spread(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of every number of a code: (latent,)."""
        held = self.weight.clamp(min=1e-12)
        return self.mean / held, (self.covariance.diagonal() / held).clamp(min=0).sqrt()

    def draw(self, count: int, generator: torch.Generator | None = None) -> Tensor:
        """New codes (count, latent)."""
        held = self.weight.clamp(min=1e-12)
        values, vectors = torch.linalg.eigh(self.covariance / held)
        noise = torch.randn(count, len(values), generator=generator, device=self.mean.device).to(values)
        drawn: Tensor = self.mean / held + (noise * values.clamp(min=0).sqrt()) @ vectors.T
        return drawn


class Pca(nn.Module):
    """x -> (x - mean) W -> mean + code V, for samples of any shape.

    At the least squared error the rows of V span the first principal components of the data.
    """

    def __init__(self, shape: Sequence[int], latent: int) -> None:
        super().__init__()
        self.shape, size = tuple(shape), math.prod(shape)
        self.mean = nn.Parameter(torch.zeros(size))
        self.encoder = nn.Linear(size, latent, bias=False)
        self.decoder = nn.Linear(latent, size, bias=False)
        nn.init.orthogonal_(self.encoder.weight)
        with torch.no_grad():
            self.decoder.weight.copy_(self.encoder.weight.T)
        self.codes = Codes(latent)

    def encode(self, x: Tensor) -> Tensor:
        code: Tensor = self.encoder(x.flatten(1) - self.mean)
        return code

    def decode(self, code: Tensor) -> Tensor:
        made: Tensor = self.decoder(code) + self.mean
        return made.reshape(-1, *self.shape)

    def forward(self, x: Tensor) -> Coded:
        code = self.encode(x)
        if self.training:
            self.codes.add(code)
        return Coded(squared_error(self.decode(code), x), code)

    def spread(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of every number of a code in training."""
        return self.codes.spread()

    def sample(self, count: int, generator: torch.Generator | None = None) -> Tensor:
        """New samples, from normal codes with the covariance that codes had in training."""
        return self.decode(self.codes.draw(count, generator))


class Autoencoder(nn.Module):
    """A network to codes and one back; further arguments are the fields of the config `Autoencoder`."""

    def __init__(
        self,
        shape: Sequence[int],
        latent: int = 8,
        form: str = "dense",
        hidden: Sequence[int] = (128,),
        channels: Sequence[int] = (16, 32),
        activation: str = "relu",
        loss: str = "squared",
        corruption: str = "mask",
        corrupt: float = 0.0,
    ) -> None:
        super().__init__()
        self.corruption, self.corrupt = corruption, corrupt
        self.bernoulli = loss == "bernoulli"
        self.encoder = encoder(form, shape, hidden, channels, latent, activation)
        self.decoder = decoder(form, latent, hidden, channels, shape, activation)
        self.codes = Codes(latent)

    def encode(self, x: Tensor) -> Tensor:
        code: Tensor = self.encoder(x)
        return code

    def decode(self, code: Tensor) -> Tensor:
        made: Tensor = self.decoder(code)
        return made.sigmoid() if self.bernoulli else made

    def forward(self, x: Tensor) -> Coded:
        read = self.corrupted(x) if self.training and self.corrupt else x
        code = self.encode(read)
        if self.training:
            self.codes.add(code)
        made = self.decoder(code)
        if self.bernoulli:
            return Coded(-bernoulli_log_likelihood(made, x) / x[0].numel(), code)
        return Coded(squared_error(made, x), code)

    def corrupted(self, x: Tensor) -> Tensor:
        """Samples with zeros in some places, or with noise."""
        if self.corruption == "noise":
            return x + self.corrupt * torch.randn_like(x)
        return x * (torch.rand_like(x) >= self.corrupt)

    def spread(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of every number of a code in training."""
        return self.codes.spread()

    def sample(self, count: int, generator: torch.Generator | None = None) -> Tensor:
        """New samples, from normal codes with the covariance that codes had in training."""
        return self.decode(self.codes.draw(count, generator))


def squared_error(made: Tensor, x: Tensor) -> Tensor:
    """The mean square of the numbers of each sample: (batch,)."""
    return wide(made - x).square().flatten(1).mean(1)


def jacobian_square(code: Tensor, x: Tensor, create_graph: bool = True) -> Tensor:
    """The sum of squared derivatives of every number of a code by every number of its sample: (batch,)."""
    total = x.new_zeros(len(x))
    for one in code.sum(0):
        (row,) = torch.autograd.grad(one, x, create_graph=create_graph, retain_graph=True)
        total = total + row.flatten(1).square().sum(1)
    return total
