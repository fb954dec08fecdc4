"""Variational autoencoders against closed forms, and what their codes are good for."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pegboard
import points
import pytest
import torch
from pegboard import DataSpec, Resident, Splits, Vector
from pegboard.testing.runs import lean
from pegboard_generative import configs
from pegboard_generative.autoencoder import Autoencoder
from pegboard_generative.codes import LatentCodesProbe, binned, information_gap, mutual_information
from pegboard_generative.functional import (
    bits_per_dimension,
    gaussian_kl,
    interpolate,
    reparametrize,
    standard_log_density,
)
from pegboard_generative.objectives import ElboLoss, elbo_of
from pegboard_generative.vae import Bounded, Vae
from saved import learned
from sweeps import first_of_each
from torch import Tensor, distributions

Curve = Callable[..., Tensor]


def elbo(dimensions: int = 20, **fields: Any) -> ElboLoss:
    return ElboLoss(configs.Elbo(**fields), dimensions)


def _trace(matrix: Tensor) -> Tensor:
    return matrix.diagonal(dim1=-2, dim2=-1).sum(-1)


class LinearGaussian:
    """x = W z + noise, of which everything is known."""

    def __init__(self, d: int = 4, k: int = 2, noise: float = 0.5) -> None:
        generator = torch.Generator().manual_seed(3)
        self.w = torch.randn(d, k, generator=generator, dtype=torch.float64)
        self.noise, self.k = noise, k
        self.m = self.w.T @ self.w + noise**2 * torch.eye(k, dtype=torch.float64)
        self.x = torch.randn(6, d, generator=generator, dtype=torch.float64)
        self.mean = torch.linalg.solve(self.m, self.w.T @ self.x.T).T
        self.covariance = noise**2 * torch.linalg.inv(self.m)

    @property
    def log_evidence(self) -> Tensor:
        d = len(self.w)
        whole = self.w @ self.w.T + self.noise**2 * torch.eye(d, dtype=torch.float64)
        normal = distributions.MultivariateNormal(torch.zeros(d, dtype=torch.float64), whole)
        found: Tensor = normal.log_prob(self.x)
        return found

    def elbo(self, x: Tensor, q: distributions.MultivariateNormal) -> Tensor:
        """E_q log p(x, z) + entropy, in closed form."""
        mean, covariance = q.mean, q.covariance_matrix
        square = (x - mean @ self.w.T).square().sum(-1) + _trace(self.w @ covariance @ self.w.T)
        d = len(self.w)
        likely = -0.5 * square / self.noise**2 - d * math.log(self.noise) - d / 2 * math.log(2 * math.pi)
        prior = -0.5 * (mean.square().sum(-1) + _trace(covariance)) - self.k / 2 * math.log(2 * math.pi)
        found: Tensor = likely + prior + q.entropy()
        return found


@pytest.mark.catalogue("S3-151")
def test_the_posterior_of_a_linear_model_is_that_of_bayes() -> None:
    known = LinearGaussian(k=1)
    model = Vae((4,), 1, hidden=(), deviation=known.noise).double()
    with torch.no_grad():
        model.decoder.head.weight.copy_(known.w)
        model.decoder.head.bias.zero_()
    z = torch.linspace(-8, 8, 4001, dtype=torch.float64).unsqueeze(1)
    for x, mean in zip(known.x, known.mean, strict=True):
        with torch.no_grad():
            joint = model.log_likelihood(x.expand(len(z), 4), z) + standard_log_density(z)
        weight = joint.softmax(0)
        found = (weight @ z).item()
        spread = (weight @ (z - found).square()).item()
        assert abs(found - mean.item()) < 1e-6 and abs(spread - known.covariance.item()) < 1e-6


@pytest.mark.catalogue("S3-152")
def test_the_bound_is_tight_at_the_posterior_alone() -> None:
    model = LinearGaussian()
    exact = distributions.MultivariateNormal(model.mean, model.covariance)
    assert torch.allclose(model.elbo(model.x, exact), model.log_evidence, atol=1e-9)
    for _ in range(1000):
        root = torch.randn(2, 2, dtype=torch.float64)
        other = distributions.MultivariateNormal(
            torch.randn(2, dtype=torch.float64), root @ root.T + 0.01 * torch.eye(2, dtype=torch.float64)
        )
        bound = model.elbo(model.x[0], other)
        gap = model.log_evidence[0] - bound
        here = distributions.MultivariateNormal(model.mean[0], model.covariance)
        assert gap >= 0 and torch.allclose(gap, distributions.kl_divergence(other, here), rtol=1e-6)


@pytest.mark.catalogue("S3-152")
def test_the_bound_of_a_vae_is_below_the_evidence_by_the_divergence_from_the_posterior() -> None:
    """A linear decoder with orthogonal columns, whose posterior has independent codes as the encoder says."""
    known = LinearGaussian()
    axes = torch.linalg.qr(known.w)[0]
    known.w = axes * torch.tensor([1.5, 0.7], dtype=torch.float64)
    precision = known.w.square().sum(0) / known.noise**2 + 1
    right = known.x @ known.w / known.noise**2 / precision, -precision.log().expand(6, 2)
    model = Vae((4,), 2, hidden=(), deviation=known.noise).double()
    encoder = torch.cat([(known.w / known.noise**2 / precision).T, torch.zeros(2, 4, dtype=torch.float64)])
    with torch.no_grad():
        model.decoder.head.weight.copy_(known.w)
        model.decoder.head.bias.zero_()
        model.log_deviation.fill_(math.log(known.noise))  # which was rounded to single precision
        model.encoder.head.weight.copy_(encoder)
        model.encoder.head.bias.copy_(torch.cat([torch.zeros(2), -precision.log()]))
    for found, expected in zip(model.posterior(known.x), right, strict=True):
        assert torch.allclose(found, expected, atol=1e-12)

    def bound(x: Tensor, mean: Tensor, log_variance: Tensor) -> Tensor:
        """The objective's; two codes on each axis give the mean of a quadratic function exactly."""
        reach = math.sqrt(2) * (0.5 * log_variance).exp().unsqueeze(1) * torch.eye(2, dtype=torch.float64)
        codes = mean.unsqueeze(1) + torch.cat([reach, -reach], 1)  # (batch, 4, latent)
        likely = torch.stack([model.log_likelihood(x, codes[:, i]) for i in range(4)]).mean(0)
        output = Bounded(likely, mean, log_variance)
        assert torch.allclose(elbo(4).loss(output, None), -elbo_of(output).mean())
        return elbo_of(output)

    with torch.no_grad():
        evidence = known.log_evidence
        assert (bound(known.x, *right) - evidence).abs().max() < 1e-9
        prior = bound(known.x, torch.zeros(6, 2).double(), torch.zeros(6, 2).double())
        assert (prior < evidence - 0.1).all()
        x = known.x[0].expand(1000, 4)
        mean = 2 * torch.randn(1000, 2, dtype=torch.float64)
        log_variance = torch.randn(1000, 2, dtype=torch.float64)
        gap = evidence[0] - bound(x, mean, log_variance)
        here, there = (
            distributions.Normal(m, (0.5 * v).exp())
            for m, v in ((mean, log_variance), (right[0][0], right[1][0]))
        )
        apart = distributions.kl_divergence(here, there).sum(1)
    assert (gap > 0).all() and torch.allclose(gap, apart, rtol=1e-9, atol=1e-9)


