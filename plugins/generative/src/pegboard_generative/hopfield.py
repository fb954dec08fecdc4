"""Associative memories: patterns are stored by one gradient step, and recalled by letting an energy fall."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn


class Stored(NamedTuple):
    """What a memory gives for patterns."""

    energy: Tensor  # of each pattern: (batch,)
    state: Tensor  # the patterns as the memory sees them, (batch, n)


def signs(x: Tensor) -> Tensor:
    """+1 where a number is at least 0, else -1."""
    return torch.where(x >= 0, 1.0, -1.0).to(x.dtype if x.is_floating_point() else torch.float32)


def symmetric(weight: Tensor) -> Tensor:
    """The symmetric part of a square matrix, with zeros on the diagonal."""
    even = (weight + weight.T) / 2
    return even - torch.diag(even.diagonal())


def energy(state: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """-1/2 x W x + b x of states (batch, n), for a symmetric W without a diagonal."""
    found = -0.5 * ((state @ weight) * state).sum(-1)
    return found if bias is None else found + state @ bias


def fields(state: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """What each neuron is told by the others: W x - b, (batch, n)."""
    told = state @ weight
    return told if bias is None else told - bias


def settle(
    state: Tensor, weight: Tensor, bias: Tensor | None = None, sweeps: int = 20, synchronous: bool = False
) -> Tensor:
    """States after updates of one neuron after another, until nothing changes or for so many rounds.

    In no update the energy rises. All neurons at once (`synchronous`) may go round in circles.
    """
    state = state.clone()
    for _ in range(sweeps):
        before = state.clone()
        if synchronous:
            state = signs(fields(state, weight, bias))
        else:
            for i in range(state.shape[1]):
                told = state @ weight[i]
                state[:, i] = signs(told if bias is None else told - bias[i])
        if torch.equal(before, state):
            break
    return state


def hebbian(patterns: Tensor) -> Tensor:
    """(sum of x x^T - s I) / n of patterns (s, n) of -1 and 1."""
    n = patterns.shape[1]
    return (patterns.T @ patterns - len(patterns) * torch.eye(n, dtype=patterns.dtype)) / n


def crosstalk(patterns: Tensor) -> Tensor:
    """What the other patterns add to the field of each neuron of each pattern: (s, n).

    The field of the Hebbian memory at a pattern x is x (n - 1) / n + C, so that x is stable where x C > -1.
    """
    n = patterns.shape[1]
    return patterns @ hebbian(patterns) - patterns * (n - 1) / n


def flip_probability(load: float) -> float:
    """Chance that a neuron of a stored random pattern is not stable, at s/n = load, for many neurons."""
    return 0.5 * (1 - math.erf(math.sqrt(1 / (2 * load))))


class Hopfield(nn.Module):
    """A memory of patterns of any shape; further arguments are the fields of the config `Hopfield`.

    The binary one has a weight for each pair of neurons, the others `slots` patterns. `forward(x)` gives the
    energy, `recall(x)` the states that it falls to.
    """

    def __init__(
        self,
        shape: Sequence[int],
        kind: str = "binary",
        power: int = 3,
        beta: float = 1.0,
        slots: int = 1,
        sweeps: int = 20,
    ) -> None:
        super().__init__()
        self.shape, self.size = tuple(shape), math.prod(shape)
        self.kind, self.power, self.beta, self.sweeps = kind, power, beta, sweeps
        self.weight = nn.Parameter(torch.zeros(self.size if kind == "binary" else slots, self.size))

    def state(self, x: Tensor) -> Tensor:
        """Patterns (batch, n) as the memory sees them: signs, but for the continuous one."""
        return x.flatten(1) if self.kind == "continuous" else signs(x.flatten(1))

    def forward(self, x: Tensor) -> Stored:
        state = self.state(x)
        return Stored(self.energy(state), state)

    def energy(self, state: Tensor) -> Tensor:
        """Of states (batch, n): (batch,)."""
        if self.kind == "binary":
            return energy(state, symmetric(self.weight))
        overlap = state @ self.weight.T
        if self.kind == "dense":
            return -(overlap / self.size).pow(self.power).sum(1)
        log_sum = torch.logsumexp(self.beta * overlap, 1) / self.beta
        return 0.5 * state.square().sum(1) - log_sum

    def recall(self, x: Tensor) -> Tensor:
        """What the energy falls to from samples, of their shape."""
        state, shape = self.state(x), x.shape
        with torch.no_grad():
            if self.kind == "binary":
                return settle(state, symmetric(self.weight), sweeps=self.sweeps).view(shape)
            if self.kind == "dense":
                return self._dense(state).view(shape)
            for _ in range(self.sweeps):
                before, state = state, self.attend(state)
                if torch.allclose(before, state, atol=1e-6):
                    break
        return state.view(shape)

    def attend(self, state: Tensor) -> Tensor:
        """One update of the continuous memory: softmax(beta x M^T) M, which is attention."""
        return (self.beta * state @ self.weight.T).softmax(1) @ self.weight

    def _dense(self, state: Tensor) -> Tensor:
        """Each neuron in turn takes the sign at which the energy is lower."""
        state, memory = state.clone(), self.weight / self.size
        overlap = state @ memory.T  # (batch, slots), kept up to date
        for _ in range(self.sweeps):
            before = state.clone()
            for i in range(self.size):
                rest = overlap - state[:, i : i + 1] * memory[:, i]
                gain = (rest + memory[:, i]).pow(self.power) - (rest - memory[:, i]).pow(self.power)
                state[:, i] = signs(gain.sum(1))
                overlap = rest + state[:, i : i + 1] * memory[:, i]
            if torch.equal(before, state):
                break
        return state

    def decode(self, code: Tensor) -> Tensor:
        """What states of the memory are recalled as."""
        return self.recall(code.reshape(-1, *self.shape))

    def encode(self, x: Tensor) -> Tensor:
        return self.state(x)

    def sample(self, count: int, generator: torch.Generator | None = None) -> Tensor:
        """What random states are recalled as."""
        noise = torch.randn(count, *self.shape, generator=generator, device=self.weight.device)
        return self.recall(noise)
