"""What carries a state from step to step: the cells on torch's own kernels, and others step by step.

A cell is called with x (batch, length, inputs), the state before the first step (None is zero) and the mask
of the samples; it gives the outputs of all steps (batch, length, hidden) and the state after the last one, a
tuple of tensors with rows first. Called with one step at a time it needs no more memory than the state.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from pegboard import Peg
from torch import Tensor, nn
from torch.nn import functional

State = tuple[Tensor, ...]

F = TypeVar("F", bound=Callable[..., Any])
_uncompiled: Callable[[F], F]
try:  # imports the compiler when it is first called; the public form when this module is imported
    from torch._compile import _disable_dynamo

    _uncompiled = _disable_dynamo  # type: ignore[assignment]  # it takes options too
except ImportError:
    _uncompiled = torch.compiler.disable
    warnings.warn(
        f"torch {torch.__version__} has no torch._compile._disable_dynamo: torch.compiler.disable takes its "
        "place, and loads the compiler",
        stacklevel=2,
    )


class Cell(nn.Module):
    """What all cells have."""

    hidden: int

    def forward(
        self, x: Tensor, state: State | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, State]:
        raise NotImplementedError

    def step(self, x: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """One step: (batch, inputs) -> (batch, hidden), and the state after it."""
        out, state = self(x.unsqueeze(1), state)
        return out[:, 0], state


_KERNELS: dict[str, Callable[..., Any]] = {
    "lstm": torch.lstm,
    "gru": torch.gru,
    "tanh": torch.rnn_tanh,
    "relu": torch.rnn_relu,
}


class Fused(Cell):
    """An Elman network, LSTM or GRU on torch's kernel.

    Elman: z_t = f(W x_t + U z_{t-1} + b). What hangs on the peg `affine` acts on W x_t of all steps.
    """

    def __init__(
        self,
        kind: str,
        inputs: int,
        hidden: int,
        *,
        bias: bool = True,
        gate_bias: float | None = None,
        activation: str = "tanh",
        peg: bool = True,
    ) -> None:
        super().__init__()
        self.kind, self.hidden = kind, hidden
        self.kernel: nn.RNNBase
        if kind == "elman":
            self.kernel = nn.RNN(inputs, hidden, bias=bias, nonlinearity=activation, batch_first=True)
            self.kind = activation
        else:
            self.kernel = {"lstm": nn.LSTM, "gru": nn.GRU}[kind](inputs, hidden, bias=bias, batch_first=True)
        names = dict(self.kernel.named_parameters())
        self.affine = Peg("affine", len(names["weight_ih_l0"]), "NLC") if peg else None
        if gate_bias is not None:
            # The second of the gates of both: i, f, g, o of an LSTM, r, z, n of a GRU.
            set_gate(names["bias_ih_l0"], 1, hidden, gate_bias)
            set_gate(names["bias_hh_l0"], 1, hidden, 0.0)

    def forward(
        self, x: Tensor, state: State | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, State]:
        if x.device.type == "cpu" and torch.is_autocast_enabled("cpu"):
            with torch.autocast("cpu", enabled=False):  # few processors have the kernel in a short format
                return self.forward(x.float(), state, mask)
        before = None if state is None else tuple(part.unsqueeze(0) for part in state)
        if self.affine is not None and self.affine._modules:
            out, after = self._apart(self.affine, x, before, mask)
        elif before is None or self.kind == "lstm":
            out, after = self.kernel(x, before)
        else:
            out, after = self.kernel(x, before[0])
        parts: State = after if self.kind == "lstm" else (after,)
        return out, tuple(part.squeeze(0) for part in parts)

    # Torch would trace this into an operation of oneDNN that fails when the graph is called.
    @_uncompiled
    def _apart(self, peg: Peg, x: Tensor, before: State | None, mask: Tensor | None) -> tuple[Tensor, Any]:
        """The kernel on W x that is computed before it, which it multiplies by the identity."""
        weights: list[Any] = list(getattr(self.kernel, "_flat_weights", self.kernel.parameters()))
        x = peg(functional.linear(x, weights[0]), mask)
        same = torch.eye(x.shape[-1], dtype=weights[0].dtype, device=x.device)
        if before is None:
            nothing = x.new_zeros(1, len(x), self.hidden)
            before = (nothing, nothing) if self.kind == "lstm" else (nothing,)
        hx = list(before) if self.kind == "lstm" else before[0]
        given = (x, hx, [same, *weights[1:]], self.kernel.bias, 1, 0.0, self.training, False, True)
        out, *after = _KERNELS[self.kind](*given)
        return out, tuple(after) if self.kind == "lstm" else after[0]


def set_gate(bias: Tensor, gate: int, hidden: int, value: float) -> None:
    """Make the constants of a gate, the `gate`-th of so many units, a value."""
    with torch.no_grad():
        bias[gate * hidden : (gate + 1) * hidden] = value


class Stepwise(Cell):
    """A cell that no kernel of torch computes: a loop over the steps, around one product for all inputs."""

    gates = 1

    def __init__(self, inputs: int, hidden: int, bias: bool = True, peg: bool = True) -> None:
        super().__init__()
        self.hidden = hidden
        self.input = nn.Linear(inputs, self.gates * hidden, bias=bias)
        self.affine = Peg("affine", self.gates * hidden, "NLC") if peg else None

    def start(self, x: Tensor) -> State:
        """The state before the first step."""
        return (x.new_zeros(len(x), self.hidden),)

    def advance(self, x: Tensor, state: State) -> State:
        """The state after a step, its output first; x (batch, gates * hidden) is the product of its input."""
        raise NotImplementedError

    def forward(
        self, x: Tensor, state: State | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, State]:
        x = self.input(x)
        if self.affine is not None:
            x = self.affine(x, mask)
        state = self.start(x) if state is None else state
        outputs = []
        for each in x.unbind(1):
            state = self.advance(each, state)
            outputs.append(state[0])
        return torch.stack(outputs, 1), state


class DeepTransition(Stepwise):
    """An Elman network with several layers between two steps: z_t = f(W_k ... f(V x_t + U z_{t-1} + b))."""

    def __init__(
        self,
        inputs: int,
        hidden: int,
        depth: int,
        *,
        bias: bool = True,
        activation: str = "tanh",
        peg: bool = True,
    ) -> None:
        super().__init__(inputs, hidden, bias, peg)
        self.recur = nn.Linear(hidden, hidden, bias=False)
        self.deeper = nn.ModuleList(nn.Linear(hidden, hidden, bias=bias) for _ in range(depth - 1))
        self.activation = {"tanh": torch.tanh, "relu": torch.relu}[activation]

    def advance(self, x: Tensor, state: State) -> State:
        z = self.activation(x + self.recur(state[0]))
        for layer in self.deeper:
            z = self.activation(layer(z))
        return (z,)


class OutputMatrixLstm(Stepwise):
    """An LSTM with a matrix U before its last tanh: z_t = o tanh(U c_t); by the identity it is the usual."""

    gates = 4  # i, f, g, o, as in torch

    def __init__(
        self,
        inputs: int,
        hidden: int,
        *,
        bias: bool = True,
        gate_bias: float | None = None,
        peg: bool = True,
    ) -> None:
        super().__init__(inputs, hidden, bias, peg)
        self.recur = nn.Linear(hidden, 4 * hidden, bias=False)
        self.output = nn.Linear(hidden, hidden, bias=False)
        nn.init.eye_(self.output.weight)
        if gate_bias is not None:
            set_gate(self.input.bias, 1, hidden, gate_bias)

    def start(self, x: Tensor) -> State:
        nothing = x.new_zeros(len(x), self.hidden)
        return nothing, nothing

    def advance(self, x: Tensor, state: State) -> State:
        z, c = state
        i, f, g, o = (x + self.recur(z)).chunk(4, -1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(self.output(c)), c


class ResetBeforeGru(Stepwise):
    """A GRU whose reset gate acts on the state before the matrix does: n = tanh(V x_t + W (r z_{t-1}))."""

    gates = 3  # r, z, n, as in torch

    def __init__(
        self,
        inputs: int,
        hidden: int,
        *,
        bias: bool = True,
        gate_bias: float | None = None,
        peg: bool = True,
    ) -> None:
        super().__init__(inputs, hidden, bias, peg)
        self.recur = nn.Linear(hidden, 2 * hidden, bias=False)
        self.content = nn.Linear(hidden, hidden, bias=False)
        if gate_bias is not None:
            set_gate(self.input.bias, 1, hidden, gate_bias)

    def advance(self, x: Tensor, state: State) -> State:
        (z,) = state
        gates, content = x.tensor_split((2 * self.hidden,), -1)
        reset, keep = torch.sigmoid(gates + self.recur(z)).chunk(2, -1)
        return (torch.lerp(torch.tanh(content + self.content(reset * z)), z, keep),)
