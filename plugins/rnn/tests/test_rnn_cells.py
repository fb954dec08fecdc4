"""Cells on torch's kernels and those with a loop, beside their equations written out step by step."""

from __future__ import annotations

import pytest
import torch
from pegboard import Peg
from pegboard_rnn import Rnn as Config
from pegboard_rnn import make_cell
from pegboard_rnn.cells import Cell, DeepTransition, Fused, OutputMatrixLstm, ResetBeforeGru
from torch import Tensor, nn

INPUTS, HIDDEN, LENGTH = 3, 4, 9
CELLS: dict[str, dict[str, object]] = {
    "elman": {"cell": "elman"},
    "relu": {"cell": "elman", "activation": "relu"},
    "transition": {"cell": "elman", "transition": 3},
    "lstm": {"cell": "lstm"},
    "output_matrix": {"cell": "lstm", "output_matrix": True},
    "gru": {"cell": "gru"},
    "reset_before": {"cell": "gru", "reset": "before"},
    "mingru": {"cell": "mingru"},
    "lru": {"cell": "lru"},
}


def built(name: str, inputs: int = INPUTS, hidden: int = HIDDEN, **more: object) -> Cell:
    return make_cell(Config(**{"hidden": hidden, **CELLS[name], **more}))(inputs)  # type: ignore[arg-type]


def count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def weights(cell: Fused) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    state = cell.kernel.state_dict()
    return tuple(state[f"{kind}_l0"] for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))  # type: ignore[return-value]