@pytest.mark.catalogue("S3-156")
def test_the_divergence_from_the_prior_in_closed_form() -> None:
    mean, deviation = torch.tensor([[0.5, -1.0], [0.8, 1.5]], dtype=torch.float64)
    found = gaussian_kl(mean, 2 * deviation.log())
    normal = distributions.Normal
    wanted = distributions.kl_divergence(normal(mean, deviation), normal(0.0, 1.0))
    assert torch.allclose(found, wanted, rtol=0, atol=1e-10)
    assert abs(float(found.sum()) - 0.887678) < 1e-6
    assert gaussian_kl(torch.zeros(3), torch.zeros(3)).eq(0).all() and (found > 0).all()


@pytest.mark.catalogue("S3-157")
def test_gradients_go_through_a_draw() -> None:
    mean = torch.full((400_000,), 0.7, requires_grad=True)
    log_variance = torch.full((400_000,), 2 * math.log(1.3), requires_grad=True)
    z = reparametrize(mean, log_variance)
    z.square().sum().backward()  # type: ignore[no-untyped-call]
    assert mean.grad is not None and log_variance.grad is not None
    assert abs(float(mean.grad.mean()) - 1.4) < 0.014
    assert (
        abs(float(log_variance.grad.mean()) / (1.3 / 2) - 2.6) < 0.026
    )  # d sigma = sigma / 2 d log variance
    assert abs(float(z.mean()) - 0.7) < 0.01 and abs(float(z.std()) - 1.3) < 0.01
    assert not distributions.Normal(mean, 1.3).sample().requires_grad


