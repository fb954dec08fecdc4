"""Gradient descent with a tolerance and line searches, and what a gradient says of the loss around it."""

import math
from itertools import pairwise

import pegboard_optimizers
import pytest
import torch
from pegboard import Context, PegboardError
from pegboard_optimizers import search
from pegboard_optimizers.stationary import stationary_point
from scipy.optimize import minimize_scalar

PARTS = {p.name: p for p in pegboard_optimizers.pegboard_optimizers()}
DOUBLE = torch.float64


class Walk:
    """A point that descends a function by an optimizer that evaluates it."""

    def __init__(self, name, start, function, dtype=DOUBLE, **values):
        part = PARTS[name]
        self.point = torch.nn.Parameter(torch.as_tensor(start, dtype=dtype).clone())
        self.function, self.evaluations = function, 0
        self.optimizer = part.build(part.config(**values), Context())([{"params": [self.point]}])

    def evaluate(self):
        self.evaluations += 1
        self.optimizer.zero_grad()
        loss = self.function(self.point)
        loss.backward()
        return loss

    def step(self):
        return self.optimizer.step(self.evaluate).item()

    @property
    def at(self):
        return self.point.detach().clone()

    @property
    def value(self):
        return self.function(self.at).item()


def quadratic(*curvature):
    a = torch.tensor(curvature, dtype=DOUBLE)
    return lambda x: (a * x**2).sum() / 2


def rosenbrock(x):
    return 100 * (x[1] - x[0] ** 2) ** 2 + (1 - x[0]) ** 2


def hilly(x):
    return (x**4 / 4 - x**2 + 0.3 * torch.sin(5 * x)).sum()


FUNCTIONS = [quadratic(1, 10, 300), rosenbrock, hilly, lambda x: torch.cosh(x).log().sum()]


@pytest.mark.catalogue("T066", "S3-046")
def test_an_update_is_that_of_sgd_bit_for_bit():
    start = torch.randn(5, generator=torch.Generator().manual_seed(0))
    walk = Walk("gd", start, hilly, torch.float32, lr=0.03, tolerance=0.0)
    theirs = torch.nn.Parameter(start.clone())
    reference = torch.optim.SGD([theirs], lr=0.03)
    for _ in range(50):
        walk.step()
        reference.zero_grad()
        hilly(theirs).backward()
        reference.step()
        assert torch.equal(walk.at, theirs)
    assert walk.evaluations == 50


@pytest.mark.catalogue("S3-046")
@pytest.mark.parametrize("kind", ["none", "exact", "backtracking"])
def test_it_is_finished_where_the_gradient_is_within_the_tolerance_and_stays_there(kind):
    function = quadratic(1, 10)
    walk = Walk("gd", [10.0, 1.0], function, lr=0.1, tolerance=1e-6, line_search=kind)
    steps = 0
    while (said := walk.optimizer.finished()) is None:
        before = walk.at
        walk.step()
        steps += 1
        assert steps < 1000
    assert torch.equal(walk.at, before)
    x = walk.at.requires_grad_()
    [slope] = torch.autograd.grad(function(x), x)
    assert slope.norm() <= 1e-6 < 1e-6 * 20
    assert walk.optimizer.norm == pytest.approx(slope.norm().item())
    assert said == f"gradient norm {slope.norm().item():.3g} is at most tolerance 1e-06"
    if kind == "none":  # |(10 * 0.9^n, 0)| is the gradient before update n + 1; the second axis falls at once
        assert steps == 1 + math.ceil(math.log(1e-7) / math.log(0.9))


def test_where_it_is_finished_survives_a_checkpoint():
    walk = Walk("gd", [1.0], quadratic(1), lr=1.0, tolerance=1e-6)
    assert walk.optimizer.finished() is None
    walk.step()
    walk.step()
    again = Walk("gd", walk.at, quadratic(1), lr=1.0, tolerance=1e-6)
    again.optimizer.load_state_dict(walk.optimizer.state_dict())
    assert again.optimizer.finished() == walk.optimizer.finished() is not None


@pytest.mark.catalogue("S3-052")
@pytest.mark.parametrize("rate", [1e-4, 0.1, 0.5, 100.0])
def test_exact_line_search_finds_the_minimum_of_a_parabola_from_any_first_length(rate):
    walk = Walk("gd", [10.0, 1.0], quadratic(1, 10), lr=rate, line_search="exact")
    values = [walk.value]
    for _ in range(10):
        walk.step()
        assert walk.optimizer.length == pytest.approx(2 / 11, abs=1e-6)
        values.append(walk.value)
    ratios = [b / a for a, b in pairwise(values)]
    assert ratios == pytest.approx([81 / 121] * 10, abs=1e-6)  # 0.669421
    assert walk.evaluations <= 10 * 6


