"""Cells that are linear in their state: minGRU, LRU, and linear systems as an LRU."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
from pegboard import PegboardError
from pegboard_rnn.linear_cells import EDGE, Lru, MinGru, eigenvalues, start_eigenvalues
from pegboard_rnn.systems import diagonalise, lru_of
from torch import Tensor, nn

INPUTS, HIDDEN = 3, 4


@pytest.mark.catalogue("S4-085")
@pytest.mark.parametrize("length", [1, 2, 3, 7, 1000])
def test_a_mingru_is_its_equation_step_by_step(length: int) -> None:
    cell, x = MinGru(INPUTS, HIDDEN), torch.randn(2, length, INPUTS)
    (g, v), (b, d) = cell.input.weight.chunk(2), cell.input.bias.chunk(2)
    out, z = cell(x)[0], torch.zeros(2, HIDDEN)
    for at in range(length):
        s = (x[:, at] @ g.T + b).sigmoid()
        z = s * z + (1 - s) * (x[:, at] @ v.T + d)
        torch.testing.assert_close(out[:, at], z, atol=1e-6, rtol=1e-6)


@pytest.mark.catalogue("S4-085")
def test_a_mingru_has_two_matrices_and_stays_among_its_contents() -> None:
    cell, x = MinGru(INPUTS, HIDDEN, bias=False), 3 * torch.randn(2, 200, INPUTS)
    assert sum(p.numel() for p in cell.parameters()) == 2 * HIDDEN * INPUTS
    assert sum(p.numel() for p in MinGru(INPUTS, HIDDEN).parameters()) == 2 * HIDDEN * (INPUTS + 1)
    content = cell.input(x)[..., HIDDEN:]
    out = cell(x)[0]
    assert (out <= content.amax(1, keepdim=True).clamp_min(0) + 1e-6).all()
    assert (out >= content.amin(1, keepdim=True).clamp_max(0) - 1e-6).all()
    assert out.abs().max() <= content.abs().max()


@pytest.mark.catalogue("S4-085")
def test_the_gate_of_a_mingru_does_not_see_the_state() -> None:
    cell, x = MinGru(INPUTS, HIDDEN), torch.randn(1, 1, INPUTS)
    one, other = torch.randn(2, 1, HIDDEN)
    slope = (cell(x, (one,))[0] - cell(x, (other,))[0])[:, 0] / (one - other)
    torch.testing.assert_close(slope, cell.input(x)[:, 0, :HIDDEN].sigmoid(), atol=1e-4, rtol=0)


def lru_by_hand(cell: Lru, x: Tensor) -> Tensor:
    """The outputs of all steps in complex numbers."""
    values = torch.exp(torch.complex(-torch.exp(cell.nu), cell.phase))
    pairs = cell.input.weight.view(-1, 2, cell.input.in_features)
    b = torch.complex(pairs[:, 0], pairs[:, 1]) * cell.gamma.unsqueeze(-1)
    h, found = torch.zeros(len(x), len(values), dtype=values.dtype), []
    read = cell.output.weight.view(cell.hidden, -1, 2)
    c = torch.complex(read[..., 0], -read[..., 1])
    for step in x.unbind(1):
        h = values * h + step.to(b.dtype) @ b.T
        through = step * cell.skip if isinstance(cell.skip, Tensor) else cell.skip(step)
        bias = 0 if cell.output.bias is None else cell.output.bias
        found.append((h @ c.T).real + through + bias)
    return torch.stack(found, 1)


@pytest.mark.catalogue("S4-088")
@pytest.mark.parametrize(("inputs", "state", "bias"), [(INPUTS, None, True), (HIDDEN, 7, False)])
@pytest.mark.parametrize("length", [1, 7, 300])
def test_an_lru_is_its_equation_step_by_step(length: int, inputs: int, state: int | None, bias: bool) -> None:
    cell, x = Lru(inputs, HIDDEN, state=state, bias=bias), torch.randn(2, length, inputs)
    torch.testing.assert_close(cell(x)[0], lru_by_hand(cell, x), atol=1e-5, rtol=1e-5)


@pytest.mark.catalogue("S4-088")
def test_eigenvalues_are_inside_the_unit_circle_for_every_nu() -> None:
    nu = torch.linspace(-8, 3, 1000, dtype=torch.float64)
    found = eigenvalues(nu, torch.rand(1000, dtype=torch.float64))
    assert (found.abs() < 1).all() and (found.abs() - torch.exp(-torch.exp(nu))).abs().max() <= 4.5e-16
    assert found.abs().min().item() == pytest.approx(1.9e-9, rel=0.02)
    assert found.abs().max().item() == pytest.approx(0.99966, abs=1e-5)
    extreme = torch.tensor([-math.inf, -1e30, -100, -17, 3, 20, 100, 1e30, math.inf])
    values = eigenvalues(extreme, torch.zeros(9))
    assert values.isfinite().all() and (values.abs() < 1).all()  # float32 rounds exp(-exp(-17)) to 1
    torch.testing.assert_close(values.abs()[:4], torch.full((4,), 1 - EDGE), atol=6e-8, rtol=0)


@pytest.mark.catalogue("S4-088")
def test_an_lru_stays_stable_whatever_it_learns() -> None:
    cell, x = Lru(INPUTS, HIDDEN), torch.randn(2, 20, INPUTS)
    optimizer = torch.optim.SGD(cell.parameters(), 1.0)
    for _ in range(100):
        optimizer.zero_grad()
        (cell(x)[0] * torch.randn(2, 20, HIDDEN)).mean().backward()
        optimizer.step()
        assert (eigenvalues(cell.nu, cell.phase).abs() < 1).all()
    for extreme in (-1e3, 1e3):
        cell.nu.data.fill_(extreme)
        out, _ = cell(torch.randn(1, 5000, INPUTS))
        assert out.isfinite().all()
        grads = torch.autograd.grad(out.square().mean(), list(cell.parameters()))
        assert all(grad.isfinite().all() for grad in grads)


@pytest.mark.catalogue("S4-088")
def test_a_pair_of_conjugate_eigenvalues_gives_twice_the_real_part_of_one() -> None:
    cell, x = Lru(1, 1, state=2, bias=False).double(), torch.randn(1, 30, 1, dtype=torch.float64)
    cell.skip.data.zero_()  # type: ignore[operator,union-attr]
    cell.nu.data[1], cell.gamma.data[1], cell.phase.data[1] = cell.nu[0], cell.gamma[0], -cell.phase[0]
    b, c = cell.input.weight.data, cell.output.weight.data
    b[2], b[3], c[0, 2], c[0, 3] = b[0], -b[1], c[0, 0], -c[0, 1]
    h = cell_states(cell, x)
    torch.testing.assert_close(h[..., 1], h[..., 0].conj(), atol=1e-12, rtol=0)
    both = cell(x)[0]
    cell.output.weight.data[0, 2:] = 0
    torch.testing.assert_close(both, 2 * cell(x)[0], atol=1e-12, rtol=0)


def cell_states(cell: Lru, x: Tensor) -> Tensor:
    """The complex states after every step."""
    return torch.stack([cell(x[:, : at + 1])[1][0] for at in range(x.shape[1])], 1)


@pytest.mark.catalogue("S4-089")
def test_radii_start_evenly_in_their_range_and_are_met_exactly() -> None:
    stats = pytest.importorskip("scipy.stats")
    generator = torch.Generator().manual_seed(0)
    nu, angles = start_eigenvalues(100_000, (0.9, 0.999), 0.3, generator)
    r = torch.exp(-torch.exp(nu))
    assert stats.kstest(r.numpy(), "uniform", (0.9, 0.099)).pvalue > 0.01
    assert stats.kstest(angles.numpy(), "uniform", (0, 0.3)).pvalue > 0.01
    again = torch.exp(-torch.exp(torch.log(-torch.log(r))))
    torch.testing.assert_close(again, r, atol=1e-12, rtol=0)
    for radius, expected in ((0.9, -2.2504), (0.99, -4.6001)):
        nu, _ = start_eigenvalues(1, (radius, radius), 1.0)
        assert nu.item() == pytest.approx(expected, abs=1e-4)
        assert torch.exp(-torch.exp(nu)).item() == pytest.approx(radius, abs=1e-12)


@pytest.mark.catalogue("S4-089")
@pytest.mark.parametrize("radius", [(0.0, 1.0), (0.0, 0.0), (1.0, 1.0)])
def test_end_points_are_left_out(radius: tuple[float, float]) -> None:
    nu, _ = start_eigenvalues(1000, radius, 6.28)
    cell = Lru(INPUTS, HIDDEN, state=50, radius=radius)
    assert nu.isfinite().all() and all(p.isfinite().all() for p in cell.parameters())
    assert (eigenvalues(nu.float(), torch.zeros(1000)).abs() < 1).all()
    assert cell(torch.randn(2, 50, INPUTS))[0].isfinite().all()


@pytest.mark.catalogue("S4-089", "S4-090")
@pytest.mark.parametrize("r", [0.9, 0.99, 0.999])
def test_the_scale_of_the_input_keeps_noise_as_large_as_it_is(r: float) -> None:
    cell = Lru(1, 1, state=64, radius=(r, r))
    assert cell.gamma.tolist() == pytest.approx([math.sqrt(1 - r * r)] * 64, rel=1e-5)
    nn.init.constant_(cell.input.weight, math.sqrt(0.5))  # B x has variance 1 then
    noise = torch.randn(1, 20_000, 1, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        states = cell_rows(cell, noise)
    assert states.abs().square().mean().item() == pytest.approx(1.0, rel=0.25 if r == 0.999 else 0.1)


@pytest.mark.catalogue("S4-090")
@pytest.mark.parametrize("r", [0.9, 0.99, 0.999])
def test_an_lru_forgets_an_impulse_as_a_power_of_its_radius(r: float) -> None:
    cell = Lru(1, 1, state=8, radius=(r, r)).double()
    cell.nu.data = torch.log(-torch.log(torch.full((8,), r, dtype=torch.float64)))
    impulse = torch.zeros(1, 1001, 1, dtype=torch.float64)
    impulse[:, 0] = 1
    with torch.no_grad():
        first = cell(impulse[:, :1])[1][0].abs()
        for later in (1, 2, 10, 100, 1000):
            state = cell(impulse[:, : later + 1])[1][0].abs()
            torch.testing.assert_close(state / first, torch.full_like(first, r**later), atol=1e-6, rtol=0)


def cell_rows(cell: Lru, x: Tensor) -> Tensor:
    """The states of the last nine tenths of a series: by then the variance does not change any more."""
    from pegboard_rnn.scan import scan

    driven = cell.input(x).view(1, x.shape[1], -1, 2) * cell.gamma.unsqueeze(-1)
    steps = eigenvalues(cell.nu, cell.phase).expand(1, x.shape[1], -1)
    return scan(steps, torch.view_as_complex(driven))[:, x.shape[1] // 10 :]


@pytest.mark.parametrize("kind", [MinGru, Lru])
def test_a_short_format_is_summed_in_single_precision(kind: type[MinGru] | type[Lru]) -> None:
    cell, x = kind(INPUTS, HIDDEN), torch.randn(2, 1000, INPUTS)
    exact = cell(x)[0]
    with torch.autocast("cpu", torch.bfloat16):
        out, (state,) = cell(x)
    assert state.dtype in (torch.float32, torch.complex64)
    assert (out.float() - exact).abs().max() < 0.02 * exact.abs().max()


@pytest.mark.catalogue("S4-087")
def test_a_linear_system_is_the_same_in_the_basis_of_its_eigenvectors() -> None:
    a, b = torch.randn(6, 6, dtype=torch.float64) / 3, torch.randn(6, 2, dtype=torch.float64)
    x, z = torch.randn(40, 2, dtype=torch.float64), torch.zeros(6, dtype=torch.float64)
    values, basis, inputs = diagonalise(a, b)
    h = torch.zeros(6, dtype=torch.complex128)
    for step in x:
        z, h = a @ z + b @ step, values * h + inputs @ step.to(h.dtype)
        back = basis @ h
        assert (back.real - z).norm() <= 1e-8 * z.norm() and back.imag.abs().max() < 1e-8
    torch.testing.assert_close((basis * values @ torch.linalg.inv(basis)).real, a, atol=1e-10, rtol=0)


@pytest.mark.catalogue("S4-087")
def test_a_matrix_without_enough_eigenvectors_is_warned_of() -> None:
    jordan = torch.tensor([[1.0, 1.0], [0.0, 1.0]], dtype=torch.float64)
    with pytest.warns(UserWarning, match=r"condition is \d\.\de\+1[56]"):
        diagonalise(jordan, torch.eye(2, dtype=torch.float64))


@pytest.mark.catalogue("S4-087")
def test_the_warning_begins_where_the_condition_is_above_a_hundred_million() -> None:
    for condition in (0.9e8, 1.1e8):  # of [[1, 1], [0, 1 + d]] it is about 2 / d
        near = torch.tensor([[1.0, 1.0], [0.0, 1 + 2 / condition]], dtype=torch.float64)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            values, basis, _ = diagonalise(near, torch.eye(2, dtype=torch.float64))
        assert torch.linalg.cond(basis).item() == pytest.approx(condition, rel=0.02)
        assert bool(told) == (condition > 1e8) and values.isfinite().all()


@pytest.mark.catalogue("S4-087", "S4-088")
@pytest.mark.parametrize("outputs", [2, 3])
@pytest.mark.filterwarnings("error")
def test_a_stable_system_becomes_an_lru(outputs: int) -> None:
    a = torch.randn(6, 6, dtype=torch.float64)
    a = 0.9 * a / torch.linalg.eigvals(a).abs().max()
    b, c = torch.randn(6, 2, dtype=torch.float64), torch.randn(outputs, 6, dtype=torch.float64)
    d = torch.randn(outputs, 2, dtype=torch.float64) if outputs != 2 else torch.diag(torch.ones(2).double())
    cell, x, z = lru_of(a, b, c, d), torch.randn(1, 40, 2, dtype=torch.float64), torch.zeros(6).double()
    out = cell(x)[0][0]
    for at, step in enumerate(x[0]):
        z = a @ z + b @ step
        torch.testing.assert_close(out[at], c @ z + d @ step, atol=1e-8, rtol=1e-8)
    silent = lru_of(a, b, c)
    torch.testing.assert_close(silent(x)[0][0] + x[0] @ d.T, out, atol=1e-8, rtol=1e-8)


def test_a_system_that_an_lru_cannot_be_is_refused() -> None:
    eye = torch.eye(2, dtype=torch.float64)
    with pytest.raises(PegboardError, match="absolute value 1.01"):
        lru_of(1.01 * eye, eye, eye)
    with pytest.raises(PegboardError, match="must be diagonal"):
        lru_of(0.5 * eye, eye, eye, torch.ones(2, 2, dtype=torch.float64))
