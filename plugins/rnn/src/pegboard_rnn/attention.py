"""Additive attention: where in a sequence to look, by a small network of who asks and of each place."""

from __future__ import annotations

import math

import torch
from pegboard import Peg
from torch import Tensor, nn

_NOWHERE = torch.finfo(torch.float32).min  # a score whose weight is exactly 0


class Additive(nn.Module):
    """Weights softmax_j(v . tanh(W z_i + U m_j)) of the places m_j for each query z_i, and their mean.

    `queries` and `places` are how many features both have, `units` those of the network between them.
    """

    def __init__(self, queries: int, places: int, units: int) -> None:
        super().__init__()
        self.query = nn.Linear(queries, units, bias=False)
        self.key = nn.Linear(places, units)
        self.score = nn.Parameter(torch.empty(units).uniform_(-1, 1) / math.sqrt(units))
        self.peg = Peg("attention", 1, "NHLL")

    def weights(self, queries: Tensor, keys: Tensor, mask: Tensor | None = None) -> Tensor:
        """(batch, steps, places) that sum to 1, of `queries` (batch, steps, ...) and `key` of the places.

        `mask` (batch, places) is true where there is something to look at; other places have weight 0.
        """
        met = torch.tanh(
            self.query(queries).unsqueeze(2) + keys.unsqueeze(1)
        )  # (batch, steps, places, units)
        scores = (met @ self.score).float()
        if mask is not None:
            scores = scores.masked_fill(~mask.unsqueeze(1), _NOWHERE)
        return torch.softmax(scores, -1).to(met.dtype)

    def forward(self, queries: Tensor, memory: Tensor, keys: Tensor, mask: Tensor | None = None) -> Tensor:
        """The mean of the `memory` (batch, places, features) by the weights of each query."""
        weights = self.weights(queries, keys, mask)
        if self.peg._modules:
            weights = self.peg(weights.unsqueeze(1)).squeeze(1)
        return weights @ memory
