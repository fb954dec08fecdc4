"""The function against its definition and against torch."""

from __future__ import annotations

import pytest
import torch
from pegboard_batchnorm.functional import batch_norm
from torch import Tensor, nn


def by_hand(x: Tensor, eps: float, axis: int) -> Tensor:
    """(x - mean) / sqrt(var + eps) with the mean and the biased variance over the other axes."""
    others = [d for d in range(x.dim()) if d != axis % x.dim()]
    mean = x.mean(others, keepdim=True)
    return (x - mean) / (x - mean).square().mean(others, keepdim=True).add(eps).sqrt()


@pytest.mark.catalogue("S3-121", "S4-155")
@pytest.mark.parametrize(
    ("shape", "axis"),
    [((50, 7), 1), ((50, 7), -1), ((9, 7, 4), 1), ((9, 4, 7), 2), ((9, 4, 3, 7), -1), ((5, 7, 3, 4), 1)],
)
def test_output_has_mean_zero_and_biased_variance_one(shape: tuple[int, ...], axis: int) -> None:
    torch.manual_seed(0)
    x = 3 + 5 * torch.randn(shape, dtype=torch.float64)
    y = batch_norm(x, axis=axis)
    rows = y.movedim(axis, 0).flatten(1)
    assert rows.mean(1).abs().max() < 1e-6
    assert (rows.var(1, correction=0) - 1).abs().max() < 1e-4
    torch.testing.assert_close(y, by_hand(x, 1e-5, axis), rtol=0, atol=1e-12)


@pytest.mark.catalogue("S3-122")
def test_variance_of_the_output_is_var_over_var_plus_eps() -> None:
    torch.manual_seed(0)
    x = torch.randn(64, 3, dtype=torch.float64) * torch.tensor([0.05, 1.0, 20.0])
    var = x.var(0, correction=0)
    torch.testing.assert_close(batch_norm(x, eps=0.01).var(0, correction=0), var / (var + 0.01))


@pytest.mark.catalogue("S3-121")
@pytest.mark.parametrize("axis", [1, 2])
def test_gradients_go_through_the_statistics_of_the_batch(axis: int) -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 3, 3, dtype=torch.float64, requires_grad=True)
    scale, shift = torch.rand(2, 3, dtype=torch.float64).requires_grad_().unbind()
    assert torch.autograd.gradcheck(lambda x, w, b: batch_norm(x, w, b, axis=axis), (x, scale, shift))


@pytest.mark.catalogue("S3-122", "S4-155")
@pytest.mark.parametrize("momentum", [0.1, 1.0, None])
def test_equals_torch_in_training_and_evaluation(momentum: float | None) -> None:
    torch.manual_seed(0)
    reference = nn.BatchNorm1d(6, momentum=momentum).double()
    nn.init.normal_(reference.weight)
    nn.init.normal_(reference.bias)
    mean, var = torch.zeros(6).double(), torch.ones(6).double()
    for count in range(1, 6):
        x = torch.randn(20, 6, dtype=torch.float64) * count + 1
        rate = torch.tensor(1 / count).double() if momentum is None else momentum
        found = batch_norm(x, reference.weight, reference.bias, mean, var, momentum=rate)
        torch.testing.assert_close(found, reference(x), rtol=0, atol=1e-12)
    assert reference.running_mean is not None and reference.running_var is not None
    torch.testing.assert_close(mean, reference.running_mean, rtol=0, atol=1e-7)
    torch.testing.assert_close(var, reference.running_var, rtol=0, atol=1e-6)
    found = batch_norm(x, reference.weight, reference.bias, mean, var, training=False)
    torch.testing.assert_close(found, reference.eval()(x), rtol=0, atol=1e-6)


@pytest.mark.catalogue("S4-155")
def test_equals_torch_with_an_eps_that_hardly_counts() -> None:
    torch.manual_seed(0)
    x = torch.randn(40, 5, dtype=torch.float64)
    reference = nn.BatchNorm1d(5, eps=1e-12, affine=False).double()
    torch.testing.assert_close(batch_norm(x, eps=1e-12), reference(x), rtol=0, atol=1.8e-13)
    torch.testing.assert_close(batch_norm(x, eps=1e-12), by_hand(x, 0, 1), rtol=0, atol=1e-10)


