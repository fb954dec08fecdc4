"""Codes that are shorter than samples: principal components, k-means, and networks."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pegboard
import points
import pytest
import torch
from pegboard import Batch, Context, PegboardError
from pegboard_generative import configs
from pegboard_generative.autoencoder import Autoencoder, Pca, jacobian_square
from pegboard_generative.probes import ComponentsReference, span_cosine
from pegboard_mlp.kmeans import kmeans
from pegboard_mlp.modules import LinearModel
from pegboard_mlp.reference_configs import LeastSquares
from pegboard_mlp.squares import LeastSquaresReference
from saved import learned
from sweeps import first_of_each
from torch import Tensor

Curve = Callable[..., Tensor]
SEEDS = pytest.mark.parametrize("seed", first_of_each(range(3)))


def exact(x: Tensor, latent: int, method: Any = "eigenvectors") -> Pca:
    model = Pca((x.shape[1],), latent).double()
    best = ComponentsReference(configs.PrincipalComponents(method)).solve(model, Batch((x,)))
    assert isinstance(best, Pca)
    return best


def stretched(count: int = 200, scales: tuple[float, ...] = (5, 3, 1, 0.5, 0.1)) -> Tensor:
    return torch.randn(count, len(scales), dtype=torch.float64) * torch.tensor(scales)


@pytest.mark.catalogue("S3-137", "S3-138")
def test_the_best_components_are_the_top_eigenvectors() -> None:
    x = stretched()
    centred = x - x.mean(0)
    values, vectors = torch.linalg.eigh(centred.T @ centred)
    model = exact(x, 2)
    axes = model.decoder.weight
    assert torch.allclose(axes.T @ axes, torch.eye(2, dtype=torch.float64), atol=1e-10)
    projector = axes @ axes.T
    assert torch.allclose(projector @ projector, projector) and torch.linalg.matrix_rank(projector) == 2
    error = (model.decode(model.encode(x)) - x).square().sum()
    assert torch.allclose(error, values[:3].sum(), rtol=1e-9)
    for _ in range(1000):
        other = torch.linalg.qr(torch.randn(5, 2, dtype=torch.float64))[0]
        assert error <= (centred - centred @ other @ other.T).square().sum()
    first = axes[:, 0]
    assert torch.allclose(first @ (centred.T @ centred) @ first, values[-1])
    loadings = torch.linalg.svd(centred)[2][:2]
    assert torch.allclose((loadings @ axes).abs(), torch.eye(2, dtype=torch.float64), atol=1e-8)
    whole = exact(x, 5)
    assert torch.allclose(whole.decode(whole.encode(x)), x, atol=1e-10)
    worst = vectors[:, :2]  # the misprint: least eigenvalues
    assert (centred - centred @ worst @ worst.T).square().sum() > 10 * error


@pytest.mark.catalogue("S3-139")
def test_deflation_gives_the_components_one_by_one(root: Path) -> None:
    x = stretched()
    centred = x - x.mean(0)
    vectors = torch.linalg.eigh(centred.T @ centred).eigenvectors.flip(1)
    for count in range(1, 6):
        axes = exact(x, count, "deflation").decoder.weight
        assert axes.shape == (5, count)
        assert torch.allclose(axes.T @ axes, torch.eye(count, dtype=torch.float64), atol=1e-10)
        assert ((axes * vectors[:, :count]).sum(0).abs() > 1 - 1e-6).all()
    # As the reference of a run it is the same optimum.
    found = []
    for method in ("eigenvectors", "deflation"):
        config = points.given(
            x.float(),
            model={"name": "pca", "latent": 2},
            reference={"name": "principal_components", "method": method},
        )
        found.append(points.run(config, root).summary["reference"])
    assert found[1]["optimum"] == pytest.approx(found[0]["optimum"], rel=1e-6)
    assert found[1]["angle_cosine"] == pytest.approx(found[0]["angle_cosine"], abs=1e-6)


def test_deflation_ends_where_components_are_alike_or_none_is_left() -> None:
    axes = exact(torch.cat((torch.eye(4), -torch.eye(4))).double(), 3, "deflation").decoder.weight
    assert torch.allclose(axes.T @ axes, torch.eye(3, dtype=torch.float64), atol=1e-10)
    flat = torch.randn(50, 1, dtype=torch.float64) * torch.ones(1, 4)
    axes = exact(flat, 3, "deflation").decoder.weight
    assert torch.allclose(axes.T @ axes, torch.eye(3, dtype=torch.float64), atol=1e-10)
    assert torch.allclose(axes[:, 0].abs(), torch.full((4,), 0.5, dtype=torch.float64))


@pytest.mark.catalogue("S3-140")
def test_components_are_no_regression() -> None:
    t = torch.randn(2000, dtype=torch.float64)
    least_squares = LeastSquaresReference(LeastSquares(), Context())

    def slopes(x: Tensor) -> tuple[float, float]:
        axis = exact(x, 1).decoder.weight[:, 0]
        line = least_squares.solve(LinearModel(1, 1).double(), Batch((x[:, :1],), x[:, 1:]))
        assert isinstance(line, LinearModel)
        return (axis[1] / axis[0]).item(), line.head.weight.item()

    noisy = torch.stack([t, t], 1) + 0.5 * torch.randn(2000, 2, dtype=torch.float64)
    component, regression = slopes(noisy)
    # Noise of variance 1/4 in x shrinks the slope 1 of a regression to 1 / (1 + 1/4), of components not.
    assert component == pytest.approx(1, abs=0.05) and regression == pytest.approx(0.8, abs=0.05)
    assert abs(component) > abs(regression) + 0.1
    swapped, other = slopes(noisy.flip(1))
    assert abs(component * swapped - 1) < 1e-9 and abs(regression * other - 1) > 0.1
    clean = slopes(torch.stack([t, t], 1) + 1e-6 * torch.randn(2000, 2, dtype=torch.float64))
    assert abs(clean[0] - clean[1]) < 1e-4


@pytest.mark.catalogue("S3-136")
def test_errors_of_reconstruction_find_what_lies_off_the_plane() -> None:
    axes = torch.linalg.qr(torch.randn(10, 3, dtype=torch.float64))[0]
    plane = 3 * torch.randn(400, 3, dtype=torch.float64) @ axes.T
    noise = torch.randn(400, 10, dtype=torch.float64) * 0.3
    model = exact(plane, 3).eval()
    back = model.decode(model.encode(plane + noise))
    assert abs(float((back - plane).square().sum() / noise.square().sum()) - 0.3) < 0.03  # k / d
    good, bad = model(plane + 0.1 * noise).error, model(plane + torch.randn_like(plane)).error
    assert float((bad[:, None] > good).double().mean()) > 0.95  # the area under the curve
    assert model.encode(plane).shape == (400, 3) and back.shape == plane.shape


@pytest.mark.catalogue("S3-141")
def test_samples_of_components_have_their_covariance() -> None:
    x = stretched(2000)
    model = exact(x, 2).train()
    for _ in range(3):
        model(x)
    made = model.sample(20_000, torch.Generator().manual_seed(1)).detach()
    axes = model.decoder.weight
    centred = made - model.mean
    assert (centred - centred @ axes @ axes.T).abs().max() < 1e-10
    wanted = axes @ axes.T @ torch.cov(x.T) @ axes @ axes.T
    assert (torch.cov(made.T) - wanted).norm() < 0.05 * wanted.norm()


@pytest.mark.sweep
@pytest.mark.catalogue("S3-143")
def test_a_trained_linear_autoencoder_spans_the_components(root: Path) -> None:
    config = {
        "data": {"name": "breast_cancer", "batch_size": "all", "val": 0.0},
        "model": {"name": "pca", "latent": 3},
        "optimizer": {"name": "lbfgs"},
        "reference": {"name": "principal_components"},
        "trainer": {"epochs": 40, "device": "cpu", "threads": 1},
    }
    run = pegboard.train(config, root=root, quiet=True)
    reference = run.summary["reference"]
    assert reference["angle_cosine"] > 0.9999 and reference["relative"] < 1e-3


@pytest.mark.sweep
@pytest.mark.catalogue("S3-142", "S3-144")
def test_a_curve_needs_a_curved_code(root: Path, curve: Curve, away: Curve) -> None:
    x = curve(400)
    linear = exact(x.double(), 2)
    flat = float((linear.decode(linear.encode(x.double())) - x).detach().square().sum(1).mean())
    named = {"name": "autoencoder", "latent": 2, "hidden": [64, 64], "activation": "tanh"}
    model: Any = learned(root, x, 800, named)
    with torch.no_grad():
        code = model.encode(x)
        found = float((model.decode(code) - x).square().sum(1).mean())
        assert found < 0.01 * flat
        assert code.shape == (400, 2)
        # A mean of samples leaves the curve; the mean of the codes of neighbours does not.
        near = torch.cdist(x, x).fill_diagonal_(9e9).argmin(1)
        between = model.decode((code + code[near]) / 2)
        opposite = (x + x[torch.cdist(x, x).argmax(1)]) / 2
        assert away(opposite).mean() > 5 * away(between).mean()
    # Without a bottleneck next to nothing is lost.
    wide = learned(root, x, 1500, {"name": "autoencoder", "latent": 20, "hidden": []})
    assert float(wide(x).error.detach().mean()) < 1e-6 * float(x.var(0).mean())
    # A mean of opposite points of a circle is as far from it as can be.
    ring = torch.stack([torch.cos(t := torch.linspace(0, 2 * torch.pi, 401)[:400]), torch.sin(t)], 1)
    middle = (ring + ring.roll(200, 0)) / 2
    assert torch.allclose(torch.cdist(middle, ring).amin(1), torch.ones(400), atol=1e-5)


@pytest.mark.sweep
@pytest.mark.catalogue("S3-146")
def test_the_error_falls_until_a_code_has_as_many_numbers_as_the_sheet(root: Path) -> None:
    """A bent sheet of two dimensions in ten, and codes of 1 to 4 numbers.

    A code of three numbers may go where no data is, and there the decoder does what it likes: its rank is
    that of the sheet along the codes of data alone.
    """
    generator = torch.Generator().manual_seed(0)
    u = torch.rand(500, 2, generator=generator) * 2 - 1
    axes = torch.linalg.qr(torch.randn(10, 5, generator=generator))[0]

    def bent(u: Tensor) -> Tensor:
        a, b = u.unbind(-1)
        return torch.stack([2 * a, 2 * b, a * b, torch.sin(2 * a), torch.cos(2 * b)], -1) @ axes.T

    x, errors = bent(u), {}
    for k in (1, 2, 3, 4):
        named = {"name": "autoencoder", "latent": k, "hidden": [48, 48], "activation": "tanh"}
        model: Any = learned(root, x, 700, named)
        code = model.encode(x).detach()
        errors[k] = float((model.decode(code) - x).detach().square().sum(1).mean())
        # The decoder along what codes of data do: as many directions as the code and the sheet both have.
        for row in range(0, 500, 100):
            along = torch.func.jacrev(lambda v, m=model: m.encode(bent(v)[None])[0])(u[row])  # (k, 2)
            slope: Any = torch.func.jacrev(lambda z, m=model: m.decode(z[None])[0])(code[row])  # (10, k)
            ranks = torch.linalg.matrix_rank(slope @ along, rtol=0.05)
            assert ranks == min(k, 2)
            assert torch.linalg.matrix_rank(slope) >= min(k, 2)
        if k >= 2:
            back = (model.encode(model.decode(code)) - code).norm(dim=1).mean()
            assert back < 0.1 * code.norm(dim=1).mean()
    assert errors[1] > 10 * errors[2] and errors[2] < 3 * min(errors[3], errors[4])


@pytest.mark.catalogue("S3-148")
@SEEDS
def test_what_learned_from_masked_samples_fills_them_in(seed: int, root: Path, curve: Curve) -> None:
    x = curve(600)
    errors = []
    for corrupt in (0.0, 0.3):
        named = {"name": "autoencoder", "latent": 8, "hidden": [64], "corrupt": corrupt}
        model: Any = learned(root, x, 500, named, seed=seed)
        torch.manual_seed(2)
        masked = x * (torch.rand_like(x) >= 0.3)
        with torch.no_grad():
            errors.append(float((model.decode(model.encode(masked)) - x).square().mean()))
    assert errors[1] < 0.2 * errors[0]


@pytest.mark.catalogue("S3-149")
@SEEDS
def test_the_contractive_penalty_is_the_squared_jacobian(seed: int, root: Path, curve: Curve) -> None:
    from torch import nn

    linear = nn.Linear(6, 4).double()
    x = torch.randn(5, 6, dtype=torch.float64, requires_grad=True)
    h = linear(x).sigmoid()
    closed = ((h * (1 - h)).square() @ linear.weight.square()).sum(1)
    assert torch.allclose(jacobian_square(h, x), closed, atol=1e-10)
    data = curve(200)
    slopes, changes = [], []
    noise = 0.1 * torch.randn_like(data)
    for strength in (0.0, 0.1):
        named = {"name": "autoencoder", "latent": 2, "hidden": [16], "activation": "tanh"}
        penalty = {"name": "reconstruction", "contractive": strength}
        model: Any = learned(root, data, 150, named, seed=seed, objective=penalty)
        read = data.clone().requires_grad_()
        slopes.append(float(jacobian_square(model.encode(read), read, False).mean()))
        with torch.no_grad():
            changes.append(float((model.encode(data + noise) - model.encode(data)).norm(dim=1).mean()))
    assert slopes[1] < 0.5 * slopes[0]
    assert changes[1] < 0.75 * changes[0]


@pytest.mark.catalogue("S3-150")
@SEEDS
def test_codes_get_sparser_with_the_penalty(seed: int, root: Path, curve: Curve) -> None:
    x = curve(200)
    shares, errors = [], []
    for strength in (0.0, 0.03, 0.3):
        named = {"name": "autoencoder", "latent": 8, "hidden": [32]}
        penalty = {"name": "reconstruction", "sparse": strength}
        model: Any = learned(root, x, 400, named, seed=seed, objective=penalty)
        shares.append(float((model.encode(x).abs() < 0.05).double().mean()))
        errors.append(float(model(x).error.detach().mean()))
    assert shares[0] < shares[1] < shares[2]
    assert max(errors) < 0.1 * float(x.var(0).mean())  # what it costs


def means(values: list[float]) -> tuple[list[float], list[int], float]:
    """The centres of the best two groups of numbers, the group of each number and the cost."""
    x = torch.tensor(values, dtype=torch.float64).unsqueeze(1)
    share = torch.full((len(x),), 1 / len(x), dtype=torch.float64)
    centres = kmeans(x, share, 2, 20, torch.Generator().manual_seed(0))
    away, which = (x - centres.T).square().min(1)
    return sorted(centres.flatten().tolist()), which.tolist(), float(away.sum())


def scatter(x: Tensor) -> float:
    """The sum of squares around the mean, by pairs and by sums, which are the same."""
    if not len(x):
        return 0.0
    pairs = (x[:, None] - x).square().sum() / (2 * len(x))
    assert torch.allclose(pairs, x.square().sum() - x.sum() ** 2 / len(x))
    return float(pairs)


@pytest.mark.catalogue("T028")
def test_two_means_on_a_line_are_the_best_of_all_splits() -> None:
    centres, which, cost = means([1, 2, 10, 11])
    assert centres == pytest.approx([1.5, 10.5]) and cost == pytest.approx(1)
    assert which[0] == which[1] != which[2] == which[3]
    assert scatter(torch.tensor([1.0, 2, 10, 11])) == 82
    for seed in range(20):
        x = torch.randn(7, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        splits = [torch.tensor(bits, dtype=torch.bool) for bits in itertools.product((0, 1), repeat=7)]
        costs = torch.tensor([scatter(x[side]) + scatter(x[~side]) for side in splits], dtype=torch.float64)
        _, which, cost = means(x.tolist())
        assert cost == pytest.approx(float(costs.min()), abs=1e-12)
        best = splits[int(costs.argmin())]
        assert which in (best.int().tolist(), (~best).int().tolist())
        ordered = [w for _, w in sorted(zip(x.tolist(), which, strict=True))]
        assert sum(a != b for a, b in itertools.pairwise(ordered)) == 1  # the groups are intervals


@pytest.mark.catalogue("T027")
@pytest.mark.parametrize("a", [-0.5, 0.5])
def test_three_numbers_fall_into_other_groups_by_distance_than_by_label(a: float, root: Path) -> None:
    _, which, cost = means([-1, 1, a])
    assert cost == pytest.approx(0.125)
    assert which[2] == which[0 if a < 0 else 1]  # whatever its label
    # By labels the last two belong together: a threshold between -1 and a decides all three.
    config = points.given(
        torch.tensor([[-1.0], [1.0], [a]]),
        torch.tensor([0, 1, 1]),
        model={"name": "linear", "init": "zeros"},
        objective={"name": "binary_cross_entropy", "metrics": ["accuracy"]},
        optimizer={"name": "sgd", "lr": 4.0},
        trainer={"epochs": 200, "eval_every": 200, "device": "cpu", "diagnose": False},
    )
    done = points.run(config, root)
    head = pegboard.load(done, which="last").head
    assert done.figures["test/accuracy"] == 1
    assert head.weight.item() > 0 and -1 < -head.bias.item() / head.weight.item() < a


def test_numbers_outside_0_and_1_are_refused_before_training(root: Path) -> None:
    config = {
        "data": {"name": "digits", "limit": 100},
        "model": {"name": "autoencoder", "loss": "bernoulli"},
        "optimizer": {"name": "adam"},
        "trainer": {"steps": 1, "device": "cpu"},
    }
    with pytest.raises(PegboardError, match=r"model.loss bernoulli expects .* 0 to 1, and the data has -"):
        pegboard.train(config, root=root, quiet=True)
    config["data"] = {"name": "digits", "limit": 100, "normalize": "none"}
    assert pegboard.train(config, root=root, quiet=True).status == "finished"


@pytest.mark.parametrize("size", [(8, 8), (9, 7), (5, 12)])
def test_convolutions_give_back_the_size_of_a_picture(size: tuple[int, int]) -> None:
    model = Autoencoder((2, *size), 3, form="convolutional", channels=(4, 6))
    x = torch.randn(3, 2, *size)
    assert model.decode(model.encode(x)).shape == x.shape
    assert model(x).error.shape == (3,)
    assert span_cosine(Pca((4,), 2), Pca((4,), 2)) <= 1 + 1e-9