@pytest.mark.catalogue("S3-052")
@pytest.mark.parametrize("kind", ["exact", "backtracking"])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_line_search_never_climbs(kind, function):
    for seed in range(4):
        size = 2 if function is rosenbrock else 3
        start = 2 * torch.randn(size, dtype=DOUBLE, generator=torch.Generator().manual_seed(seed))
        walk = Walk("gd", start, function, lr=10.0 ** (seed - 2), line_search=kind)
        value = first = walk.value
        for _ in range(15):
            walk.step()
            assert walk.value <= value + 1e-15 * abs(value)
            value = walk.value
        assert value < first


@pytest.mark.catalogue("S3-052")
def test_exact_line_search_agrees_with_scipy_on_a_convex_function():
    def function(x):
        return torch.logsumexp(torch.stack([x[0], -2 * x[0] + x[1], 3 - x[1], -x[0] - x[1]]), 0)

    start = torch.tensor([2.0, -1.5], dtype=DOUBLE, requires_grad=True)
    [slope] = torch.autograd.grad(function(start), start)
    best = minimize_scalar(lambda a: function(start.detach() - a * slope).item(), tol=1e-12).x
    for rate in (1e-3, 1.0, 1e3):
        walk = Walk("gd", start.detach(), function, lr=rate, line_search="exact")
        walk.step()
        assert walk.optimizer.length == pytest.approx(best, rel=1e-6)


def test_backtracking_takes_the_first_length_that_falls_enough():
    # f(x - a f') = (1 - 2a)^2 falls by 4c a at least where a <= 1 - c.
    for armijo, expected in ((1e-4, 0.8), (0.3, 0.4), (0.7, 0.2)):
        walk = Walk("gd", [1.0], quadratic(2), lr=1.6, line_search="backtracking", armijo=armijo)
        walk.step()
        assert walk.optimizer.length == pytest.approx(expected)
    walk = Walk("gd", [1.0], quadratic(2), lr=1.6, line_search="backtracking", shrink=0.1)
    walk.step()
    assert walk.optimizer.length == pytest.approx(0.16)


@pytest.mark.parametrize("kind", ["exact", "backtracking"])
def test_a_length_at_which_the_loss_is_refused_is_too_far(kind):
    def function(x):
        if x.detach().abs().max() > 5:
            raise PegboardError("the loss was inf")
        return (x**2).sum() / 2

    walk = Walk("gd", [1.0], function, lr=100.0, line_search=kind)
    walk.step()
    assert abs(walk.point.item()) < 1
    with pytest.raises(PegboardError, match="inf"):
        Walk("gd", [9.0], function, line_search=kind).step()


@pytest.mark.parametrize("kind", ["exact", "backtracking"])
def test_where_no_length_lowers_the_loss_it_says_so(kind):
    def misled(x):  # its gradient has the wrong sign
        return x.detach().sum() - 1e-3 * (x - x.detach()).sum()

    walk = Walk("gd", [1.0], misled, line_search=kind)
    walk.step()
    assert walk.point.item() == 1
    assert walk.optimizer.finished() == (
        "no step along the gradient lowers the loss; its norm 0.001 is above tolerance 1e-06"
    )


def test_groups_go_along_one_ray_each_at_its_own_rate():
    a, b = (torch.nn.Parameter(torch.tensor([1.0], dtype=DOUBLE)) for _ in range(2))
    part = PARTS["gd"]
    groups = [{"params": [a], "lr": 0.5}, {"params": [b], "lr": 0.05}]
    optimizer = part.build(part.config(line_search="exact"), Context())(groups)

    def evaluate():
        optimizer.zero_grad()
        loss = (a**2 + 10 * b**2).sum() / 2
        loss.backward()
        return loss

    optimizer.step(evaluate)  # along (0.5, 0.5) both reach 0 at once
    assert a.item() == pytest.approx(0, abs=1e-12) and b.item() == pytest.approx(0, abs=1e-12)


def test_gradient_descent_by_hand_needs_a_closure():
    for name in ("gd", "nesterov"):
        with pytest.raises(TypeError, match="closure"):
            Walk(name, [1.0], hilly).optimizer.step()


@pytest.mark.parametrize("kind", ["exact", "backtracking"])
def test_in_single_precision_slopes_decide_where_losses_cannot(kind):
    function = quadratic(1.0, 3.0)

    def raised(x):  # so that the loss near its minimum tells nothing under 1e-7
        return 1 + function(x.double()).float()

    walk = Walk("gd", [1.0, 1.0], raised, torch.float32, lr=0.5, tolerance=1e-6, line_search=kind)
    for _ in range(60):
        walk.step()
    assert "at most tolerance" in walk.optimizer.finished()
    assert walk.at.abs().max() < 1e-6


