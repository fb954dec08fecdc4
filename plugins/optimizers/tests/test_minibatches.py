"""Gradients of batches: what they are on average, how they scatter, and what that does to descent."""

import math

import pytest
import torch
from pegboard import Batch, PegboardError
from pegboard.config.check import check
from pegboard.data import epoch_order
from pegboard.data.sampling import all_alike
from pegboard.engine.precision import choose_precision
from pegboard.engine.step import make_step
from pegboard.inference.trained import Trained
from pegboard.planning.plan import assemble, make_plan
from pegboard_objectives.functional import regression
from points import given, run

DOUBLE = torch.float64


def problem(samples, features, seed, noise=1.0, dtype=DOUBLE):
    """Inputs, noisy linear values, and the weights of least squares."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(samples, features, dtype=DOUBLE, generator=generator)
    y = x @ torch.ones(features, 1, dtype=DOUBLE)
    y = y + noise * torch.randn(samples, 1, dtype=DOUBLE, generator=generator)
    return x.to(dtype), y.to(dtype), torch.linalg.lstsq(x, y).solution


def gradients(x, y, w, batches):
    """The gradient of the loss of every batch in the step of a run: (batches, features)."""
    config = given(x[:2], values=y[:2], model={"name": "linear", "bias": False}, optimizer="sgd")
    assembly = assemble(make_plan(check(config), read=True), "cpu")
    with torch.no_grad():
        assembly.model.double().head.weight.copy_(w.T)
    linked = make_step(assembly, assembly.kits[0], choose_precision("fp32", "cpu"))
    found = [linked.gradients([Batch((x[index],), y[index])])[1] for index in batches]
    return torch.stack([g.flatten() for [g] in found])


@pytest.mark.catalogue("T075", "S4-062")
@pytest.mark.parametrize("size", [1, 5, 20, 100])
def test_the_gradients_of_an_epoch_are_the_full_gradient_on_average(size):
    x, y, _ = problem(100, 3, seed=0)
    w = torch.zeros(3, 1, dtype=DOUBLE)
    [full] = gradients(x, y, w, [slice(None)])
    order = epoch_order(100, seed=3, epoch=2, shuffle=True)
    torch.testing.assert_close(gradients(x, y, w, order.split(size)).mean(0), full, atol=1e-10, rtol=0)


@pytest.mark.catalogue("T075", "S3-061")
def test_the_scatter_of_gradients_falls_with_the_size_of_a_batch():
    x, y, _ = problem(1000, 5, seed=1)
    w = torch.zeros(5, 1, dtype=DOUBLE)
    single = gradients(x, y, w, torch.arange(1000).split(1))
    full, spread = single.mean(0), single.var(0, correction=0).sum()
    for size in (1, 10, 100):
        # Independent draws, as data.sampling: replacement makes them; a batch's gradient is a mean.
        epochs = 20 * size
        draws = torch.cat([epoch_order(1000, 0, epoch, True, all_alike) for epoch in range(epochs)])
        found = single[draws].reshape(20_000, size, 5).mean(1)
        scatter = found.var(0)
        assert ((found.mean(0) - full).abs() <= 4 * (scatter / 20_000).sqrt()).all()
        assert size * scatter.sum().item() == pytest.approx(spread.item(), rel=0.1)
    # The mean of single gradients is the gradient of a batch, as the loss gives it.
    some = draws[:100]
    torch.testing.assert_close(gradients(x, y, w, [some])[0], single[some].mean(0))


@pytest.mark.catalogue("S4-062")
def test_single_samples_with_a_falling_rate_reach_least_squares(tmp_path):
    x, y, best = problem(200, 3, seed=2, dtype=torch.float32)
    config = given(
        x,
        values=y,
        model={"name": "linear", "bias": False},
        optimizer={"name": "sgd", "lr": 0.1, "schedule": {"name": "inverse_time", "rate": 0.1}},
        trainer={"epochs": 10, "eval_every": 10, "device": "cpu", "diagnose": False},
    )
    config["data"] |= {"batch_size": 1}
    [w] = Trained(run(config, tmp_path).folder, "last").model.parameters()
    assert (w.T - best).norm() < 0.05 * best.norm()


@pytest.mark.catalogue("S3-046", "T066")
@pytest.mark.parametrize("search", ["none", "exact", "backtracking"])
def test_a_run_by_full_batches_ends_where_the_gradient_is_small(tmp_path, search):
    x, y, best = problem(60, 3, seed=3, dtype=torch.float32)
    config = given(
        x,
        values=y,
        model={"name": "linear", "bias": False},
        optimizer={"name": "gd", "lr": 0.3, "tolerance": 1e-4, "line_search": search},
        trainer={"epochs": 500, "device": "cpu", "diagnose": False},
        reference="least_squares",
    )
    config["data"] |= {"batch_size": "all"}
    done = run(config, tmp_path)
    assert done.status == "stopped"
    steps = done.history[-1]["step"]
    assert 2 < steps < 100
    assert done.summary["why"].startswith("optimizer: gradient norm ")
    assert done.summary["why"].endswith("is at most tolerance 0.0001")
    [w] = Trained(done.folder, "last").model.parameters()
    [slope] = gradients(x.double(), y.double(), w.detach().T.double(), [slice(None)])
    assert slope.norm() <= 1.01e-4
    assert (w.T - best).abs().max() < 1e-3
    assert done.summary["reference"]["relative"] == pytest.approx(0, abs=1e-6)


@pytest.mark.sweep
@pytest.mark.catalogue("S3-066")
def test_small_batches_need_small_rates(tmp_path):
    x, y, best = problem(256, 20, seed=4, dtype=torch.float32)

    def train(size, rate, seed=0, epochs=3):
        config = given(
            x,
            values=y,
            seed=seed,
            model={"name": "linear", "bias": False},
            optimizer={"name": "sgd", "lr": rate},
            trainer={"epochs": epochs, "eval_every": epochs, "device": "cpu", "diagnose": False},
        )
        config["data"] |= {"batch_size": size}
        return run(config, tmp_path / f"{size}-{rate}-{seed}")

    least = regression(x.double() @ best, y.double()).item()
    stable = train(64, 0.1, epochs=10).summary["figures"]["test/loss"]
    assert stable < 1.5 * least
    wild = [row["train/loss"] for row in train(1, 0.1, epochs=1).history if "train/loss" in row]
    assert wild[-1] > 1e3 * stable
    with pytest.raises(PegboardError, match=r"the loss was (inf|nan)"):
        train(1, 0.1, epochs=50)
    # The noise of an update, rate * variance / size, in a run that is stable for both.
    w = torch.zeros(20, 1, dtype=DOUBLE)
    noise = {}
    for size in (1, 64):
        batches = (
            epoch_order(256, 0, 0, True).split(size)
            if size == 1
            else [epoch_order(256, 0, epoch, True, all_alike)[:size] for epoch in range(300)]
        )
        noise[size] = 0.01 * gradients(x.double(), y.double(), w, batches).var(0).sum().item()
    assert noise[1] / noise[64] == pytest.approx(64, rel=0.25)
    # Which is what keeps small batches away from the minimum, and their error on fresh samples high.
    fresh, values, _ = problem(4000, 20, seed=5, dtype=torch.float32)
    for seed in range(2):
        ends, errors = [], []
        for size in (1, 4):
            done = train(size, 0.02, seed, 3)
            ends.append(done.summary["figures"]["test/loss"])
            with torch.no_grad():
                errors.append(regression(done.model(fresh), values).item())
        assert ends[0] > 1.1 * ends[1] > 1.1 * least
        assert errors[0] > 1.1 * errors[1] > 1.1  # the noise alone has 1


@pytest.mark.sweep
@pytest.mark.catalogue("T079", "T080")
def test_larger_batches_settle_lower_and_later(tmp_path):
    generator = torch.Generator().manual_seed(0)
    u = torch.rand(256, 1, generator=generator)
    waves = math.sqrt(2) * torch.cos(math.pi * u * torch.arange(1, 13))
    y = waves @ torch.randn(12, 1, generator=generator) / 2 + torch.randn(256, 1, generator=generator) / 2
    plateau, reached = {}, {}
    for size in (1, 4, 16, 32, 64):
        config = given(
            waves,
            values=y,
            model="linear",
            objective={"name": "mse", "metrics": []},
            optimizer={"name": "sgd", "lr": 0.03},
            trainer={"epochs": 25, "device": "cpu", "diagnose": False},
            reference="least_squares",
        )
        config["data"] |= {"batch_size": size, "val": True}
        done = run(config, tmp_path / str(size))
        optimum = done.summary["reference"]["optimum"]
        relative = [row["val/loss"] / optimum - 1 for row in done.history if "val/loss" in row]
        assert min(relative) > 0
        plateau[size] = sum(relative[-10:]) / 10
        reached[size] = next((epoch for epoch, value in enumerate(relative, 1) if value <= 0.04), None)
    assert plateau[1] > 2 * plateau[4] > 4 * plateau[16] > 8 * plateau[32]
    assert reached[1] is None
    assert reached[16] < reached[32] < reached[64]
    # What 0.04 costs where an update takes as long as 32 samples do: least between the ends.
    cost = {size: epochs * 256 / size * (32 + size) for size, epochs in reached.items() if epochs}
    assert min(cost, key=cost.get) in (16, 32)


@pytest.mark.catalogue("T084")
@pytest.mark.parametrize(("weight", "limit"), [(0.5, 0.204), (1, 0.336667), (2, 0.5025), (100, 0.980490)])
def test_descent_on_weighted_samples_ends_at_their_weighted_mean(tmp_path, weight, limit):
    """A constant, which is the bias of a linear model whose inputs are zero, for 0, 0.01 and 1."""
    config = given(
        torch.zeros(3, 1),
        values=torch.tensor([[0.0], [0.01], [1.0]]),
        weights=torch.tensor([1.0, 1.0, weight]),
        model={"name": "linear", "init": "zeros"},
        optimizer={"name": "gd", "lr": 0.3, "tolerance": 1e-7},
        trainer={"epochs": 100, "eval_every": 100, "device": "cpu", "diagnose": False},
    )
    head = Trained(run(config, tmp_path).folder, "last").model.head
    assert head.bias.item() == pytest.approx(limit, abs=1e-6)
    assert head.weight.item() == 0
