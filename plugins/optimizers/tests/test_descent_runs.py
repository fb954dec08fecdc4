"""Runs in double precision beside torch's own loop and beside paths that are known in closed form."""

import math
from itertools import accumulate, pairwise
from operator import mul

import pegboard
import points
import pytest
import torch


def run(folder, x, y, steps, optimizer, objective="mse"):
    """A linear model without a bias that starts at zero, trained on whole batches; every loss is logged."""
    config = points.given(
        x, values=y, model={"name": "linear", "init": "zeros", "bias": False}, optimizer=optimizer,
        objective={"name": objective, "metrics": []}, regularizers={"double": {}},
        trainer={
            "epochs": steps, "eval_every": steps, "log_every": 1, "device": "cpu", "diagnose": False,
        },
    )  # fmt: skip
    config["data"] |= {"double": True, "shuffle": False}
    return points.run(config, folder)


def parabola(folder, steps, **optimizer):
    """How far from the minimum of (w - 1)^2 a run is that starts at 0: at first and after every update."""
    one = torch.ones(1, 1, dtype=torch.float64)
    done = run(folder, one, one, steps + 1, {"name": "sgd", **optimizer})
    return [math.sqrt(row["train/loss"]) for row in done.history if "train/loss" in row]  # before an update


@pytest.mark.catalogue("T067", "T064")
@pytest.mark.parametrize(
    ("rate", "momentum", "count"),
    [(0.5, 0, 1), (0.1, 0, 31), (0.01, 0, 342), (0.01, 0.5, 163), (0.01, 0.9, 125)],
)
def test_a_run_down_a_parabola_takes_as_many_updates_as_the_table_says(tmp_path, rate, momentum, count):
    path = parabola(tmp_path, count + 8, lr=rate, momentum=momentum)
    assert path[0] == 1 and path[count - 1] >= 1e-3 > max(path[count:])
    if not momentum:
        assert path == pytest.approx([(1 - 2 * rate) ** n for n in range(count + 9)], abs=1e-12)


@pytest.mark.catalogue("T071")
def test_the_rates_of_a_run_must_sum_to_infinity(tmp_path):
    inverse = {"name": "inverse_time", "rate": 0.5}
    harmonic = parabola(tmp_path, 199, lr=1 / 4, schedule=inverse)  # rates 1 / (2 (k + 2))
    assert harmonic == pytest.approx([1 / (k + 1) for k in range(200)], abs=1e-12)
    summable = parabola(tmp_path, 1000, lr=1 / 8, schedule={**inverse, "power": 2.0})
    assert summable[-1] == pytest.approx(0.5, abs=1e-3)


@pytest.mark.catalogue("S3-051", "T081")
@pytest.mark.parametrize(("rate", "end"), [(0.05, 7e-10), (0.99, 0.0176), (1.0, 1.0), (1.01, 52.5)])
def test_which_rates_end_a_run_at_the_minimum(tmp_path, rate, end):
    path = parabola(tmp_path, 200, lr=rate)
    assert path[200] == pytest.approx(end, rel=0.02)
    signed = [far * math.copysign(1, 1 - 2 * rate) ** k for k, far in enumerate(path)]
    lengths = [abs(after - before) for before, after in pairwise(signed)]
    assert lengths == pytest.approx([rate * 2 * far for far in path[:-1]])  # the rate times the slope


@pytest.mark.catalogue("T081")
@pytest.mark.parametrize(("rate", "factor"), [(0.33, 0.98), (0.34, 1.04), (1 / 6, 0.0)])
def test_an_update_of_a_run_on_three_squares_descends_below_a_third(tmp_path, rate, factor):
    root = torch.full((1, 1), 3, dtype=torch.float64).sqrt()  # the loss is 3 (w - 1)^2
    done = run(tmp_path, root, root, 2, {"name": "sgd", "lr": rate})
    before, after = (row["train/loss"] for row in done.history if "train/loss" in row)
    assert (before, after) == pytest.approx((3, 3 * factor**2), abs=1e-12)


RATES = {
    "linear": ({"steps": 50, "end": 0.25}, lambda t: 1 - 0.75 * min(t / 50, 1)),
    "inverse_time": ({"rate": 1.0}, lambda t: 1 / (1 + t)),
    "inverse_time, recursive": (
        {"rate": 1.0, "recursive": True},
        lambda t: math.prod(1 / (1 + s) for s in range(t)),
    ),
    "exponential": ({"gamma": math.exp(-0.07)}, lambda t: math.exp(-0.07 * t)),
}


