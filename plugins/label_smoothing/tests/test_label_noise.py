"""Label noise: what it costs in loss, what it leaves unbiased, and where its random numbers come from."""

from __future__ import annotations

import math
from pathlib import Path

import pegboard
import points
import pytest
import torch
import torch.nn.functional as F
from pegboard import Context, DataSpec, Trick, Values, Vector
from pegboard_datasets.made_splits import linear_teacher
from pegboard_datasets.options import LinearTeacher
from pegboard_label_smoothing import LabelNoise, build_noise, pegboard_regularizers
from pegboard_label_smoothing.functional import add_noise
from pegboard_label_smoothing.trick import LabelNoiseTrick


def trick(std: float, device: str = "cpu", seed: int = 0) -> LabelNoiseTrick:
    spec = DataSpec((Vector(4),), Values(1))
    built = build_noise(LabelNoise(std), Context(spec=spec, device=device, seed=seed, key="label_noise"))
    assert isinstance(built, LabelNoiseTrick)
    return built


@pytest.mark.catalogue("S4-162")
@pytest.mark.parametrize("std", [0.3, 2.0])
@pytest.mark.parametrize("seed", range(3))
def test_noise_raises_half_the_squared_loss_by_half_its_variance(std, seed):
    torch.manual_seed(seed)
    target, output = torch.randn(20_000, 1), torch.randn(20_000, 1)
    noisy = trick(std, seed=seed).edit_target(target)
    rise = (0.5 * (output - noisy) ** 2 - 0.5 * (output - target) ** 2).double()
    error = rise.std() / len(rise) ** 0.5
    assert abs(rise.mean() - std**2 / 2) < 4 * error
    assert 4 * error < std**2 / 2  # so that no rise at all would not pass


@pytest.mark.catalogue("S4-162")
def test_noise_leaves_the_least_squares_solution_unchanged_in_expectation():
    torch.manual_seed(0)
    x = torch.randn(30, 4, dtype=torch.float64)
    y = x @ torch.tensor([[1.0], [-2.0], [0.5], [3.0]], dtype=torch.float64) + 0.1
    clean = torch.linalg.lstsq(x, y).solution
    noise = trick(0.5)
    noisy = torch.cat([noise.edit_target(y) for _ in range(2000)], 1)  # a column for each repetition
    solutions = torch.linalg.lstsq(x, noisy).solution
    error = solutions.std(1, keepdim=True) / 2000**0.5
    assert ((solutions.mean(1, keepdim=True) - clean).abs() < 4 * error).all()
    # The spread is that of least squares under this noise, std^2 (X'X)^-1.
    expected = 0.25 * torch.linalg.inv(x.T @ x).diagonal()
    torch.testing.assert_close(solutions.var(1), expected, rtol=0.15, atol=0)


@pytest.mark.catalogue("S4-162")
def test_evaluation_sees_the_targets_as_they_are():
    target = torch.randn(8, 2)
    kept = target.clone()
    noise = trick(1.0)
    assert not torch.equal(noise.edit_target(target), target)
    assert torch.equal(target, kept)
    # It acts in the one stage that only training has, and hangs nothing in the model.
    record = next(r for r in pegboard_regularizers() if r.name == "label_noise")
    assert record.stages == {"edit_target": "smooth"} and record.targets == (Values,)
    overridden = {n for n in vars(LabelNoiseTrick) if n in vars(Trick) and not n.startswith("_")}
    assert overridden == {"edit_target", "formula"}


def trained(root: Path, std: float | None, steps: int, lr: float, **data: float) -> pegboard.Run:
    """A linear model of a linear teacher, with label noise or without."""
    tricks = {} if std is None else {"regularizers": {"label_noise": {"std": std}}}
    given = {
        "data": {"name": "linear_teacher", "seed": 0, **data},
        "model": {"name": "linear", "init": "zeros"},
        "optimizer": {"name": "sgd", "lr": lr, "schedule": "linear"},
        "trainer": {"steps": steps, "eval_every": steps, "device": "cpu", "diagnose": False},
    }
    return points.run(given | tricks, root)


