"""The function against its definition and against torch."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from pegboard_dropout.functional import dropout


@pytest.mark.catalogue("S3-131", "S4-151")
@pytest.mark.parametrize("keep", [0.2, 0.5, 0.7, 0.9])
def test_keeps_a_share_of_one_minus_p_and_divides_it_by_that(keep: float) -> None:
    torch.manual_seed(0)
    n = 1_000_000
    y = dropout(torch.ones(n), 1 - keep)
    kept = y != 0
    sigma = (keep * (1 - keep) / n) ** 0.5
    assert abs(kept.float().mean().item() - keep) < 3 * sigma
    torch.testing.assert_close(y[kept], torch.full_like(y[kept], 1 / keep), rtol=1e-6, atol=0)
    assert abs(y.mean().item() - 1) < 0.01


@pytest.mark.catalogue("S4-151")
def test_units_are_kept_independently_of_each_other() -> None:
    torch.manual_seed(0)
    kept = (dropout(torch.ones(200_000, 3, dtype=torch.float64), 0.3) != 0).double()
    correlation = torch.corrcoef(kept.T) - torch.eye(3, dtype=torch.float64)
    assert correlation.abs().max() < 4 / 200_000**0.5


@pytest.mark.catalogue("S3-131", "S4-151")
def test_masks_are_new_in_every_call_and_the_same_for_a_seed() -> None:
    x = torch.ones(64, 16)
    torch.manual_seed(3)
    first, second = dropout(x, 0.5), dropout(x, 0.5)
    torch.manual_seed(3)
    assert not torch.equal(first, second)
    assert torch.equal(first, dropout(x, 0.5))


@pytest.mark.catalogue("S3-131", "S4-151")
@pytest.mark.parametrize("axis", [None, 1])
def test_evaluation_and_keeping_all_return_the_input_and_draw_nothing(axis: int | None) -> None:
    x, state = torch.randn(8, 4, 3), torch.get_rng_state()
    assert dropout(x, 0.5, training=False, axis=axis) is x
    assert dropout(x, 0.0, axis=axis) is x  # keep probability 1
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.catalogue("S3-131")
def test_dropped_units_get_no_gradient_and_kept_ones_get_it_scaled() -> None:
    torch.manual_seed(0)
    x = torch.randn(32, 8, dtype=torch.float64, requires_grad=True)
    y = dropout(x, 0.25)
    y.sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, (y != 0).double() / 0.75, rtol=1e-15, atol=0)
    assert 0 < (y == 0).sum() < y.numel()


@pytest.mark.parametrize(("shape", "reference"), [((6, 5, 9), F.dropout1d), ((6, 5, 4, 3), F.dropout2d)])
def test_features_in_axis_1_drop_as_in_torch(shape: tuple[int, ...], reference: object) -> None:
    x = torch.randn(shape)
    torch.manual_seed(1)
    ours = dropout(x, 0.4, axis=1)
    torch.manual_seed(1)
    assert torch.equal(ours, reference(x, 0.4, training=True))  # type: ignore[operator]


@pytest.mark.parametrize(("shape", "axis"), [((64, 7, 32), -1), ((64, 7, 32), 2), ((64, 5, 3, 32), 3)])
def test_a_feature_is_kept_or_dropped_at_every_position_of_a_sample(
    shape: tuple[int, ...], axis: int
) -> None:
    torch.manual_seed(0)
    y = dropout(torch.ones(shape), 0.5, axis=axis)
    rows = y.movedim(axis, 1).flatten(2)  # (sample, feature, position)
    assert torch.equal(rows.amin(-1), rows.amax(-1))
    kept = (rows[..., 0] != 0).float()
    assert abs(kept.mean().item() - 0.5) < 4 * 0.5 / kept.numel() ** 0.5
    assert not torch.equal(kept[0], kept[1])  # each sample has a mask of its own


def test_runs_on_the_meta_device_and_in_half_precision() -> None:
    for axis in (None, 1):
        assert dropout(torch.zeros(4, 3, 2, device="meta"), 0.5, axis=axis).shape == (4, 3, 2)
        assert dropout(torch.zeros(4, 3, 2, dtype=torch.bfloat16), 0.5, axis=axis).dtype == torch.bfloat16
