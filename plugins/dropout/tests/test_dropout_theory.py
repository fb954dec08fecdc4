"""What dropout amounts to: an ensemble over masks, its approximation by scaling, a penalty."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pegboard
import points
import pytest
import torch
import torch.nn.functional as F
from pegboard import Peg
from pegboard_dropout import Dropout
from sklearn.datasets import load_digits, make_moons
from torch import Tensor, nn

Make = Callable[..., nn.Sequential]
Hang = Callable[..., list[str]]


def all_masks(keep: Tensor) -> tuple[Tensor, Tensor]:
    """Every mask of units kept with the probabilities `keep`, and the probability of each mask."""
    masks = torch.tensor(list(product([0.0, 1.0], repeat=len(keep))), dtype=keep.dtype)
    return masks, torch.where(masks == 1, keep, 1 - keep).prod(1)


@pytest.mark.catalogue("S3-132")
@pytest.mark.parametrize("units", [6, 10])
def test_n_units_have_two_to_the_n_masks_whose_probabilities_sum_to_one(hang: Hang, units: int) -> None:
    keep = torch.linspace(0.15, 0.95, units, dtype=torch.float64)
    masks, probability = all_masks(keep)
    assert len(masks.unique(dim=0)) == 2**units
    assert abs(probability.sum().item() - 1) < 1e-12
    torch.testing.assert_close(probability @ masks, keep, rtol=0, atol=1e-12)
    # What the part draws are these masks, each of them and nothing else.
    peg = Peg("hidden", units)
    hang(peg, Dropout(0.5))
    torch.manual_seed(0)
    drawn, counts = (peg(torch.ones(40 * 2**units, units)) > 0).double().unique(dim=0, return_counts=True)
    assert torch.equal(drawn, masks.unique(dim=0))
    assert counts.min() > 10 and counts.max() < 80  # 40 in the mean, all masks alike


@pytest.mark.catalogue("S4-152")
def test_the_mean_of_training_passes_is_the_exact_ensemble(mlp: Make, hang: Hang) -> None:
    """Three inputs kept with 0.8 and three hidden units kept with 0.5: 64 masks of unequal weight."""
    torch.manual_seed(0)
    model = mlp(3, 3, 1, activation=nn.Tanh).double()
    hang(model, Dropout(0.2, sites=("input",)), "input_dropout")
    hang(model, Dropout(0.5))
    x = torch.tensor([[1.5, -2.0, 0.7]], dtype=torch.float64)
    masks, probability = all_masks(torch.tensor([0.8] * 3 + [0.5] * 3, dtype=torch.float64))
    with torch.no_grad():
        hidden = torch.tanh(model[1](x * masks[:, :3] / 0.8))
        members = torch.sigmoid(model[5](hidden * masks[:, 3:] / 0.5))[:, 0]
        exact = probability @ members
        passes = torch.sigmoid(model(x.expand(10_000, 3)))[:, 0]
        scaled = torch.sigmoid(model.eval()(x)).item()
    assert abs(passes.mean() - exact) < 4 * passes.std() / 10_000**0.5
    # Of one pass each member of the ensemble is a possible outcome, and nothing else is.
    assert torch.cdist(passes.unique()[:, None], members[:, None]).amin(1).max() < 1e-12
    assert 0 < abs(scaled - exact) < 0.05


@pytest.mark.catalogue("S4-152")
def test_a_run_trains_an_ensemble_whose_members_come_as_often_as_their_masks(tmp_path: Path) -> None:
    """A run with the usual shares: three inputs kept with 0.8, three hidden units with 0.5."""
    torch.manual_seed(0)
    x = torch.randn(20, 3)
    config = points.given(
        x, values=x[:, :1].sin(), model={"name": "mlp", "hidden": [3], "activation": "tanh"},
        optimizer={"name": "adam", "lr": 0.05}, regularizers={"dropout": {"sites": ["input", "hidden"]}},
        trainer={"epochs": 50, "eval_every": 50, "device": "cpu", "diagnose": False},
    )  # fmt: skip
    net: Any = points.run(config, tmp_path).model
    masks, probability = all_masks(torch.tensor([0.8] * 3 + [0.5] * 3, dtype=torch.float64))
    assert len(masks) == 64 and abs(probability.sum().item() - 1) < 1e-12
    first, last = (layer.double() for layer in (net.body[1], net.head))
    sample, passes = x[:1].double(), 10_000
    with torch.no_grad():
        hidden = torch.tanh(first(sample * masks[:, :3] / 0.8))
        members = torch.sigmoid(last(hidden * masks[:, 3:] / 0.5))[:, 0]
        found = torch.sigmoid(net.train()(sample.expand(passes, 3)))[:, 0]
        scaled = torch.sigmoid(net.eval()(sample)).item()
    exact = probability @ members
    assert abs(found.mean() - exact) < 4 * found.std() / passes**0.5
    # Masks that leave no hidden unit, or the same inputs to it, are one outcome.
    outcomes, which = members.unique(return_inverse=True)
    expected = torch.zeros_like(outcomes).index_add(0, which, probability)
    nearest = (found[:, None] - outcomes).abs().min(1)
    assert nearest.values.max() < 1e-12
    share = torch.bincount(nearest.indices, minlength=len(outcomes)) / passes
    error = (expected * (1 - expected) / passes).sqrt()
    assert len(outcomes) > 50 and ((share - expected).abs() < 4.5 * error).all()
    assert 0 < abs(scaled - exact) < 0.05


@pytest.mark.catalogue("S3-133", "S4-153")
def test_evaluation_is_the_exact_mean_of_a_linear_net(mlp: Make, hang: Hang) -> None:
    torch.manual_seed(0)
    model = mlp(4, 6, 2, activation=nn.Identity).double()
    hang(model, Dropout(0.3))
    x = torch.randn(5, 4, dtype=torch.float64)
    masks, probability = all_masks(torch.full((6,), 0.7, dtype=torch.float64))
    with torch.no_grad():
        hidden = model[1](x)
        inverted = torch.stack([model[5](hidden * mask / 0.7) for mask in masks])
        evaluated = model.eval()(x)
    torch.testing.assert_close(
        torch.einsum("m,mbo->bo", probability, inverted), evaluated, rtol=0, atol=1e-10
    )

    # The other convention leaves training alone and scales the outgoing weights by the keep probability.
    outgoing, bias = model[5].weight.detach() / 0.7, model[5].bias.detach()
    plain = torch.stack([F.linear(hidden * mask, outgoing, bias) for mask in masks])
    torch.testing.assert_close(plain, inverted, rtol=0, atol=1e-10)
    torch.testing.assert_close(F.linear(hidden, 0.7 * outgoing, bias), evaluated, rtol=0, atol=1e-10)


@pytest.mark.catalogue("S3-133", "S4-153")
def test_training_passes_of_a_linear_net_average_to_its_evaluation(mlp: Make, hang: Hang) -> None:
    torch.manual_seed(0)
    model = mlp(4, 6, 1, activation=nn.Identity).double()
    hang(model, Dropout(0.5))
    x = torch.randn(1, 4, dtype=torch.float64)
    with torch.no_grad():
        passes = model(x.expand(20_000, 4))
        assert abs(passes.mean() - model.eval()(x)) < 4 * passes.std() / 20_000**0.5


@pytest.mark.catalogue("S4-153")
@pytest.mark.parametrize("p", [0.5, 0.3])
def test_evaluation_is_the_geometric_mean_of_softmax_over_dropped_inputs(
    mlp: Make, hang: Hang, p: float
) -> None:
    torch.manual_seed(0)
    model, x = mlp(4, 3).double(), torch.randn(1, 4, dtype=torch.float64)
    hang(model, Dropout(p, sites=("input",)))
    masks, probability = all_masks(torch.full((4,), 1 - p, dtype=torch.float64))
    with torch.no_grad():
        passes = model(x.expand(5000, 4))
        first = model[1]
        outputs = F.linear(x * masks / (1 - p), first.weight, first.bias)  # of each mask
        apart = (passes[:, None] - outputs).abs().amax(-1)
        assert apart.amin(1).max() < 1e-12  # every pass is that of a mask
        nearest = apart.argmin(0)  # the pass of every mask
        assert apart.amin(0).max() < 1e-12
        members = passes[nearest].log_softmax(-1)
        evaluated = model.eval()(x)[0].softmax(-1)
    torch.testing.assert_close((probability @ members).softmax(-1), evaluated, rtol=0, atol=1e-10)
    assert (probability @ members.exp() - evaluated).abs().max() > 1e-4


@pytest.mark.catalogue("S4-153")
@pytest.mark.parametrize("keep", [[0.5] * 6, [0.9, 0.4, 0.6, 0.8, 0.3, 0.7]])
def test_scaling_is_exact_for_the_geometric_mean_of_softmax(keep: list[float]) -> None:
    torch.manual_seed(0)
    pi = torch.tensor(keep, dtype=torch.float64)
    masks, probability = all_masks(pi)
    weight, bias = torch.randn(4, 6, dtype=torch.float64), torch.randn(4, dtype=torch.float64)
    x = torch.randn(6, dtype=torch.float64)
    members = F.linear(x * masks, weight, bias).log_softmax(-1)
    geometric = (probability @ members).softmax(-1)
    arithmetic = probability @ members.exp()
    scaled = F.linear(pi * x, weight, bias).softmax(-1)
    torch.testing.assert_close(geometric, scaled, rtol=0, atol=1e-10)
    assert (arithmetic - scaled).abs().max() > 1e-3


@pytest.mark.catalogue("S3-132")
@pytest.mark.parametrize("seed", [0, 1])
def test_a_trained_net_predicts_close_to_the_average_of_its_1024_members(seed: int, tmp_path: Path) -> None:
    drawn, labels = make_moons(300, noise=0.2, random_state=seed)
    x = torch.tensor(drawn).float()
    config = points.given(
        x, torch.tensor(labels), seed=seed, model={"name": "mlp", "hidden": [10]},
        optimizer={"name": "adam", "lr": 0.05}, regularizers={"dropout": {"p": 0.2}},
        trainer={"epochs": 100, "eval_every": 100, "device": "cpu", "diagnose": False},
    )  # fmt: skip
    done = points.run(config, tmp_path)
    net: Any = done.model
    masks, probability = all_masks(torch.full((10,), 0.8))
    assert len(masks) == 1024
    with torch.no_grad():
        scaled = net(x).softmax(-1)
        outputs = net.head(net.body(x) * masks.unsqueeze(1) / 0.8)  # (members, samples, classes)
        members = outputs.log_softmax(-1)
        arithmetic = torch.einsum("m,mbo->bo", probability, members.exp())
        geometric = torch.einsum("m,mbo->bo", probability, members).softmax(-1)
        # A pass of training is that of a member.
        passes = net.train()(x[:1].expand(1000, 2))
    apart = (passes.unsqueeze(1) - outputs[:, 0]).abs().amax(-1)
    assert apart.amin(1).max() < 1e-4 < passes.std(0).min()
    assert done.figures["test/accuracy"] > 0.85
    assert (arithmetic - scaled).abs().mean() < 0.05
    torch.testing.assert_close(geometric, scaled, rtol=0, atol=1e-4)
    # The ensemble is no empty notion: single members are several times as far away.
    assert (members.exp() - scaled).abs().mean() > 2 * (arithmetic - scaled).abs().mean()


def path_penalty(u: Tensor, v: Tensor, keep: float) -> Tensor:
    """(1 - keep) / keep * sum_i |u_i|^2 |v_i|^2, with u_i into and v_i out of hidden unit i."""
    return (1 - keep) / keep * (u.square().sum(1) * v.square().sum(0)).sum()


def mean_loss(hidden: Tensor, v: Tensor, target: Tensor, keep: float) -> Tensor:
    """The expected squared loss over all masks of the hidden units, by enumeration."""
    masks, probability = all_masks(torch.full((hidden.shape[1],), keep, dtype=hidden.dtype))
    losses = [(hidden * mask / keep @ v.T - target).square().sum(1).mean() for mask in masks]
    return probability @ torch.stack(losses)


@pytest.mark.catalogue("S3-135")
def test_dropout_on_linear_units_and_white_inputs_is_a_path_penalty(mlp: Make, hang: Hang) -> None:
    torch.manual_seed(0)
    keep, model = 0.7, mlp(4, 6, 3, activation=nn.Identity, bias=False).double()
    u, v = model[1].weight.detach(), model[5].weight.detach()
    white = torch.linalg.qr(torch.randn(40, 4, dtype=torch.float64))[0] * 40**0.5  # mean of x x^T is I
    target = torch.randn(40, 3, dtype=torch.float64)
    base = (white @ u.T @ v.T - target).square().sum(1).mean()
    expected = base + path_penalty(u, v, keep)
    torch.testing.assert_close(mean_loss(white @ u.T, v, target, keep), expected, rtol=0, atol=1e-10)

    # The same through the part: the mean loss of many training passes.
    hang(model, Dropout(1 - keep))
    with torch.no_grad():
        errors = model(white.expand(2000, 40, 4)) - target
    losses = errors.square().sum(-1).mean(-1)
    assert abs(losses.mean() - expected) < 4 * losses.std() / 2000**0.5


@pytest.mark.catalogue("S3-135")
@pytest.mark.parametrize("activation", [nn.Identity, nn.ReLU, nn.Tanh])
def test_the_general_penalty_is_exact_for_any_inputs_and_activation(
    mlp: Make, hang: Hang, activation: type[nn.Module]
) -> None:
    torch.manual_seed(0)
    keep, dtype = 0.6, torch.float64
    model = mlp(4, 6, 3, activation=activation, bias=False).double()
    u, v = torch.randn(6, 4, dtype=dtype), torch.randn(3, 6, dtype=dtype)
    with torch.no_grad():
        model[1].weight.copy_(u)
        model[5].weight.copy_(v)
    x, target = (
        torch.randn(40, 4, dtype=dtype) * torch.tensor([3.0, 1, 1, 0.2]),
        torch.randn(40, 3, dtype=dtype),
    )
    with torch.no_grad():
        base = (model(x) - target).square().sum(1).mean()
        hidden = activation()(x @ u.T)
    general = (1 - keep) / keep * (v.square().sum(0) * hidden.square().mean(0)).sum()
    exact = mean_loss(hidden, v, target, keep)
    torch.testing.assert_close(exact, base + general, rtol=0, atol=1e-10)
    assert abs(exact - base - path_penalty(u, v, keep)) > 1  # the short form needs white inputs

    # The same through the part: the mean loss of many training passes.
    hang(model, Dropout(1 - keep))
    with torch.no_grad():
        losses = (model(x.expand(4000, 40, 4)) - target).square().sum(-1).mean(-1)
    assert abs(losses.mean() - base - general) < 4 * losses.std() / 4000**0.5


@pytest.mark.catalogue("S3-131")
def test_dropout_lowers_the_test_error_of_an_overfitting_net(mlp: Make, hang: Hang) -> None:
    """A noisy sine of 20 inputs, 60 samples, far more weights than that; the mean over three draws."""
    errors = {False: 0.0, True: 0.0}
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        x, far = torch.randn(60, 20, generator=generator), torch.randn(1000, 20, generator=generator)
        w = torch.randn(20, 1, generator=generator) / 20**0.5
        y = torch.sin(2 * x @ w) + 0.3 * torch.randn(60, 1, generator=generator)
        for dropped in errors:
            torch.manual_seed(seed)
            model = mlp(20, 128, 128, 1)
            if dropped:
                hang(model, Dropout(0.5))
            optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
            for _ in range(250):
                optimizer.zero_grad()
                F.mse_loss(model(x), y).backward()
                optimizer.step()
            with torch.no_grad():
                errors[dropped] += F.mse_loss(model.eval()(far), torch.sin(2 * far @ w)).item() / 3
    assert errors[True] < 0.95 * errors[False]


SEEN = """
from dataclasses import dataclass
from pegboard import Classes, Dataset, DataSpec, Resident, Splits, Vector, hookimpl

