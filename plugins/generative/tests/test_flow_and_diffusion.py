"""Likelihoods that are exact, and noise that is taken away."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from pegboard import Batch
from pegboard_generative import configs
from pegboard_generative.diffusion import Diffusion, kept_signal
from pegboard_generative.flow import LEAST, Coupling, Flow, _knots, spline
from pegboard_generative.functional import (
    energy_distance,
    frechet_distance,
    mixture_log_density,
    standard_log_density,
)
from pegboard_generative.objectives import DenoisingLoss, LikelihoodLoss
from torch import distributions


def shaken(model: torch.nn.Module) -> Any:
    """The module with random parameters, in double precision."""
    for p in model.parameters():
        torch.nn.init.normal_(p, 0.0, 0.3)
    return model.double().eval()


@pytest.mark.parametrize("coupling", ["affine", "spline"])
def test_the_log_determinant_is_that_of_the_jacobian(coupling: str) -> None:
    model = shaken(Flow((2, 2), layers=4, hidden=(8,), activation="tanh", coupling=coupling))
    x = torch.randn(5, 2, 2, dtype=torch.float64)
    z, found = model.transform(x)
    for row, code, told in zip(x, z, found, strict=True):
        slope: Any = torch.func.jacrev(lambda r: model.transform(r[None])[0][0])(row)
        assert torch.allclose(torch.linalg.slogdet(slope.reshape(4, 4))[1], told, atol=1e-8)
        assert torch.allclose(model.encode(row[None])[0], code)
    assert torch.allclose(model.decode(z), x, atol=1e-6)
    assert torch.allclose(model(x).log_likelihood, standard_log_density(z) + found)


def test_the_density_of_a_flow_integrates_to_one() -> None:
    model = shaken(Flow((2,), layers=2, hidden=(8,), activation="tanh"))
    side = torch.linspace(-12, 12, 400, dtype=torch.float64)
    plane = torch.cartesian_prod(side, side)
    with torch.no_grad():
        total = model(plane).log_likelihood.exp().sum() * (side[1] - side[0]) ** 2
    assert abs(float(total) - 1) < 0.02


def test_a_spline_is_monotone_joins_the_identity_and_begins_as_it() -> None:
    x = torch.linspace(-6, 6, 401, dtype=torch.float64)
    given = torch.randn(401, 23, dtype=torch.float64)[:1].expand(401, -1)
    y, slope = spline(x, given, 4.0)
    assert bool((y[1:] > y[:-1]).all()) and torch.equal(y[x.abs() > 4], x[x.abs() > 4])
    back, other = spline(y, given, 4.0, inverse=True)
    assert torch.allclose(back, x, atol=1e-8) and torch.allclose(other, -slope, atol=1e-8)
    same, none = spline(x, torch.zeros(401, 23, dtype=torch.float64), 4.0)
    assert torch.allclose(same, x) and torch.allclose(none, torch.zeros_like(x), atol=1e-12)
    layer = Coupling(torch.tensor([1.0, 0.0]), (4,), "tanh", "affine")
    pair = torch.randn(3, 2)
    assert torch.equal(layer(pair)[0], pair)


def test_levels_of_a_pixel_are_spread_and_counted_in_bits() -> None:
    objective = LikelihoodLoss(configs.Likelihood(levels=4), 3)
    seen = []

    class Keeps(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            from pegboard_generative.flow import Likely

            seen.append(x)
            return Likely(torch.zeros(len(x)))

    x = torch.tensor([[0.0, 1 / 3, 1.0]]).expand(500, -1)
    _, output = objective.evaluate(Keeps(), Batch((x,)))
    low, high = seen[0].amin(0), seen[0].amax(0)
    assert torch.allclose(low, torch.tensor([0.0, 0.25, 0.75]), atol=0.02)
    assert torch.allclose(high, torch.tensor([0.25, 0.5, 1.0]), atol=0.02)
    bits = objective.metrics()["bits_per_dim"]
    bits.update(output, None)  # type: ignore[arg-type]
    assert float(bits.compute()) == 2.0  # a uniform density of 4 levels


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
@pytest.mark.parametrize("steps", [50, 1000])
def test_noise_grows_to_nearly_all(schedule: str, steps: int) -> None:
    kept = kept_signal(steps, schedule)
    assert bool((kept[1:] < kept[:-1]).all()) and kept[0] > 0.9 and kept[-1] < 0.01


def test_one_jump_of_noise_equals_many_steps() -> None:
    torch.manual_seed(0)
    model = Diffusion((1,), steps=20, width=4)
    x = torch.full((40_000, 1), 1.5)
    kept = model.signal
    beta = 1 - kept / torch.cat([torch.ones(1), kept[:-1]])
    walked = x.clone()
    for b in beta[:8]:
        walked = (1 - b).sqrt() * walked + b.sqrt() * torch.randn_like(walked)
    jumped = model.noised(x, torch.full((40_000,), 7), torch.randn_like(x))
    assert abs(float(walked.mean() - jumped.mean())) < 0.02
    assert abs(float(walked.std() - jumped.std())) < 0.02


@pytest.mark.parametrize("eta", [0.0, 1.0])
def test_with_the_exact_noise_sampling_gives_the_data(eta: float) -> None:
    """Of normal data the best guess of the noise is known, so that sampling alone is tested."""
    mean, deviation = 1.0, 0.5
    model = Diffusion((1,), steps=400, width=4, sample_steps=400, eta=eta)
    model.low.fill_(-9.0)
    model.high.fill_(9.0)

    class Exact(torch.nn.Module):
        def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
            kept = model.signal[time].unsqueeze(1)
            variance = kept * deviation**2 + 1 - kept
            return (1 - kept).sqrt() * (x - kept.sqrt() * mean) / variance

    model.noise = Exact()
    made = model.sample(20_000, torch.Generator().manual_seed(0))
    assert abs(float(made.mean()) - mean) < 0.03 and abs(float(made.std()) - deviation) < 0.03


def test_diffusion_learns_points(fit: Any) -> None:
    torch.manual_seed(0)
    centres = torch.tensor([[1.5, 0.0], [-1.5, 0.0]])
    x = centres[torch.arange(512) % 2] + 0.1 * torch.randn(512, 2)
    model = Diffusion((2,), steps=100, width=64, blocks=2, sample_steps=50)
    fit(model, DenoisingLoss(configs.Denoising()), x, 400, 0.005)
    with torch.no_grad():
        made = model.sample(500, torch.Generator().manual_seed(0))
    near = torch.cdist(made, centres).amin(1)
    assert float((near < 0.6).float().mean()) > 0.8
    share = float((made[:, 0] > 0).float().mean())
    assert 0.3 < share < 0.7
    code = model.latent(3, torch.Generator().manual_seed(1))
    with torch.no_grad():
        assert torch.equal(model.decode(code), model.decode(code))


@pytest.mark.parametrize("size", [(8, 8), (7, 9)])
def test_a_u_net_keeps_the_size_of_pictures(size: tuple[int, int]) -> None:
    model = Diffusion((1, *size), steps=10, width=4, levels=(1, 2, 2), sample_steps=3)
    x = torch.randn(2, 1, *size)
    assert model(x).error.shape == (2,)
    assert model.sample(2).shape == x.shape


def test_a_mixture_has_its_density() -> None:
    centres = torch.tensor([[0.0, 1.0], [2.0, -1.0]])
    x = torch.randn(20, 2)
    parts = distributions.Independent(distributions.Normal(centres, 0.3), 1)
    true = distributions.MixtureSameFamily(distributions.Categorical(torch.ones(2)), parts)
    assert torch.allclose(mixture_log_density(x, centres, 0.3), true.log_prob(x), atol=1e-4)


def test_distances_of_sets_are_zero_for_the_same_and_known_for_normals() -> None:
    torch.manual_seed(0)
    x, y = torch.randn(4000, 2), torch.randn(4000, 2) * 2 + torch.tensor([3.0, 0.0])
    assert frechet_distance(x, x).abs() < 1e-8
    assert abs(float(frechet_distance(x, y)) - (9 + 2)) < 0.6  # |m|^2 + sum (s - t)^2
    assert energy_distance(x[:500], x[500:1000]).abs() < 0.05 < energy_distance(x[:500], y[:500])
    assert math.isfinite(float(energy_distance(x[:1], y[:1])))


def test_the_ends_of_the_pieces_of_a_spline_are_those_of_cumsum() -> None:
    given = torch.randn(50, 8)
    shares = LEAST + (1 - LEAST * 8) * given.softmax(-1)
    ends = torch.nn.functional.pad(shares.cumsum(-1), (1, 0))
    assert torch.allclose(_knots(given, 3.0), 3.0 * (2 * ends / ends[..., -1:] - 1), atol=2e-6, rtol=0)