def test_searches_work_on_plain_numbers():
    def along(t):
        return (t - 3) ** 2, 2 * (t - 3)

    assert search.exact(along, 9, -6) == pytest.approx(3)
    assert search.backtracking(along, 9, -6, armijo=0.9) == 0.5
    assert search.backtracking(lambda t: (1.0, 0.0), 0.0, -1.0, most=4) == 0


@pytest.mark.catalogue("S4-057")
def test_nesterov_keeps_theta_where_sgd_keeps_the_point_ahead():
    curvature = torch.logspace(0, 3, 20, dtype=DOUBLE)
    root, rate, start = math.sqrt(1000), 1e-3, torch.ones(20, dtype=DOUBLE)
    beta = (root - 1) / (root + 1)

    def function(x):
        return (curvature * x**2).sum() / 2

    walk = Walk("nesterov", start, function, lr=rate, momentum=beta)
    ahead = torch.nn.Parameter(start.clone())
    sgd = torch.optim.SGD([ahead], lr=rate, momentum=beta, nesterov=True)
    theta, apart = [start, start], 0.0
    for _ in range(50):
        chi = theta[-1] + beta * (theta[-1] - theta[-2])
        theta.append(chi - rate * curvature * chi)
        walk.step()
        ahead.grad = curvature * ahead.detach()
        sgd.step()
        torch.testing.assert_close(walk.at, theta[-1], atol=1e-12, rtol=0)
        expected = walk.at + beta * (walk.at - theta[-2])
        torch.testing.assert_close(ahead.detach(), expected, atol=1e-12, rtol=0)
        apart = max(apart, (ahead.detach() - walk.at).abs().max().item())
    assert apart > 0.8
    steps = 50
    while walk.value >= 1e-8:
        walk.step()
        steps += 1
    assert 300 < steps <= 500
    assert walk.evaluations == steps


@pytest.mark.catalogue("S4-057")
def test_nesterov_without_a_momentum_rises_as_for_convex_functions():
    def function(x):
        return (x**4).sum() / 4

    start, rate = torch.tensor([1.0, -0.5], dtype=DOUBLE), 1 / 3
    walk = Walk("nesterov", start, function, lr=rate, momentum=None)
    theta, chi, weight = start, start, 1.0
    for k in range(1, 101):
        after = (1 + math.sqrt(1 + 4 * weight**2)) / 2
        theta, before = chi - rate * chi**3, theta
        chi = theta + (weight - 1) / after * (theta - before)
        weight = after
        walk.step()
        torch.testing.assert_close(walk.at, theta, atol=1e-12, rtol=0)
        # The bound of Beck and Teboulle, 2009.
        assert walk.value <= 2 * start.square().sum().item() / (rate * (k + 1) ** 2)


def test_nesterov_leaves_the_weights_where_they_were_when_a_loss_is_refused():
    calls = []

    def function(x):
        calls.append(x)
        if len(calls) == 3:
            raise PegboardError("the loss was inf")
        return hilly(x)

    walk = Walk("nesterov", [1.0, -2.0], function)
    walk.step()
    walk.step()
    before = walk.at
    with pytest.raises(PegboardError):
        walk.step()
    assert torch.equal(walk.at, before)


@pytest.mark.catalogue("T065", "S3-025")
@pytest.mark.parametrize("function", [rosenbrock, hilly])
def test_the_negative_gradient_is_the_direction_of_steepest_descent(function):
    generator = torch.Generator().manual_seed(0)
    x = torch.tensor([0.7, -0.4], dtype=DOUBLE, requires_grad=True)
    [slope] = torch.autograd.grad(function(x), x)
    walk = Walk("gd", x.detach(), function, lr=1.0, tolerance=0.0)
    walk.step()
    steepest = (walk.at - x.detach()) / slope.norm()
    torch.testing.assert_close(steepest, -slope / slope.norm())

    def along(v):
        return torch.func.jvp(function, (x.detach(),), (v,))[1]

    directions = torch.randn(1000, 2, dtype=DOUBLE, generator=generator)
    directions /= directions.norm(dim=-1, keepdim=True)
    found = torch.func.vmap(along)(directions)
    torch.testing.assert_close(found, directions @ slope)
    length = slope.norm().item()
    assert along(steepest).item() == pytest.approx(-length, abs=1e-9)
    assert along(-steepest).item() == pytest.approx(length, abs=1e-9)
    assert (found > -length).all() and (found < length).all()
    for v, expected in zip(directions[:20], found[:20], strict=True):
        difference = (function(x + 1e-6 * v) - function(x - 1e-6 * v)) / 2e-6
        assert difference.item() == pytest.approx(expected.item(), rel=1e-6, abs=1e-6)
    # What a line leaves over falls with the square of the step.
    for v in directions[:20]:
        left = [
            (function(x + t * v) - function(x) - t * (v @ slope)).item() / t**2 for t in (1e-2, 1e-3, 1e-4)
        ]
        assert max(map(abs, left)) < 2000
        assert left[1] == pytest.approx(left[2], rel=0.05, abs=0.5)


