"""Diffusion: samples become noise step by step, and a network learns to take it away."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from pegboard import Peg
from torch import Tensor, nn
from torch.nn import functional

from .functional import wide
from .nets import Dense


class Denoised(NamedTuple):
    """What a diffusion model gives in training."""

    error: Tensor  # of the noise that it finds, mean over the numbers of each sample: (batch,)
    time: Tensor  # step of each sample: (batch,)


def kept_signal(steps: int, schedule: str) -> Tensor:
    """How much of the variance of a sample is left after each step: (steps,), falling."""
    if schedule == "linear":
        # The ends of 1000 steps, so that fewer steps end in as much noise.
        ends = (1e-4 * 1000 / steps, min(0.02 * 1000 / steps, 0.999))
        betas = torch.linspace(*ends, steps, dtype=torch.float64)
    else:
        at = torch.arange(steps + 1, dtype=torch.float64) / steps
        whole = torch.cos((at + 0.008) / 1.008 * math.pi / 2).square()
        betas = (1 - whole[1:] / whole[:-1]).clamp(max=0.999)
    return (1 - betas).cumprod(0).float()


def waves(time: Tensor, size: int) -> Tensor:
    """Sines and cosines of a step (batch,) at `size` frequencies: (batch, size)."""
    half = -(-size // 2)
    rates = torch.exp(torch.arange(half, device=time.device) * (-math.log(10_000.0) / max(half - 1, 1)))
    angles = time.float().unsqueeze(1) * rates
    return torch.cat([angles.sin(), angles.cos()], 1)[:, :size]


class Block(nn.Module):
    """Two convolutions beside a shortcut; the step is added between them."""

    def __init__(self, before: int, after: int, time: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = _norm(before), _norm(after)
        self.conv1, self.conv2 = nn.Conv2d(before, after, 3, 1, 1), nn.Conv2d(after, after, 3, 1, 1)
        self.time = nn.Linear(time, after)
        self.affine = Peg("affine", after, "NCHW")
        self.hidden = Peg("hidden", after, "NCHW")
        self.residual = Peg("residual", after, "NCHW")
        self.shortcut = nn.Conv2d(before, after, 1) if before != after else nn.Identity()

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        y = self.affine(self.conv1(functional.silu(self.norm1(x))))
        y = y + self.time(time)[:, :, None, None]
        y = self.conv2(self.hidden(functional.silu(self.norm2(y))))
        added: Tensor = self.shortcut(x) + self.residual(y)
        return added


def _norm(channels: int) -> nn.GroupNorm:
    return nn.GroupNorm(next(g for g in (8, 4, 2, 1) if channels % g == 0), channels)


class UNet(nn.Module):
    """Noise in pictures (batch, channels, height, width), found at several scales."""

    def __init__(self, channels: int, width: int, levels: Sequence[int], blocks: int) -> None:
        super().__init__()
        sizes, time = [width * level for level in levels], 4 * width
        self.width = width
        self.time = nn.Sequential(nn.Linear(width, time), nn.SiLU(), nn.Linear(time, time))
        self.input = Peg("input", channels, "NCHW")
        self.first = nn.Conv2d(channels, sizes[0], 3, 1, 1)
        self.down, self.smaller = nn.ModuleList(), nn.ModuleList()
        self.up, self.larger = nn.ModuleList(), nn.ModuleList()
        now = sizes[0]
        for place, size in enumerate(sizes):
            self.down.append(_blocks(now, size, time, blocks))
            last = place == len(sizes) - 1
            self.smaller.append(nn.Identity() if last else nn.Conv2d(size, size, 3, 2, 1))
            now = size
        self.middle = _blocks(now, now, time, 1)
        for place, size in reversed(list(enumerate(sizes))):
            self.up.append(_blocks(now + size, size, time, blocks))
            self.larger.append(nn.Conv2d(size, size, 3, 1, 1) if place else nn.Identity())
            now = size
        self.norm, self.last = _norm(now), nn.Conv2d(now, channels, 3, 1, 1)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        known = functional.silu(self.time(waves(time, self.width)))
        y, kept = self.first(self.input(x)), list[Tensor]()
        for stage, smaller in zip(self.down, self.smaller, strict=True):
            y = stage(y, known)
            kept.append(y)
            y = smaller(y)
        y = self.middle(y, known)
        for stage, larger in zip(self.up, self.larger, strict=True):
            beside = kept.pop()
            y = stage(torch.cat([y, beside], 1), known)
            if kept:
                y = larger(functional.interpolate(y, size=kept[-1].shape[2:], mode="nearest"))
        noise: Tensor = self.last(functional.silu(self.norm(y)))
        return noise


class _blocks(nn.ModuleList):  # noqa: N801 made as a function is called
    """Blocks after one another."""

    def __init__(self, before: int, after: int, time: int, count: int) -> None:
        super().__init__(Block(before if k == 0 else after, after, time) for k in range(count))

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        for block in self:
            x = block(x, time)
        return x


class Points(nn.Module):
    """Noise in vectors (batch, features), found by dense layers that read the step too."""

    def __init__(self, features: int, width: int, layers: int) -> None:
        super().__init__()
        self.width = width
        self.net = Dense((features + width,), (width,) * layers, features, nn.SiLU)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        noise: Tensor = self.net(torch.cat([x, waves(time, self.width)], 1))
        return noise


class Diffusion(nn.Module):
    """A network that finds the noise in samples; further arguments are the fields of the config `Diffusion`.

    `forward(x)` draws a step and a noise for each sample and gives the error; `noise(x, time)` finds it.
    """

    signal: Tensor
    low: Tensor
    high: Tensor

    def __init__(
        self,
        shape: Sequence[int],
        steps: int = 1000,
        schedule: str = "linear",
        width: int = 32,
        levels: Sequence[int] = (1, 2),
        blocks: int = 1,
        sample_steps: int = 50,
        eta: float = 0.0,
    ) -> None:
        super().__init__()
        self.shape, self.steps = tuple(shape), steps
        self.sample_steps, self.eta = min(sample_steps, steps), eta
        self.noise: nn.Module
        if len(shape) == 3:
            self.noise = UNet(shape[0], width, levels, blocks)
        else:
            self.noise = Points(math.prod(shape), width, blocks)
        self.register_buffer("signal", kept_signal(steps, schedule), persistent=False)
        self.register_buffer("low", torch.zeros(()))  # of the numbers of samples in training
        self.register_buffer("high", torch.zeros(()))

    def forward(self, x: Tensor) -> Denoised:
        if self.training:
            with torch.no_grad():
                self.low.copy_(torch.minimum(self.low, x.min()))
                self.high.copy_(torch.maximum(self.high, x.max()))
        time = torch.randint(self.steps, (len(x),), device=x.device)
        noise = torch.randn_like(x)
        found = self.noise(self.noised(x, time, noise), time)
        return Denoised(wide(found - noise).square().flatten(1).mean(1), time)

    def noised(self, x: Tensor, time: Tensor, noise: Tensor) -> Tensor:
        """Samples after so many steps, at once."""
        left = self.signal[time].view(-1, *(1,) * (x.dim() - 1))
        return left.sqrt() * x + (1 - left).sqrt() * noise

    def latent(self, count: int, generator: torch.Generator | None = None) -> Tensor:
        """Noise of the shape of samples."""
        return torch.randn(count, *self.shape, generator=generator, device=self.signal.device)

    def decode(self, code: Tensor) -> Tensor:
        """The samples that noise becomes without more of it (DDIM)."""
        return self._walk(code, 0.0, None)

    def sample(self, count: int, generator: torch.Generator | None = None) -> Tensor:
        """New samples: DDIM with eta 0, DDPM with eta 1 and all steps."""
        return self._walk(self.latent(count, generator), self.eta, generator)

    def _walk(self, x: Tensor, eta: float, generator: torch.Generator | None) -> Tensor:
        times = torch.linspace(self.steps - 1, 0, self.sample_steps).round().long().tolist()
        for place, time in enumerate(times):
            now = self.signal[time]
            then = self.signal[times[place + 1]] if place + 1 < len(times) else torch.ones_like(now)
            noise = wide(self.noise(x, torch.full((len(x),), time, device=x.device)))
            # Beyond what training showed a first guess would only grow.
            clean = ((x - (1 - now).sqrt() * noise) / now.sqrt()).clamp(self.low, self.high)
            noise = (x - now.sqrt() * clean) / (1 - now).sqrt()
            fresh = eta * ((1 - then) / (1 - now) * (1 - now / then)).clamp(min=0).sqrt()
            x = then.sqrt() * clean + (1 - then - fresh.square()).clamp(min=0).sqrt() * noise
            if eta and place + 1 < len(times):
                drawn = torch.randn(x.shape, generator=generator, device=x.device)
                x = x + fresh * drawn
        return x
