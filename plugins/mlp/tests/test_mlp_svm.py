"""The exact SVM: worked examples, its geometry, and runs that end at it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import pegboard
import points
import pytest
import torch
from pegboard import Batch, Context, PegboardError
from pegboard_mlp.modules import LinearModel
from pegboard_mlp.reference_configs import Svm
from pegboard_mlp.svm import Separator, SvmReference, best_bias, hard_margin, nearest_points, soft_margin
from scipy.optimize import minimize
from sklearn.svm import SVC
from sweeps import first_of_each_row
from torch import Tensor


def rows(*values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def soft(x: Tensor, y: Tensor, value: float, bias: bool = True) -> Separator:
    return soft_margin(x, y, value, torch.full_like(y, 1 / len(y)), bias)


def cost(x: Tensor, y: Tensor, value: float, weight: Tensor, bias: Any) -> float:
    return float((1 - y * (x @ weight + bias)).clamp(min=0).mean() + value * weight @ weight)


def cloud(seed: int, samples: int = 60, features: int = 3) -> tuple[Tensor, Tensor]:
    """Points of two classes with some room between them."""
    generator = torch.Generator().manual_seed(seed)
    w = torch.randn(features, generator=generator, dtype=torch.float64)
    x = torch.randn(2 * samples, features, generator=generator, dtype=torch.float64)
    along = x @ w / w.norm() + 0.2
    kept = along.abs() > 0.15
    return x[kept][:samples], along[kept][:samples].sign()


def svm(folder: Path, x: Tensor, y: Tensor, value: float, epochs: int = 150) -> tuple[pegboard.Run, Any]:
    """A linear model trained on the hinge loss with weight decay, beside the exact one."""
    base: dict[str, Any] = {
        "model": {"name": "linear", "init": "zeros"},
        "objective": {"name": "hinge", "metrics": ["accuracy"]},
        "regularizers": {"weight_decay": {"value": 2 * value, "mode": "l2"}} if value else {},
        "reference": {"name": "svm", "value": value},
        "optimizer": {"name": "sgd", "lr": 0.5, "schedule": {"name": "linear"}},
        "trainer": {"epochs": epochs, "eval_every": epochs, "device": "cpu", "diagnose": False},
    }
    done = pegboard.train(points.given(x, classes=(y > 0).long(), **base), root=folder, quiet=True)
    return done, pegboard.load(done, which="last")


SIX = rows([-1, 0], [1, 0], [0, 0], [2, 0], [-1, 1], [0.5, 1]), rows(-1, 1, -1, 1, -1, 1)
LINE = rows([-1, 0], [0, 0], [1, 0], [2, 0]), rows(-1, -1, 1, 1)


@pytest.mark.catalogue("T058")
@pytest.mark.parametrize(
    ("count", "weight", "support"), [(4, [2, 0], [1, 2]), (5, [2, 0], [1, 2]), (6, [2, 1], [1, 2, 5])]
)
def test_the_hard_margin_of_four_to_six_points(count: int, weight: list[float], support: list[int]) -> None:
    x, y = SIX[0][:count], SIX[1][:count]
    found = hard_margin(x, y)
    assert found is not None
    torch.testing.assert_close(found.weight, rows(*weight), rtol=0, atol=1e-12)
    assert found.bias.item() == pytest.approx(-1, abs=1e-12)  # the source writes w x - b
    assert found.support.tolist() == support
    assert found.width == pytest.approx(2 / rows(*weight).norm().item(), abs=1e-12)
    reference = SvmReference(Svm(), Context())
    batch, model = Batch((x,), (y > 0).long()), LinearModel(2, 1).double()
    best: Any = reference.solve(model, batch)
    torch.testing.assert_close(best.head.weight.data[0], rows(*weight), rtol=0, atol=1e-12)
    figures = reference.gap(model, best, batch)
    assert figures["optimum"] == pytest.approx(-found.width / 2) and figures["support"] == len(support)
    assert figures["gap"] > 0


@pytest.mark.catalogue("T051", "T052", "T058")
def test_a_run_stands_beside_the_hard_margin_of_its_points(tmp_path: Path) -> None:
    done, _ = svm(tmp_path, *SIX, 0, epochs=1)
    assert done.reference["margin"] == pytest.approx(1 / 5**0.5, abs=1e-6)  # half the width of the slab
    assert done.reference["optimum"] == pytest.approx(-(5**-0.5), abs=1e-6)
    assert done.reference["support"] == 3 and done.reference["gap"] > 0


@pytest.mark.catalogue("T060")
@pytest.mark.parametrize(
    ("value", "first", "least"),
    first_of_each_row(
        [(0.05, 2, 0.2), (0.1, 1.25, 0.34375), (0.3, 2 / 3, 1.4 / 3), (1, 0.5, 0.75), (2, 0.25, 0.875)]
    ),
)
def test_the_soft_margin_of_four_points_on_a_line(
    value: float, first: float, least: float, tmp_path: Path
) -> None:
    found = soft(*LINE, value)
    torch.testing.assert_close(found.weight, rows(first, 0), rtol=0, atol=1e-12)
    assert found.bias.item() == pytest.approx(-first / 2, abs=1e-9)  # of several the one in the middle
    assert cost(*LINE, value, *found[:2]) == pytest.approx(least, abs=1e-12)
    done, model = svm(tmp_path, *LINE, value)
    assert model.head.weight[0, 0].item() == pytest.approx(first, abs=1e-2)
    assert done.reference["optimum"] == pytest.approx(least, abs=1e-7)
    assert -1e-7 < done.reference["gap"] < 1e-3


@pytest.mark.catalogue("T061")
def test_one_outlier_moves_the_hard_margin_and_not_the_soft_one(tmp_path: Path) -> None:
    def copies(n: int, outlier: bool = True) -> tuple[Tensor, Tensor]:
        x = rows(*[[0.0, 0]] * n, *[[1.0, 0]] * n, *[[0.5, 0.0]] * outlier)
        return x, rows(*[-1.0] * n, *[1.0] * n, *[-1.0] * outlier)

    clean, dirty = hard_margin(*copies(3, outlier=False)), hard_margin(*copies(3))
    assert clean is not None and dirty is not None
    torch.testing.assert_close(clean.weight, rows(2, 0), rtol=0, atol=1e-12)
    torch.testing.assert_close(dirty.weight, rows(4, 0), rtol=0, atol=1e-12)
    assert dirty.bias.item() == pytest.approx(-3) and dirty.width == pytest.approx(0.5)
    for value in (0.05, 0.1, 0.5):
        found = soft(*copies(4, outlier=False), value)
        assert found.weight[0].item() == pytest.approx(min(2, 1 / (4 * value)), abs=1e-9)
        least = 4 * value if value <= 1 / 8 else 1 - 1 / (16 * value)
        assert cost(*copies(4, outlier=False), value, *found[:2]) == pytest.approx(least, abs=1e-12)
    for value, enough in ((0.05, 2), (0.01, 6), (0.1, 5), (0.005, 12)):
        torch.testing.assert_close(soft(*copies(enough), value).weight, rows(2, 0), rtol=0, atol=1e-9)
        assert abs(soft(*copies(enough - 1), value).weight[0].item() - 2) > 0.05
    assert soft(*copies(1), 0.01).weight[0].item() == pytest.approx(4, abs=1e-9)
    assert soft(*copies(5), 0.01).weight[0].item() == pytest.approx(2.2727, abs=1e-4)
    done, model = svm(tmp_path, *copies(20), 0.01, epochs=300)
    assert model.head.weight[0, 0].item() == pytest.approx(2, abs=0.02)
    assert done.reference["gap"] < 1e-3


@pytest.mark.catalogue("T051")
def test_the_margin_is_the_distance_between_the_hulls() -> None:
    for seed in range(5):
        x, y = cloud(seed, 30)
        found = hard_margin(x, y)
        assert found is not None
        least = (y * (x @ found.weight + found.bias)).min()
        assert 2 * float(least / found.weight.norm()) == pytest.approx(found.width, abs=1e-9)
        assert float(nearest_points(x, y).norm()) == pytest.approx(found.width, abs=1e-9)
        up, down = x[y > 0].numpy(), x[y < 0].numpy()

        def between(shares: Any, up: Any = up, down: Any = down) -> Any:
            gap = shares[: len(up)] @ up - shares[len(up) :] @ down
            return gap @ gap, 2 * numpy.concatenate([up @ gap, -down @ gap])

        def sums(shares: Any, first: Any = up) -> Any:
            return [shares[: len(first)].sum() - 1, shares[len(first) :].sum() - 1]

        parts = ({"type": "eq", "fun": sums},)
        start = numpy.concatenate([numpy.full(len(up), 1 / len(up)), numpy.full(len(down), 1 / len(down))])
        bounds, limits = [(0, 1)] * len(start), {"ftol": 1e-14, "maxiter": 500}
        other = minimize(between, start, jac=True, bounds=bounds, constraints=parts, options=limits)
        assert other.fun**0.5 == pytest.approx(found.width, abs=1e-6)


@pytest.mark.catalogue("T052", "T062")
def test_support_vectors_alone_have_the_same_margin_and_there_are_at_least_two() -> None:
    for seed in range(100):
        x, y = cloud(seed, 20, 2)
        if bool((y == y[0]).all()):
            continue
        found = hard_margin(x, y)
        assert found is not None and len(found.support) >= 2
        outputs = y * (x @ found.weight + found.bias)
        torch.testing.assert_close(
            outputs[found.support], torch.ones(len(found.support)).double(), rtol=0, atol=1e-6
        )
        again = hard_margin(x[found.support], y[found.support])
        assert again is not None
        torch.testing.assert_close(again.weight, found.weight, rtol=1e-7, atol=1e-7)
        assert again.bias.item() == pytest.approx(found.bias.item(), abs=1e-6)


@pytest.mark.catalogue("T062")
def test_two_and_three_support_vectors_fix_the_direction() -> None:
    low, high = rows(-1.0, 2), rows(2.0, 3)
    two = hard_margin(torch.stack([low, high, low - (high - low), high + rows(1, 5)]), rows(-1, 1, -1, 1))
    assert two is not None and two.support.tolist() == [0, 1]
    torch.testing.assert_close(two.weight, 2 * (high - low) / (high - low).square().sum(), rtol=0, atol=1e-12)
    assert two.weight.norm().item() == pytest.approx(2 / (high - low).norm().item())
    x = rows([0, 0], [1, 3], [4, 1], [9, 9])
    three = hard_margin(x, rows(-1, -1, 1, 1))
    assert three is not None and three.support.tolist() == [0, 1, 2]
    assert abs(float(three.weight @ (x[0] - x[1]))) < 1e-8


@pytest.mark.parametrize(("samples", "features", "value"), [(150, 4, 0.01), (80, 100, 0.05), (200, 2, 1e-4)])
def test_the_soft_margin_costs_no_more_than_that_of_libsvm(samples: int, features: int, value: float) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(samples, features, generator=generator, dtype=torch.float64)
    y = (x[:, 0] + 0.7 * torch.randn(samples, generator=generator, dtype=torch.float64)).sign()
    found = soft(x, y, value)
    other = SVC(kernel="linear", C=1 / (2 * value * samples), tol=1e-8).fit(x, y)
    theirs = torch.tensor(other.coef_[0])
    torch.testing.assert_close(found.weight, theirs, rtol=0, atol=1e-3 * float(theirs.norm()))
    gap = cost(x, y, value, theirs, float(other.intercept_[0])) - cost(x, y, value, *found[:2])
    assert -1e-12 < gap < 1e-5
    bare = soft(x, y, value, bias=False)
    assert bare.bias == 0 and cost(x, y, value, *bare[:2]) >= cost(x, y, value, *found[:2])
    moved = bare.weight + 1e-3 * torch.randn(20, features, generator=generator, dtype=torch.float64)
    assert all(cost(x, y, value, w, 0.0) > cost(x, y, value, *bare[:2]) for w in moved)


def test_weights_of_samples_are_copies_of_them() -> None:
    x, y = LINE[0] + rows(0, 0.3), rows(-1, 1, -1, 1)
    counts = torch.tensor([1, 2, 3, 1])
    weighted = soft_margin(x, y, 0.1, counts.double() / 7)
    copied = soft(x.repeat_interleave(counts, 0), y.repeat_interleave(counts), 0.1)
    torch.testing.assert_close(weighted.weight, copied.weight, rtol=0, atol=1e-9)


def test_the_best_bias_is_the_middle_of_all_that_are_best() -> None:
    y = rows(-1, -1, 1, 1)
    share = torch.full_like(y, 0.25)
    assert best_bias(rows(-4, -3, 3, 4), y, share).item() == pytest.approx(0)  # anything from -2 to 2
    assert best_bias(rows(0, 0, 0, 0), y, share).item() == pytest.approx(0)
    assert best_bias(rows(0, 0, 0, 0), rows(1, 1, 1, 1), share).item() == pytest.approx(1)


def test_two_scores_are_decided_by_their_difference() -> None:
    x, y = cloud(0)
    batch = Batch((x,), (y > 0).long())
    for value in (0.0, 0.05):
        reference = SvmReference(Svm(value), Context())
        one, two = LinearModel(3, 1).double(), LinearModel(3, 2).double()
        first, second = reference.solve(one, batch), reference.solve(two, batch)
        assert reference.value(first, batch) == pytest.approx(reference.value(second, batch), abs=1e-9)
        assert reference.value(two, batch) > reference.value(second, batch)


def test_classes_that_overlap_have_no_hard_margin() -> None:
    model, reference = LinearModel(2, 1), SvmReference(Svm(), Context())
    xor = Batch((rows([0, 0], [1, 1], [0, 1], [1, 0]),), torch.tensor([1, 1, 0, 0]))
    with pytest.raises(PegboardError, match="no hyperplane separates(.|\n)*value: 0.01"):
        reference.solve(model, xor)
    with pytest.raises(PegboardError, match="a single class"):
        reference.solve(model, xor._replace(target=torch.ones(4, dtype=torch.long)))
    with pytest.raises(PegboardError, match="the model has 3 outputs"):
        reference.solve(LinearModel(2, 3), xor)
    flat = SvmReference(Svm(0.1), Context())
    best = flat.solve(model, xor)
    assert flat.gap(model, best, xor)["optimum"] == pytest.approx(1)  # no weight is worth its price


@pytest.mark.sweep
@pytest.mark.catalogue("T056")
def test_admissions_are_safer_outside_the_margin_of_a_soft_svm(tmp_path: Path) -> None:
    base = {
        "model": "linear",
        "trainer": {"epochs": 60, "eval_every": 60, "device": "cpu", "diagnose": False},
    }
    found = {}
    for seed in range(2):
        data = {"name": "admissions", "samples": 600, "seed": seed, "batch_size": "all"}
        for objective, reference in (
            ("hinge", {"name": "svm", "value": 0.005}),
            ("binary_cross_entropy", "logistic"),
        ):
            config = base | {
                "data": data, "reference": reference,
                "objective": {"name": objective, "metrics": ["accuracy"]},
                "optimizer": {"name": "sgd", "lr": 1.0, "schedule": {"name": "linear"}},
            }  # fmt: skip
            if objective == "hinge":
                config["regularizers"] = {"weight_decay": {"value": 0.01, "mode": "l2"}}
            done = pegboard.train(config, root=tmp_path, quiet=True)
            found[objective] = pegboard.load(done, which="last").head.requires_grad_(False)
            assert done.reference["gap"] < 0.02
        machine, chance = found["hinge"], found["binary_cross_entropy"]
        assert torch.cosine_similarity(machine.weight, chance.weight).item() > 0.97
        offsets = [float(h.bias / h.weight.norm()) for h in (machine, chance)]
        assert abs(offsets[0] - offsets[1]) < 0.15
        splits = pegboard.plan(config)  # the data that the run had
        train = _train_of(splits)
        with torch.no_grad():
            outputs = machine(train.inputs[0])[:, 0]
        right, outside = (outputs > 0).long() == train.target, outputs.abs() > 1
        assert 0.1 < outside.float().mean() < 0.95
        assert right[outside].float().mean() > right[~outside].float().mean() + 0.05


def _train_of(plan: Any) -> Batch:
    from pegboard.planning.plan import read_data

    source = read_data(plan.settings).train
    return source.gather(torch.arange(len(source)))
