"""Variational autoencoders as ordinary modules."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from .functional import (
    bernoulli_log_likelihood,
    gaussian_log_likelihood,
    reparametrize,
    standard_log_density,
    wide,
)
from .nets import decoder, encoder

FAR = 15.0  # log-variances beyond which numbers overflow


class Bounded(NamedTuple):
    """What the bound on the log-likelihood of samples is made of."""

    log_likelihood: Tensor  # of each sample given a drawn code, (batch,)
    mean: Tensor  # of the code, (batch, latent)
    log_variance: Tensor  # of the code, (batch, latent)


class Vae(nn.Module):
    """Encoder of normal codes, and a decoder of the numbers of a sample, each Bernoulli or Gaussian.

    Further arguments are the fields of the config `Vae`.
    """

    def __init__(
        self,
        shape: Sequence[int],
        latent: int = 20,
        form: str = "dense",
        hidden: Sequence[int] = (256,),
        channels: Sequence[int] = (32, 64),
        activation: str = "relu",
        decoder: str = "gaussian",
        deviation: float = 1.0,
        learn_deviation: bool = False,
    ) -> None:
        super().__init__()
        self.latents, self.bernoulli = latent, decoder == "bernoulli"
        self.encoder = encoder(form, shape, hidden, channels, 2 * latent, activation)
        self.decoder = _decoder(form, latent, hidden, channels, shape, activation)
        log_deviation = torch.tensor(math.log(deviation))
        if learn_deviation and not self.bernoulli:
            self.log_deviation = nn.Parameter(log_deviation)
        else:
            self.register_buffer("log_deviation", log_deviation)

    def posterior(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log-variance of the code of each sample."""
        mean, log_variance = wide(self.encoder(x)).chunk(2, 1)
        return mean, log_variance.clamp(-FAR, FAR)

    def forward(self, x: Tensor) -> Bounded:
        mean, log_variance = self.posterior(x)
        code = reparametrize(mean, log_variance)
        return Bounded(self.log_likelihood(x, code), mean, log_variance)

    def log_likelihood(self, x: Tensor, code: Tensor) -> Tensor:
        """log p(x | code) of each sample: (batch,)."""
        made = self.decoder(code)
        if self.bernoulli:
            return bernoulli_log_likelihood(made, x)
        return gaussian_log_likelihood(made, x, self.log_deviation)

    def importance_weighted(self, x: Tensor, draws: int, generator: torch.Generator | None = None) -> Tensor:
        """log mean p(x, code) / q(code | x) over so many draws, for each sample: (batch,)."""
        mean, log_variance = self.posterior(x)
        found = []
        for _ in range(draws):
            code = reparametrize(mean, log_variance, generator)
            drawn = standard_log_density((code - mean) * (-0.5 * log_variance).exp())
            density = drawn - 0.5 * log_variance.sum(1)
            found.append(self.log_likelihood(x, code) + standard_log_density(code) - density)
        return torch.logsumexp(torch.stack(found), 0) - math.log(draws)

    def encode(self, x: Tensor) -> Tensor:
        """The mean of each code."""
        return self.posterior(x)[0]

    def decode(self, code: Tensor) -> Tensor:
        """The mean of the sample that a code stands for."""
        made: Tensor = self.decoder(code)
        return made.sigmoid() if self.bernoulli else made

    def latent(self, count: int, generator: torch.Generator | None = None) -> Tensor:
        """Codes of the prior."""
        return torch.randn(count, self.latents, generator=generator, device=self.log_deviation.device)

    def sample(self, count: int, generator: torch.Generator | None = None) -> Tensor:
        """Means of new samples."""
        return self.decode(self.latent(count, generator))


_decoder = decoder
