"""Optimizers and schedules on problems whose paths are known in closed form."""

import math
from itertools import pairwise

import pegboard
import pegboard_optimizers
import points
import pytest
import torch
from pegboard import Context

PARTS = {p.name: p for p in pegboard_optimizers.pegboard_optimizers()}


class Descent:
    """A point, the gradient of a function, and an optimizer of the plugin."""

    def __init__(self, name, start, gradient, schedule=None, **values):
        part = PARTS[name]
        self.point = torch.nn.Parameter(torch.as_tensor(start, dtype=torch.float64).reshape(-1).clone())
        self.optimizer = part.build(part.config(**values), Context())([{"params": [self.point]}])
        self.gradient, self.schedule, self.rate, self.count = gradient, schedule, values["lr"], 0

    def step(self):
        if self.schedule is not None:
            self.optimizer.param_groups[0]["lr"] = self.rate * self.schedule(self.count)
        self.point.grad = self.gradient(self.point.detach())
        self.optimizer.step()
        self.count += 1
        return self.point.detach().clone()

    def run(self, steps):
        return [self.step() for _ in range(steps)][-1]


def double(x):
    return 2 * x


@pytest.mark.catalogue("T067")
@pytest.mark.parametrize(("rate", "steps"), [(0.001, 3451), (0.01, 342), (0.1, 31), (0.5, 1)])
def test_gradient_descent_on_a_parabola_takes_as_many_steps_as_the_table_says(rate, steps):
    descent = Descent("sgd", 1.0, double, lr=rate)
    while descent.step().abs() >= 1e-3:
        assert descent.count < 4000
    assert descent.count == steps
    flip = Descent("sgd", 1.0, double, lr=1.0)
    assert [flip.step().item() for _ in range(4)] == [-1, 1, -1, 1]


@pytest.mark.catalogue("T081", "S3-051")
def test_which_rates_descend():
    def value_after_one(rate):
        return 3 * Descent("sgd", 1.0, lambda x: 6 * x, lr=rate).step().item() ** 2

    assert value_after_one(0.33) < 3 < value_after_one(0.34)
    assert value_after_one(1 / 6) == pytest.approx(0, abs=1e-30)
    after = {
        rate: Descent("sgd", 1.0, double, lr=rate).run(200).abs().item()
        for rate in (0.05, 0.5, 0.99, 1, 1.01)
    }
    assert after[0.05] == pytest.approx(7e-10, rel=0.02) and after[0.5] == 0
    assert after[0.99] == pytest.approx(0.0176, rel=0.01) and after[1] == 1
    assert after[1.01] == pytest.approx(52.5, rel=0.01)
    start = torch.tensor([0.3, -2.0], dtype=torch.float64)
    moved = (Descent("sgd", start, double, lr=0.05).step() - start).norm()
    assert moved.item() == pytest.approx(0.05 * double(start).norm().item())


@pytest.mark.catalogue("T066", "S4-051")
def test_gradient_descent_on_a_quadratic_is_a_power_of_a_matrix():
    torch.manual_seed(0)
    root = torch.randn(4, 4, dtype=torch.float64)
    a = root @ root.T / 4
    start, rate = torch.randn(4, dtype=torch.float64), 0.05
    descent = Descent("sgd", start, lambda x: a @ x, lr=rate)
    power = torch.eye(4, dtype=torch.float64) - rate * a
    for t in range(1, 51):
        expected = torch.linalg.matrix_power(power, t) @ start
        torch.testing.assert_close(descent.step(), expected, atol=1e-10, rtol=0)


@pytest.mark.catalogue("S4-051")
def test_a_run_on_the_whole_batch_is_torchs_descent_bit_for_bit(tmp_path):
    torch.manual_seed(0)
    x, y = torch.randn(30, 4), torch.randn(30, 1)
    config = points.given(
        x, values=y, model={"name": "linear", "init": "zeros"}, objective="mse",
        optimizer={"name": "sgd", "lr": 0.1},
        trainer={"epochs": 40, "eval_every": 40, "device": "cpu", "diagnose": False},
    )  # fmt: skip
    config["data"] |= {"shuffle": False}
    found = pegboard.load(points.run(config, tmp_path), which="last")
    theirs = torch.nn.Linear(4, 1)
    torch.nn.init.zeros_(theirs.weight), torch.nn.init.zeros_(theirs.bias)
    reference = torch.optim.SGD(theirs.parameters(), lr=0.1)
    for _ in range(40):
        reference.zero_grad()
        torch.nn.functional.mse_loss(theirs(x), y).backward()
        reference.step()
    assert theirs.weight.abs().max() > 0.01
    assert torch.equal(found.head.weight, theirs.weight) and torch.equal(found.head.bias, theirs.bias)


