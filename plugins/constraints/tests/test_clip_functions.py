"""The functions beside torch's own."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from pegboard_constraints.functional import clip_norm, clip_value
from torch import Tensor, nn


def gradients(dtype: torch.dtype = torch.float32) -> list[Tensor | None]:
    torch.manual_seed(0)
    return [torch.randn(3, 4, dtype=dtype), None, torch.randn((), dtype=dtype), torch.randn(5, dtype=dtype)]


def by_torch(grads: list[Tensor | None], clip: Callable[..., object], bound: float) -> list[Tensor | None]:
    params = [nn.Parameter(torch.zeros(2) if g is None else torch.zeros_like(g)) for g in grads]
    for p, g in zip(params, grads, strict=True):
        p.grad = None if g is None else g.clone()
    clip(params, bound)
    return [p.grad for p in params]


@pytest.mark.parametrize("bound", [0.1, 1.0, 1e3])
@pytest.mark.parametrize(
    ("clip", "torchs"),
    [(clip_norm, nn.utils.clip_grad_norm_), (clip_value, nn.utils.clip_grad_value_)],
)
def test_gradients_are_those_of_torch_to_the_bit(
    clip: Callable[..., list[Tensor | None]], torchs: Callable[..., object], bound: float
) -> None:
    grads = gradients()
    before = [None if g is None else g.clone() for g in grads]
    for ours, theirs in zip(clip(grads, bound), by_torch(grads, torchs, bound), strict=True):
        assert (ours is theirs is None) or torch.equal(ours, theirs)
    for g, old in zip(grads, before, strict=True):  # none was changed in place
        assert (g is old is None) or torch.equal(g, old)


def test_the_joint_norm_is_at_most_the_bound_and_the_direction_stays() -> None:
    grads = [g for g in gradients() if g is not None]
    clipped = [g for g in clip_norm(grads, 0.5) if g is not None]
    flat, whole = (torch.cat([g.flatten() for g in given]) for given in (clipped, grads))
    assert flat.norm() <= 0.5 and flat.norm() > 0.4999
    torch.testing.assert_close(flat / flat.norm(), whole / whole.norm())


def test_a_gradient_keeps_its_type_beside_longer_numbers() -> None:
    grads: list[Tensor | None] = [torch.ones(3, dtype=torch.float64), torch.tensor(2.0)]
    assert [g.dtype for g in clip_norm(grads, 0.1) if g is not None] == [torch.float64, torch.float32]


def test_each_part_of_a_complex_number_is_bounded() -> None:
    (clipped,) = clip_value([torch.tensor([3 + 0.1j, -0.2 - 4j])], 0.5)
    assert torch.equal(clipped, torch.tensor([0.5 + 0.1j, -0.2 - 0.5j]))


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("clip", [clip_norm, clip_value])
def test_numbers_that_are_not_finite_are_still_found(
    clip: Callable[..., list[Tensor | None]], wrong: float
) -> None:
    clipped = clip([torch.tensor([1.0, wrong]), torch.ones(2)], 0.5)
    assert not all(bool(g.isfinite().all()) for g in clipped if g is not None)
