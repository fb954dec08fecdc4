"""k-means as an autoencoder: the code of a sample is which centre is nearest."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from .autoencoder import Coded, squared_error


class KMeans(nn.Module):
    """Centres for samples of any shape, trained by the squared distance to the nearest.

    The first training batch puts them far apart: each is the sample that is farthest from those before. Full
    batches and a rate of size / 2 move a centre towards the mean of its samples, by their share of all.
    """

    begun: Tensor
    counts: Tensor

    def __init__(self, shape: Sequence[int], clusters: int) -> None:
        super().__init__()
        self.shape = tuple(shape)
        self.centres = nn.Parameter(torch.randn(clusters, math.prod(shape)))
        self.register_buffer("begun", torch.zeros((), dtype=torch.bool))
        self.register_buffer("counts", torch.ones(clusters))  # samples of the last training batch

    def encode(self, x: Tensor) -> Tensor:
        """A one in the place of the nearest centre: (batch, clusters)."""
        nearest = torch.cdist(x.flatten(1), self.centres).argmin(1, keepdim=True)
        return (nearest == torch.arange(len(self.centres), device=x.device)).to(x.dtype)

    def decode(self, code: Tensor) -> Tensor:
        return (code @ self.centres).unflatten(1, self.shape)

    def forward(self, x: Tensor) -> Coded:
        if self.training:
            self._begin(x)
        code = self.encode(x)
        if self.training:
            self.counts.copy_(code.detach().sum(0))
        return Coded(squared_error(self.decode(code), x), code)

    @torch.no_grad()
    def _begin(self, x: Tensor) -> None:
        rows = x.detach().flatten(1)
        spread = [rows[0]]
        away = torch.full((len(rows),), math.inf, device=x.device)
        for _ in range(len(self.centres) - 1):
            away = torch.minimum(away, (rows - spread[-1]).square().sum(1))
            spread.append(rows.index_select(0, away.argmax().unsqueeze(0))[0])
        self.centres.copy_(torch.where(self.begun, self.centres, torch.stack(spread)))
        self.begun.fill_(True)

    def sample(self, count: int, generator: torch.Generator | None = None) -> Tensor:
        """Centres, drawn as often as they are the nearest."""
        drawn = torch.multinomial(self.counts + 1e-9, count, True, generator=generator)
        return self.centres[drawn].unflatten(1, self.shape)