@pytest.mark.catalogue("S3-153")
def test_the_loss_is_the_negated_bound_in_both_forms() -> None:
    """E_q of log p(x, z) - log q(z) beside E_q log p(x|z) - KL, both by the same quadrature over codes."""
    torch.manual_seed(1)
    model = Vae((4,), 2, hidden=(8,), activation="tanh", deviation=0.5).double()
    x = torch.randn(6, 4, dtype=torch.float64)
    nodes, weights = (torch.from_numpy(a) for a in numpy.polynomial.hermite_e.hermegauss(24))
    grid, share = torch.cartesian_prod(nodes, nodes), torch.cartesian_prod(weights, weights).prod(1)
    share = share / share.sum()
    with torch.no_grad():
        mean, log_variance = model.posterior(x)
        q = distributions.Normal(mean, (0.5 * log_variance).exp())
        z = q.mean + q.stddev * grid[:, None]  # (nodes, 6, 2)
        likely = torch.stack([model.log_likelihood(x, code) for code in z])
        joint = likely + standard_log_density(z)
        first = share @ (joint - q.log_prob(z).sum(-1))
        second = share @ likely - gaussian_kl(mean, log_variance).sum(1)
        assert (first - second).abs().max() < 1e-9
        # What a step computes is that bound, at a code that is drawn.
        draws = torch.stack([elbo_of(model(x)) for _ in range(2000)])
        assert ((draws.mean(0) - first).abs() < 5 * draws.std(0) / 2000**0.5).all()
    one = model(x)
    both = elbo(4).loss(one, None)
    assert torch.allclose(both, -elbo_of(one).mean(), rtol=0, atol=1e-9)
    assert torch.allclose(elbo(4, beta=0.0).loss(one, None), -one.log_likelihood.mean())
    code = torch.randn(6, 2, dtype=torch.float64)
    square = (x - model.decode(code)).square().sum(1) / (2 * 0.5**2)
    constant = 4 * (math.log(0.5) + 0.5 * math.log(2 * math.pi))
    assert torch.allclose(-model.log_likelihood(x, code).double(), square + constant, atol=1e-5)
    assert torch.allclose(bits_per_dimension(torch.tensor(math.log(2) * 4), 4), torch.tensor(1.0))


def test_free_bits_leave_small_divergences_alone() -> None:
    mean = torch.tensor([[0.1, 2.0]], requires_grad=True)
    output = Bounded(torch.zeros(1), mean, torch.zeros(1, 2))
    (slope,) = torch.autograd.grad(elbo(2, free_bits=0.5).loss(output, None), mean)
    assert slope.tolist() == [[0.0, 2.0]]
    weighed = elbo(2, free_bits=0.5).loss(output, None, torch.tensor([2.0]))
    assert torch.allclose(weighed, elbo(2, free_bits=0.5).loss(output, None))


