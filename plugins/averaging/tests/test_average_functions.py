"""The functions beside torch's own."""

from __future__ import annotations

import pytest
import torch
from pegboard_averaging import functional
from pegboard_averaging.functional import ema, ema_warming_up
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn


def weights(seed: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator).to(dtype) for shape in ((3, 4), (), (5,))]


@pytest.mark.parametrize("decay", [0.3, 0.9, 0.999])
@pytest.mark.parametrize("private", [True, False])
def test_the_average_is_that_of_torch_to_the_bit(
    decay: float, private: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not private:
        monkeypatch.setattr(functional, "lerp", functional.one_by_one)
    model = nn.Linear(4, 3)
    reference = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(decay))
    reference.update_parameters(model)  # the first takes the weights over
    averages = [p.detach().clone() for p in model.parameters()]
    for seed in range(5):
        with torch.no_grad():
            for p in model.parameters():
                p.copy_(torch.randn(p.shape, generator=torch.Generator().manual_seed(seed)))
        reference.update_parameters(model)
        ema(averages, [p.detach() for p in model.parameters()], decay)
    for ours, theirs in zip(averages, reference.module.parameters(), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64])
@pytest.mark.parametrize("private", [True, False])
def test_the_decay_warms_up(dtype: torch.dtype, private: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not private:
        monkeypatch.setattr(functional, "lerp", functional.one_by_one)
    averages, decay, updates = weights(0, dtype), 0.4, torch.zeros((), dtype=torch.long)
    expected = [a.clone() for a in averages]
    for t in range(8):
        now = weights(t + 1, dtype)
        ema_warming_up(averages, now, decay, updates)
        kept = min(decay, (1 + t) / (10 + t))
        expected = [kept * a + (1 - kept) * w for a, w in zip(expected, now, strict=True)]
    assert int(updates) == 8 and kept == decay
    for ours, theirs in zip(averages, expected, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_without_decay_the_average_is_the_weights() -> None:
    averages, now = weights(0), weights(1)
    ema(averages, now, 0.0)
    assert all(torch.equal(a, w) for a, w in zip(averages, now, strict=True))