@pytest.mark.catalogue("T082")
def test_the_gradient_is_not_the_best_direction_of_a_step_of_finite_length():
    def function(x):
        return x[0] ** 2 + 2 * x[1] ** 2

    angle = torch.linspace(0, 2 * math.pi, 200_001, dtype=DOUBLE)[:-1]
    circle = torch.stack([angle.cos(), angle.sin()])
    x = torch.ones(2, dtype=DOUBLE, requires_grad=True)
    [slope] = torch.autograd.grad(function(x), x)
    gradient = slope / slope.norm()
    torch.testing.assert_close(gradient, torch.tensor([0.447214, 0.894427], dtype=DOUBLE), atol=1e-6, rtol=0)
    apart = []
    for step in (0.5, 0.05, 0.005):
        best = circle[:, function(x.detach().unsqueeze(-1) - step * circle).argmin()]
        assert best[0].item() == pytest.approx((best[1] / (2 - step * best[1])).item(), abs=1e-4)
        apart.append((best - gradient).norm().item())
        if step == 0.5:
            assert best.tolist() == pytest.approx([0.535357, 0.844626], abs=1e-4)
            # A step of that length along the gradient, by the optimizer, ends higher.
            walk = Walk("gd", [1.0, 1.0], function, lr=step / slope.norm().item())
            walk.step()
            assert walk.value > function(x.detach() - step * best).item() + 1e-3
    assert apart[0] > 0.1 and apart == pytest.approx([apart[0], apart[0] / 10, apart[0] / 100], rel=0.3)


@pytest.mark.catalogue("T083")
@pytest.mark.parametrize(
    ("rate", "converges"), [(0.001, True), (0.005, True), (0.0099, True), (0.0101, False), (1 / 19, False)]
)
def test_which_rates_oscillate_on_a_wave(rate, converges):
    part = PARTS["sgd"]
    point = torch.nn.Parameter(torch.tensor([0.01], dtype=DOUBLE))
    optimizer = part.build(part.config(lr=rate, kernels="plain"), Context())([{"params": [point]}])
    raw, last = point.detach(), []
    for k in range(20_000):
        point.grad = raw.mul(20).sin_().mul_(10)
        optimizer.step()
        if k >= 19_990:
            last.append(raw.abs().item())
        elif k % 100 == 0 and converges and raw.abs() < 1e-12:
            return
    if converges:
        assert max(last) < 1e-6
    else:
        assert min(last) > 1e-3
        if rate == 0.0101:
            assert max(last) == pytest.approx(0.0122, abs=1e-4) and min(last) == pytest.approx(
                0.0122, abs=1e-4
            )


@pytest.mark.catalogue("S3-050")
def test_gradient_descent_stays_at_a_stationary_point_until_it_is_pushed():
    def saddle(x):
        return x[0] ** 2 - x[1] ** 2

    still = Walk("gd", [0.0, 0.0], saddle, lr=0.1, tolerance=0.0)
    for _ in range(200):
        still.step()
    assert still.at.tolist() == [0, 0]
    pushed = Walk("gd", [0.0, 1e-8], saddle, lr=0.1, tolerance=0.0)
    steps = 0
    while pushed.at[1].abs() <= 1:
        pushed.step()
        steps += 1
    assert steps == 102

    def kind(function, at=(0.0, 0.0)):
        return stationary_point(function, torch.tensor(at, dtype=DOUBLE))

    assert kind(saddle, still.at.tolist()) == "saddle"
    assert kind(lambda x: (x**2).sum()) == "minimum"
    assert kind(lambda x: -(x**2).sum()) == "maximum"
    assert kind(saddle, pushed.at.tolist()) == "not stationary"
    assert kind(lambda x: x[0] ** 2 + x[1] ** 4) == "degenerate"
    ended = Walk("gd", [-0.9], hilly, lr=0.02, tolerance=1e-9)
    while not ended.optimizer.finished():
        ended.step()
    assert kind(hilly, ended.at.tolist()) == "minimum"
    top = Walk("gd", [0.0, 0.0], lambda x: -(x**2).sum(), lr=0.1)
    top.step()
    assert top.at.tolist() == [0, 0] and top.optimizer.finished()
