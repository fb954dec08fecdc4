"""The linear recurrence for all steps at once, beside a loop over the steps."""

from __future__ import annotations

import math

import pytest
import torch
from pegboard_rnn.scan import scan, strides, sweep
from torch import Tensor

REAL, COMPLEX = torch.float32, torch.complex64
KINDS = pytest.mark.parametrize("dtype", [REAL, COMPLEX], ids=["real", "complex"])


def loop(a: Tensor, b: Tensor, initial: Tensor | None = None) -> Tensor:
    """One step after the other."""
    h = torch.zeros_like(b[:, 0]) if initial is None else initial
    found = []
    for step in range(b.shape[1]):
        h = a[:, step] * h + b[:, step]
        found.append(h)
    return torch.stack(found, 1)


def drawn(length: int, dtype: torch.dtype, rows: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    """Factors whose absolute values are below 1, values, and a state before the first step."""
    a = torch.rand(rows, length, 5).to(dtype)
    if dtype.is_complex:
        a = torch.polar(a.abs(), 6 * torch.rand(a.shape, dtype=a.real.dtype)).to(dtype)
    return a, torch.randn(2, length, 5, dtype=dtype), torch.randn(2, 5, dtype=dtype)


@KINDS
@pytest.mark.catalogue("S4-086")
@pytest.mark.parametrize("length", [1, 2, 3, 7, 8, 9, 64, 1000])
def test_a_scan_is_the_loop(length: int, dtype: torch.dtype) -> None:
    a, b, initial = drawn(length, dtype)
    torch.testing.assert_close(scan(a, b), loop(a, b), atol=1e-5, rtol=0)
    torch.testing.assert_close(scan(a, b, initial), loop(a, b, initial), atol=1e-5, rtol=0)
    torch.testing.assert_close(scan(a[:1], b, initial), loop(a[:1], b, initial), atol=1e-5, rtol=0)


@pytest.mark.catalogue("S4-086")
def test_a_thousand_steps_take_ten_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    from pegboard_rnn import scan as module

    for length in range(1, 1200):
        assert len(strides(length)) == math.ceil(math.log2(length))
    assert strides(1000) == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
    joined = []
    join = module._join
    monkeypatch.setattr(module, "_join", lambda *given: joined.append(given[1].numel()) or join(*given))
    a, b, _ = drawn(1024, REAL)
    module.sweep(a, b)
    assert joined == [b.numel() // 2] * 10  # every round in one go, over half of all steps


@KINDS
@pytest.mark.catalogue("S4-086")
def test_joining_stretches_is_associative(dtype: torch.dtype) -> None:
    from pegboard_rnn import scan as module

    (a3, a2, a1), (b3, b2, b1) = (drawn(3, dtype)[k].unbind(1) for k in (0, 1))

    def after(later: tuple[Tensor, Tensor], first: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        a, b = (t.clone() for t in later)
        module._join(a, b, *first)
        torch.testing.assert_close(a, later[0] * first[0])
        torch.testing.assert_close(b, later[0] * first[1] + later[1])
        return a, b

    one = after(after((a3, b3), (a2, b2)), (a1, b1))
    other = after((a3, b3), after((a2, b2), (a1, b1)))
    for x, y in zip(one, other, strict=True):
        torch.testing.assert_close(x, y, atol=1e-6, rtol=0)
    stretch = scan(torch.stack((a1, a2, a3), 1), torch.stack((b1, b2, b3), 1))[:, -1]
    torch.testing.assert_close(stretch, one[1], atol=1e-6, rtol=0)


@KINDS
@pytest.mark.catalogue("S4-086")
@pytest.mark.parametrize("rows", [1, 2])
def test_gradients_are_those_of_the_loop(rows: int, dtype: torch.dtype) -> None:
    given = [t.requires_grad_() for t in drawn(37, dtype, rows)]
    weight = torch.randn(2, 37, 5, dtype=dtype)
    for one, other in zip(
        torch.autograd.grad((scan(*given) * weight).abs().sum(), given),
        torch.autograd.grad((loop(*given) * weight).abs().sum(), given),
        strict=True,
    ):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=["real", "complex"])
@pytest.mark.parametrize("rows", [1, 2])
def test_gradients_and_their_gradients_are_those_of_small_changes(rows: int, dtype: torch.dtype) -> None:
    given = [t[..., :2].detach().requires_grad_() for t in drawn(5, dtype, rows)]
    assert torch.autograd.gradcheck(scan, given)
    assert torch.autograd.gradgradcheck(scan, given)


def test_from_the_end_a_sweep_is_the_loop_over_the_flipped_steps() -> None:
    for length in (1, 2, 5, 8, 13):
        a, b, _ = drawn(length, REAL)
        back = loop(a.flip(1), b.flip(1)).flip(1)
        torch.testing.assert_close(sweep(a, b, back=True), back, atol=1e-5, rtol=0)


def test_what_is_given_is_left_as_it_is() -> None:
    a, b, initial = drawn(9, REAL)
    before = [t.clone() for t in (a, b, initial)]
    scan(a, b, initial)
    assert all(torch.equal(x, y) for x, y in zip((a, b, initial), before, strict=True))


@pytest.mark.catalogue("S4-090")
@pytest.mark.parametrize(("r", "fold"), [(0.9, 9.49), (0.99, 99.5), (0.999, 999.5)])
def test_an_impulse_fades_as_a_power_of_the_eigenvalue(r: float, fold: float) -> None:
    b = torch.zeros(1, 1001, 1, dtype=torch.complex128)
    b[:, 0] = 1
    value = torch.polar(torch.tensor(r, dtype=torch.float64), torch.tensor(0.7, dtype=torch.float64))
    h = scan(value.expand(1, 1001, 1), b)[0, :, 0]
    expected = r ** torch.arange(1001, dtype=torch.float64)
    if r == 0.99:
        assert expected[-1].item() == pytest.approx(4.3e-5, rel=0.01)
    torch.testing.assert_close(h.abs(), expected, atol=1e-6, rtol=0)
    assert -1 / math.log(r) == pytest.approx(fold, rel=1e-3)
    below = int((h.abs() < 1 / math.e).nonzero()[0])  # the first step after one e-fold
    assert below == math.ceil(fold)


@pytest.mark.catalogue("S4-090")
def test_beyond_the_unit_circle_a_system_explodes_and_on_it_a_state_stays() -> None:
    b = torch.zeros(1, 1001, 2, dtype=torch.float64)
    b[:, 0] = 1
    h = scan(torch.tensor([1.01, 1.0], dtype=torch.float64).expand(1, 1001, -1), b)[0, -1]
    assert h.tolist() == pytest.approx([1.01**1000, 1.0], rel=1e-9)  # 20,959


@pytest.mark.catalogue("S4-090")
def test_the_variance_of_noise_grows_to_its_limit() -> None:
    noise = torch.randn(1, 100_000, 1, generator=torch.Generator().manual_seed(0))
    h = scan(torch.tensor(0.9).expand(1, 100_000, 1), noise)
    assert h.var().item() == pytest.approx(1 / (1 - 0.9**2), rel=0.05)
    assert [1 / (1 - r * r) for r in (0.9, 0.99)] == pytest.approx([5.263, 50.25], rel=1e-3)
