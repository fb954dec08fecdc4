"""A generator and a discriminator, in one module."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from .functional import wide
from .nets import Dense, Down, decoder

_BOUNDS: dict[str, Callable[[Tensor], Tensor]] = {"sigmoid": torch.sigmoid, "tanh": torch.tanh}


class Gan(nn.Module):
    """Two networks without a shared parameter; further arguments are the fields of the config `Gan`.

    `forward(x)` gives the scores (batch,) of samples: logits of being one of the data.
    """

    def __init__(
        self,
        shape: Sequence[int],
        latent: int = 32,
        form: str = "dense",
        hidden: Sequence[int] = (128, 128),
        channels: Sequence[int] = (32, 64),
        activation: str = "relu",
        slope: float = 0.2,
        output: str = "linear",
        norm: str = "none",
    ) -> None:
        super().__init__()
        self.latents, self.output = latent, output
        self.generator = decoder(form, latent, hidden, channels, shape, activation, norm == "batch")
        self.discriminator: nn.Module
        if form == "dense":
            self.discriminator = Dense(shape, hidden, 1, lambda: nn.LeakyReLU(slope))
        else:
            self.discriminator = Down(shape, channels, 1, lambda: nn.LeakyReLU(slope))

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.discriminator(x)
        return wide(scores.squeeze(1))

    def decode(self, code: Tensor) -> Tensor:
        made = wide(self.generator(code))
        return _BOUNDS[self.output](made) if self.output in _BOUNDS else made

    def latent(self, count: int, generator: torch.Generator | None = None) -> Tensor:
        """Normal numbers, of which samples are made."""
        device = next(self.generator.parameters()).device
        return torch.randn(count, self.latents, generator=generator, device=device)

    def sample(self, count: int, generator: torch.Generator | None = None) -> Tensor:
        """New samples."""
        return self.decode(self.latent(count, generator))


def gradient_norms(score: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """The length of the gradient of the score by each sample: (batch,), itself to be differentiated."""
    x = x.detach().requires_grad_().view_as(x)  # no leaf, which counters of operations cannot follow
    (slope,) = torch.autograd.grad(score(x).sum(), x, create_graph=True)
    return slope.flatten(1).square().sum(1).add(math.ulp(1.0)).sqrt()
