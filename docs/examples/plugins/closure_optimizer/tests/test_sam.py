"""SAM against the two passes written by hand, and where its update is known in closed form."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pegboard
import pytest
import torch
from pegboard.testing import partner_config
from torch import Tensor, nn

from pegboard_example_sam import SamAdamW, SamSgd
from pegboard_example_sam.optimizer import Sam, over_adamw, over_sgd

Closure = Callable[[], Tensor]


def problem() -> tuple[list[nn.Parameter], Callable[[list[nn.Parameter]], Closure]]:
    """Weights of a small network, and what computes their loss and gradients."""
    random = torch.Generator().manual_seed(2)
    x, y = torch.randn(16, 3, generator=random), torch.randn(16, 1, generator=random)
    shapes = ((3, 5), (5,), (5, 1))
    params = [nn.Parameter(torch.randn(shape, generator=random)) for shape in shapes]

    def closure_of(params: list[nn.Parameter]) -> Closure:
        def closure() -> Tensor:
            a, b, c = params
            for p in params:
                p.grad = None
            loss = (torch.tanh(x @ a + b) @ c - y).square().mean()
            loss.backward()
            return loss.detach()

        return closure

    return params, closure_of


def trained(make: Callable[[list[nn.Parameter]], Callable[[Closure], Any]], steps: int = 6) -> list[Tensor]:
    """The losses and the weights after some updates."""
    params, closure_of = problem()
    step, closure = make(params), closure_of(params)
    losses = [step(closure).clone() for _ in range(steps)]
    return [*losses, *(p.detach() for p in params)]


def same(a: list[Tensor], b: list[Tensor]) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def two_passes(params: list[nn.Parameter], rho: float, update: Callable[[], Any]) -> Callable[[Closure], Any]:
    """SAM as its paper has it, with `update` for the second half."""

    def step(closure: Closure) -> Tensor:
        loss = closure()
        grads = [p.grad for p in params if p.grad is not None]
        norm = torch.stack([g.norm() for g in grads]).norm()
        before = [p.detach().clone() for p in params]
        for p, g in zip(params, grads, strict=True):
            p.data += g * (rho / (norm + 1e-12))
        closure()
        for p, old in zip(params, before, strict=True):
            p.data = old
        update()
        return loss

    return step


def test_over_sgd_equals_the_two_passes_by_hand() -> None:
    def by_hand(params: list[nn.Parameter]) -> Callable[[Closure], Any]:
        velocities = [torch.zeros_like(p) for p in params]

        def update() -> None:
            for p, v in zip(params, velocities, strict=True):
                assert p.grad is not None
                v.mul_(0.9).add_(p.grad)
                p.data.add_(v, alpha=-0.1)

        return two_passes(params, 0.2, update)

    config = SamSgd(lr=0.1, rho=0.2, momentum=0.9)
    result = trained(lambda params: over_sgd(config, [{"params": params}]).step)
    assert same(result, trained(by_hand))
    assert not same(result, trained(lambda ps: over_sgd(SamSgd(lr=0.1, rho=0), [{"params": ps}]).step))


def test_over_adamw_equals_the_two_passes_by_hand() -> None:
    def by_hand(params: list[nn.Parameter]) -> Callable[[Closure], Any]:
        plain = torch.optim.AdamW(params, lr=0.1, betas=(0.8, 0.9), eps=1e-6, weight_decay=0)
        return two_passes(params, 0.2, plain.step)

    config = SamAdamW(lr=0.1, rho=0.2, betas=(0.8, 0.9), eps=1e-6)
    assert same(trained(lambda params: over_adamw(config, [{"params": params}]).step), trained(by_hand))


def test_without_a_radius_it_is_its_base_and_evaluates_once() -> None:
    calls = []

    def counted(step: Callable[[Closure], Any]) -> Callable[[Closure], Any]:
        return lambda closure: step(lambda: calls.append(1) or closure())  # type: ignore[func-returns-value]

    sgd = trained(lambda ps: counted(over_sgd(SamSgd(lr=0.1, rho=0), [{"params": ps}]).step))
    assert len(calls) == 6
    assert same(sgd, trained(lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9).step))
    adamw = trained(lambda ps: over_adamw(SamAdamW(lr=0.1, rho=0), [{"params": ps}]).step)
    assert same(adamw, trained(lambda ps: torch.optim.AdamW(ps, lr=0.1, weight_decay=0).step))


def test_on_a_bowl_the_update_is_the_closed_form() -> None:
    start = torch.tensor([3.0, -4.0], dtype=torch.float64)  # of length 5
    w = nn.Parameter(start.clone())
    optimizer = over_sgd(SamSgd(lr=0.1, rho=0.5, momentum=0), [{"params": [w]}])

    def closure() -> Tensor:  # 2 w^2 / 2, whose gradient is 2 w
        w.grad = 2 * w.detach()
        return w.detach().square().sum()

    loss = optimizer.step(closure)
    assert loss.item() == 25  # at the weights, not at the worst point
    torch.testing.assert_close(w.detach(), start - 0.1 * 2 * (start + 0.5 * start / 5), rtol=1e-12, atol=0)


def test_groups_have_radii_of_their_own_and_share_a_norm() -> None:
    a, b, idle = (nn.Parameter(torch.tensor([x], dtype=torch.float64)) for x in (3.0, 4.0, 7.0))
    groups = [{"params": [a, idle], "rho": 1.0}, {"params": [b], "lr": 0.0}]
    optimizer = over_sgd(SamSgd(lr=0.1, rho=0.0, momentum=0), groups)
    seen = []

    def closure() -> Tensor:
        seen.append((a.item(), b.item()))
        a.grad, b.grad = a.detach().clone(), b.detach().clone()
        return a.detach()

    optimizer.step(closure)
    assert seen[0] == (3.0, 4.0) and seen[1] == pytest.approx((4.0, 4.0))  # only what has a radius counts
    assert (a.item(), b.item(), idle.item()) == pytest.approx((3 - 0.1 * 4, 4.0, 7.0))
    assert all("rho" not in group for group in groups[1:])  # the caller's groups are left alone


def test_weights_are_back_when_the_second_evaluation_fails() -> None:
    params, closure_of = problem()
    before, closure, calls = [p.detach().clone() for p in params], closure_of(params), []

    def failing() -> Tensor:
        calls.append(1)
        if len(calls) == 2:
            raise ValueError("not finite")
        return closure()

    with pytest.raises(ValueError, match="not finite"):
        over_sgd(SamSgd(), [{"params": params}]).step(failing)
    assert same(before, [p.detach() for p in params])


@pytest.mark.parametrize("how", ["state dict", "copy"])
def test_state_is_that_of_one_optimizer(how: str) -> None:
    params, closure_of = problem()
    config = SamAdamW(lr=0.1)
    optimizer = over_adamw(config, [{"params": params}])
    for _ in range(3):
        optimizer.step(closure_of(params))
    if how == "copy":
        other = copy.deepcopy(optimizer)
        (group,) = other.param_groups
        theirs = group["params"]
    else:
        theirs = [nn.Parameter(p.detach().clone()) for p in params]
        other = over_adamw(SamAdamW(lr=9.0), [{"params": theirs}])
        other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for group in (*optimizer.param_groups, *other.param_groups):
        group["lr"] = 0.05  # as a schedule does
    for which, own in ((optimizer, params), (other, theirs)):
        which.step(closure_of(own))
    assert all(a is not b for a, b in zip(params, theirs, strict=True))
    assert same([p.detach() for p in params], [p.detach() for p in theirs])


def test_closure_is_asked_for() -> None:
    params, _ = problem()
    with pytest.raises(TypeError, match="step\\(closure\\)"):
        Sam(torch.optim.SGD(params), 0.1).step()


def test_in_a_run_it_is_descent_with_momentum_only_where_the_radius_is_nought(tmp_path: Path) -> None:
    runs = [
        pegboard.train(partner_config(optimizer={"name": name, "lr": 0.1, **more}), root=tmp_path, quiet=True)
        for name, more in (("sam_sgd", {"rho": 0.0}), ("partners:partner", {}), ("sam_sgd", {"rho": 0.5}))
    ]
    zero, plain, sam = ([row["train/loss"] for row in run.history if "train/loss" in row] for run in runs)
    assert zero == pytest.approx(plain, rel=1e-5)
    assert sam[0] == pytest.approx(plain[0], abs=0.1) and sam != pytest.approx(plain, rel=1e-3)