@pytest.mark.catalogue("S3-124", "S4-155")
def test_the_running_variance_is_the_unbiased_one() -> None:
    torch.manual_seed(0)
    x = torch.randn(5, 3, dtype=torch.float64)
    mean, var = torch.zeros(3).double(), torch.ones(3).double()
    batch_norm(x, None, None, mean, var, momentum=1.0)
    torch.testing.assert_close(mean, x.mean(0), rtol=0, atol=1e-15)
    torch.testing.assert_close(var, x.var(0), rtol=0, atol=1e-15)
    assert (var - x.var(0, correction=0)).abs().min() > 1e-3


@pytest.mark.catalogue("S3-122")
def test_scale_and_shift_can_restore_the_input() -> None:
    torch.manual_seed(0)
    x = 2 + 3 * torch.randn(50, 4, dtype=torch.float64)
    restored = batch_norm(x, (x.var(0, correction=0) + 1e-5).sqrt(), x.mean(0))
    torch.testing.assert_close(restored, x, rtol=0, atol=1e-14)


@pytest.mark.catalogue("S3-122")
def test_the_output_of_a_sample_depends_on_the_others_of_its_batch() -> None:
    torch.manual_seed(0)
    x = torch.randn(8, 4)
    other = torch.cat([x[:7], x[7:] + 1])
    assert (batch_norm(x)[0] != batch_norm(other)[0]).all()


def test_features_in_the_last_axis_are_those_of_axis_1_moved() -> None:
    torch.manual_seed(0)
    x, scale, shift = torch.randn(6, 5, 4), torch.randn(4), torch.randn(4)
    last = batch_norm(x, scale, shift, axis=-1)
    first = batch_norm(x.movedim(-1, 1).contiguous(), scale, shift, axis=1)
    torch.testing.assert_close(last, first.movedim(1, -1))


@pytest.mark.catalogue("S3-126", "S4-155")
@pytest.mark.parametrize(("shape", "axis"), [((1, 4), 1), ((1, 1, 4), 2), ((1, 4, 1, 1), 1)])
def test_one_value_for_each_feature_cannot_be_trained_on(shape: tuple[int, ...], axis: int) -> None:
    with pytest.raises(ValueError, match="no variance"):
        batch_norm(torch.zeros(shape), axis=axis)
    stored = torch.zeros(4), torch.ones(4)
    assert batch_norm(torch.zeros(shape), None, None, *stored, training=False, axis=axis).shape == shape


@pytest.mark.parametrize("axis", [1, 2])
def test_masked_places_are_in_no_statistic(axis: int) -> None:
    """The same as torch on the places that are there, joined; what is left out may be anything."""
    torch.manual_seed(0)
    mask = torch.arange(6) < torch.tensor([6, 2, 4]).unsqueeze(1)
    rows = torch.randn(3, 6, 5, dtype=torch.float64)
    rows[~mask] = torch.nan
    theirs = nn.BatchNorm1d(5).double()
    x = rows.movedim(-1, axis).requires_grad_()
    mean, var = torch.zeros(5, dtype=torch.float64), torch.ones(5, dtype=torch.float64)
    there = rows[mask].requires_grad_()
    expected = theirs(there)
    found = batch_norm(x, None, None, mean, var, axis=axis, mask=mask).movedim(axis, -1)
    torch.testing.assert_close(found[mask], expected)
    torch.testing.assert_close(mean, theirs.running_mean)
    torch.testing.assert_close(var, theirs.running_var)
    factor = torch.randn_like(expected)
    (found[mask] * factor).sum().backward()
    (expected * factor).sum().backward()
    assert x.grad is not None and there.grad is not None
    torch.testing.assert_close(x.grad.movedim(axis, -1)[mask], there.grad)


def test_a_mask_that_leaves_nothing_gives_no_nan_to_the_averages() -> None:
    mean, var = torch.zeros(2), torch.ones(2)
    batch_norm(torch.ones(2, 3, 2), None, None, mean, var, axis=2, mask=torch.zeros(2, 3, dtype=torch.bool))
    assert mean.isfinite().all() and var.isfinite().all()