@pytest.mark.catalogue("T084")
@pytest.mark.parametrize(("weight", "limit"), [(0.5, 0.204), (1, 0.336667), (2, 0.5025), (100, 0.980490)])
def test_the_limit_of_a_weighted_quadratic(weight, limit):
    def gradient(a):
        return 2 * a + 2 * (a - 0.01) + 2 * weight * (a - 1)

    assert Descent("sgd", 0.0, gradient, lr=0.004).run(3000).item() == pytest.approx(limit, abs=1e-6)


@pytest.mark.catalogue("T064", "S4-058")
def test_heavy_ball_equals_its_formula():
    def steps_to_stay(momentum):
        descent = Descent("sgd", 1.0, double, lr=0.01, momentum=momentum)
        path = [descent.step().abs().item() for _ in range(500)]
        return 1 + max(t for t, x in enumerate(path, 1) if x >= 1e-3)

    assert (steps_to_stay(0.0), steps_to_stay(0.5), steps_to_stay(0.9)) == (342, 163, 125)
    # Step by step the same as torch.optim.SGD.
    theirs = torch.nn.Parameter(torch.ones(1, dtype=torch.float64))
    reference = torch.optim.SGD([theirs], lr=0.01, momentum=0.5)
    ours = Descent("sgd", 1.0, double, lr=0.01, momentum=0.5)
    for _ in range(200):
        theirs.grad = double(theirs.detach())
        reference.step()
        torch.testing.assert_close(ours.step(), theirs.detach(), atol=1e-12, rtol=0)
    curvature = torch.logspace(0, 3, 20, dtype=torch.float64)
    large, small, root = 1000, 1, math.sqrt(1000)
    rate, beta = 4 / (math.sqrt(large) + math.sqrt(small)) ** 2, ((root - 1) / (root + 1)) ** 2
    start = torch.ones(20, dtype=torch.float64)
    descent = Descent("sgd", start, lambda x: curvature * x, lr=rate, momentum=beta)
    now = before = start
    for _ in range(50):
        now, before = now - rate * curvature * now + beta * (now - before), now
        torch.testing.assert_close(descent.step(), now, atol=1e-12, rtol=1e-12)
    while (curvature * descent.point.detach() ** 2).sum() / 2 >= 1e-8:
        descent.step()
    assert descent.count < 400


@pytest.mark.catalogue("S4-057")
def test_nesterov_is_faster_by_the_root_of_the_condition():
    curvature = torch.logspace(0, 3, 20, dtype=torch.float64)
    start, rate, root = torch.ones(20, dtype=torch.float64), 1e-3, math.sqrt(1000)
    beta = (root - 1) / (root + 1)

    def gradient(x):
        return curvature * x

    descent = Descent("sgd", start, gradient, lr=rate, momentum=beta, nesterov=True)
    # torch's parameter is the point ahead; theta are the points behind it.
    theta = [start, start]
    for _ in range(50):
        ahead = theta[-1] + beta * (theta[-1] - theta[-2])
        theta.append(ahead - rate * gradient(ahead))
        expected = theta[-1] + beta * (theta[-1] - theta[-2])
        torch.testing.assert_close(descent.step(), expected, atol=1e-12, rtol=0)

    def steps(descent):
        while (curvature * descent.point.detach() ** 2).sum() / 2 >= 1e-8:
            descent.step()
        return descent.count

    assert steps(descent) <= 500
    assert steps(Descent("sgd", start, gradient, lr=rate)) > 8000


@pytest.mark.catalogue("S3-057", "S4-059")
def test_momentum_under_a_constant_gradient_reaches_its_terminal_speed():
    descent = Descent("sgd", 0.0, torch.ones_like, lr=0.01, momentum=0.9)
    path = [0.0, *(descent.step().item() for _ in range(500))]
    steps = [a - b for a, b in pairwise(path)]
    assert steps[:60] == pytest.approx([0.01 * (1 - 0.9**t) / 0.1 for t in range(1, 61)], abs=1e-12, rel=0)
    speeds = [step / 0.01 for step in steps]
    assert speeds[:60] == pytest.approx([(1 - 0.9**t) / 0.1 for t in range(1, 61)], abs=1e-10)
    assert speeds[59] == pytest.approx(10, rel=0.003) and speeds[-1] == pytest.approx(10, abs=1e-8)


@pytest.mark.catalogue("S3-058")
def test_momentum_is_a_weighted_sum_of_all_gradients():
    curvature = torch.tensor([1.0, 5.0], dtype=torch.float64)
    start, rate, keep = torch.tensor([1.0, -2.0], dtype=torch.float64), 0.05, 0.8
    gradients = []

    def gradient(x):
        gradients.append(curvature * x)
        return gradients[-1].clone()

    descent = Descent("sgd", start, gradient, lr=rate, momentum=keep)
    for t in range(30):
        point = descent.step()
        weights = [(1 - keep ** (t + 1 - i)) / (1 - keep) for i in range(t + 1)]
        total = sum(w * g for w, g in zip(weights, gradients, strict=True))
        torch.testing.assert_close(point, start - rate * total, atol=1e-12, rtol=0)
    # As printed, with a plus and without the first gradient, the sum is far off.
    printed = start + rate * sum(w * g for w, g in zip(weights[1:], gradients[1:], strict=True))
    assert (printed - point).abs().max() > 0.1