@dataclass(frozen=True)
class Seen:
    pass

def build(config, context):
    import torch
    from sklearn.datasets import load_digits
    digits = load_digits()
    whole = Resident([torch.tensor(digits.data[:512] / 16).float()], torch.tensor(digits.target[:512]))
    return Splits(spec=DataSpec((Vector(64),), Classes(10)), train=whole, val=whole)

@hookimpl
def pegboard_datasets():
    return [Dataset("seen", Seen, build, spec=lambda config: DataSpec((Vector(64),), Classes(10)))]
"""  # digits whose training samples validate: their loss is that of the whole net


@pytest.mark.catalogue("S3-134")
def test_dropout_makes_activations_sparser_and_training_longer(tmp_path: Path) -> None:
    """Runs with the default shares, until the loss of the whole net on what trains it is 0.1."""
    (tmp_path / "seen.py").write_text(SEEN)
    local = str(tmp_path / "seen.py")
    x = torch.tensor(load_digits().data[:512] / 16).float()
    tricks: tuple[dict[str, Any], ...] = ({}, {"dropout": {"sites": ["input", "hidden"]}})
    plain, dropped = [], []
    for seed in range(3):
        for regularizers, found in zip(tricks, (plain, dropped), strict=True):
            config = {
                "seed": seed,
                "data": {"name": "seen", "batch_size": 64},
                "model": {"name": "mlp", "hidden": [128]},
                "optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.9},
                "regularizers": regularizers,
                "trainer": {"epochs": 25, "device": "cpu", "diagnose": False},
                "plugins": {"local": [local]},
            }
            done = points.run(config, tmp_path / f"{seed}-{len(regularizers)}")
            losses = [row["val/loss"] for row in done.history if "val/loss" in row]
            net = pegboard.load(done, which="last", local=[local])
            with torch.no_grad():
                near_zero = (net.body(x) < 0.01).float().mean().item()
            found.append((next(epoch for epoch, loss in enumerate(losses, 1) if loss <= 0.1), near_zero))
    assert all(after[1] > before[1] + 0.1 for before, after in zip(plain, dropped, strict=True))
    assert 1.3 <= sum(e for e, _ in dropped) / sum(e for e, _ in plain) <= 4
