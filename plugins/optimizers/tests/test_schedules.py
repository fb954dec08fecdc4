"""Schedules against torch.optim.lr_scheduler, stepped in every update."""

import math
import operator
import warnings
from itertools import accumulate, pairwise

import pegboard_optimizers
import pytest
import torch
from pegboard import Context, Facts, PegboardError, Schedule
from pegboard_optimizers import schedules
from torch.optim import lr_scheduler as torch_schedules

PARTS = {p.name: p for p in pegboard_optimizers.pegboard_optimizers() if isinstance(p, Schedule)}


def factors(name, count, total=None, /, **values):
    part = PARTS[name]
    factor = part.build(part.config(**values), Context(steps=total))
    return [factor(step) for step in range(count)]


def reference(make, count, lr=1.0):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=lr)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scheduler = make(optimizer)
        found = []
        for _ in range(count):
            found.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            scheduler.step()
    return found


def ramp(optimizer, warmup):
    return torch_schedules.LinearLR(optimizer, 1 / (warmup + 1), 1.0, warmup)


CASES = {
    "constant": ({}, lambda o, n: torch_schedules.ConstantLR(o, 1.0)),
    "linear": ({"end": 0.1}, lambda o, n: torch_schedules.LinearLR(o, 1.0, 0.1, n)),
    "step": ({"gamma": 0.5, "every": 7}, lambda o, n: torch_schedules.StepLR(o, 7, 0.5)),
    "cosine": ({"end": 0.2}, lambda o, n: torch_schedules.CosineAnnealingLR(o, n, 0.2)),
    "exponential": ({"gamma": 0.9}, lambda o, n: torch_schedules.ExponentialLR(o, 0.9)),
    "inverse_time": (
        {"rate": 0.3, "power": 0.5},
        lambda o, n: torch_schedules.LambdaLR(o, lambda k: 1 / math.sqrt(1 + 0.3 * k)),
    ),
}


def test_every_schedule_has_a_reference():
    assert set(PARTS) == {*CASES, "one_cycle"}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("warmup", [0, 1, 5])
def test_equals_torch_with_and_without_a_ramp(name, warmup):
    values, make = CASES[name]
    steps = 30

    def whole(optimizer):
        proper = make(optimizer, steps - warmup)
        if not warmup:
            return proper
        return torch_schedules.SequentialLR(optimizer, [ramp(optimizer, warmup), proper], [warmup])

    found = factors(name, steps, steps, warmup=warmup, **values)
    assert found == pytest.approx(reference(whole, steps), abs=1e-9)
    assert found[0] == pytest.approx(1 / (warmup + 1)) and found[warmup] == pytest.approx(1)


@pytest.mark.parametrize("anneal", ["cos", "linear"])
@pytest.mark.parametrize(("steps", "pct_start"), [(40, 0.3), (10, 0.5), (101, 0.25)])
def test_one_cycle_equals_torch(steps, pct_start, anneal):
    values = {"pct_start": pct_start, "div_factor": 10.0, "final_div_factor": 50.0}

    def make(optimizer):
        return torch_schedules.OneCycleLR(
            optimizer, 1.0, steps, anneal_strategy=anneal, cycle_momentum=False, **values
        )

    found = factors("one_cycle", steps, steps, anneal=anneal, **values)
    assert found == pytest.approx(reference(make, steps), abs=1e-12)


@pytest.mark.parametrize("steps", [1, 2, 3])
@pytest.mark.parametrize("pct_start", [0.0, 0.3, 0.9])
def test_one_cycle_survives_runs_of_a_few_steps(steps, pct_start):
    assert all(0 < f <= 1 for f in factors("one_cycle", 5, steps, pct_start=pct_start))


def test_one_cycle_after_a_ramp_starts_from_its_own_first_value():
    found = factors("one_cycle", 30, 30, warmup=4)
    assert found[:5] == pytest.approx([k / 5 / 25 for k in range(1, 6)])
    assert found[4:] == factors("one_cycle", 26, 26)


def test_drops_at_named_steps_of_the_run():
    at = (9, 4, 20)
    expected = reference(lambda o: torch_schedules.MultiStepLR(o, list(at), 0.3), 30)
    assert factors("step", 30, gamma=0.3, at=at) == pytest.approx(expected, abs=1e-12)
    with_ramp = factors("step", 30, gamma=0.3, at=at, warmup=2)
    assert with_ramp[2:] == pytest.approx(expected[2:], abs=1e-12)


def test_drops_come_by_thirds_of_the_run_unless_said():
    assert factors("step", 9, 9) == pytest.approx([1, 1, 1, 0.1, 0.1, 0.1, 0.01, 0.01, 0.01])


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("warmup", [0, 3])
def test_factors_stay_finite_and_never_negative_past_the_end(name, warmup):
    found = factors(name, 60, 20, warmup=warmup)
    assert all(math.isfinite(f) and 0 <= f <= 1 + 1e-12 for f in found)