@pytest.mark.catalogue("S3-159")
@pytest.mark.parametrize("noise", [4.0, 0.1])
@pytest.mark.parametrize("seed", first_of_each(range(4)))
def test_a_linear_vae_is_probabilistic_pca(root: Path, seed: int, noise: float) -> None:
    torch.manual_seed(seed)
    axes = torch.linalg.qr(torch.randn(3, 3))[0]
    x = torch.randn(4000, 3) * torch.tensor([2.20, 1.03, 0.09]).sqrt() @ axes.T
    x = x - x.mean(0)
    values, vectors = torch.linalg.eigh(torch.cov(x.T, correction=0))
    named = {"name": "vae", "latent": 2, "hidden": [], "deviation": noise**0.5}
    model: Any = learned(root, x, 800, named, lr=0.3, seed=seed)  # codes turn to their axes last
    with torch.no_grad():
        mean, log_variance = model.posterior(x)
        # A rotation of codes costs nothing but their independence, so compare in the model's own axes.
        each = gaussian_kl(mean, log_variance).mean(0).sort(descending=True).values
        weight = model.decoder.head.weight
    wanted = [0.5 * math.log(max(float(v) / noise, 1)) for v in values.flip(0)[:2]]
    assert torch.allclose(each, torch.tensor(wanted), rtol=0, atol=0.02)
    if noise < 1:
        cosines = torch.linalg.svdvals(torch.linalg.qr(weight)[0].T @ vectors[:, 1:])
        assert cosines.min() > 0.999
        lengths = torch.linalg.svdvals(weight).square()
        assert torch.allclose(lengths, values.flip(0)[:2] - noise, rtol=0.1)
    else:
        assert (each < 0.01).all()  # collapsed
    splits = Splits(spec=DataSpec((Vector(3),)), train=Resident([x]), test=Resident([x]))
    found = LatentCodesProbe(configs.LatentCodes(samples=4000)).measure(model, splits, torch.device("cpu"))
    assert found["active"] == (values > noise).sum() and found["kl"] == pytest.approx(sum(wanted), abs=0.04)


@pytest.fixture(scope="module")
def pair(curve: Curve, tmp_path_factory: pytest.TempPathFactory) -> tuple[Autoencoder, Vae]:
    """An autoencoder and a vae of the same curve."""
    root = tmp_path_factory.mktemp("pair")
    shape = {"latent": 2, "hidden": [64, 64], "activation": "tanh"}
    plain = learned(root, curve(500), 800, {"name": "autoencoder", **shape})
    vae = learned(root, curve(500), 800, {"name": "vae", "deviation": 0.4, **shape})
    assert isinstance(plain, Autoencoder) and isinstance(vae, Vae)
    return plain.eval(), vae.eval()


@pytest.mark.catalogue("S3-154")
@pytest.mark.sweep
def test_all_codes_together_are_near_the_prior(pair: tuple[Autoencoder, Vae], curve: Curve) -> None:
    x = curve(500)
    with torch.no_grad():
        mean, log_variance = pair[1].posterior(x)
        z = reparametrize(mean, log_variance)
    assert pair[1].encoder.head.out_features == 2 * 2
    assert z.mean(0).abs().max() < 0.15 and (z.std(0) - 1).abs().max() < 0.2
    assert mean.std(0).min() > 0.3  # different samples, different codes


@pytest.mark.catalogue("S3-147", "S3-158")
def test_codes_of_a_vae_can_be_drawn(pair: tuple[Autoencoder, Vae], away: Curve) -> None:
    plain, vae = pair
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        drawn = torch.randn(2000, 2, generator=generator)
        assert away(plain.decode(drawn)).mean() > 1.5 * away(vae.decode(drawn)).mean()
        ring = drawn / drawn.norm(dim=1, keepdim=True)
        far = [float(away(vae.decode(radius * ring)).mean()) for radius in (1.0, 3.0, 4.0)]
        assert far[0] < far[1] < far[2]  # beyond the prior nothing was learned


