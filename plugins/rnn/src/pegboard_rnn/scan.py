"""The linear recurrence h_t = a_t h_{t-1} + b_t for all steps at once, real or complex."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def scan(a: Tensor, b: Tensor, initial: Tensor | None = None) -> Tensor:
    """All h_t = a_t h_{t-1} + b_t, (batch, length, features), in ceil(log2(length)) rounds.

    `a` has the shape of `b`, or one row for the whole batch; `initial` (batch, features) is h before the
    first step, zero where it is None.
    """
    if initial is not None:
        first = torch.addcmul(b[:, :1], a[:, :1], initial.unsqueeze(1))
        b = torch.cat((first, b[:, 1:]), 1)
    return _all(a, b, False)


def strides(length: int) -> list[int]:
    """The rounds of a scan, each with the length of the stretches that it joins: 1, 2, 4, ..."""
    return [2**k for k in range((length - 1).bit_length())]


def sweep(a: Tensor, b: Tensor, back: bool = False) -> Tensor:
    """The recurrence from the first step on, or `back` from the last: h_t = a_t h_{t+1} + b_t.

    Every round joins neighbouring stretches: each step of the later one gets what the earlier one ends with,
    times the factors in between, which are kept in `a`. Half of all steps are touched in a round.
    """
    length = b.shape[1]
    a, b = a.clone(), b.clone()
    for stride in strides(length):
        whole = length - length % (2 * stride)
        if whole:
            factors, values = (t[:, :whole].view(len(t), -1, 2, stride, t.shape[2]) for t in (a, b))
            this, end = (0, slice(0, 1)) if back else (1, slice(-1, None))
            _join(factors[:, :, this], values[:, :, this], factors[:, :, 1 - this, end],
                  values[:, :, 1 - this, end])  # fmt: skip
        middle = whole + stride  # of the stretches at the end, where the later one is shorter
        if middle < length:
            to, end = (
                (slice(whole, middle), slice(middle, middle + 1))
                if back
                else (slice(middle, None), slice(middle - 1, middle))
            )
            _join(a[:, to], b[:, to], a[:, end], b[:, end])
    return b


def _join(a: Tensor, b: Tensor, factor: Tensor, value: Tensor) -> None:
    b.addcmul_(a, value)
    a.mul_(factor)


class _Scan(torch.autograd.Function):
    """The sweep with its derivative, which is a sweep in the other direction."""

    @staticmethod
    def forward(a: Tensor, b: Tensor, back: bool) -> Tensor:
        return sweep(a, b, back)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, bool], output: Tensor) -> None:
        a, _, ctx.back = inputs
        ctx.save_for_backward(a, output)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor, None]:
        a, h = ctx.saved_tensors
        flow = _all(_neighbour(a, not ctx.back).conj(), grads[0], not ctx.back)
        to_a = None
        if ctx.needs_input_grad[0]:
            to_a = (flow * _neighbour(h, ctx.back).conj()).sum_to_size(a.shape)
        return to_a, flow, None


# To the compiler, one node of a graph. Traced, its views would become copies, which took twice the time of
# this, and most of a minute to compile. Uncompiled, its first call would load the compiler for a second.
@torch.library.custom_op("pegboard_rnn::scan", mutates_args=())
def _node(a: Tensor, b: Tensor, back: bool) -> Tensor:
    return sweep(a, b, back)


@_node.register_fake
def _shape(a: Tensor, b: Tensor, back: bool) -> Tensor:
    return torch.empty_like(b)


_node.register_autograd(_Scan.backward, setup_context=_Scan.setup_context)


def _all(a: Tensor, b: Tensor, back: bool) -> Tensor:
    act: Callable[..., Tensor] = _node if torch.compiler.is_compiling() else _Scan.apply
    return act(a, b, back)


def _neighbour(x: Tensor, back: bool) -> Tensor:
    """At every step what stands one step before it, or after it, and zero where there is none."""
    nothing = torch.zeros_like(x[:, :1])
    return torch.cat((x[:, 1:], nothing) if back else (nothing, x[:, :-1]), 1)