@pytest.mark.catalogue("S3-059")
@pytest.mark.parametrize("name", ["adam", "adagrad"])
def test_each_coordinate_goes_its_own_way_under_a_separable_loss(name):
    def gradient(x):
        return torch.stack([4 * x[0] ** 3, torch.sin(x[1])]) if len(x) == 2 else 4 * x**3

    pair = Descent(name, [1.0, 2.0], gradient, lr=0.05)
    alone = Descent(name, [1.0], gradient, lr=0.05)
    gradients, moves, last = [], [], pair.point.detach().clone()
    for _ in range(20):
        gradients.append(gradient(last))
        point = pair.step()
        assert point[0].item() == pytest.approx(alone.step().item(), abs=1e-14)
        moves.append(point - last)
        last = point
    # Every move is a sum of gradients so far, each times a diagonal matrix.
    for t, move in enumerate(moves, 1):
        squares = torch.stack([g**2 for g in gradients[:t]])
        if name == "adagrad":
            diagonals = {t: 1 / (squares.sum(0).sqrt() + 1e-10)}
        else:
            memory = torch.tensor([0.001 * 0.999 ** (t - i) for i in range(1, t + 1)], dtype=torch.float64)
            scale = ((memory[:, None] * squares).sum(0) / (1 - 0.999**t)).sqrt() + 1e-8
            diagonals = {i: 0.1 * 0.9 ** (t - i) / (1 - 0.9**t) / scale for i in range(1, t + 1)}
        torch.testing.assert_close(move, -0.05 * sum(d * gradients[i - 1] for i, d in diagonals.items()))


@pytest.mark.catalogue("S4-060")
def test_adagrad_equals_its_formula():
    curvature = torch.tensor([1.0, 5.0, 0.2], dtype=torch.float64)
    start = torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64)
    descent = Descent("adagrad", start, lambda x: curvature * x, lr=0.1)
    x, total = start.clone(), torch.zeros(3, dtype=torch.float64)
    theirs = torch.nn.Parameter(start.clone())
    reference = torch.optim.Adagrad([theirs], lr=0.1)
    for _ in range(50):
        g = curvature * x
        total += g**2
        x = x - 0.1 * g / (total.sqrt() + 1e-10)
        found = descent.step()
        torch.testing.assert_close(found, x, atol=1e-12, rtol=0)
        theirs.grad = curvature * theirs.detach()
        reference.step()
        torch.testing.assert_close(found, theirs.detach(), atol=1e-12, rtol=0)
    # Another scale of the gradient in each coordinate changes no step.
    scale = torch.tensor([1e-2, 3.0, 1e4], dtype=torch.float64)
    plain, scaled = (
        Descent("adagrad", start, lambda x, s=s: s * (curvature * x + 1), lr=0.1)
        for s in (torch.ones(3, dtype=torch.float64), scale)
    )
    for _ in range(50):
        torch.testing.assert_close(plain.step(), scaled.step(), atol=1e-6, rtol=0)
    for scale in (1.0, 1000.0):
        constant = Descent("adagrad", 0.0, lambda x, s=scale: torch.full_like(x, s), lr=0.1)
        path = [0.0, *(constant.step().item() for _ in range(20))]
        sizes = [a - b for a, b in pairwise(path)]
        assert sizes == pytest.approx([0.1 / math.sqrt(k) for k in range(1, 21)], abs=1e-6)


@pytest.mark.catalogue("T071")
def test_rates_must_sum_to_infinity():
    def schedule(**values):
        part = PARTS["inverse_time"]
        return part.build(part.config(rate=0.5, **values), Context())

    harmonic = Descent("sgd", 1.0, double, schedule(), lr=1 / 4)  # rates 1 / (2 (k + 2))
    for k in range(1, 200):
        assert harmonic.step().item() == pytest.approx(1 / (k + 1), abs=1e-12)
    summable = Descent("sgd", 1.0, double, schedule(power=2.0), lr=1 / 8)  # rates 1 / (2 (k + 2)^2)
    assert summable.run(1000).item() == pytest.approx(0.5, abs=1e-3)


