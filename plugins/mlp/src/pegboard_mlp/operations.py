"""How many elementary operations a computation is: additions, subtractions, products, quotients, exponentials
and comparisons, counted as torch carries it out."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable
from math import prod
from typing import Any

import torch
from pegboard import PegboardError, Probe, Splits
from torch import Tensor, nn

try:
    from torch.utils._python_dispatch import TorchDispatchMode
except ImportError:  # private, and nothing public sees every operation
    TorchDispatchMode = None  # type: ignore[assignment, misc]

OPERATIONS = ("add", "sub", "mul", "div", "exp", "compare")

Counts = dict[str, int]  # how many of which operation

# What one number of the result costs. A change of sign, an absolute value and a choice between numbers are
# none of the six, and neither is moving numbers about.
EACH: dict[str, Counts] = {
    "add": {"add": 1}, "sub": {"sub": 1}, "rsub": {"sub": 1}, "mul": {"mul": 1}, "div": {"div": 1},
    "reciprocal": {"div": 1}, "square": {"mul": 1}, "exp": {"exp": 1}, "expm1": {"exp": 1, "sub": 1},
    "relu": {"compare": 1}, "clamp_min": {"compare": 1}, "clamp_max": {"compare": 1},
    "threshold": {"compare": 1}, "threshold_backward": {"compare": 1},
    "hardtanh": {"compare": 2}, "clamp": {"compare": 2},
    "leaky_relu": {"compare": 1, "mul": 1}, "leaky_relu_backward": {"compare": 1, "mul": 1},
    "sigmoid": {"exp": 1, "add": 1, "div": 1}, "sigmoid_backward": {"sub": 1, "mul": 2},
    "tanh": {"exp": 1, "add": 1, "sub": 1, "div": 1, "mul": 1}, "tanh_backward": {"sub": 1, "mul": 2},
    "silu": {"exp": 1, "add": 1, "div": 1}, "elu": {"compare": 1, "exp": 1, "sub": 1},
    "sgn": {"compare": 2}, "sign": {"compare": 2},
    **{name: {"compare": 1} for name in ("lt", "le", "gt", "ge", "eq", "ne", "maximum", "minimum")},
}  # fmt: skip
FREE = frozenset(
    """
    abs neg where view _unsafe_view reshape t transpose permute expand detach clone copy _to_copy
    alias unsqueeze squeeze select slice split cat stack split_with_sizes unbind index index_select
    embedding gather constant_pad_nd as_strided zeros_like ones_like empty_like full_like zeros ones
    empty full new_zeros new_empty new_ones new_full scalar_tensor arange fill zero lift_fresh
    masked_fill select_backward slice_backward repeat flip roll im2col is_same_size
    """.split()
)


def _products(count: int, terms: int) -> Counts:
    """So many dot products of so many terms each: n products and n - 1 additions."""
    return {"mul": count * terms, "add": count * (terms - 1)}


def _plus(one: Counts, count: int) -> Counts:
    return {**one, "add": one["add"] + count}


def _matrices(name: str, given: tuple[Any, ...], out: Tensor) -> Counts:
    match name:
        case "mm" | "bmm" | "mv" | "dot":
            return _products(out.numel(), given[0].shape[-1])
        case "addmm" | "baddbmm" | "addmv":
            return _plus(_products(out.numel(), given[1].shape[-1]), out.numel())
    return _plus(_products(out.numel(), prod(given[1].shape[1:])), out.numel() if given[2] is not None else 0)


def _convolved_back(given: tuple[Any, ...]) -> Counts:
    """The gradients by the input, the weight and the bias of a convolution, as far as they are asked for."""
    slope, x, weight, (by_input, by_weight, by_bias) = given[0], given[1], given[2], given[-1]
    terms = slope.numel() * prod(weight.shape[1:])
    counts = Counter({"mul": terms * (by_input + by_weight)})
    counts["add"] += max(0, terms - x.numel()) * by_input + max(0, terms - weight.numel()) * by_weight
    counts["add"] += (slope.numel() - weight.shape[0]) * by_bias
    return counts


def _reduced(name: str, given: tuple[Any, ...], out: Any) -> Counts:
    """Of what takes sums or extremes of many numbers."""
    read, made = given[0].numel(), out.numel() if isinstance(out, Tensor) else out[0].numel()
    match name:
        case "sum":
            return {"add": read - made}
        case "mean":
            return {"add": read - made, "div": made}
        case "_softmax":
            rows = read // given[0].shape[given[1]]
            return {"compare": read - rows, "sub": read, "exp": read, "add": read - rows, "div": read}
    return {"compare": read - made}  # amax and its like


REDUCED = {
    "sum",
    "mean",
    "_softmax",
    "amax",
    "amin",
    "max",
    "min",
    "argmax",
    "argmin",
    "max_pool2d_with_indices",
}
MATRICES = {"mm", "bmm", "mv", "dot", "addmm", "baddbmm", "addmv", "convolution"}


def operations_of(name: str, given: tuple[Any, ...], out: Any) -> Counts | None:
    """What one operation of torch consists of; None where no rule says it."""
    name = name.rstrip("_") if name.rstrip("_") in EACH or name.rstrip("_") in FREE else name
    if name in FREE:
        return {}
    if name in EACH:
        return {kind: each * out.numel() for kind, each in EACH[name].items()}
    if name in MATRICES:
        return _matrices(name, given, out)
    if name == "convolution_backward":
        return _convolved_back(given)
    if name == "pow" and given[1] in (1, 2, 3):
        return {"mul": (given[1] - 1) * out.numel()}
    return _reduced(name, given, out) if name in REDUCED else None


class _Counting(TorchDispatchMode or object):  # type: ignore[misc, no-untyped-call, unused-ignore]
    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        self.unknown: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        found = operations_of(name, args, out)
        if found is None:
            self.unknown[name] += 1
        else:
            self.counts.update(found)
        return out


def operations(run: Callable[[], object]) -> tuple[Counts, Counts]:
    """Call `run`; how often each of the six operations was done in it, and the calls without a rule."""
    if TorchDispatchMode is None:
        raise PegboardError(
            f"torch {torch.__version__} has no torch.utils._python_dispatch.TorchDispatchMode, by which "
            "operations are counted"
        )
    with _Counting() as counting:
        run()
    return {kind: counting.counts[kind] for kind in OPERATIONS}, dict(counting.unknown)


class OperationProbe(Probe):
    """Counts the operations of a forward pass of one sample, and with `gradient` of its gradient too."""

    def __init__(self, gradient: bool) -> None:
        self.gradient = gradient

    def measure(self, model: nn.Module, splits: Splits, device: torch.device) -> dict[str, float]:
        twin = copy.deepcopy(model).to("cpu").eval()
        inputs = splits.train.to("cpu").gather(torch.arange(1)).inputs

        def run() -> None:
            output = twin(*inputs)
            if self.gradient:
                weights = [p for p in twin.parameters() if p.requires_grad]
                torch.autograd.grad(output.sum(), weights, allow_unused=True)

        with torch.set_grad_enabled(self.gradient):
            counts, unknown = operations(run)
        uncounted = {f"uncounted/{name}": float(count) for name, count in unknown.items()}
        return {**counts, "total": float(sum(counts.values())), **uncounted}