@pytest.mark.parametrize(
    ("name", "when"), [("exponential", {}), ("step", {"every": 1}), ("step", {"at": (1, 2)})]
)
def test_a_rate_that_grows_past_every_number_is_infinite(name, when):
    assert factors(name, 3, gamma=1e200, **when) == [1, 1e200, math.inf]


@pytest.mark.parametrize(("name", "end"), [("linear", 0.0), ("cosine", 0.0), ("exponential", 0.01)])
def test_the_end_is_reached_when_the_run_is_over(name, end):
    assert factors(name, 101, 100, warmup=10)[100] == pytest.approx(end, abs=1e-12)
    assert factors(name, 100, 100)[99] > end


@pytest.mark.parametrize("name", ["linear", "cosine"])
def test_a_length_of_its_own_needs_no_length_of_the_run(name):
    found = factors(name, 20, None, steps=10, end=0.5)
    assert found[:10] == factors(name, 10, 10, end=0.5)
    assert found[10:] == pytest.approx([0.5] * 10)


@pytest.mark.parametrize("name", PARTS)
def test_a_ramp_longer_than_the_run_is_all_there_is(name):
    found = factors(name, 5, 5, warmup=100)
    assert found == pytest.approx([found[0] * k for k in range(1, 6)])


@pytest.mark.parametrize("name", PARTS)
def test_an_unknown_length_of_the_run_is_explained_where_it_is_needed(name):
    part = PARTS[name]
    if name in ("constant", "inverse_time"):
        assert part.build(part.config(), Context(steps=None))(0) == 1
    else:
        with pytest.raises(
            PegboardError, match=f"schedule {name} needs to know how many updates.*\n.*trainer.steps"
        ):
            part.build(part.config(), Context(steps=None))


def test_contradictions_in_step_are_found():
    check = PARTS["step"].check
    assert [p.message for p in check(schedules.Step(every=3, at=(4,)), Facts())] == [
        "both every and at say when to drop"
    ]
    assert (
        "not after the ramp of 5" in next(iter(check(schedules.Step(at=(9, 4), warmup=5), Facts()))).message
    )
    assert list(check(schedules.Step(at=(6,), warmup=5), Facts())) == []
    assert list(check(schedules.Step(), Facts())) == []


def test_drops_past_the_end_of_the_run_are_found():
    check = PARTS["step"].check
    found = list(check(schedules.Step(at=(4, 8, 9)), Facts(steps=8)))
    assert [(p.field, p.expected) for p in found] == [("at.1", "steps below 8")]
    assert [p.field for p in check(schedules.Step(at=(8, 9)), Facts(steps=8))] == ["at"]  # none is reached
    assert list(check(schedules.Step(at=(4, 7)), Facts(steps=8))) == []


@pytest.mark.catalogue("S3-053")
def test_linear_interpolation_between_two_rates():
    first, last, rho = 0.4, 0.1, 50
    rates = [first * f for f in factors("linear", 80, None, steps=rho, end=last / first)]
    assert rates[0] == first and rates[rho] == pytest.approx(last)
    assert rates[rho // 2] == pytest.approx((first + last) / 2)
    assert all(a >= b for a, b in pairwise(rates))
    closed = [(1 - min(t / rho, 1)) * first + min(t / rho, 1) * last for t in range(80)]
    assert rates == pytest.approx(closed)
    theirs = reference(
        lambda o: torch_schedules.LambdaLR(o, lambda t: 1 - min(t / rho, 1) * (1 - last / first)), 80, first
    )
    assert rates == pytest.approx(theirs, rel=1e-12)


@pytest.mark.catalogue("S3-054")
def test_inverse_time_as_recursion_and_as_usual():
    literal = factors("inverse_time", 6, rate=1.0, recursive=True)
    assert literal == pytest.approx([1, 1, 1 / 2, 1 / 6, 1 / 24, 1 / 120], rel=1e-9)
    assert factors("inverse_time", 6, rate=1.0) == pytest.approx([1 / (1 + t) for t in range(6)])
    product, expected = 1.0, []
    for t in range(40):
        expected.append(product)
        product /= (1 + 0.03 * t) ** 2
    assert factors("inverse_time", 40, rate=0.03, power=2.0, recursive=True) == pytest.approx(
        expected, rel=1e-9
    )
    assert factors("inverse_time", 3, rate=0.0, recursive=True) == [1, 1, 1]
    for rate in (2e-3, 9e-4, 1e-6, 1e-14):  # on both sides of where it is computed in another way
        products = accumulate((1 / (1 + rate * t) for t in range(999)), operator.mul, initial=1.0)
        found = factors("inverse_time", 1000, rate=rate, recursive=True)
        assert found == pytest.approx(list(products), rel=1e-10) and max(found) == 1


@pytest.mark.catalogue("S3-055")
def test_exponential_decay_loses_the_same_share_in_every_step():
    rho = 0.07
    found = factors("exponential", 50, gamma=math.exp(-rho))
    assert [b / a for a, b in pairwise(found)] == pytest.approx([math.exp(-rho)] * 49)
    theirs = reference(lambda o: torch_schedules.ExponentialLR(o, math.exp(-rho)), 50)
    assert found == pytest.approx(theirs, rel=1e-12)