@pytest.mark.catalogue("S3-053", "S3-054", "S3-055")
@pytest.mark.parametrize("name", RATES)
def test_a_run_moves_by_the_rates_of_its_schedule(tmp_path, name):
    fields, factor = RATES[name]
    one, schedule = torch.ones(1, 1, dtype=torch.float64), {"name": name.split(",")[0], **fields}
    done = run(tmp_path, one, one, 60, {"name": "sgd", "lr": 0.4, "schedule": schedule})
    rows = [row for row in done.history if "train/loss" in row]
    rates = [0.4 * factor(t) for t in range(60)]
    assert [row["lr"] for row in rows] == pytest.approx(rates, rel=1e-9)
    far = accumulate((1 - 2 * rate for rate in rates[:-1]), mul, initial=1.0)
    assert [row["train/loss"] for row in rows] == pytest.approx([x**2 for x in far], rel=1e-9)


CONSTANT = {
    "heavy ball": ({"name": "sgd", "momentum": 0.9}, lambda t: 10 * (1 - 0.9**t)),
    "adagrad": ({"name": "adagrad"}, lambda t: 1 / math.sqrt(t)),
    "adam": ({"name": "adam"}, lambda t: 1.0),
    "adam without correction": (
        {"name": "adam", "bias_correction": False},
        lambda t: (1 - 0.9**t) / math.sqrt(1 - 0.999**t),
    ),
}


@pytest.mark.catalogue("S3-057", "S4-059", "S4-060", "S4-061")
@pytest.mark.parametrize("name", CONSTANT)
def test_how_long_the_steps_of_a_run_are_under_a_constant_gradient(tmp_path, name):
    """The loss |100 - w|, which has the slope -1 all the way; lengths are in units of the rate."""
    node, length = CONSTANT[name]
    one = torch.ones(1, 1, dtype=torch.float64)
    done = run(tmp_path, one, 100 * one, 501, {**node, "lr": 0.01}, "l1")
    losses = [row["train/loss"] for row in done.history if "train/loss" in row]
    steps = [(before - after) / 0.01 for before, after in pairwise(losses)]
    accurate = 1e-10 if name == "heavy ball" else 1e-6  # the others add a number to what they divide by
    assert steps == pytest.approx([length(t) for t in range(1, 501)], abs=accurate)
    if name == "heavy ball":
        assert steps[-1] == pytest.approx(10, abs=1e-10)
    if name == "adam without correction":
        assert steps[0] == pytest.approx(3.16228, abs=1e-4)


TWINS = {
    "gradient descent": ({"name": "sgd"}, torch.optim.SGD, {}),
    "heavy ball": ({"name": "sgd", "momentum": 0.9}, torch.optim.SGD, {"momentum": 0.9}),
    "nesterov": (
        {"name": "sgd", "momentum": 0.9, "nesterov": True},
        torch.optim.SGD,
        {"momentum": 0.9, "nesterov": True},
    ),
    "adagrad": ({"name": "adagrad"}, torch.optim.Adagrad, {}),
    "adam": ({"name": "adam"}, torch.optim.Adam, {}),
}


@pytest.mark.catalogue("S3-056", "S4-057", "S4-058", "S4-060", "S4-061")
@pytest.mark.parametrize("name", TWINS)
def test_fifty_updates_of_a_run_are_those_of_torch(tmp_path, name):
    node, make, fields = TWINS[name]
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(30, n, generator=generator, dtype=torch.float64) for n in (4, 2))
    done = run(tmp_path, x, y, 50, {**node, "lr": 0.02})
    found = pegboard.load(done, which="last").head.weight.detach()
    theirs = torch.nn.Linear(4, 2, bias=False).double()
    torch.nn.init.zeros_(theirs.weight)
    reference = make(theirs.parameters(), lr=0.02, **fields)
    for _ in range(50):
        reference.zero_grad()
        torch.nn.functional.mse_loss(theirs(x), y).backward()
        reference.step()
    assert found.abs().max() > 0.01
    torch.testing.assert_close(found, theirs.weight.detach(), atol=1e-12, rtol=0)
