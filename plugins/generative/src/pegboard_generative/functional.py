"""What generative models are measured by, as functions of tensors."""

from __future__ import annotations

import math
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

LOG_2_PI = math.log(2 * math.pi)


def wide(x: Tensor) -> Tensor:
    """The same numbers with at least single precision, which sums over many of them need."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def mean_of(each: Tensor, weight: Tensor | None = None) -> Tensor:
    """The mean of numbers (batch,), by the weight of each sample where there is one; 0 where none counts."""
    if weight is None:
        return each.mean()
    return (each * weight).sum() / weight.sum().clamp(min=torch.finfo(weight.dtype).tiny)


def gaussian_kl(mean: Tensor, log_variance: Tensor) -> Tensor:
    """KL(N(mean, exp(log_variance)) || N(0, 1)) of every number."""
    return 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance)


def reparametrize(mean: Tensor, log_variance: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """A draw of N(mean, exp(log_variance)) that gradients go through."""
    if generator is None:
        noise = torch.randn_like(mean)
    else:
        noise = torch.randn(mean.shape, generator=generator, device=mean.device, dtype=mean.dtype)
    return mean + (0.5 * log_variance).exp() * noise


class Coder(Protocol):
    """What has codes of samples, and samples of codes: `autoencoder`, `vae`, `pca`, `flow`."""

    def encode(self, x: Tensor) -> Tensor: ...
    def decode(self, code: Tensor) -> Tensor: ...


def interpolate(model: Coder, first: Tensor, second: Tensor, count: int = 9) -> Tensor:
    """What codes decode to on the straight line from that of each first sample to its second's.

    (count, batch, ...); the ends are what the two decode to themselves.
    """
    begin, end = model.encode(first), model.encode(second)
    shares = torch.linspace(0, 1, count, device=begin.device, dtype=begin.dtype).tolist()
    return torch.stack([model.decode(torch.lerp(begin, end, share)) for share in shares])


def bernoulli_log_likelihood(logits: Tensor, x: Tensor) -> Tensor:
    """log p(x) of numbers from 0 to 1 (batch, ...), each a share of ones: (batch,)."""
    each = functional.binary_cross_entropy_with_logits(wide(logits), wide(x), reduction="none")
    return -each.flatten(1).sum(1)


def gaussian_log_likelihood(mean: Tensor, x: Tensor, log_deviation: Tensor | float) -> Tensor:
    """log N(x; mean, deviation^2) of samples (batch, ...): (batch,)."""
    log_deviation = torch.as_tensor(log_deviation)
    scaled = (wide(x) - wide(mean)) * (-log_deviation).exp()
    each = -0.5 * scaled.square() - log_deviation - 0.5 * LOG_2_PI
    return each.flatten(1).sum(1)


def standard_log_density(z: Tensor) -> Tensor:
    """log N(z; 0, 1) of codes (..., latent): (...)."""
    return -0.5 * (z.square() + LOG_2_PI).sum(-1)


def mixture_log_density(x: Tensor, centres: Tensor, deviation: float) -> Tensor:
    """log density of points (batch, d) under equal Gaussians around centres (modes, d): (batch,)."""
    square = (x.unsqueeze(1) - centres).square().sum(-1) / deviation**2
    normal = -0.5 * (square + x.shape[1] * (LOG_2_PI + 2 * math.log(deviation)))
    return torch.logsumexp(normal, 1) - math.log(len(centres))


def bits_per_dimension(nats: Tensor, dimensions: int) -> Tensor:
    """Nats of a sample as bits of each of its numbers."""
    return nats / (dimensions * math.log(2))


def energy_distance(x: Tensor, y: Tensor) -> Tensor:
    """2 E|X - Y| - E|X - X'| - E|Y - Y'| of two sets of samples (count, ...); 0 where they are alike."""
    x, y = wide(x.flatten(1)), wide(y.flatten(1))
    within = [torch.cdist(s, s).sum() / max(len(s) * (len(s) - 1), 1) for s in (x, y)]
    return 2 * torch.cdist(x, y).mean() - within[0] - within[1]


def frechet_distance(x: Tensor, y: Tensor) -> Tensor:
    """Between normal distributions with the mean and covariance of two sets of features (count, d).

    |m - n|^2 + tr(C + D - 2 (C^1/2 D C^1/2)^1/2), in double precision.
    """
    (m, c), (n, d) = ((s.mean(0), torch.cov(s.T).reshape(s.shape[1], -1)) for s in (x.double(), y.double()))
    root = _root(c)
    cross = torch.linalg.eigvalsh(root @ d @ root).clamp(min=0).sqrt().sum()
    found: Tensor = (m - n).square().sum() + c.trace() + d.trace() - 2 * cross
    return found


def _root(matrix: Tensor) -> Tensor:
    values, vectors = torch.linalg.eigh(matrix)
    root: Tensor = (vectors * values.clamp(min=0).sqrt()) @ vectors.T
    return root


def jensen_shannon(p: Tensor, q: Tensor) -> Tensor:
    """Divergence of two discrete distributions: between 0 and log 2, the same both ways."""
    middle = (p + q) / 2
    return 0.5 * (torch.xlogy(p, p / middle) + torch.xlogy(q, q / middle)).sum()


def discriminator_loss(
    real: Tensor, fake: Tensor, variant: str, label: Tensor | None = None, weight: Tensor | None = None
) -> Tensor:
    """What the discriminator loses on scores (batch,) of samples of the data and of the generator.

    `label` (batch,) is what it is told that samples of the data are, 1 without; of other variants unused.
    `weight` (batch,) weighs samples of the data.
    """
    if variant == "wasserstein":
        return fake.mean() - mean_of(real, weight)
    if variant == "hinge":
        return mean_of(functional.relu(1 - real), weight) + functional.relu(1 + fake).mean()
    label = torch.ones_like(real) if label is None else label
    told = functional.binary_cross_entropy_with_logits
    if weight is None:
        return told(real, label) + functional.softplus(fake).mean()
    return mean_of(told(real, label, reduction="none"), weight) + functional.softplus(fake).mean()


def generator_loss(fake: Tensor, variant: str) -> Tensor:
    """What the generator loses on the scores (batch,) that its samples get."""
    if variant in ("wasserstein", "hinge"):
        return -fake.mean()
    if variant == "minimax":
        return -functional.softplus(fake).mean()  # log(1 - D)
    return functional.softplus(-fake).mean()
