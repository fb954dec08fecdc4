"""The private names of torch that the core uses, each looked up here and nowhere else.

Torch may change or drop such a name in any release. Where one is gone, the core takes the public way, which
is slower or sees less, and a run says so in one line. Of the compiler, whose import takes as long as that of
torch itself, it knows only how to leave it out.
"""

from __future__ import annotations

import importlib
import operator
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

COMPILER = "torch._dynamo"
ATTRIBUTE = COMPILER.rpartition(".")[2]  # of torch
MARK = "__dynamo_disable"  # where torch keeps the hidden form of a function


@dataclass(frozen=True)
class Private:
    """A private name of torch."""

    path: str
    why: str  # it is used
    without: str  # what happens where it is gone


NAMES = (
    Private(
        "torch.autograd.graph._engine_run_backward",
        "gradients of a scalar without what `backward` and `grad` ask of every parameter in every step",
        "gradients are taken by torch.autograd, with more Python in a step",
    ),
    Private(
        "torch._amp_foreach_non_finite_check_and_unscale_",
        "one operation that looks at the loss and at all gradients for numbers that are not finite",
        "loss and gradients are checked one after the other",
    ),
    Private(
        "torch._foreach_mul_", "all weights shrink in one operation", "weights decay one after the other"
    ),
    Private(
        "torch._foreach_add",
        "the gradients of the batches of an update are added in one operation",
        "gradients of a compiled update are added one after the other",
    ),
    Private(
        "torch.optim.Optimizer._optimizer_step_pre_hooks",
        "an optimizer that nobody watches is called past `Optimizer.step`",
        "every update goes through Optimizer.step",
    ),
    Private(
        "torch.optim.Optimizer._optimizer_step_post_hooks",
        "the same",
        "every update goes through Optimizer.step",
    ),
    Private(
        "torch.amp.GradScaler._found_inf_per_device",
        "whether unscaling found a gradient that is not finite",
        "in fp16 all gradients are looked at once more",
    ),
    Private(
        "torch.utils._python_dispatch.TorchDispatchMode",
        "every operation of a step on the meta device is looked at, and operations are counted",
        "explain does not find what waits for the device, and operations are not counted",
    ),
    Private(
        "torch.ops.aten.add.Tensor._schema",
        "the name and the arguments of an operation that is looked at",
        "explain does not find what waits for the device",
    ),
)


def find(path: str) -> Any:
    """What a dotted name means in this torch; None where it is gone."""
    found: Any = torch
    names = path.split(".")
    for at, name in enumerate(names[1:], 2):
        inner = getattr(found, name, None)
        if inner is None and name in getattr(found, "__annotations__", {}):
            return True  # its instances have it
        if inner is None and isinstance(found, type(torch)):
            try:
                inner = importlib.import_module(".".join(names[:at]))
            except Exception:  # whatever keeps the module from being imported
                return None
        if inner is None:
            return None
        found = inner
    return found


def gone(names: Iterable[Private] = NAMES) -> list[str]:
    """A line for each name that this torch does not have."""
    return [
        f"torch {torch.__version__} has no {name.path}: {name.without}"
        for name in names
        if find(name.path) is None
    ]


def _mul(tensors: Sequence[Tensor], factor: float | Tensor) -> None:
    for tensor in tensors:
        tensor.mul_(factor)


def _add(one: Sequence[Tensor], two: Sequence[Tensor]) -> list[Tensor]:
    return [a + b for a, b in zip(one, two, strict=True)]


def _check_finite(numbers: Sequence[Tensor], found: Tensor, one: Tensor) -> None:
    """Set `found` to 1 where one of the numbers is not finite."""
    bad = torch.stack([torch.isfinite(t).logical_not().any() for t in numbers]).any()
    found.copy_(torch.maximum(found, bad.to(found.dtype)))


def _run_backward(
    losses: Sequence[Tensor],
    seeds: Sequence[Tensor],
    keep_graph: bool,
    create_graph: bool,
    inputs: Sequence[Tensor],
    allow_unreachable: bool,
    accumulate_grad: bool,
) -> Sequence[Tensor | None]:
    if accumulate_grad:
        torch.autograd.backward(losses, seeds, inputs=inputs or None)
        return ()
    return torch.autograd.grad(losses, inputs, seeds, allow_unused=allow_unreachable)


class _NoMode(AbstractContextManager[Any]):
    """Instead of a dispatch mode: sees no operation."""

    def __exit__(self, *error: object) -> None: ...