@pytest.mark.catalogue("S3-160")
@pytest.mark.parametrize("count", [2, 9, 17])
def test_between_two_samples_decoded_codes_stay_near_the_data(
    pair: tuple[Autoencoder, Vae], curve: Curve, away: Curve, count: int
) -> None:
    x, vae = curve(500), pair[1]
    one, other = x[:100], x[100:200]
    with torch.no_grad():
        path = interpolate(vae, one, other, count)
        assert path.shape == (count, 100, 20)
        for end, sample in ((path[0], one), (path[-1], other)):
            assert torch.allclose(end, vae.decode(vae.encode(sample)), atol=1e-5)
            assert (end - sample).norm(dim=1).mean() < 0.1 * (one - other).norm(dim=1).mean()
        if count == 2:
            return
        steps = (path[1:] - path[:-1]).norm(dim=-1)
        # The worst of the ways has 2.5 times the mean, with other seeds up to 3.2.
        assert (steps.amax(0) < 3 * steps.mean(0)).all()  # no jump on any of the hundred ways
        share = torch.linspace(0, 1, count).view(-1, 1, 1)
        pixels = one * (1 - share) + other * share
        off, mixed = (away(points.flatten(0, 1)).view(count, 100).mean(0) for points in (path, pixels))
    assert off.mean() < 0.5 * mixed.mean() and (off < mixed).float().mean() >= 0.8


@pytest.mark.catalogue("S3-161")
@pytest.mark.parametrize("seed", first_of_each(range(3)))
def test_factors_of_different_strength_get_a_number_each(seed: int, tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(seed)
    factors = torch.rand(500, 2, generator=generator) * 2 - 1
    x = torch.cat([3 * factors[:, :1] @ torch.ones(1, 4), 1.2 * factors[:, 1:] @ torch.ones(1, 4)], 1)
    config = points.given(
        x,
        values=factors,
        seed=seed,
        model={"name": "vae", "latent": 2, "hidden": [32], "activation": "tanh", "deviation": 0.3},
        objective={"name": "elbo", "beta": 2.0},
        optimizer={"name": "adam", "lr": 0.01},
        trainer={"epochs": 300, "eval_every": 300, "device": "cpu", "threads": 1, "diagnose": False},
        probes={"latent_codes": {}},
    )
    with lean():
        done = pegboard.train(config, root=tmp_path, quiet=True)
    with torch.no_grad():
        code = pegboard.load(done, which="last").encode(x)
    both = torch.corrcoef(torch.cat([factors, code], 1).T)[:2, 2:].abs()
    best = both.argmax(1)
    assert set(best.tolist()) == {0, 1}
    for factor in range(2):
        assert both[factor, best[factor]] > 0.8 and both[factor, 1 - best[factor]] < 0.3
    figures = done.summary["figures"]
    assert figures["latent_codes/information_gap"] > 0.3 and figures["latent_codes/active"] == 2


def test_the_information_gap_is_one_for_a_number_each_and_zero_for_a_shared_one() -> None:
    a, b = torch.cartesian_prod(torch.arange(4), torch.arange(5)).unbind(1)
    factors = torch.stack([a, b], 1)
    assert information_gap(factors, torch.stack([b, a], 1)) == pytest.approx(1)
    assert information_gap(factors, torch.stack([a + 10 * b, b + 5 * a], 1)) == pytest.approx(0, abs=1e-9)
    # One number holds both factors and the other the first alone: gaps of 0 and 1.
    assert information_gap(factors, torch.stack([a + 10 * b, a], 1)) == pytest.approx(0.5)
    assert mutual_information(a, b) == pytest.approx(0, abs=1e-12)
    assert mutual_information(a, a) == pytest.approx(math.log(4))
    assert torch.bincount(binned(torch.randn(1000), 20)).tolist() == [50] * 20


def test_more_draws_bound_the_likelihood_more_closely() -> None:
    torch.manual_seed(0)
    model = Vae((4,), 2, hidden=(8,))
    x = torch.randn(50, 4)
    with torch.no_grad():
        one, many = (
            torch.stack([model.importance_weighted(x, n).mean() for _ in range(20)]).mean() for n in (1, 50)
        )
        elbos = torch.stack([elbo_of(model(x)).mean() for _ in range(200)]).mean()
    assert abs(float(one - elbos)) < 0.1 and many > one
