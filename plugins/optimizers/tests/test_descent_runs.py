"""Runs in double precision beside torch's own loop and beside paths that are known in closed form."""

import math
from itertools import pairwise

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
