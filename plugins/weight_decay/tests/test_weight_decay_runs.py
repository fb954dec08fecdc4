"""What decay does in runs: beside torch, at closed forms, along the curvature; in double precision."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import points
import pytest
import torch
import torch.nn.functional as F
from pegboard import Run
from scipy.optimize import minimize
from sweeps import first_of_each
from torch import Tensor, nn

BOTH = pytest.mark.parametrize("mode", ["decoupled", "l2"])
NAMES = ("body.1.weight", "body.1.bias", "head.weight", "head.bias")


def trained(
    root: Path,
    x: Tensor,
    y: Tensor,
    decay: dict[str, Any] | None,
    steps: int,
    model: dict[str, Any],
    optimizer: dict[str, Any],
) -> Run:
    """Full batches under the mean squared error."""
    given = points.given(
        x, values=y, model=model, optimizer=optimizer,
        regularizers={"double": {}, **({} if decay is None else {"weight_decay": decay})},
        trainer={"epochs": steps, "eval_every": steps, "device": "cpu", "diagnose": False},
    )  # fmt: skip
    given["data"] |= {"double": True, "shuffle": False}
    return points.run(given, root)


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2)).double()


def mlp_of(twin: nn.Module, root: Path) -> dict[str, Any]:
    """The model that starts from the same weights."""
    state = {name: p.detach() for name, p in zip(NAMES, twin.parameters(), strict=True)}
    torch.save(state, root / "start.pt")
    return {"name": "mlp", "hidden": [5], "activation": "tanh", "weights": str(root / "start.pt")}


def fitted(twin: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor, steps: int) -> nn.Module:
    for _ in range(steps):
        optimizer.zero_grad()
        F.mse_loss(twin(x), y).backward()
        optimizer.step()
    return twin


@pytest.mark.catalogue("S4-145", "S4-146")
@BOTH
@pytest.mark.parametrize("steps", [1, 30])
def test_a_run_with_either_mode_is_torchs_sgd_with_decay_of_the_weights_alone(
    mode: str, steps: int, tmp_path: Path
) -> None:
    x, y, twin = drawn(16, 3), drawn(16, 2, seed=1), net()
    model = mlp_of(twin, tmp_path)
    run = trained(tmp_path, x, y, {"value": 0.3, "mode": mode}, steps, model, {"name": "sgd", "lr": 0.1})
    groups = [
        {"params": [p for p in twin.parameters() if p.dim() == 2], "weight_decay": 0.3},
        {"params": [p for p in twin.parameters() if p.dim() == 1]},
    ]
    fitted(twin, torch.optim.SGD(groups, 0.1), x, y, steps)
    for found, expected in zip(run.model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.catalogue("S4-146")
def test_runs_with_adam_and_a_penalty_are_not_those_with_adamw(tmp_path: Path) -> None:
    x, y, twin = drawn(16, 3), drawn(16, 2, seed=1), net()
    model, adam = mlp_of(twin, tmp_path), {"name": "adam", "lr": 0.01}
    everything = {"value": 0.3, "bias": True}
    decoupled, term = (
        trained(tmp_path, x, y, {**everything, "mode": mode}, 30, model, adam).model.parameters()
        for mode in ("decoupled", "l2")
    )
    fitted(twin, torch.optim.AdamW(twin.parameters(), 0.01, weight_decay=0.3), x, y, 30)
    apart = []
    for one, other, expected in zip(decoupled, term, twin.parameters(), strict=True):
        torch.testing.assert_close(one, expected, rtol=0, atol=1e-12)
        apart.append((one - other).abs().max().item())
    assert max(apart) > 1e-4


LINEAR = {"name": "linear", "bias": False, "init": "zeros"}


@pytest.mark.catalogue("S4-145")
@BOTH
def test_the_limit_of_a_run_on_a_quadratic(mode: str, tmp_path: Path) -> None:
    # The mean square over these two samples is (w_1 - 2)^2 / 2 + 4 (w_2 + 1)^2 / 2.
    x, y = torch.tensor([[1.0, 0.0], [0.0, 2.0]]), torch.tensor([[2.0], [-2.0]])
    decay, sgd = {"value": 0.5, "mode": mode}, {"name": "sgd", "lr": 0.1}
    (found,) = trained(tmp_path, x, y, decay, 300, LINEAR, sgd).model.parameters()
    expected = torch.tensor([[4 / 3, -8 / 9]], dtype=torch.float64)
    torch.testing.assert_close(found.detach(), expected, rtol=0, atol=1e-6)


@pytest.mark.catalogue("S4-145", "S4-146")
@BOTH
def test_without_a_gradient_every_update_multiplies_by_exactly_one_minus_rate_times_strength(
    mode: str, tmp_path: Path
) -> None:
    start = drawn(2, 3)
    torch.save({"head.weight": start}, tmp_path / "start.pt")
    model = {"name": "linear", "bias": False, "weights": str(tmp_path / "start.pt")}
    # Inputs of zero, and powers of two, so that the gradient of the term is its strength times the weights.
    decay, sgd = {"value": 0.25, "mode": mode}, {"name": "sgd", "lr": 0.5}
    run = trained(tmp_path, torch.zeros(4, 3), drawn(4, 2), decay, 4, model, sgd)
    expected = start
    for _ in range(4):
        expected = (1 - 0.5 * 0.25) * expected
    assert torch.equal(run.model.state_dict()["head.weight"], expected)


@pytest.mark.catalogue("S4-147")
@pytest.mark.parametrize("mode", first_of_each(["l2", "decoupled"]))
def test_runs_reach_ridge_which_is_the_minimum_on_a_ball_that_shrinks_with_the_strength(
    mode: str, tmp_path: Path
) -> None:
    x, y, norms = drawn(40, 5), drawn(40, 1, seed=1), []
    optimizer: dict[str, Any] = {"name": "sgd", "lr": 0.15}
    if mode == "l2":
        optimizer = {"name": "lbfgs", "line_search_fn": "strong_wolfe"}
    for mu in (0.0, 1.0, 10.0, 100.0):  # beside the sum of half the squares, of which n/2 is the mean square
        steps = 150 if mode == "decoupled" else 4
        decay = {"value": 2 * mu / len(x), "mode": mode}
        w = trained(tmp_path, x, y, decay, steps, LINEAR, optimizer).model.state_dict()["head.weight"][0]
        ridge = torch.linalg.solve(x.T @ x + mu * torch.eye(5), x.T @ y)[:, 0]
        torch.testing.assert_close(w, ridge, rtol=0, atol=1e-4)
        norms.append(w.norm().item())
        if mu:
            a, b, radius = x.numpy(), y[:, 0].numpy(), norms[-1]
            inside = minimize(
                lambda v, a=a, b=b: ((a @ v - b) ** 2).sum() / 2, 0.01 * ridge.numpy(), method="SLSQP",
                jac=lambda v, a=a, b=b: a.T @ (a @ v - b), options={"ftol": 1e-14, "maxiter": 500},
                constraints={"type": "ineq", "fun": lambda v, radius=radius: radius**2 - v @ v},
            )  # fmt: skip
            torch.testing.assert_close(torch.tensor(inside.x), w, rtol=0, atol=1e-4)
    assert all(a > b for a, b in pairwise(norms))


@pytest.mark.catalogue("S4-148")
@BOTH
def test_a_run_shrinks_along_eigenvectors_by_their_curvature(mode: str, tmp_path: Path) -> None:
    mu, values = 0.5, torch.tensor([0.05, 0.5, 5.0, 0.2, 1.0, 2.0], dtype=torch.float64)
    q, minimum = torch.linalg.qr(drawn(6, 6))[0], drawn(6, seed=1)
    x = (3 * values).sqrt().diag() @ q  # the mean of six squares has the Hessian Q' diag(values) Q
    torch.testing.assert_close(2 * x.T @ x / 6, q.T @ values.diag() @ q)
    decay, sgd = {"value": mu, "mode": mode}, {"name": "sgd", "lr": 0.15}
    run = trained(tmp_path, x, (x @ minimum)[:, None], decay, 400, LINEAR, sgd)
    found = q @ run.model.state_dict()["head.weight"][0]
    torch.testing.assert_close(found, values / (values + mu) * (q @ minimum), rtol=0, atol=1e-6)


@pytest.mark.catalogue("S4-148")
def test_a_little_decay_moves_a_trained_net_along_its_flat_directions(tmp_path: Path) -> None:
    x = drawn(60, 2)
    y = torch.tanh(x @ torch.tensor([[1.5], [-0.5]]).double()) + 0.2 * drawn(60, 1, seed=1)
    model: dict[str, Any] = {"name": "mlp", "hidden": [1], "activation": "tanh"}
    lbfgs = {
        "name": "lbfgs", "max_iter": 100, "tolerance_grad": 1e-12, "tolerance_change": 0.0,
        "line_search_fn": "strong_wolfe",
    }  # fmt: skip
    first = trained(tmp_path, x, y, None, 10, model, lbfgs)
    start = {name: p.detach().clone() for name, p in first.model.named_parameters()}

    def flat(state: dict[str, Tensor]) -> Tensor:
        return torch.cat([p.detach().flatten() for p in state.values()])

    minimum, sizes = flat(start), [p.numel() for p in start.values()]

    def loss(theta: Tensor) -> Tensor:
        parts = zip(start.items(), theta.split(sizes), strict=True)
        state = {name: part.view(p.shape) for (name, p), part in parts}
        return F.mse_loss(torch.func.functional_call(first.model, state, (x,)), y)

    values, vectors = torch.linalg.eigh(torch.autograd.functional.hessian(loss, minimum))
    assert values[0] > 1e-4  # a proper minimum
    mu = 0.01 * values[0].item()
    decay = {"value": mu, "mode": "l2", "bias": True}
    further = {**model, "weights": str(first.folder)}
    moved = flat(dict(trained(tmp_path, x, y, decay, 10, further, lbfgs).model.named_parameters())) - minimum
    predicted = -mu / (values + mu) * (vectors.T @ minimum)
    torch.testing.assert_close(vectors.T @ moved, predicted, rtol=0.1, atol=0.02 * moved.abs().max().item())
    assert (vectors.T @ moved)[-1].abs() < (vectors.T @ moved)[0].abs()
    share = (vectors.T @ moved).abs() / (vectors.T @ minimum).abs()
    assert share[-1] < 0.1 * share[0]