run_backward: Any
check_finite_: Any
foreach_mul_: Any
foreach_add: Any
has_step_hooks: bool  # whether an optimizer tells who wants to know of its steps
has_found_inf: bool
DispatchMode: Any
watches: bool  # whether a dispatch mode learns what is called


def bind() -> None:
    """Look the names up."""
    global run_backward, check_finite_, foreach_mul_, foreach_add
    global has_step_hooks, has_found_inf, DispatchMode, watches
    run_backward = find("torch.autograd.graph._engine_run_backward") or _run_backward
    check_finite_ = find("torch._amp_foreach_non_finite_check_and_unscale_") or _check_finite
    foreach_mul_ = find("torch._foreach_mul_") or _mul
    foreach_add = find("torch._foreach_add") or _add
    hooks = [find(f"torch.optim.Optimizer._optimizer_step_{when}_hooks") for when in ("pre", "post")]
    has_step_hooks = None not in hooks
    has_found_inf = find("torch.amp.GradScaler._found_inf_per_device") is not None
    mode = find("torch.utils._python_dispatch.TorchDispatchMode")
    DispatchMode = mode or _NoMode
    watches = mode is not None and find("torch.ops.aten.add.Tensor._schema") is not None


bind()


def is_hooked(optimizer: torch.optim.Optimizer) -> bool:
    """True if the optimizer has step hooks, or may have."""
    if not has_step_hooks:
        return True
    return bool(optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks)


def overflowed(scaler: torch.amp.GradScaler, optimizer: torch.optim.Optimizer) -> bool:
    """Whether unscaling the gradients found one that is not finite; waits for the device."""
    if has_found_inf:
        return any(bool(found) for found in scaler._found_inf_per_device(optimizer).values())
    grads = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    return not all(bool(torch.isfinite(g.coalesce().values() if g.is_sparse else g).all()) for g in grads)


# The name and the arguments of an operation that a dispatch mode sees.
schema: Callable[[Any], Any] = operator.attrgetter("_schema")


class SeenMode(DispatchMode):  # type: ignore[misc]
    """A dispatch mode that is not hidden from the compiler, which would load it."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


def entered(mode: Any) -> AbstractContextManager[Any]:
    """The dispatch mode, where there is such a thing."""
    return nullcontext(mode) if DispatchMode is _NoMode else mode


def watching(mode: Any) -> AbstractContextManager[Any]:
    """The dispatch mode where it learns what is called, else nothing."""
    return mode if watches else nullcontext(mode)


# Operators with an underscore in their names, as a dispatch mode sees them; one that is gone is never seen.
COPY = "aten::_to_copy"
READ = "_local_scalar_dense"
CHECKS = ("_linalg_check_errors", "_linalg_svd", "_linalg_eigh")
PUT = "_index_put_impl_"
PACK = "aten::_pack_padded_sequence"


# The compiler, which is not imported until somebody compiles something.


def compiler() -> Any:
    """Torch's compiler, which takes as long to import as torch itself."""
    return importlib.import_module(COMPILER)


class _Absent(ModuleType):
    """Stands where the compiler's module will be; whoever wants more of it gets the real one.

    Torch hides some of its functions from the compiler, those of optimizers among them, and imports the
    compiler for that when such a function is first called. While it is absent there is nothing to hide from.
    """

    def __init__(self) -> None:
        super().__init__(COMPILER)
        self.hidden: list[Callable[..., Any]] = []
        sys.modules[COMPILER] = self
        setattr(torch, ATTRIBUTE, self)

    def disable(self, function: Callable[..., Any], *args: Any, **options: Any) -> Callable[..., Any]:
        self.hidden.append(function)
        return function

    def graph_break(self, *args: Any, **options: Any) -> None:
        """What an optimizer says around its step, and where nothing is compiled means nothing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__path__":  # asked of every module by those who look at all
            raise AttributeError(name)
        self.leave()
        return getattr(compiler(), name)

    def leave(self) -> None:
        """Give the place back; the compiler hides functions by itself once it is imported."""
        if sys.modules.get(COMPILER) is self:
            del sys.modules[COMPILER]
        if vars(torch).get(ATTRIBUTE) is self:
            del vars(torch)[ATTRIBUTE]
        for function in self.hidden:
            vars(function).pop(MARK, None)
        self.hidden.clear()


@contextmanager
def compiler_absent() -> Iterator[None]:
    """Inside, torch's compiler is imported only when it is used."""
    if COMPILER in sys.modules:
        yield
        return
    absent = _Absent()
    try:
        yield
    finally:
        absent.leave()
