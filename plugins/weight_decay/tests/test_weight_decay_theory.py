"""What decay does to solutions: ridge, shrinkage by curvature, the margin of a soft SVM."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import points
import pytest
import torch
import torch.nn.functional as F
from pegboard import Run
from pegboard.inference.trained import Trained
from pegboard_weight_decay import WeightDecay
from sklearn.datasets import load_diabetes, make_blobs
from sklearn.linear_model import Ridge
from sklearn.svm import SVC
from torch import Tensor, nn

Fit = Callable[..., nn.Module]
MODES = ["decoupled", "l2"]


def linear(inputs: int, outputs: int = 1, bias: bool = False) -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(inputs, outputs, bias, dtype=torch.float64)


def sgd(lr: float) -> Callable[[Any], torch.optim.Optimizer]:
    return lambda groups: torch.optim.SGD(groups, lr)


@pytest.mark.catalogue("S3-037")
@pytest.mark.parametrize("mode", MODES)
def test_without_a_gradient_weights_decay_exponentially(fit: Fit, mode: Any) -> None:
    """With a penalty of lam |w|^2 the strength is 2 lam: w_t = (1 - 2 lr lam)^t w_0."""
    lam, lr, model = 0.2, 0.1, linear(5)
    start = model.weight.detach().clone()
    fit(model, WeightDecay(2 * lam, mode), sgd(lr), lambda: 0 * model.weight.sum(), 25)
    torch.testing.assert_close(model.weight.detach(), (1 - 2 * lr * lam) ** 25 * start, rtol=1e-12, atol=0)


def quadratic(model: nn.Linear, hessian: Tensor, minimum: Tensor) -> Callable[[], Tensor]:
    def loss() -> Tensor:
        off = model.weight[0] - minimum
        return off @ hessian @ off / 2

    return loss


@pytest.mark.parametrize("mode", MODES)
def test_the_limit_on_a_quadratic(fit: Fit, mode: Any) -> None:
    model = linear(2)
    loss = quadratic(model, torch.tensor([1.0, 4.0]).double().diag(), torch.tensor([2.0, -1.0]).double())
    fit(model, WeightDecay(0.5, mode), sgd(0.1), loss, 300)
    expected = torch.tensor([[4 / 3, -8 / 9]], dtype=torch.float64)
    torch.testing.assert_close(model.weight.detach(), expected, rtol=0, atol=1e-6)


def test_l1_ends_at_the_soft_threshold(fit: Fit) -> None:
    """Where curvature is 1 in every direction the lasso is sign(m) max(|m| - value, 0)."""
    model, minimum = linear(3), torch.tensor([2.0, -1.0, 0.3]).double()
    loss = quadratic(model, torch.eye(3).double(), minimum)
    fit(model, WeightDecay(0.5, "l1"), sgd(0.1), loss, 2000, lambda step: 1 / (1 + step / 20))
    expected = torch.tensor([[1.5, -0.5, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(model.weight.detach(), expected, rtol=0, atol=1e-3)


@pytest.mark.parametrize("mode", MODES)
def test_decay_shrinks_along_eigenvectors_by_their_curvature(fit: Fit, mode: Any) -> None:
    torch.manual_seed(0)
    mu, values = 0.5, torch.tensor([0.05, 0.5, 5.0, 0.2, 1.0, 2.0], dtype=torch.float64)
    q = torch.linalg.qr(torch.randn(6, 6, dtype=torch.float64))[0]
    hessian, minimum = q.T @ values.diag() @ q, torch.randn(6, dtype=torch.float64)
    factors = values / (values + mu)
    torch.testing.assert_close(factors[:3], torch.tensor([1 / 11, 1 / 2, 10 / 11], dtype=torch.float64))
    exact = torch.linalg.solve(hessian + mu * torch.eye(6), hessian @ minimum)
    torch.testing.assert_close(q @ exact, factors * (q @ minimum), rtol=0, atol=1e-9)
    model = linear(6)
    fit(model, WeightDecay(mu, mode), sgd(0.15), quadratic(model, hessian, minimum), 400)
    torch.testing.assert_close(q @ model.weight[0].detach(), factors * (q @ minimum), rtol=0, atol=1e-6)


def test_a_little_decay_moves_a_trained_net_along_its_flat_directions(fit: Fit) -> None:
    torch.manual_seed(1)
    x = torch.randn(60, 2, dtype=torch.float64)
    y = torch.tanh(x @ torch.tensor([[1.5], [-0.5]]).double()) + 0.2 * torch.randn(60, 1, dtype=torch.float64)
    model = nn.Sequential(nn.Linear(2, 1), nn.Tanh(), nn.Linear(1, 1)).double()

    def loss() -> Tensor:
        return F.mse_loss(model(x), y) / 2

    def lbfgs(groups: Any) -> torch.optim.Optimizer:
        return torch.optim.LBFGS(
            groups, 1, 100, tolerance_grad=1e-12, tolerance_change=0, line_search_fn="strong_wolfe"
        )

    def flat() -> Tensor:
        return torch.cat([p.detach().flatten() for p in model.parameters()])

    fit(model, None, lbfgs, loss, 10)
    minimum, names = flat(), [n for n, _ in model.named_parameters()]
    shapes = [p.shape for p in model.parameters()]

    def at(theta: Tensor) -> Tensor:
        parts = [p.view(s) for p, s in zip(theta.split([s.numel() for s in shapes]), shapes, strict=True)]
        predicted = torch.func.functional_call(model, dict(zip(names, parts, strict=True)), (x,))
        return F.mse_loss(predicted, y) / 2

    hessian = torch.autograd.functional.hessian(at, minimum)
    values, vectors = torch.linalg.eigh(hessian)
    assert values[0] > 1e-4  # a proper minimum
    mu = 0.01 * values[0].item()
    fit(model, WeightDecay(mu, "l2", bias=True), lbfgs, loss, 10)
    moved = flat() - minimum
    predicted = -mu / (values + mu) * (vectors.T @ minimum)
    torch.testing.assert_close(vectors.T @ moved, predicted, rtol=0.1, atol=0.02 * moved.abs().max().item())
    share = (vectors.T @ moved).abs() / (vectors.T @ minimum).abs()
    assert share[-1] < 0.1 * share[0]


@pytest.mark.catalogue("S3-037")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("lam", [0.1, 1.0, 10.0])
def test_an_orthonormal_design_is_shrunk_by_one_plus_lambda(fit: Fit, mode: Any, lam: float) -> None:
    torch.manual_seed(0)
    x = torch.linalg.qr(torch.randn(30, 5, dtype=torch.float64))[0]
    y, model = torch.randn(30, 1, dtype=torch.float64), linear(5)
    lr = 0.3 / (1 + lam)
    fit(model, WeightDecay(2 * lam, mode), sgd(lr), lambda: (model(x) - y).square().sum(), 100)
    torch.testing.assert_close(model.weight[0].detach(), (x.T @ y)[:, 0] / (1 + lam), rtol=0, atol=1e-12)


@pytest.mark.catalogue("S3-037")
def test_a_linear_model_reaches_the_ridge_solution_and_shrinks_with_the_strength(fit: Fit) -> None:
    inputs, targets = load_diabetes(return_X_y=True)
    x = torch.tensor(inputs) * len(inputs) ** 0.5
    x, y = x[:, [0, 2, 3, 8]], torch.tensor(targets)[:, None] / 100
    norms = []
    for mu in (0.0, 1.0, 10.0, 100.0, 1000.0):
        for mode in MODES:
            model = linear(4, bias=True)
            lr = 1 / (3 * len(x) + mu)
            loss = lambda model=model: (model(x) - y).square().sum() / 2  # noqa: E731
            fit(model, WeightDecay(mu, mode), sgd(lr), loss, 300)
            ridge = Ridge(alpha=mu, solver="cholesky").fit(x.numpy(), y.numpy())  # leaves the intercept alone
            torch.testing.assert_close(
                model.weight.detach(), torch.tensor(ridge.coef_).view(1, 4), rtol=0, atol=1e-4
            )
            assert model.bias.item() == pytest.approx(ridge.intercept_[0], abs=1e-4)
        norms.append(model.weight.norm().item())
    assert all(a > b for a, b in pairwise(norms))


def test_the_ridge_solution_is_the_minimum_on_a_ball_of_its_own_size(fit: Fit) -> None:
    torch.manual_seed(0)
    x, y = torch.randn(40, 5, dtype=torch.float64), torch.randn(40, 1, dtype=torch.float64)
    model, radii = linear(5), []
    for mu in (1.0, 10.0, 100.0):
        fit(model, WeightDecay(mu), sgd(1 / (120 + mu)), lambda: (model(x) - y).square().sum() / 2, 300)
        w = model.weight[0].detach()
        closed = torch.linalg.solve(x.T @ x + mu * torch.eye(5), x.T @ y)[:, 0]
        torch.testing.assert_close(w, closed, rtol=0, atol=1e-8)
        radius, inside = w.norm(), torch.zeros(5, dtype=torch.float64)
        for _ in range(3000):  # projected gradient descent on the ball, without any decay
            inside = inside - (x.T @ (x @ inside - y[:, 0])) / 120
            inside = inside * (radius / inside.norm()).clamp(max=1)
        torch.testing.assert_close(inside, w, rtol=0, atol=1e-6)
        radii.append(radius.item())
    assert radii[0] > radii[1] > radii[2]  # a stronger decay is a smaller ball


@pytest.mark.catalogue("S3-107")
@pytest.mark.parametrize("mode", MODES)
def test_weights_concentrate_near_zero_and_none_is_zero(mode: Any, tmp_path: Path) -> None:
    spread = []
    for value in (0.0, 0.02, 0.06, 0.2):
        config = {
            "data": {"name": "digits", "limit": 400, "val": 0.0, "test": 0.0, "batch_size": "all"},
            "model": {"name": "mlp", "hidden": [32], "activation": "tanh"},
            "optimizer": {"name": "sgd", "lr": 0.3, "momentum": 0.9},
            "regularizers": {"weight_decay": {"value": value, "mode": mode}},
            "trainer": {"epochs": 50, "eval_every": 50, "device": "cpu", "diagnose": False},
        }
        model = points.run(config, tmp_path).model
        weights = torch.cat([p.detach().flatten() for p in model.parameters() if p.dim() == 2])
        assert len(weights) == 64 * 32 + 32 * 10 and (weights == 0).sum() == 0
        spread.append(weights.std().item())
    assert all(b < 0.9 * a for a, b in pairwise(spread))


def hinge(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return torch.relu(1 - y * model(x)[:, 0]).mean()


def soft_margin(root: Path, x: Tensor, classes: Tensor, lam: float, steps: int) -> Run:
    """A run that ends at the minimum of lam |w|^2 + mean hinge, the bias free."""
    config = points.given(
        x, classes, model={"name": "linear", "init": "zeros"}, objective={"name": "hinge"},
        optimizer={"name": "adam", "lr": 0.1, "schedule": "cosine"},
        regularizers={"weight_decay": {"value": 2 * lam, "mode": "l2"}},
        trainer={"epochs": steps, "eval_every": steps, "device": "cpu", "diagnose": False},
    )  # fmt: skip
    return points.run(config, root)


def weights(run: Run) -> Tensor:
    return run.model.state_dict()["head.weight"].double()


@pytest.mark.catalogue("T054")
@pytest.mark.parametrize("mode", MODES)
def test_a_soft_margin_is_decay_by_two_lambda_on_the_weights_alone(fit: Fit, mode: Any) -> None:
    torch.manual_seed(0)
    x = torch.randn(30, 3, dtype=torch.float64)
    y, lam = torch.where(x[:, 0] > 0.3, 1.0, -1.0).double(), 0.05
    ours, theirs, by_hand = linear(3, bias=True), linear(3, bias=True), linear(3, bias=True)
    fit(ours, WeightDecay(2 * lam, mode), sgd(0.1), lambda: hinge(ours, x, y), 50)
    groups = [{"params": [theirs.weight], "weight_decay": 2 * lam}, {"params": [theirs.bias]}]
    fit(theirs, None, lambda _: torch.optim.SGD(groups, 0.1), lambda: hinge(theirs, x, y), 50)
    penalized = lambda: hinge(by_hand, x, y) + lam * by_hand.weight.square().sum()  # noqa: E731
    fit(by_hand, None, sgd(0.1), penalized, 50)
    for other in (theirs, by_hand):
        for found, expected in zip(ours.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.catalogue("T054")
def test_the_weights_of_a_soft_margin_shrink_with_lambda_as_in_scikit_learn(tmp_path: Path) -> None:
    drawn, labels = make_blobs(40, centers=[[-1, 0], [1, 0.5]], cluster_std=1.0, random_state=0)
    norms = []
    for lam in (0.001, 0.01, 0.1, 1.0, 10.0):
        found = weights(soft_margin(tmp_path, torch.tensor(drawn), torch.tensor(labels), lam, 400))
        reference = SVC(kernel="linear", C=1 / (2 * lam * len(drawn)), tol=1e-8).fit(drawn, labels)
        torch.testing.assert_close(found, torch.tensor(reference.coef_), rtol=0.02, atol=2e-3)
        norms.append(found.norm().item())
    assert all(b <= a + 1e-3 for a, b in pairwise(norms))


@pytest.mark.catalogue("T055")
def test_margin_and_training_hinge_grow_with_lambda(tmp_path: Path) -> None:
    """Four points on a line: the margin 2/|w| is 1 up to 1/16 and 4 lambda from 3/4 on."""
    x, classes = torch.tensor([[-1.0, 0], [0, 0], [1, 0], [2, 0]]), torch.tensor([0, 0, 1, 1])
    margins, hinges = [], []
    for lam, margin in ((0.02, 1.0), (0.05, 1.0), (0.1, 1.6), (0.3, 3.0), (1.0, 4.0), (2.0, 8.0)):
        run = soft_margin(tmp_path, x, classes, lam, 200)
        margins.append(2 / weights(run).norm().item())
        hinges.append(run.figures["test/loss"])  # of the points that it was trained on
        assert margins[-1] == pytest.approx(margin, rel=0.02)
    for figures in (margins, hinges):
        assert all(b >= a - 0.01 for a, b in pairwise(figures))
    assert hinges[0] < 0.02 < 0.5 < hinges[-1]


@pytest.mark.catalogue("T055")
@pytest.mark.parametrize("seed", [1, 3])
def test_runs_with_several_strengths_are_chosen_between_by_their_validation_accuracy(
    seed: int, tmp_path: Path
) -> None:
    """Forty noisy features and 90 samples: of four lambdas the one that validates best is nearly the best.

    No part tunes settings; a loop over runs, whose figures are compared, is how a strength is chosen.
    """
    margins, hinges, held, fresh = [], [], [], []
    for lam in (1e-4, 0.01, 1.0, 100.0):
        config = {
            "data": {
                "name": "blobs",
                "classes": 2,
                "features": 40,
                "noise": 3.0,
                "box": 1.0,
                "samples": 600,
                "seed": seed,
                "limit": 90,
                "val": 0.15,
                "test": 0.6,
                "batch_size": "all",
            },
            "model": {"name": "linear", "init": "zeros"},
            "objective": {"name": "hinge", "metrics": ["accuracy"]},
            "optimizer": {"name": "adam", "lr": 0.05, "schedule": "linear"},
            "regularizers": {"weight_decay": {"value": 2 * lam, "mode": "l2"}},
            "trainer": {"epochs": 150, "eval_every": 150, "device": "cpu", "diagnose": False},
        }
        trained = Trained(points.run(config, tmp_path / f"{lam:g}").folder, "last")
        margins.append(2 / trained.model.head.weight.norm().item())  # type: ignore[union-attr, operator]
        hinges.append(trained.evaluate("train")["loss"])
        held.append(trained.evaluate("val")["accuracy"])
        fresh.append(trained.evaluate("test")["accuracy"])
    for figures in (margins, hinges):
        assert all(b >= a for a, b in pairwise(figures))
    chosen = held.index(max(held))
    assert fresh[chosen] >= max(fresh) - 0.05
    assert fresh[chosen] >= min(fresh) + 0.1