@pytest.mark.catalogue("S3-056")
def test_momentum_hurries_along_valleys_and_over_small_hills():
    curvature = torch.tensor([1.0, 100.0], dtype=torch.float64)
    start = torch.tensor([1.0, 1.0], dtype=torch.float64)

    def steps(momentum):
        descent = Descent("sgd", start, lambda x: curvature * x, lr=0.01, momentum=momentum)
        while (curvature * descent.point.detach() ** 2).sum() / 2 >= 1e-6:
            descent.step()
        return descent.count

    assert steps(0.9) < steps(0.5) < steps(0.0)
    none = Descent("sgd", start, lambda x: curvature * x, lr=0.005, momentum=0.0)
    plain = start
    theirs = torch.nn.Parameter(start.clone())
    reference = torch.optim.SGD([theirs], lr=0.005, momentum=0.7)
    heavy = Descent("sgd", start, lambda x: curvature * x, lr=0.005, momentum=0.7)
    velocity, x = torch.zeros(2, dtype=torch.float64), start
    for _ in range(50):
        plain = plain - 0.005 * curvature * plain  # gradient descent
        torch.testing.assert_close(none.step(), plain, atol=1e-15, rtol=0)
        theirs.grad = curvature * theirs.detach()
        reference.step()
        velocity = 0.7 * velocity - 0.005 * curvature * x
        x = x + velocity
        torch.testing.assert_close(heavy.step(), theirs.detach(), atol=1e-15, rtol=0)
        torch.testing.assert_close(x, theirs.detach(), atol=1e-15, rtol=0)

    def wells(x):  # a shallow one at -0.72 and a deep one at 0.82
        return 4 * x * (x**2 - 0.6) - 0.25

    ends = [Descent("sgd", -1.4, wells, lr=0.02, momentum=m).run(2000).item() for m in (0.0, 0.9)]
    assert ends[0] < -0.5 < 0.5 < ends[1]


@pytest.mark.catalogue("S4-061")
@pytest.mark.parametrize("name", ["adam", "adamw"])
@pytest.mark.parametrize("kernels", ["plain", "foreach", "fused"])
def test_adam_with_and_without_bias_correction_equals_its_formula(name, kernels):
    curvature = torch.tensor([1.0, 5.0, 0.2], dtype=torch.float64)
    start = torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64)
    for corrected in (True, False):
        fields = {"lr": 0.01, "bias_correction": corrected, "kernels": kernels}
        descent = Descent(name, start, lambda x: curvature * x, **fields)
        theirs = torch.nn.Parameter(start.clone())
        reference = torch.optim.Adam([theirs], lr=0.01)
        x, mean, square = start.clone(), torch.zeros(3).double(), torch.zeros(3).double()
        for t in range(1, 51):
            g = curvature * x
            mean, square = 0.9 * mean + 0.1 * g, 0.999 * square + 0.001 * g**2
            a, b = (1 - 0.9**t, 1 - 0.999**t) if corrected else (1.0, 1.0)
            x = x - 0.01 * mean / a / ((square / b).sqrt() + 1e-8)
            found = descent.step()
            torch.testing.assert_close(found, x, atol=1e-12, rtol=0)
            if corrected:
                theirs.grad = curvature * theirs.detach()
                reference.step()
                torch.testing.assert_close(found, theirs.detach(), atol=1e-12, rtol=0)


@pytest.mark.catalogue("S4-061")
def test_without_bias_correction_adam_starts_with_steps_that_are_too_long():
    constant = Descent("adam", 0.0, torch.ones_like, lr=1.0, bias_correction=False)
    path = [0.0, *(constant.step().item() for _ in range(4000))]
    sizes = [a - b for a, b in pairwise(path)]
    assert sizes[0] == pytest.approx(3.16228, abs=1e-4)
    assert max(sizes) == sizes[11] == pytest.approx(6.57, abs=0.005)
    assert [k for k, size in enumerate(sizes, 1) if size > 1.01][-1] + 1 == 3925
    corrected = Descent("adam", 0.0, torch.ones_like, lr=1.0)
    assert corrected.step().item() == pytest.approx(-1, abs=1e-6)


@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize("amsgrad", [False, True])
def test_uncorrected_adam_takes_the_same_steps_as_a_function(traced, amsgrad):
    part = PARTS["adam"]
    pair = [torch.nn.Parameter(torch.tensor([1.0, -2.0])) for _ in range(2)]
    config = part.config(lr=0.1, bias_correction=False, amsgrad=amsgrad)
    by_step, by_function = (part.build(config, Context())([{"params": [p]}]) for p in pair)
    update, rate = part.functional(by_function, traced), 0.1
    if traced:
        update, rate = torch.compile(update, backend="eager", fullgraph=True), torch.tensor(0.1)
    for _ in range(5):
        pair[0].grad = 3 * pair[0].detach()
        by_step.step()
        with torch.no_grad():
            update([3 * pair[1].detach()], [rate])
        torch.testing.assert_close(pair[0], pair[1])
