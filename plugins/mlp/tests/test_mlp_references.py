"""Closed forms beside runs: least squares, ridge, lasso, logistic and softmax regression."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import pegboard
import points
import pytest
import torch
from pegboard import Batch, Context, DataSpec, Labels, PegboardError, Reference, Vector
from pegboard.cli import main
from pegboard.config.check import check
from pegboard.config.errors import ConfigError
from pegboard.inference.trained import Trained
from pegboard.planning.plan import assemble, make_plan
from pegboard_mlp import reference_configs as configs
from pegboard_mlp.bases import Polynomial
from pegboard_mlp.logistic import LogisticReference
from pegboard_mlp.modules import LinearModel, Mlp
from pegboard_mlp.squares import LassoReference, LeastSquaresReference, RidgeReference, soft_threshold
from sklearn import linear_model
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from torch import Tensor, nn

DIABETES = tuple(torch.tensor(part) for part in load_diabetes(return_X_y=True))


def made(kind: Any, config: Any, spec: DataSpec | None = None) -> Any:
    return kind(config, Context(spec=spec or DataSpec()))


def linear(inputs: int, outputs: int = 1, bias: bool = True) -> LinearModel:
    return LinearModel(inputs, outputs, bias=bias).double()


def solved(reference: Reference, x: Tensor, y: Tensor, outputs: int = 1, **more: Any) -> nn.Linear:
    """The head of the optimum of a linear model."""
    bias = more.pop("bias", True)
    best: Any = reference.solve(linear(x.shape[1], outputs, bias), Batch((x,), y, **more))
    head: nn.Linear = best.head.requires_grad_(False)
    return head


def trained(folder: Path, **nodes: Any) -> tuple[pegboard.Run, Any]:
    trainer = {"device": "cpu", "diagnose": False, **nodes["trainer"]}
    done = pegboard.train(nodes | {"trainer": trainer}, root=folder, quiet=True)
    return done, pegboard.load(done, which="last")


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


OLS = made(LeastSquaresReference, configs.LeastSquares())
DESCENT = {"name": "gd", "lr": 0.2, "tolerance": 1e-6}


@pytest.mark.catalogue("T042")
def test_a_run_on_three_points_ends_at_the_least_squares_fit(tmp_path: Path) -> None:
    x, y = torch.tensor([[-2.0], [0], [1]]), torch.tensor([[1.0], [2], [-1]])
    config = points.given(x, values=y, model="linear", optimizer=DESCENT, reference="least_squares")
    done, model = trained(tmp_path, **config | {"trainer": {"epochs": 200, "eval_every": 200}})
    assert model.head.weight.item() == pytest.approx(-0.5, abs=1e-6)
    assert model.head.bias.item() == pytest.approx(0.5, abs=1e-6)
    assert done.reference["optimum"] * 3 == pytest.approx(3.5, abs=1e-12)
    assert 0 <= done.reference["gap"] < 1e-9
    assert done.reference["figures"]["test/loss"] == pytest.approx(3.5 / 3, abs=1e-6)


@pytest.mark.catalogue("T043")
def test_four_points_of_a_plane_are_met_exactly(tmp_path: Path) -> None:
    x = torch.tensor([[-2.0, 1], [0, -1], [1, 2], [3, 0]])
    y = torch.tensor([[1.0], [2], [-1], [0]])
    config = points.given(x, values=y, model="linear", optimizer=DESCENT, reference="least_squares")
    done, model = trained(tmp_path, **config | {"trainer": {"epochs": 500, "eval_every": 500}})
    head = solved(OLS, x.double(), y.double())
    for found in (head, model.head):
        expected = torch.tensor([[-0.375, -0.875]]).to(found.weight)
        torch.testing.assert_close(found.weight.data, expected, rtol=0, atol=1e-6)
        assert found.bias.item() == pytest.approx(1.125, abs=1e-6)
    rest = x.double() @ head.weight.T + head.bias - y
    assert rest.square().sum() < 1e-10
    assert done.reference["optimum"] < 1e-12 and done.reference["objective"] < 1e-10


@pytest.mark.catalogue("T031", "S3-020", "S3-027", "S3-028")
def test_gradient_descent_reaches_the_closed_form_of_a_line(tmp_path: Path) -> None:
    x = random(50, 1)
    y = 3 * x - 2 + 0.1 * random(50, 1, seed=1)
    n, sx, sy = 50, x.sum(), y.sum()
    a = (n * (x * y).sum() - sx * sy) / (n * (x * x).sum() - sx**2)
    b = (sy - a * sx) / n
    head = solved(OLS, x, y)
    assert head.weight.item() == pytest.approx(a.item(), abs=1e-12)
    assert head.bias.item() == pytest.approx(b.item(), abs=1e-12)
    design = torch.cat([x, torch.ones(50, 1)], 1)
    independent = numpy.linalg.lstsq(design.numpy(), y[:, 0].numpy(), rcond=None)[0]
    torch.testing.assert_close(torch.stack([a, b]), torch.tensor(independent), rtol=0, atol=1e-12)
    rest = y - head(x)
    assert (design.T @ rest).abs().max() < 1e-10  # orthogonal to x and to 1
    config = points.given(x, values=y, model="linear", optimizer=DESCENT, reference="least_squares")
    done, model = trained(tmp_path, **config | {"trainer": {"epochs": 300, "eval_every": 300}})
    assert "gradient norm" in done.summary["why"]
    assert model.head.weight.item() == pytest.approx(a.item(), abs=1e-6)
    assert model.head.bias.item() == pytest.approx(b.item(), abs=1e-6)


@pytest.mark.catalogue("S3-027")
def test_the_gradient_of_the_sum_of_squares_is_the_printed_one() -> None:
    x, y, theta = (
        random(20),
        random(20, seed=1),
        torch.tensor([0.3, -1.2], dtype=torch.float64, requires_grad=True),
    )
    a, b = theta
    (a * x + b - y).square().sum().backward()
    printed = torch.stack([(2 * a * x**2 - 2 * x * y + 2 * b * x).sum(), (2 * b - 2 * y + 2 * a * x).sum()])
    torch.testing.assert_close(theta.grad, printed.detach(), rtol=0, atol=1e-10)
    # The model and the objective of a run give the same, as a mean over the samples.
    config = points.given(x[:, None], values=y[:, None], model="linear", objective="mse")
    assembly = assemble(make_plan(check(config), read=True), "cpu")
    model: Any = assembly.model.double()
    with torch.no_grad():
        model.head.weight.fill_(a)
        model.head.bias.fill_(b)
    assembly.objective.loss(model(x[:, None]), y[:, None]).backward()
    found = torch.stack([model.head.weight.grad[0, 0], model.head.bias.grad[0]])
    torch.testing.assert_close(20 * found, printed.detach(), rtol=0, atol=1e-10)


@pytest.mark.catalogue("S4-020")
def test_least_squares_without_a_bias_is_the_normal_equations_and_of_least_norm_where_they_have_many(
    tmp_path: Path,
) -> None:
    x, w = random(50, 3), torch.tensor([[1.0], [-2.0], [0.5]], dtype=torch.float64)
    y = x @ w + 0.1 * random(50, 1, seed=1)
    head = solved(OLS, x, y, bias=False)
    columns = x.T  # patterns as columns
    closed = torch.linalg.inv(columns @ columns.T) @ columns @ y
    torch.testing.assert_close(head.weight.T, closed, rtol=0, atol=1e-9)
    torch.testing.assert_close(head.weight.T, torch.linalg.lstsq(x, y).solution, rtol=0, atol=1e-9)
    assert (columns @ (x @ head.weight.T - y)).norm() < 1e-9
    twice = torch.cat([x, x[:, :1]], 1)  # of rank 3
    least = solved(OLS, twice, y, bias=False)
    torch.testing.assert_close(least.weight.T, torch.linalg.pinv(twice) @ y, rtol=0, atol=1e-9)
    assert least.weight[0, 0].item() == pytest.approx(least.weight[0, 3].item(), abs=1e-9)
    config = points.given(
        x, values=y, model={"name": "linear", "bias": False}, reference="least_squares",
        optimizer={"name": "sgd", "lr": 0.05, "schedule": {"name": "linear"}},
        trainer={"epochs": 50, "eval_every": 50},
    )  # fmt: skip
    config["data"] |= {"batch_size": 10}
    done, model = trained(tmp_path, **config)
    assert (model.head.weight - head.weight).norm() < 1e-3 * head.weight.norm()
    assert done.reference["gap"] < 1e-6


@pytest.mark.catalogue("S3-029")
def test_outputs_of_least_squares_do_not_meet() -> None:
    x, y = random(40, 4), random(40, 3, seed=1)
    head = solved(OLS, x, y, 3)
    for k in range(3):
        alone = solved(OLS, x, y[:, k : k + 1])
        torch.testing.assert_close(alone.weight, head.weight[k : k + 1], rtol=0, atol=1e-12)
        torch.testing.assert_close(alone.bias, head.bias[k : k + 1], rtol=0, atol=1e-12)
    model = linear(4, 3)
    theta = torch.cat([model.head.weight.T, model.head.bias.unsqueeze(0)])
    design = torch.cat([x, torch.ones(40, 1)], 1)
    traces = (
        (y.T @ y).trace() - 2 * (y.T @ design @ theta).trace() + (theta.T @ design.T @ design @ theta).trace()
    )
    whole = (
        made(LeastSquaresReference, configs.LeastSquares(features="sum")).value(model, Batch((x,), y)) * 40
    )
    assert whole == pytest.approx(traces.item(), abs=1e-9)


@pytest.mark.catalogue("T044")
def test_more_numbers_than_samples_fit_exactly_and_noise_moves_them_by_the_least_singular_value() -> None:
    x, y, noise = random(10, 20), random(10, 1, seed=1), 1e-3
    moved = y.clone()
    moved[0] += noise

    def change(x: Tensor) -> tuple[float, float, float]:
        first, second = (solved(OLS, x, target, bias=False).weight for target in (y, moved))
        rest, least = (x @ first.T - y).square().sum(), torch.linalg.svdvals(x)[-1]
        return float(rest), float((second - first).norm()), float(least)

    left, by, least = change(x)
    assert left < 1e-10 and 0 < by <= noise / least * (1 + 1e-9)
    close = x.clone()
    close[0] = close[1] + 1e-3 * random(20, seed=2)  # nearly the same sample twice
    left, by, least = change(close)
    assert left < 1e-10 and 100 * noise < by <= noise / least * (1 + 1e-9)


def test_ridge_and_lasso_agree_with_scikit_learn() -> None:
    x, y = DIABETES[0], DIABETES[1].unsqueeze(-1)
    for value in (0.01, 1.0):
        head = solved(made(RidgeReference, configs.Ridge(value=value)), x, y)
        other = linear_model.Ridge(alpha=value * len(x) / 2).fit(x, y[:, 0])
        torch.testing.assert_close(head.weight[0].detach(), torch.tensor(other.coef_), rtol=1e-9, atol=1e-9)
        assert head.bias.item() == pytest.approx(other.intercept_)
        head = solved(made(LassoReference, configs.Lasso(value=value)), x, y)
        other = linear_model.Lasso(alpha=value / 2, tol=1e-12, max_iter=100_000).fit(x, y[:, 0])
        torch.testing.assert_close(head.weight[0].detach(), torch.tensor(other.coef_), rtol=1e-7, atol=1e-6)
        assert torch.equal(head.weight[0] == 0, torch.tensor(other.coef_ == 0))


@pytest.mark.parametrize("value", [1e6, 1e30])
def test_a_ridge_that_leaves_no_weight_is_the_mean(value: float) -> None:
    x, y = DIABETES[0].double(), DIABETES[1].double().unsqueeze(-1)
    head = solved(made(RidgeReference, configs.Ridge(value=value)), x, y)
    assert head.bias.item() == pytest.approx(y.mean().item(), rel=1e-9)
    assert head.weight.abs().max() < 1e-2


def test_an_optimum_that_single_precision_cannot_hold_is_refused_and_not_reported() -> None:
    x = torch.linspace(0, 1, 21).unsqueeze(-1)
    train = Batch((x,), torch.cos(4.7 * x) + 0.1 * random(21, 1).float())
    with pytest.raises(PegboardError, match="lost in rounding.*\n.*basis"):
        OLS.solve(Polynomial(1, 15, 1), train)
    better = Polynomial(1, 15, 1, basis="chebyshev", domain=(0.0, 1.0))
    assert OLS.value(OLS.solve(better, train), train) < 0.01


def test_lasso_of_more_features_than_samples_meets_its_conditions_to_the_last_digits() -> None:
    x, value = random(30, 60), 0.02
    y = x[:, :3].sum(1, keepdim=True) + 0.1 * random(30, 2, seed=1)
    head = solved(made(LassoReference, configs.Lasso(value=value)), x, y, 2)
    slope = 2 * x.T @ (head(x) - y) / (30 * 2)  # of the mean over samples and outputs
    on = head.weight.T != 0
    assert 0 < on.sum() < 60
    torch.testing.assert_close(slope[on], -value * head.weight.T[on].sign(), rtol=0, atol=1e-12)
    assert slope.abs().max() <= value + 1e-12
    assert (head(x) - y).sum(0).abs().max() < 1e-10  # the bias costs nothing


def test_lasso_of_an_orthonormal_design_is_a_soft_threshold_of_least_squares() -> None:
    x = torch.linalg.qr(random(40, 5))[0] * 40**0.5  # x^T x / 40 = 1
    y, value = random(40, 1, seed=1), 0.2
    plain = solved(OLS, x, y, bias=False).weight
    head = solved(made(LassoReference, configs.Lasso(value=value)), x, y, bias=False)
    torch.testing.assert_close(head.weight, soft_threshold(plain, value / 2), rtol=0, atol=1e-12)
    assert (head.weight == 0).any() and (head.weight != 0).any()


def test_a_run_with_weight_decay_ends_at_the_ridge_of_the_same_value(tmp_path: Path) -> None:
    x, y = random(30, 2), random(30, 1, seed=1)
    config = points.given(
        x, values=y, model="linear", reference={"name": "ridge", "value": 0.5},
        regularizers={"weight_decay": {"value": 0.5, "mode": "l2"}},
    )  # fmt: skip
    done, model = trained(tmp_path, **config)
    assert 0 <= done.reference["gap"] < 1e-9 and "0.5/2 ||w||^2" in done.reference["formula"]
    exact = solved(made(RidgeReference, configs.Ridge(value=0.5)), x, y)
    torch.testing.assert_close(model.head.weight.double(), exact.weight, rtol=0, atol=1e-5)
    free = solved(OLS, x, y)
    assert exact.weight.norm() < 0.9 * free.weight.norm()
    whole = solved(made(RidgeReference, configs.Ridge(value=0.5, bias=True)), x + 1, y + 5)
    assert whole.bias.abs() < 0.9 * solved(OLS, x + 1, y + 5).bias.abs()


def test_samples_count_as_their_weights_say_and_not_at_all_at_zero() -> None:
    x, y = random(20, 2), random(20, 1, seed=1)
    weight = torch.tensor([1.0, 2.0, 3.0, 0.0] * 5)
    y[weight == 0] = torch.nan
    again = torch.repeat_interleave(torch.arange(20), weight.long())
    for reference in (
        OLS,
        made(RidgeReference, configs.Ridge(value=0.3)),
        made(LassoReference, configs.Lasso(value=0.1)),
    ):
        head, other = solved(reference, x, y, weight=weight), solved(reference, x[again], y[again])
        torch.testing.assert_close(head.weight, other.weight, rtol=0, atol=1e-12)
        model = linear(2)
        one, two = (
            reference.value(model, Batch((x,), y, weight)),
            reference.value(model, Batch((x[again],), y[again])),
        )
        assert one == pytest.approx(two, abs=1e-12)


def test_a_reference_leaves_the_model_as_it_is_and_solves_any_that_is_linear_in_its_parameters() -> None:
    x = torch.linspace(-1, 1, 12, dtype=torch.float64).unsqueeze(-1)
    model = Polynomial(1, 3, 1).double()
    before = [p.clone() for p in model.parameters()]
    best: Any = OLS.solve(model, Batch((x,), 2 * x**3 - x + 4))
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), before, strict=True))
    torch.testing.assert_close(
        best.head.weight.data, torch.tensor([[-1.0, 0, 2]]).double(), rtol=0, atol=1e-12
    )
    assert best.head.bias.item() == pytest.approx(4)


def test_logistic_and_softmax_regression_agree_with_scikit_learn() -> None:
    x, y = (torch.tensor(part) for part in load_breast_cancer(return_X_y=True))
    x, value = (x - x.mean(0)) / x.std(0), 0.01
    head = solved(made(LogisticReference, configs.Logistic(value)), x, y)
    other = linear_model.LogisticRegression(C=1 / (value * len(x)), tol=1e-12, solver="newton-cholesky").fit(
        x, y
    )
    torch.testing.assert_close(head.weight.detach(), torch.tensor(other.coef_), rtol=0, atol=1e-9)
    x, y = (torch.tensor(part) for part in load_iris(return_X_y=True))
    reference = made(LogisticReference, configs.Logistic(value))
    head = solved(reference, x, y, 3)
    other = linear_model.LogisticRegression(C=1 / (value * len(x)), tol=1e-10, max_iter=10_000).fit(x, y)
    torch.testing.assert_close(head.weight.detach(), torch.tensor(other.coef_), rtol=0, atol=1e-4)
    model = linear(4, 3)
    model.head.load_state_dict(head.state_dict())
    loss = nn.functional.cross_entropy(model(x), y) + value / 2 * model.head.weight.square().sum()
    loss.backward()
    assert sum(p.grad.square().sum() for p in model.parameters()) ** 0.5 < 1e-9  # type: ignore[misc, union-attr]
    assert reference.value(model, Batch((x,), y)) == pytest.approx(loss.item(), abs=1e-12)


@pytest.mark.parametrize("value", [0.0, 0.05])
@pytest.mark.parametrize("constant", [0.0, 0.1, 123456.7])
def test_a_constant_feature_changes_no_logistic_regression(value: float, constant: float) -> None:
    x = random(60, 3)
    three = (x[:, 0] + random(60, seed=1) > 0).long() + (x[:, 1] + random(60, seed=2) > 0.3).long()
    longer = torch.cat([x, torch.full((60, 1), constant, dtype=torch.float64)], 1)
    weight = torch.rand(60, generator=torch.Generator().manual_seed(3))
    for y, outputs in ((three.clamp(max=1), 1), (three, 3)):
        reference = made(LogisticReference, configs.Logistic(value))
        short, long = (solved(reference, inputs, y, outputs, weight=weight) for inputs in (x, longer))
        torch.testing.assert_close(long.weight[:, :3], short.weight, rtol=0, atol=1e-9)
        torch.testing.assert_close(long(longer), short(x), rtol=0, atol=1e-9)
        assert not long.weight[:, 3].any()


def test_chances_between_zero_and_one_are_met_exactly() -> None:
    x, reference = random(40, 2), made(LogisticReference, configs.Logistic())
    chance = torch.sigmoid(2 * x[:, 0] + 0.3)  # all on the right side of it, and not separated for that
    pair = torch.stack([1 - chance, chance], 1)
    head = solved(reference, x, pair)
    torch.testing.assert_close(head.weight, torch.tensor([[2.0, 0]]).double(), rtol=0, atol=1e-9)
    assert head.bias.item() == pytest.approx(0.3, abs=1e-9)
    torch.testing.assert_close(solved(reference, x, pair, 2)(x).softmax(-1), pair, rtol=0, atol=1e-9)
    labels = made(LogisticReference, configs.Logistic(), DataSpec((Vector(2),), Labels(2)))
    torch.testing.assert_close(solved(labels, x, pair, 2)(x).sigmoid(), pair, rtol=0, atol=1e-9)


@pytest.mark.parametrize("value", [0.0, 0.1])
@pytest.mark.parametrize(
    ("classes", "outputs", "said"),
    [
        ([1, 1, 1, 1], 1, "every training sample has class 1"),
        ([0, 0, 0, 0], 1, "no training sample has class 1"),
        ([0, 2, 0, 2], 3, "no training sample has class 1"),
    ],
)
def test_a_class_that_nobody_has_leaves_no_best_bias(
    classes: list[int], outputs: int, said: str, value: float
) -> None:
    x, y, reference = random(4, 2), torch.tensor(classes), made(LogisticReference, configs.Logistic(value))
    with pytest.raises(PegboardError, match=f"{said}(.|\n)*every class occurs"):
        solved(reference, x, y, outputs)
    if value:
        assert solved(reference, x, y, outputs, bias=False).weight.isfinite().all()


def test_labels_are_as_many_logistic_regressions() -> None:
    x, value = random(60, 3), 0.1
    y = (x[:, :2] + random(60, 2, seed=1) > 0).float()
    spec = DataSpec((Vector(3),), Labels(2))
    head = solved(made(LogisticReference, configs.Logistic(value), spec), x, y, 2)
    for k in range(2):  # the loss of a sample is the mean over labels, so that each has half of it
        alone = solved(made(LogisticReference, configs.Logistic(2 * value)), x, y[:, k].long())
        torch.testing.assert_close(head.weight[k : k + 1], alone.weight, rtol=0, atol=1e-9)


def test_products_with_the_hessian_find_the_same_optimum(monkeypatch: pytest.MonkeyPatch) -> None:
    x = random(50, 4)
    y = (x[:, 0] + random(50, seed=1)).sign().clamp(min=0).long() + (x[:, 1] > 1).long()
    reference = made(LogisticReference, configs.Logistic(0.01))
    dense = solved(reference, x, y, 3)
    monkeypatch.setattr("pegboard_mlp.logistic.DENSE", 0)
    torch.testing.assert_close(solved(reference, x, y, 3).weight, dense.weight, rtol=0, atol=1e-8)


@pytest.mark.catalogue("S3-045")
def test_the_gradient_of_logistic_regression_is_the_sum_of_errors_times_inputs() -> None:
    x = random(80, 2)
    y = (x @ torch.tensor([2.0, -1.0]).double() + random(80, seed=1) > 0).long()
    config = points.given(x, classes=y, model="linear", objective="binary_cross_entropy")
    assembly = assemble(make_plan(check(config), read=True), "cpu")
    model: Any = assembly.model.double()
    (80 * assembly.objective.loss(model(x), y)).backward()  # the loss of a run is a mean
    off = (1 / (1 + (-model(x)[:, 0]).exp()) - y).detach()
    torch.testing.assert_close(model.head.weight.grad, (off @ x).unsqueeze(0), rtol=0, atol=1e-10)
    torch.testing.assert_close(model.head.bias.grad, off.sum().reshape(1), rtol=0, atol=1e-10)


@pytest.mark.sweep
@pytest.mark.catalogue("S3-045")
def test_gradient_descent_reaches_one_optimum_of_logistic_regression_from_anywhere(tmp_path: Path) -> None:
    x = random(80, 2)
    y = (x @ torch.tensor([2.0, -1.0]).double() + 0.5 + 2 * random(80, seed=1) > 0).long()
    head = solved(made(LogisticReference, configs.Logistic()), x, y)
    config = points.given(
        x, classes=y, model="linear", objective={"name": "binary_cross_entropy", "metrics": []},
        reference="logistic", optimizer={"name": "gd", "lr": 4.0, "tolerance": 3e-7},
    )  # fmt: skip
    for seed in range(5):
        done, found = trained(
            tmp_path, **config | {"seed": seed, "trainer": {"epochs": 200, "eval_every": 200}}
        )
        torch.testing.assert_close(found.head.weight.double(), head.weight, rtol=0, atol=1e-5)
        torch.testing.assert_close(found.head.bias.double(), head.bias, rtol=0, atol=1e-5)
        assert -1e-12 < done.reference["gap"] < 1e-9


@pytest.mark.catalogue("T036", "S3-045", "S4-023")
def test_separable_classes_have_no_optimum_and_weights_grow_without_end(tmp_path: Path) -> None:
    x = torch.cat([torch.linspace(-3, -1, 20), torch.linspace(0.5, 3, 20)]).unsqueeze(-1)
    y = torch.arange(40) // 20
    config = points.given(
        x, classes=y, model={"name": "linear", "init": "zeros"}, optimizer={"name": "sgd", "lr": 4.0},
        objective={"name": "binary_cross_entropy", "metrics": ["accuracy"]},
    )  # fmt: skip
    sizes = []
    for epochs in (40, 320):
        done, model = trained(tmp_path, **config | {"trainer": {"epochs": epochs, "eval_every": epochs}})
        sizes.append(model.head.weight.item())
        assert -1 < -model.head.bias.item() / sizes[-1] < 0.5
    assert sizes[0] < sizes[1] - 1
    assert done.figures["test/loss"] < 1e-2 and done.figures["test/accuracy"] == 1
    with pytest.raises(PegboardError, match=r"no optimum\.\n.*value: 1e-3"):
        made(LogisticReference, configs.Logistic()).solve(linear(1), Batch((x,), y))
    with pytest.raises(PegboardError, match="no optimum"):  # the second class is apart from the others
        made(LogisticReference, configs.Logistic()).solve(
            linear(1, 3), Batch((x,), torch.where(x[:, 0] > 2, 2, y))
        )
    touching = torch.tensor([[-1.0], [0.0], [0.0], [1.0]])  # separated but for a point that both classes have
    with pytest.raises(PegboardError, match="no optimum"):
        made(LogisticReference, configs.Logistic()).solve(
            linear(1), Batch((touching,), torch.tensor([0, 0, 1, 1]))
        )
    assert solved(made(LogisticReference, configs.Logistic(0.1)), x.double(), y).weight.item() > 0


@pytest.mark.catalogue("S3-045", "S4-023")
def test_logistic_regression_tells_blobs_apart_by_the_sign_of_its_output(tmp_path: Path) -> None:
    config = {
        "data": {"name": "blobs", "samples": 600, "classes": 2, "seed": 3, "batch_size": "all"},
        "model": "linear", "objective": "binary_cross_entropy", "optimizer": {"name": "lbfgs"},
        "reference": {"name": "logistic", "value": 1e-3},
        "regularizers": {"weight_decay": {"value": 1e-3, "mode": "l2"}},
    }  # fmt: skip
    done, model = trained(tmp_path, **config, trainer={"epochs": 10})
    assert done.figures["test/accuracy"] > 0.99
    assert done.reference["figures"]["test/accuracy"] > 0.99
    x, model, objective = 5 * random(1000, 2), model.double(), Trained(done.folder, "last").objective
    with torch.no_grad():
        said, side = objective.predict(model(x)), x @ model.head.weight[0] + model.head.bias
    # What is said is the probability of the class that is chosen.
    chance = torch.where(said["class"] == 1, said["probability"], 1 - said["probability"])
    torch.testing.assert_close(chance, side.sigmoid())
    near = side.abs() < 30  # further away the nearest double number is 0 or 1
    assert ((chance > 0) & (chance < 1))[near].all() and near.sum() > 500
    assert torch.equal(said["class"] == 1, side > 0) and 0 < said["class"].float().mean() < 1


@pytest.mark.sweep
@pytest.mark.catalogue("S4-023")
def test_weights_on_separable_clouds_grow_unless_they_are_penalized(tmp_path: Path) -> None:
    config: dict[str, Any] = {
        "data": {"name": "overlap", "regime": "separable", "samples": 300, "batch_size": "all"},
        "model": {"name": "linear", "init": "zeros"},
        "objective": {"name": "binary_cross_entropy", "metrics": ["accuracy"]},
        "optimizer": {"name": "sgd", "lr": 1.0},
    }  # fmt: skip
    sizes: dict[str, list[float]] = {"free": [], "penalized": []}
    for name, found in sizes.items():
        tricks = {"weight_decay": {"value": 0.1, "mode": "l2"}} if name == "penalized" else {}
        for epochs in (60, 360):
            trainer = {"epochs": epochs, "eval_every": epochs, "device": "cpu", "diagnose": False}
            done = points.run(config | {"regularizers": tricks, "trainer": trainer}, tmp_path)
            found.append(pegboard.load(done, which="last").head.weight.norm().item())
            assert done.figures["test/accuracy"] >= 0.97
    free, penalized = sizes["free"], sizes["penalized"]
    assert free[0] + 0.5 < free[1]
    assert penalized[0] == pytest.approx(penalized[1], rel=1e-3) and penalized[1] < free[0]


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ({"model": "mlp"}, "least_squares needs a model that is linear in its parameters, and .* mlp"),
        ({"objective": "hinge"}, "least_squares is the optimum of mse, and the objective is hinge"),
        ({"reference": "logistic", "objective": "mse"}, "logistic is the optimum of cross_entropy or binary"),
        ({"reference": "svm", "objective": "hinge", "data": {"name": "iris"}}, "svm tells two classes apart"),
        ({"reference": "kmeans"}, "kmeans needs a model that is a set of points, and the model is linear"),
        ({"reference": "margin"}, "margin"),
        (
            {"model": "pca", "objective": None, "reference": "kmeans"},
            "kmeans is the optimum of clustering, and the objective is reconstruction",
        ),
    ],
)  # fmt: skip
def test_a_reference_that_does_not_fit_is_a_mistake_in_the_config(nodes: dict[str, Any], said: str) -> None:
    config = {
        "data": {"name": "blobs", "classes": 2}, "model": "linear", "objective": "mse",
        "optimizer": "sgd", "trainer": {"epochs": 1}, "reference": "least_squares",
    }  # fmt: skip
    with pytest.raises(ConfigError, match=said) as error:
        pegboard.plan(config | nodes)
    assert "reference" in str(error.value)


def test_check_names_the_reference_of_a_config(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "ridge.yaml"
    file.write_text("data: linear_teacher\nmodel: linear\noptimizer: sgd\nreference: ridge\n")
    assert main(["check", str(file)]) == 0
    assert ["reference", "ridge", "pegboard-mlp"] in [
        x.split()[:3] for x in capsys.readouterr().out.splitlines()
    ]


def test_a_model_that_is_more_than_its_head_is_refused_by_what_it_has() -> None:
    batch = Batch((random(6, 2),), random(6, 1))
    with pytest.raises(PegboardError, match="it also trains body.1.weight"):
        OLS.solve(Mlp(2, [3], 1).double(), batch)
    with pytest.raises(PegboardError, match="no linear layer `head`"):
        OLS.solve(nn.Sequential(nn.Linear(2, 1)).double(), batch)
    bent = linear(2)
    bent.logits.add_module("bent", nn.Tanh())
    with pytest.raises(PegboardError, match=r"its output is not head\(features\(x\)\)"):
        OLS.solve(bent, batch)
    best = OLS.solve(Mlp(2, [], 1).double(), batch)  # without hidden layers it is a linear model
    assert OLS.value(best, batch) == pytest.approx(OLS.value(OLS.solve(linear(2), batch), batch), abs=1e-12)
