"""Memories: the energy falls, patterns are stored in one step, and how many there is room for."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pegboard
import pytest
import torch
from pegboard import Batch
from pegboard_generative import configs
from pegboard_generative.hopfield import (
    Hopfield,
    crosstalk,
    energy,
    fields,
    flip_probability,
    hebbian,
    settle,
    signs,
    symmetric,
)
from pegboard_generative.objectives import EnergyLoss
from torch import Tensor
from torch.nn import functional


def patterns(count: int, size: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 2, (count, size), generator=generator).double() * 2 - 1


def store(x: Tensor, **fields: Any) -> Hopfield:
    """A memory after one step of descent at a rate of 1."""
    model = Hopfield((x.shape[1],), slots=len(x), **fields).double()
    loss, _ = EnergyLoss(configs.Energy()).evaluate(model, Batch((x,), rows=torch.arange(len(x))))
    loss.backward()  # type: ignore[no-untyped-call]
    torch.optim.SGD(model.parameters(), 1.0).step()
    return model.eval()


@pytest.mark.catalogue("S4-002")
def test_a_neuron_without_a_field_is_on() -> None:
    assert signs(torch.tensor([-2.0, -0.0, 0.0, 3.0])).tolist() == [-1, 1, 1, 1]
    model = Hopfield((3,)).eval()  # no weights, and so no fields
    assert model.recall(-torch.ones(2, 3)).tolist() == [[1, 1, 1]] * 2


@pytest.mark.catalogue("S4-012")
def test_a_flip_changes_the_energy_by_twice_the_field() -> None:
    weight = symmetric(torch.randn(12, 12, dtype=torch.float64))
    bias = torch.randn(12, dtype=torch.float64)
    assert torch.equal(weight, weight.T) and not weight.diagonal().any()
    state = patterns(100, 12)
    before, told = energy(state, weight, bias), fields(state, weight, bias)
    for i in range(12):
        flipped = state.clone()
        flipped[:, i] *= -1
        change = energy(flipped, weight, bias) - before
        assert torch.allclose(change, 2 * state[:, i] * told[:, i], rtol=0, atol=1e-12)
    assert torch.allclose(energy(state, weight), energy(-state, weight), rtol=0, atol=1e-12)
    # The model takes any square matrix, and sees its symmetric part without the diagonal.
    model = Hopfield((12,)).double()
    crooked = torch.randn(12, 12, dtype=torch.float64)
    with torch.no_grad():
        model.weight.copy_(crooked)
        assert torch.allclose(model(state).energy, energy(state, symmetric(crooked)), rtol=0, atol=1e-12)
        model.weight.copy_(symmetric(crooked))
        assert torch.allclose(model(state).energy, energy(state, symmetric(crooked)), rtol=0, atol=1e-12)
        assert torch.equal(model.recall(state), settle(state, symmetric(crooked)))


@pytest.mark.catalogue("S4-013")
def test_the_energy_never_rises_and_ends_at_rest() -> None:
    for seed in range(50):
        generator = torch.Generator().manual_seed(seed)
        weight = symmetric(torch.randn(20, 20, generator=generator, dtype=torch.float64))
        state = patterns(1, 20, seed)
        now = energy(state, weight)
        for _ in range(50):
            before = state.clone()
            for i in range(20):
                up, down = state.clone(), state.clone()
                up[:, i], down[:, i] = 1, -1
                rule = torch.where(energy(up, weight) <= energy(down, weight), 1.0, -1.0)
                state[:, i] = signs(fields(state, weight)[:, i])
                assert torch.equal(rule.double(), state[:, i])
                after = energy(state, weight)
                assert after <= now + 1e-12
                now = after
            if torch.equal(before, state):
                break
        assert torch.equal(state, settle(patterns(1, 20, seed), weight, sweeps=60))
        assert torch.equal(state, signs(fields(state, weight)))
    circle = torch.tensor([[0.0, -1.0], [-1.0, 0.0]])
    both = torch.ones(1, 2)
    assert torch.equal(settle(both, circle, sweeps=1, synchronous=True), -both)
    assert torch.equal(settle(both, circle, sweeps=2, synchronous=True), both)


def test_with_a_bias_the_energy_never_rises_either() -> None:
    generator = torch.Generator().manual_seed(0)
    weight = symmetric(torch.randn(20, 20, generator=generator, dtype=torch.float64))
    bias = 3 * torch.randn(20, generator=generator, dtype=torch.float64)
    state = patterns(40, 20)
    for _ in range(60):
        after = settle(state, weight, bias, sweeps=1)
        assert (energy(after, weight, bias) <= energy(state, weight, bias) + 1e-12).all()
        state = after
    assert torch.equal(state, signs(fields(state, weight, bias)))


@pytest.mark.parametrize("kind", ["dense", "continuous"])
@pytest.mark.parametrize("power", [2, 3])
def test_the_energy_of_other_memories_never_rises(kind: str, power: int) -> None:
    model = Hopfield((20,), kind, power=power, beta=0.5, slots=6, sweeps=1).double()
    model.weight.data.normal_()
    state = model.state(torch.randn(40, 20, dtype=torch.float64))
    for _ in range(30):
        after = model.recall(state)
        assert (model.energy(after) <= model.energy(state) + 1e-9).all()
        state = after
    assert torch.allclose(state, model.recall(state), atol=1e-2)


@pytest.mark.catalogue("S4-014")
def test_one_gradient_step_is_hebbian_learning_and_recalls() -> None:
    x = patterns(10, 200)
    model = store(x)
    weight = symmetric(model.weight.detach())
    assert torch.allclose(weight, hebbian(x), rtol=0, atol=1e-12)
    assert not hebbian(x).diagonal().any()
    one_by_one = sum((hebbian(row[None]) for row in x), torch.zeros(200, 200, dtype=torch.float64))
    assert torch.allclose(one_by_one, weight, rtol=0, atol=1e-12)
    assert torch.equal(model.recall(x), x)
    changed = x.clone()
    for row in changed:
        row[torch.randperm(200)[:20]] *= -1
    assert (model.recall(changed) * x).mean(1).min() >= 0.99


@pytest.mark.catalogue("S4-015", "S4-016")
@pytest.mark.parametrize(("load", "near"), [(0.138, 0.25), (0.185, 0.1), (0.3, 0.05)])
def test_crosstalk_is_normal_and_flips_as_often_as_it_says(load: float, near: float) -> None:
    n = 1000
    found, told = [], []
    for seed in range(3):
        x = patterns(int(load * n), n, seed)
        noise = crosstalk(x)
        assert torch.allclose(x @ hebbian(x), x * (n - 1) / n + noise, rtol=0, atol=1e-12)
        found.append(float((x * (x @ hebbian(x)) < 0).double().mean()))
        told.append(float(noise.var()))
        assert abs(float(noise.mean())) < 0.003
        unstable = x * (x @ hebbian(x)) < 0
        assert not bool((unstable & (x * noise > -(n - 1) / n)).any())
    assert abs(sum(told) / 3 / load - 1) < 0.05
    assert abs(sum(found) / 3 / flip_probability(load) - 1) < near


@pytest.mark.catalogue("S4-016")
def test_chances_of_a_flip_are_the_tail_of_a_normal_distribution() -> None:
    known = {0.05: 3.87e-6, 0.1: 7.83e-4, 0.138: 3.552e-3, 0.185: 1.004e-2, 0.3: 3.394e-2}
    for load, chance in known.items():
        assert flip_probability(load) == pytest.approx(chance, rel=2e-3)
        z = torch.linspace(1, 1 + 12 * math.sqrt(load), 100_001, dtype=torch.float64)
        density = torch.exp(-(z**2) / (2 * load)) / math.sqrt(2 * math.pi * load)
        assert flip_probability(load) == pytest.approx(float(torch.trapezoid(density, z)), rel=1e-6)


def overlap(load: float, seed: int, n: int = 1000) -> float:
    """Mean overlap of eight of load * n stored patterns with the states that they fall to."""
    x = patterns(int(load * n), n, seed)
    some = x[:8]
    return float((settle(some, hebbian(x), sweeps=30) * some).mean())


@pytest.mark.catalogue("S4-017")
def test_memory_breaks_down_between_0_12_and_0_20() -> None:
    assert overlap(0.05, 0) > 0.999 and overlap(0.12, 0) > 0.97
    assert overlap(0.20, 0) < 0.6


@pytest.mark.sweep
@pytest.mark.catalogue("S4-017")
def test_seven_tenths_of_a_pattern_are_left_between_0_13_and_0_18() -> None:
    found = {load: sum(overlap(load, seed) for seed in range(4)) / 4 for load in (0.12, 0.13, 0.18, 0.20)}
    assert found[0.12] > 0.97 and found[0.13] > 0.7 > found[0.18] and found[0.20] < 0.6


@pytest.mark.catalogue("S4-018")
def test_so_many_patterns_are_exact_fixed_points() -> None:
    n = 1000
    for count, least, most in ((int(n / (2 * math.log2(n))), 0.97, 1.0), (int(0.138 * n), 0.0, 0.2)):
        x = patterns(count, n)
        stable = float(((x * (x @ hebbian(x))) > 0).all(1).double().mean())
        assert least <= stable <= most


@pytest.mark.catalogue("S4-019")
def test_powers_and_softmax_have_room_for_more() -> None:
    x = patterns(300, 100)
    model = store(x, kind="dense", power=3, sweeps=1)
    assert torch.allclose(model.weight.detach(), x)
    assert torch.equal(model.recall(x[:20]), x[:20])
    assert not torch.equal(settle(x[:20], hebbian(x), sweeps=1), x[:20])
    changed = x[:10].clone()
    changed[:, :8] *= -1
    state = model.state(changed)
    assert bool((model.energy(model.state(model.recall(changed))) <= model.energy(state) + 1e-9).all())

    x = patterns(1000, 64)
    model = store(x, kind="continuous", beta=1.0, sweeps=1)
    query = x[:50].clone()
    for row in query:
        row[torch.randperm(64)[:6]] *= -1
    attended = functional.scaled_dot_product_attention(query[None], x[None], x[None], scale=1.0)[0]
    assert torch.allclose(model.attend(query), attended, rtol=0, atol=1e-6)
    assert torch.equal(signs(model.recall(query)), x[:50])
    fallen = model.energy(model.attend(query))
    assert bool((fallen <= model.energy(query) + 1e-9).all())


@pytest.mark.parametrize("kind", ["binary", "dense", "continuous"])
def test_a_run_of_one_epoch_stores_patterns(kind: str, root: Path) -> None:
    config = {
        "data": {"name": "digits", "limit": 6, "val": 0.0, "test": 0.0, "batch_size": 4, "shuffle": False},
        "model": {"name": "hopfield", "kind": kind, "slots": 6, "power": 15},
        "optimizer": {"name": "sgd", "lr": 1.0},
        "probes": {"capacity": {"flips": 0.05}},
        "trainer": {"epochs": 1, "device": "cpu", "threads": 1},
    }
    run = pegboard.train(config, root=root, quiet=True)
    figures = run.summary["figures"]
    assert run.status == "finished" and figures["capacity/load"] == 6 / 64
    assert figures["capacity/overlap"] > (0.9 if kind != "binary" else 0.5)  # digits are much alike
    if kind == "binary":
        assert "capacity/crosstalk_variance" in figures
    else:
        model: Any = pegboard.load(run, which="last")
        assert model.weight.shape == (6, 64)


@pytest.mark.parametrize("kind", ["binary", "dense"])
def test_samples_of_one_sign_are_no_patterns(kind: str, root: Path) -> None:
    given = {
        "data": {"name": "digits", "limit": 6, "normalize": "none"},
        "model": {"name": "hopfield", "kind": kind},
        "optimizer": {"name": "sgd", "lr": 1.0},
        "trainer": {"epochs": 1, "device": "cpu"},
    }
    with pytest.raises(pegboard.PegboardError, match=f"a {kind} memory sees the signs of numbers"):
        pegboard.train(given, root=root, quiet=True)


def test_more_samples_than_slots_are_refused(root: Path) -> None:
    config = {
        "data": {"name": "digits", "limit": 9},
        "model": {"name": "hopfield", "kind": "dense", "slots": 5},
        "optimizer": {"name": "sgd", "lr": 1.0},
        "trainer": {"epochs": 1, "device": "cpu"},
    }
    with pytest.raises(pegboard.PegboardError, match="room for 5 patterns, and there are 9"):
        pegboard.train(config, root=root, quiet=True)
