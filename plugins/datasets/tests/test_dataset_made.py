"""Made data sets against their formulas and independent makers of the same."""

from __future__ import annotations

import inspect
import itertools
import math

import pytest
import torch
from pegboard import Facts
from pegboard_datasets import made


def stream(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("samples", [100, 101])
def test_moons_equal_those_of_scikit_learn(samples):
    from sklearn.datasets import make_moons

    points = made.moons(samples, 0.0, generator=stream())
    x, y = make_moons((50 + samples % 2, 50), shuffle=False, noise=None)
    torch.testing.assert_close(points.x, torch.tensor(x).float())
    assert points.y.tolist() == y.tolist()


@pytest.mark.parametrize("factor", [0.3, 0.8])
def test_circles_equal_those_of_scikit_learn(factor):
    from sklearn.datasets import make_circles

    points = made.circles(100, 0.0, factor, generator=stream())
    x, y = make_circles(100, shuffle=False, noise=None, factor=factor)
    torch.testing.assert_close(points.x, torch.tensor(x).float(), rtol=1e-5, atol=1e-6)
    assert points.y.tolist() == y.tolist()


@pytest.mark.catalogue("S4-008")
def test_xor_is_balanced_and_no_line_does_better_than_three_of_four():
    from scipy.optimize import linprog

    x, y = made.xor(4, noise=0.0, generator=stream())
    assert x.tolist() == [[0, 0], [0, 1], [1, 0], [1, 1]]
    assert y.tolist() == [0, 1, 1, 0]
    sign = 2.0 * y - 1
    # sign (w x + b) >= 1 has no solution for all four points, and has one for any three of them.
    rows = -sign[:, None] * torch.cat([x, torch.ones(4, 1)], 1)
    for left_out in (None, 0, 1, 2, 3):
        kept = [i for i in range(4) if i != left_out]
        solved = linprog([0, 0, 0], A_ub=rows[kept].numpy(), b_ub=[-1.0] * len(kept), bounds=(None, None))
        assert solved.success == (left_out is not None)
    # Of the 16 ways to share the points out to two classes all but this one and its opposite have a line.
    affine = torch.cat([x, torch.ones(4, 1)], 1)
    lines = []
    for labels in itertools.product((-1.0, 1.0), repeat=4):
        rows = -torch.tensor(labels)[:, None] * affine
        lines.append(linprog([0, 0, 0], A_ub=rows.numpy(), b_ub=[-1.0] * 4, bounds=(None, None)).success)
    assert lines.count(True) == 14 and lines.count(False) == 2


@pytest.mark.parametrize("samples", [64, 20])
def test_parity_of_more_bits(samples):
    x, y = made.xor(samples, bits=6, noise=0.0, generator=stream())
    assert torch.equal(y, x.long().sum(1) % 2)
    assert set(x.flatten().tolist()) == {0.0, 1.0}
    if samples == 64:
        assert len({tuple(row) for row in x.tolist()}) == 64


def test_xor_with_32_bits_can_be_drawn():
    x, y = made.xor(200, bits=32, noise=0.0, generator=stream())
    assert x.shape == (200, 32)
    assert torch.equal(y, x.long().sum(1) % 2)


@pytest.mark.catalogue("S3-008")
@pytest.mark.parametrize("turns", [0.5, 1.0, 3.0])
def test_the_radius_of_a_spiral_is_affine_in_its_angle(turns):
    import numpy

    x, y = made.spirals(3000, classes=3, turns=turns, noise=0.0, generator=stream())
    assert torch.bincount(y).tolist() == [1000] * 3
    for arm in range(3):
        points = x[y == arm].double().numpy()
        angle = numpy.unwrap(numpy.arctan2(points[:, 1], points[:, 0]))
        radius = numpy.hypot(points[:, 0], points[:, 1])
        slope, start = numpy.polyfit(angle, radius, 1)
        residual = radius - (slope * angle + start)
        assert slope == pytest.approx(1 / (2 * math.pi * turns), rel=1e-5)
        assert 1 - residual.var() / radius.var() > 0.999999
        assert (residual**2).mean() < 1e-12
    if turns == 3.0:  # in Cartesian coordinates it is no function of x
        px, py = x[y == 0].double().numpy().T
        fitted = numpy.polyval(numpy.polyfit(px, py, 10), px)
        assert ((py - fitted) ** 2).mean() > 0.1 * py.var()


def test_arms_are_turned_copies():
    x, y = made.spirals(40, classes=4, noise=0.0, generator=stream())
    quarter = torch.tensor([[0.0, 1.0], [-1.0, 0.0]])
    torch.testing.assert_close(x[y == 0] @ quarter, x[y == 1], rtol=1e-5, atol=1e-6)


@pytest.mark.catalogue("T023")
def test_clusters_without_labels_are_found_again():
    from sklearn.cluster import KMeans
    from sklearn.metrics import adjusted_rand_score

    for seed in range(5):
        x, y = made.blobs(300, classes=2, features=6, generator=stream(seed))
        found = KMeans(2, n_init=5, random_state=0).fit_predict(x.numpy())
        assert adjusted_rand_score(y.numpy(), found) >= 0.95


def test_blobs_have_their_deviation_and_lie_in_the_box():
    x, y = made.blobs(30000, classes=3, noise=2.0, box=5.0, generator=stream())
    for k in range(3):
        cloud = x[y == k]
        assert cloud.mean(0).abs().max() < 5.1
        torch.testing.assert_close(cloud.std(0), torch.full((2,), 2.0), rtol=0.03, atol=0)


def test_noise_has_the_given_deviation():
    for make in (made.moons, made.circles, made.spirals, made.xor):
        clean = make(20000, noise=0.0, generator=stream(1)).x
        noisy = make(20000, noise=0.3, generator=stream(1)).x
        assert (noisy - clean).std().item() == pytest.approx(0.3, rel=0.02)


@pytest.mark.catalogue("S3-019")
@pytest.mark.parametrize("seed", range(5))
def test_a_line_and_its_noise_are_found_within_three_standard_errors(build, seed):
    fields = {"features": 1, "samples": 1000, "seed": seed, "val": 0, "test": 0}
    lines = {}
    for noise in (0.0, 0.4):
        splits = build("linear_teacher", noise=noise, **fields)
        x, y = (t[:, 0].double() for t in (splits.train.inputs[0], splits.train.target))
        design = torch.stack([x, torch.ones_like(x)], 1)
        lines[noise] = torch.linalg.lstsq(design, y[:, None]).solution[:, 0]
        rest = y - design @ lines[noise]
        if noise == 0:
            assert rest.square().mean() < 1e-12
            continue
        variance = rest.square().sum() / 998
        assert abs(variance.item() - noise**2) < 3 * noise**2 * math.sqrt(2 / 998)
        errors = (variance * torch.linalg.inv(design.T @ design).diagonal()).sqrt()
        assert ((lines[noise] - lines[0.0]).abs() < 3 * errors).all()


def test_least_squares_finds_the_linear_teacher_and_the_noise():
    x, y, weight, bias = made.linear_teacher(20000, 5, 2, noise=0.5, generator=stream())
    ones = torch.ones(len(x), 1)
    found = torch.linalg.lstsq(torch.cat([x, ones], 1).double(), y.double())
    torch.testing.assert_close(found.solution[:5].float(), weight, rtol=0, atol=0.02)
    torch.testing.assert_close(found.solution[5].float(), bias, rtol=0, atol=0.02)
    residual = y - torch.cat([x, ones], 1) @ found.solution.float()
    assert residual.var(0).tolist() == pytest.approx([0.25, 0.25], rel=0.05)


def test_without_noise_the_linear_teacher_is_exact():
    x, y, weight, bias = made.linear_teacher(50, 3, noise=0.0, generator=stream())
    assert torch.equal(y, x @ weight + bias)


@pytest.mark.parametrize(("features", "degree"), [(1, 4), (3, 2), (2, 0)])
def test_monomials_equal_those_of_scikit_learn(features, degree):
    from sklearn.preprocessing import PolynomialFeatures

    x = torch.rand(10, features, generator=stream())
    expected = PolynomialFeatures(degree).fit_transform(x.double().numpy())
    torch.testing.assert_close(made.monomials(x, degree), torch.tensor(expected).float())


def test_the_polynomial_teacher_takes_coefficients():
    x, y, _, _ = made.polynomial_teacher(
        100, degree=2, coefficients=(2.0, -6.0, -4.0), noise=0.0, generator=stream()
    )
    torch.testing.assert_close(y, 2 - 6 * x - 4 * x**2)
    assert x.min() >= -1
    assert x.max() <= 1


def test_the_drawn_polynomial_is_in_the_notes(build):
    splits = build("polynomial_teacher", noise=0.0, features=2, degree=2, outputs=2)
    weight = torch.tensor(splits.notes["teacher"]["weight"])
    expected = made.monomials(splits.test.inputs[0], 2) @ weight
    torch.testing.assert_close(splits.test.target, expected)


MAKERS = ("xor", "moons", "circles", "spirals", "blobs", "linear_teacher", "polynomial_teacher")


@pytest.mark.parametrize("name", MAKERS)
def test_the_runs_seed_makes_other_samples_unless_the_config_has_its_own(build, name):
    prints = {
        (run, own): build(name, run_seed=run, seed=own).notes["fingerprint"]
        for run in (0, 1)
        for own in (None, 0, 1)
    }
    assert prints[0, None] != prints[1, None]
    assert prints[0, 0] == prints[1, 0]
    assert prints[0, 0] != prints[0, 1]
    assert prints[0, None] == prints[1, 0]


@pytest.mark.parametrize("name", MAKERS)
def test_makers_draw_from_the_generator_they_are_given(quiet_rngs, name):
    make = getattr(made, name)
    assert "generator" in inspect.signature(make).parameters
    a, b, c = (make(10, generator=stream(seed)) for seed in (0, 0, 1))
    assert torch.equal(a.x, b.x)
    assert not torch.equal(a.x, c.x)
    assert len(a.x) == len(a.y) == 10


def test_wrong_counts_are_problems(parts):
    spirals, polynomial = parts["spirals"], parts["polynomial_teacher"]
    found = list(spirals.check(spirals.config(samples=5, classes=6), Facts()))
    assert [(p.field, p.expected) for p in found] == [("samples", "at least 6")]
    found = list(polynomial.check(polynomial.config(coefficients=(1.0, 2.0)), Facts()))
    assert found[0].field == "coefficients"
    assert "4" in found[0].expected
    found = list(polynomial.check(polynomial.config(features=100, degree=10), Facts()))
    assert found[0].field == "degree"


@pytest.mark.parametrize("name", ["ring", "mixture"])
def test_clouds_lie_around_their_centres(name):
    points = getattr(made, name)(4000, noise=0.05, generator=stream())
    centres = made.ring_centres(8, 2.0) if name == "ring" else made.mixture_centres(5, 2.0)
    away = points.x - centres[points.y]
    assert abs(away.std() - 0.05) < 0.002 and away.mean(0).abs().max() < 0.003
    assert torch.bincount(points.y, minlength=len(centres)).min() > 0.6 * 4000 / len(centres)
    if name == "ring":
        torch.testing.assert_close(centres.norm(dim=1), torch.full((8,), 2.0))
        torch.testing.assert_close(centres[2], torch.tensor([0.0, 2.0]), atol=1e-6, rtol=0)
    else:
        assert centres[0].tolist() == [-4, -4] and centres[12].tolist() == [0, 0]


def test_a_checkerboard_has_its_dark_cells():
    points = made.checkerboard(2000, 4, 4.0, generator=stream())
    cells = (points.x + 2).floor()
    assert points.x.abs().max() <= 2 and (cells.sum(1) % 2 == 0).all()
    assert len(cells.unique(dim=0)) == 8 == len(points.y.unique())