def by_hand(name: str, cell: Fused, x: Tensor) -> Tensor:
    """The outputs of all steps by the equations of the cell."""
    v, u, b, d = weights(cell)
    z, c = x.new_zeros(2, len(x), cell.hidden)
    found = []
    for step in x.unbind(1):
        read, kept = step @ v.T + b, z @ u.T + d
        if name == "lstm":
            i, f, g, o = (read + kept).chunk(4, -1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            z = o.sigmoid() * c.tanh()
        elif name == "gru":
            (r, s, n), (p, q, m) = read.chunk(3, -1), kept.chunk(3, -1)
            s = (s + q).sigmoid()
            z = s * z + (1 - s) * (n + (r + p).sigmoid() * m).tanh()
        else:
            z = (read + kept).tanh() if name == "elman" else (read + kept).relu()
        found.append(z)
    return torch.stack(found, 1)


@pytest.mark.catalogue("S4-076", "S4-083", "S4-084")
@pytest.mark.parametrize("name", ["elman", "relu", "lstm", "gru"])
def test_a_kernel_is_its_equations_step_by_step(name: str) -> None:
    cell, x = built(name), torch.randn(2, LENGTH, INPUTS)
    assert isinstance(cell, Fused)
    expected = by_hand(name, cell, x)
    out, state = cell(x)
    torch.testing.assert_close(out, expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(state[0], expected[:, -1], atol=1e-5, rtol=0)
    cell.affine = Peg("affine", 1, "NLC")
    cell.affine.add_module("nothing", nn.Identity())  # W x is computed apart then
    torch.testing.assert_close(cell(x)[0], expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", CELLS)
def test_steps_one_by_one_are_the_whole_and_need_no_more_than_the_state(name: str) -> None:
    cell, x = built(name), torch.randn(2, LENGTH, INPUTS)
    whole, last = cell(x)
    assert whole.shape == (2, LENGTH, HIDDEN)
    state, sizes = None, set()
    for at in range(LENGTH):
        out, state = cell.step(x[:, at], state)
        torch.testing.assert_close(out, whole[:, at], atol=1e-5, rtol=0)
        held = {part.untyped_storage().data_ptr(): part.untyped_storage().nbytes() for part in state}
        sizes.add((tuple(part.shape for part in state), sum(held.values())))
    assert len(sizes) == 1  # the state, and all memory that it holds, never grow
    for one, other in zip(state or (), last, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", CELLS)
def test_a_state_may_be_carried_over_stretches_of_any_length(name: str) -> None:
    cell, x = built(name), torch.randn(2, LENGTH, INPUTS)
    whole, _ = cell(x)
    first, state = cell(x[:, :4])
    second, _ = cell(x[:, 4:], state)
    torch.testing.assert_close(torch.cat((first, second), 1), whole, atol=1e-5, rtol=0)


@pytest.mark.catalogue("S4-076", "S4-080")
def test_an_elman_network_has_the_weights_of_its_equation_and_equals_torchs() -> None:
    cell, x = built("elman", bias=False), torch.randn(2, LENGTH, INPUTS)
    assert count(cell) == HIDDEN**2 + HIDDEN * INPUTS
    reference = nn.RNN(INPUTS, HIDDEN, bias=False, batch_first=True)
    assert isinstance(cell, Fused)
    reference.load_state_dict(cell.kernel.state_dict())
    torch.testing.assert_close(cell(x)[0], reference(x)[0], atol=1e-6, rtol=0)
    shallow = DeepTransition(INPUTS, HIDDEN, 1, bias=False)
    shallow.input.weight.data, shallow.recur.weight.data = weights_of(cell)
    torch.testing.assert_close(shallow(x)[0], cell(x)[0], atol=1e-6, rtol=0)


def weights_of(cell: Fused) -> tuple[Tensor, Tensor]:
    state = cell.kernel.state_dict()
    return state["weight_ih_l0"], state["weight_hh_l0"]


@pytest.mark.catalogue("S4-080")
@pytest.mark.parametrize("depth", [1, 2, 4])
def test_a_deep_transition_has_its_layers_between_two_steps(depth: int) -> None:
    cell, x = DeepTransition(INPUTS, HIDDEN, depth), torch.randn(2, LENGTH, INPUTS)
    calls: list[int] = []
    for layer in (cell.recur, *cell.deeper):
        layer.register_forward_hook(lambda *_: calls.append(1))
    out, _ = cell(x)
    assert len(calls) == depth * LENGTH
    z = torch.zeros(2, HIDDEN)
    for at in range(LENGTH):
        z = torch.tanh(cell.input(x[:, at]) + cell.recur(z))
        for layer in cell.deeper:
            z = torch.tanh(layer(z))
        torch.testing.assert_close(out[:, at], z, atol=1e-6, rtol=0)
    torch.testing.assert_close(cell(x[:, :5])[0], out[:, :5], atol=1e-6, rtol=0)  # it sees no later step


@pytest.mark.catalogue("S4-077")
def test_backpropagation_through_time_is_the_product_of_the_steps() -> None:
    cell = built("elman", bias=False).double()
    assert isinstance(cell, Fused)
    v, u = weights_of(cell)
    x, target = (torch.randn(1, LENGTH, n, dtype=torch.float64) for n in (INPUTS, HIDDEN))
    states: list[Tensor] = []
    state = None
    for at in range(LENGTH):
        out, state = cell.step(x[:, at], state)
        state = (out,)
        out.retain_grad()
        states.append(out)
    sum((z - y).square().sum() for z, y in zip(states, target.unbind(1), strict=True)).backward()  # type: ignore[union-attr]
    flow = torch.zeros(HIDDEN, dtype=torch.float64)
    to_u, to_v = torch.zeros_like(u), torch.zeros_like(v)
    for at in reversed(range(LENGTH)):
        z = states[at].detach()[0]
        flow = flow + 2 * (z - target[0, at])  # all later losses, and its own
        assert states[at].grad is not None
        torch.testing.assert_close(states[at].grad[0], flow, atol=1e-10, rtol=0)  # type: ignore[index]
        inner = flow * (1 - z**2)
        before = states[at - 1].detach()[0] if at else torch.zeros_like(z)
        to_u, to_v = to_u + inner.outer(before), to_v + inner.outer(x[0, at])
        flow = inner @ u
    found = dict(cell.kernel.named_parameters())
    torch.testing.assert_close(found["weight_hh_l0"].grad, to_u, atol=1e-10, rtol=0)
    torch.testing.assert_close(found["weight_ih_l0"].grad, to_v, atol=1e-10, rtol=0)
    cell.zero_grad()
    (cell(x)[0] - target).square().sum().backward()  # the kernel, all steps at once
    torch.testing.assert_close(found["weight_hh_l0"].grad, to_u, atol=1e-10, rtol=0)


@pytest.mark.catalogue("S4-077")
def test_the_factors_of_a_distant_gradient_stand_from_the_last_step_to_the_first() -> None:
    cell = built("elman", bias=False).double()
    assert isinstance(cell, Fused)
    u = weights_of(cell)[1]
    x, z = torch.randn(1, 6, INPUTS, dtype=torch.float64), torch.zeros(1, HIDDEN, dtype=torch.float64)
    measured = torch.autograd.functional.jacobian(lambda z: cell(x, (z,))[0][:, -1], z)[0, :, 0]  # type: ignore[index]
    factors = [(1 - out**2).diag() @ u for out in cell(x)[0][0].detach()]
    right, wrong = torch.eye(HIDDEN, dtype=torch.float64), torch.eye(HIDDEN, dtype=torch.float64)
    for factor in factors:
        right, wrong = factor @ right, wrong @ factor
    torch.testing.assert_close(measured, right, atol=1e-12, rtol=0)
    assert (measured - wrong).abs().max() > 1e-3 * measured.abs().max()


def far(cell: Fused, x: Tensor, steps: int) -> Tensor:
    """d z_steps / d z_0 as autograd finds it."""
    z = torch.zeros(1, cell.hidden, dtype=x.dtype)
    whole: Tensor = torch.autograd.functional.jacobian(lambda z: cell(x[:, :steps], (z,))[0][:, -1], z)  # type: ignore[assignment]
    return whole[0, :, 0]


@pytest.mark.catalogue("S4-081")
@pytest.mark.parametrize("slope", [1.0, 0.25], ids=["tanh", "sigmoid"])
def test_gradients_through_time_are_bounded_by_slope_and_largest_singular_value(slope: float) -> None:
    powers = torch.arange(1, 51, dtype=torch.float64)
    for seed in range(5):
        torch.manual_seed(seed)
        cell, x = built("elman", hidden=20).double(), torch.randn(1, 50, INPUTS, dtype=torch.float64)
        assert isinstance(cell, Fused)
        for bound in (0.9, 1.5, 4.0):  # slope times the largest singular value
            u = torch.randn(20, 20, dtype=torch.float64)
            u *= bound / slope / torch.linalg.matrix_norm(u, 2)
            # A sigmoid network z is one of tanh, w = 2 z - 1, which sees a quarter of the matrix.
            cell.kernel.state_dict()["weight_hh_l0"].copy_(u * slope)
            if slope < 1:
                cell.kernel.state_dict()["bias_hh_l0"].copy_(u.sum(1) / 4)
                drive = 2 * (x @ weights(cell)[0].T + weights(cell)[2])
                z = torch.full((1, 20), 0.5, dtype=torch.float64)
                for step in drive.unbind(1):
                    z = torch.sigmoid(z @ u.T + step)
                torch.testing.assert_close(2 * z - 1, cell(x)[0][:, -1], atol=1e-9, rtol=0)
            chain, found = torch.eye(20, dtype=torch.float64), []
            for w in cell(x)[0][0].detach():
                chain = (1 - w**2).diag() @ u @ chain * slope
                found.append(torch.linalg.matrix_norm(chain, 2))
            torch.testing.assert_close(far(cell, x, 50), chain, atol=1e-12, rtol=1e-6)
            assert (torch.stack(found) <= bound**powers * (1 + 1e-9)).all()
            if bound == 0.9:
                assert found[-1] < 0.9**50 < 1e-2


@pytest.mark.catalogue("S4-081")
def test_an_orthogonal_matrix_without_saturation_keeps_every_gradient() -> None:
    cell = built("relu", hidden=20).double()
    assert isinstance(cell, Fused)
    state = cell.kernel.state_dict()
    state["weight_hh_l0"].copy_(nn.init.orthogonal_(torch.empty(20, 20, dtype=torch.float64)))
    state["bias_ih_l0"].fill_(1e4)  # far from where relu bends
    x = torch.randn(1, 50, INPUTS, dtype=torch.float64)
    z, steps = torch.full((1, 20), 1e5, dtype=torch.float64), []
    for step in x.unbind(1):
        state["bias_ih_l0"].copy_(1e5 - (z @ state["weight_hh_l0"].T)[0])  # so that z stays near 1e5
        steps.append(torch.autograd.functional.jacobian(lambda z, s=step: cell.step(s, (z,))[0], z)[0, :, 0])  # type: ignore[index]
        z = cell.step(step, (z,))[0].detach()
    whole = torch.linalg.multi_dot(steps[::-1])
    assert torch.linalg.matrix_norm(whole, 2).item() == pytest.approx(1.0, abs=1e-9)
    assert torch.linalg.matrix_norm(whole, -2).item() == pytest.approx(1.0, abs=1e-9)


@pytest.mark.catalogue("S4-083")
def test_an_lstm_with_the_identity_before_its_last_tanh_is_torchs() -> None:
    cell, x = OutputMatrixLstm(INPUTS, HIDDEN, bias=False), torch.randn(2, LENGTH, INPUTS)
    assert count(cell) == 4 * HIDDEN * (HIDDEN + INPUTS) + HIDDEN**2 == 128
    reference = nn.LSTM(INPUTS, HIDDEN, bias=False, batch_first=True)
    assert count(reference) == 112 == count(built("lstm", bias=False))
    reference.load_state_dict({"weight_ih_l0": cell.input.weight, "weight_hh_l0": cell.recur.weight})
    torch.testing.assert_close(cell(x)[0], reference(x)[0], atol=1e-6, rtol=0)
    cell.output.weight.data += 0.3 * torch.randn(HIDDEN, HIDDEN)
    assert (cell(x)[0] - reference(x)[0]).abs().max() > 1e-3


@pytest.mark.catalogue("S4-083", "S4-082")
@pytest.mark.parametrize("name", ["lstm", "output_matrix"])
def test_an_open_forget_gate_and_a_closed_input_gate_keep_the_content(name: str) -> None:
    cell, x = built(name), torch.randn(2, LENGTH, INPUTS)
    for key, p in cell.named_parameters():
        if "output" not in key:
            p.data.zero_()
        if key in ("input.bias", "kernel.bias_ih_l0"):
            p.data[:HIDDEN], p.data[HIDDEN : 2 * HIDDEN] = -20, 20
    content = torch.randn(2, HIDDEN)
    _, (_, after) = cell(x, (torch.zeros(2, HIDDEN), content))
    torch.testing.assert_close(after, content, atol=1e-6, rtol=0)


@pytest.mark.catalogue("S4-082")
def test_a_gate_keeps_or_forgets_and_passes_as_much_of_the_gradient() -> None:
    cell, z = built("mingru"), torch.randn(2, HIDDEN, requires_grad=True)
    for logit, share in ((20.0, 1.0), (-20.0, 0.0), (0.4, torch.tensor(0.4).sigmoid().item())):
        for p in cell.parameters():
            p.data.zero_()
        cell.input.bias.data[:HIDDEN] = logit  # type: ignore[union-attr,index]
        out, _ = cell.step(torch.randn(2, INPUTS), (z,))
        torch.testing.assert_close(out, share * z, atol=1e-6, rtol=0)
        (grad,) = torch.autograd.grad(out.sum(), z)
        torch.testing.assert_close(grad, torch.full_like(z, share), atol=1e-6, rtol=0)


@pytest.mark.catalogue("S4-084")
def test_a_gru_resets_after_the_matrix_as_torchs_or_before_as_first_printed() -> None:
    x = torch.randn(2, LENGTH, INPUTS)
    reference = nn.GRU(INPUTS, HIDDEN, bias=False, batch_first=True)
    after, before = built("gru", bias=False), ResetBeforeGru(INPUTS, HIDDEN, bias=False)
    assert isinstance(after, Fused)
    assert count(after) == count(before) == 3 * HIDDEN * (HIDDEN + INPUTS) == 84
    after.kernel.load_state_dict(reference.state_dict())
    torch.testing.assert_close(after(x)[0], reference(x)[0], atol=1e-6, rtol=0)
    v, u = reference.state_dict().values()
    before.input.weight.data, before.recur.weight.data = v, u[: 2 * HIDDEN]
    before.content.weight.data = u[2 * HIDDEN :]
    out, z = before(x)[0], torch.zeros(2, HIDDEN)
    assert (out - reference(x)[0]).abs().max() > 1e-3
    (vr, vs, vn), (ur, us, un) = v.chunk(3), u.chunk(3)
    for at in range(LENGTH):
        r, s = (x[:, at] @ vr.T + z @ ur.T).sigmoid(), (x[:, at] @ vs.T + z @ us.T).sigmoid()
        z = s * z + (1 - s) * (x[:, at] @ vn.T + (r * z) @ un.T).tanh()
        torch.testing.assert_close(out[:, at], z, atol=1e-6, rtol=0)


@pytest.mark.catalogue("S4-084")
@pytest.mark.parametrize("name", ["gru", "reset_before"])
def test_states_of_a_gru_take_both_signs_and_stay_within_the_first_or_one(name: str) -> None:
    cell, x = built(name), 3 * torch.randn(4, 40, INPUTS)
    out, _ = cell(x)
    assert out.min() < -0.1 and out.max() > 0.1 and out.abs().max() <= 1
    start = 2.5 * torch.rand(4, HIDDEN)
    assert cell(x, (start,))[0].abs().max() <= start.abs().max()


@pytest.mark.parametrize(
    ("name", "gates", "place"),
    [("lstm", 4, 1), ("gru", 3, 1), ("output_matrix", 4, 1), ("reset_before", 3, 1), ("mingru", 2, 0)],
)
def test_a_gate_bias_is_that_of_the_gate_that_keeps_the_state(name: str, gates: int, place: int) -> None:
    cell = built(name, gate_bias=5.0)
    found = dict(cell.named_parameters())
    fused = name in ("lstm", "gru")
    bias = found["kernel.bias_ih_l0"] + found["kernel.bias_hh_l0"] if fused else found["input.bias"]
    for gate, values in enumerate(bias.chunk(gates)):
        assert (values == 5).all() if gate == place else (values.abs() <= 2).all()
    state = (torch.zeros(2, HIDDEN),) * (gates == 4) + (torch.randn(2, HIDDEN),)  # an lstm keeps its second
    _, after = cell.step(torch.zeros(2, INPUTS), state)
    assert (after[-1] - 0.9933 * state[-1]).abs().max() < (1.0 if gates == 4 else 0.03)


@pytest.mark.parametrize("name", CELLS)
def test_gradients_are_those_of_small_changes(name: str) -> None:
    cell = built(name, inputs=2, hidden=2).double()
    x = torch.randn(1, 4, 2, dtype=torch.float64, requires_grad=True)
    names, params = zip(*cell.named_parameters(), strict=True)

    def outputs(x: Tensor, *given: Tensor) -> Tensor:
        found: Tensor = torch.func.functional_call(cell, dict(zip(names, given, strict=True)), (x,))[0]
        return found

    assert torch.autograd.gradcheck(outputs, (x, *params))