@pytest.mark.catalogue("S4-162")
@pytest.mark.parametrize("std", [0.3, 2.0])
def test_the_loss_of_a_run_rises_by_the_variance_and_its_evaluations_stay(std, tmp_path):
    sizes = {"samples": 20_000, "val": 0.1, "test": 0.0, "batch_size": 500}
    plain, noisy = (trained(tmp_path, s, 36, 1e-30, **sizes) for s in (None, std))  # nothing is learned
    before, after = plain.history[0]["train/loss"], noisy.history[0]["train/loss"]
    # Of n mean squares, of (e + d)^2 - d^2 with noise e: twice the rise of the half squares.
    error = math.sqrt((2 * std**4 + 4 * std**2 * before) / 18_000)
    assert abs(after - before - std**2) < 4 * error < std**2
    assert noisy.figures["val/loss"] == plain.figures["val/loss"]  # off in evaluation


@pytest.mark.catalogue("S4-162")
def test_runs_with_noise_end_on_average_at_the_least_squares_solution(tmp_path):
    sizes = {"samples": 30, "features": 3, "outputs": 200, "val": 0.0, "test": 0.0, "noise": 0.0}
    clean, noisy = (
        trained(tmp_path, std, 200, 0.3 * 200, batch_size="all", **sizes).model.state_dict()
        for std in (None, 0.5)
    )  # the mean over outputs divides the rate
    for name in ("head.weight", "head.bias"):
        off = (noisy[name] - clean[name]).view(200, -1)  # an independent draw for each output
        assert (off.mean(0).abs() < 4 * off.std(0) / 200**0.5).all() and off.std(0).min() > 1e-3
    known = LinearTeacher(seed=0, **sizes)
    data = linear_teacher(known, Context()).train
    x = torch.cat((data.inputs[0], torch.ones(30, 1)), 1)
    solution = torch.linalg.lstsq(x, data.target).solution
    assert (clean["head.weight"] - solution[:3].T).abs().max() < 1e-3
    assert (clean["head.bias"] - solution[3]).abs().max() < 1e-3


def test_strength_zero_hands_back_the_same_tensor_and_draws_nothing():
    noise, target = trick(0.0), torch.randn(5, 1)
    before = noise.generator.get_state()
    assert noise.edit_target(target) is target
    assert torch.equal(noise.generator.get_state(), before)
    assert noise.formula("mse(f(x), y)") == "mse(f(x), y)"


def test_noise_is_fresh_in_every_step_and_repeats_with_the_seed():
    target = torch.zeros(100, 1)
    first, again, other = trick(1.0), trick(1.0), trick(1.0, seed=1)
    steps = [first.edit_target(target) for _ in range(2)]
    assert not torch.equal(steps[0], steps[1])
    assert all(torch.equal(again.edit_target(target), step) for step in steps)
    assert not torch.equal(other.edit_target(target), steps[0])


def test_noise_leaves_the_global_random_stream_alone():
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    trick(1.0).edit_target(torch.zeros(10, 1))
    assert torch.equal(torch.rand(4), expected)


def test_noise_keeps_type_and_device_and_runs_on_meta():
    out = trick(1.0, "meta").edit_target(torch.zeros(3, 2, device="meta"))
    assert out.device.type == "meta" and out.shape == (3, 2)
    assert add_noise(torch.zeros(2, dtype=torch.float64), 1.0).dtype == torch.float64


def test_the_formula_shows_the_noise():
    assert trick(0.5).formula("mse(f(x), y)") == "mse(f(x), y + 0.5 N(0, 1))"
    assert trick(0.5).formula("mean((f(x) - y)^2)") == "mean((f(x) - (y + 0.5 N(0, 1)))^2)"


def test_the_mean_loss_of_mse_rises_by_the_whole_variance():
    target = torch.zeros(50_000, 1)
    noisy = trick(0.5).edit_target(target)
    assert F.mse_loss(target, noisy).item() == pytest.approx(0.25, rel=0.03)
