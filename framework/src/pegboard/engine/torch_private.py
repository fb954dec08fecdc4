"""The private names of torch that the core uses, each looked up here and nowhere else.

Torch may change or drop such a name in any release. Where one is gone, the core takes the public way, which
is slower or sees less, and a run says so in one line. The compiler, whose import takes as long as that of
torch itself, is not imported before a run may compile something, and names of it are looked up then.
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
from torch import Tensor, nn

COMPILER = "torch._dynamo"
ATTRIBUTE = COMPILER.rpartition(".")[2]  # of torch
MARK = "__dynamo_disable"  # where torch keeps the hidden form of a function


@dataclass(frozen=True)
class Private:
    """A private name of torch."""

    path: str
    why: str  # it is used
    without: str  # what happens where it is gone


EVERY_RUN = (
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
        "torch._foreach_lerp_",
        "the averages of all weights follow in one operation",
        "weights are averaged one after the other",
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
        "explain does not find what waits for the device, and trainer.compile: auto compiles nothing",
    ),
    Private(
        "torch.ops.aten.add.Tensor._schema",
        "the name and the arguments of an operation that is looked at",
        "explain does not find what waits for the device",
    ),
)

_LESS = "whole steps are not compiled"
STEPS = (  # without one of these there are no graphs of whole steps
    Private("torch._dynamo.config.trace_autograd_ops", "derivatives are part of a graph", _LESS),
    Private("torch._dynamo.config.use_numpy_random_stream", "numpy's stream stays out of a graph", _LESS),
    Private("torch._dynamo.symbolic_convert.InstructionTranslator", "what a step assigns in Python", _LESS),
    Private("torch._dynamo.side_effects.SideEffects._get_modified_vars", "the same", _LESS),
)
KERNELS = Private("torch._inductor.compile_fx.compile_fx", "makes kernels of a graph", _LESS)
MODEL = (
    Private(
        "torch.nn.Module._call_impl", "the forward pass with its hooks is one graph", "nothing is compiled"
    ),
    Private(
        "torch.nn.Module._compiled_call_impl",
        "a compiled forward pass changes no name in the model",
        "nothing is compiled",
    ),
)
_UNCOUNTED = "graphs that are made are not counted"
_POOLING = "max pooling on the CPU takes the compiler's kernels"
_UNTRIED = "explain does not try whether a step can be one graph"
_GUESSED = "what the compiler raises is known by its module"
MORE = (
    Private("torch._dynamo.utils.counters", "how many graphs were made", _UNCOUNTED),
    Private(
        "torch._dynamo.utils.get_compilation_metrics", "why a graph was made again", "it is not said why"
    ),
    Private(
        "torch._dynamo.mark_static_address", "replays on CUDA copy no weights", "replays copy the weights"
    ),
    Private(
        "torch._inductor.runtime.cache_dir_utils.default_cache_dir",
        "graphs are kept between runs in the folder of the user",
        "graphs are kept where torch keeps them",
    ),
    Private(
        "torch._inductor.list_mode_options", "options of a compile_mode", "every compile_mode is default"
    ),
    Private("torch._inductor.lowering.lowerings", "max pooling by torch's own kernels", _POOLING),
    Private("torch._inductor.lowering.fallback_handler", "the same", _POOLING),
    Private("torch._inductor.decomposition.decompositions", "the same", _POOLING),
    Private("torch._C.DispatchKey", "losses have derivatives while a step is traced on meta", _UNTRIED),
    Private("torch._C._dispatch_has_kernel_for_dispatch_key", "the same", _UNTRIED),
    Private("torch._C._dispatch_get_all_op_names", "the same", _UNTRIED),
    Private("torch._dynamo.exc.TorchDynamoException", "what the compiler gives up with", _GUESSED),
    Private("torch._dynamo.exc.FailOnRecompileLimitHit", "the same", _GUESSED),
    Private("torch._inductor.exc.InductorError", "the same", _GUESSED),
    Private("torch._inductor.exc.CppCompileError", "the same", _GUESSED),
    Private("torch._inductor.exc.InvalidCxxCompiler", "the same", _GUESSED),
)
NAMES = (*EVERY_RUN, *STEPS, KERNELS, *MODEL, *MORE)


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


def gone(names: Iterable[Private] = EVERY_RUN) -> list[str]:
    """A line for each name that this torch does not have."""
    return [
        f"torch {torch.__version__} has no {name.path}: {name.without}"
        for name in names
        if find(name.path) is None
    ]


def _mul(tensors: Sequence[Tensor], factor: float | Tensor) -> None:
    for tensor in tensors:
        tensor.mul_(factor)


def _lerp(tensors: Sequence[Tensor], ends: Sequence[Tensor], weight: float) -> None:
    for tensor, end in zip(tensors, ends, strict=True):
        tensor.lerp_(end, weight)


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
foreach_lerp_: Any
foreach_add: Any
has_step_hooks: bool  # whether an optimizer tells who wants to know of its steps
has_found_inf: bool
DispatchMode: Any
watches: bool  # whether a dispatch mode learns what is called


def bind() -> None:
    """Look the names up."""
    global run_backward, check_finite_, foreach_mul_, foreach_lerp_, foreach_add
    global has_step_hooks, has_found_inf, DispatchMode, watches
    run_backward = find("torch.autograd.graph._engine_run_backward") or _run_backward
    check_finite_ = find("torch._amp_foreach_non_finite_check_and_unscale_") or _check_finite
    foreach_mul_ = find("torch._foreach_mul_") or _mul
    foreach_lerp_ = find("torch._foreach_lerp_") or _lerp
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


# The compiler.


def compiler() -> Any:
    """Torch's compiler, which takes as long to import as torch itself."""
    return importlib.import_module(COMPILER)


def missing_for_steps() -> str:
    """Why this torch makes no graphs of whole steps; "" where it does."""
    return next(iter(gone(STEPS)), "")


def missing_for_kernels() -> str:
    """Why this torch makes no kernels of a graph; "" where it does. Asked late: to import them takes long."""
    return next(iter(gone([KERNELS])), "")


def missing_for_models() -> str:
    """Why this torch compiles no forward pass; "" where it does."""
    return next(iter(gone(MODEL)), "")


def missing_for_trials() -> str:
    """Why no step can be traced on the meta device; "" where it can."""
    return next(iter(gone([name for name in MORE if name.without == _UNTRIED])), "")


def gone_early() -> list[str]:
    """A line for each name without which less is kept or told, of those that are quick to look up."""
    return gone([name for name in MORE if name.without != _POOLING])


def gone_late() -> list[str]:
    """The same of what is imported with the first kernels."""
    return gone([name for name in MORE if name.without == _POOLING])


def compile_graph(*args: Any, **options: Any) -> Any:
    """Kernels for a graph."""
    return find("torch._inductor.compile_fx.compile_fx")(*args, **options)


def switches(**values: bool) -> AbstractContextManager[Any]:
    """Inside, switches of the compiler have these values, those that it has."""
    config = find("torch._dynamo.config")
    found = {k: v for k, v in values.items() if find(f"torch._dynamo.config.{k}") is not None}
    patched: AbstractContextManager[Any] = config.patch(**found) if found else nullcontext()
    return patched


def cache_folder() -> str | None:
    """Where torch keeps graphs unless told otherwise."""
    default = find("torch._inductor.runtime.cache_dir_utils.default_cache_dir")
    return None if default is None else str(default())


def side_effects() -> tuple[Any, list[Any]]:
    """What the step that is being traced changes outside of itself, and the things that it changes."""
    translator = find("torch._dynamo.symbolic_convert.InstructionTranslator")
    effects = translator.current_tx().output.side_effects
    return effects, list(effects._get_modified_vars())


def stack_of(effects: Any, item: Any) -> Any:
    """Where the step changes something; nothing where this torch does not note it."""
    stacks = getattr(effects, "mutation_user_stacks", {})
    return stacks[item][0] if item in stacks else ()


def call_forward(model: nn.Module, *args: Any, **options: Any) -> Any:
    """Call a model with its hooks, past what is compiled of it."""
    return model._call_impl(*args, **options)  # type: ignore[no-untyped-call]


def set_compiled(model: Any, call: Callable[..., Any] | None) -> None:
    """Let calls of a model go to `call`."""
    model._compiled_call_impl = call


def keep_in_place(tensor: Tensor) -> None:
    """Promise that a tensor stays where it is in memory."""
    if (mark := find("torch._dynamo.mark_static_address")) is not None:
        mark(tensor)


def mode_options(mode: str) -> dict[str, Any]:
    """What a `compile_mode` stands for."""
    listed = find("torch._inductor.list_mode_options")
    return {} if listed is None else dict(listed(mode))


def unique_graphs() -> int:
    """Graphs that torch has made in this process."""
    counters = find("torch._dynamo.utils.counters")
    return 0 if counters is None else int(counters["stats"]["unique_graphs"])


def last_reason() -> str:
    """Why torch made its last graph again, in one line."""
    measured = find("torch._dynamo.utils.get_compilation_metrics")
    metrics = measured() if measured is not None else None
    reason = (getattr(metrics[-1], "recompile_reason", None) if metrics else None) or "no reason given"
    return str(reason).splitlines()[0]


def is_compilers(error: Exception) -> bool:
    """Whether it was the compiler that gave up, before anything was computed."""
    names = [name.path for name in MORE if name.without == _GUESSED]
    kinds = [find(name) for name in names]
    if None not in kinds:
        return isinstance(error, tuple(kinds))
    modules = tuple(name.rpartition(".")[0] for name in names)
    return any(kind.__module__.startswith(modules) for kind in type(error).__mro__)


@contextmanager
def torchs_pooling() -> Iterator[None]:
    """Max pooling by torch's own kernels; the compiler's tables are changed and put back.

    Given a table of one's own it would keep no graphs between runs.
    """
    tables = [f"torch._inductor.{name}" for name in ("lowering.lowerings", "decomposition.decompositions")]
    known, taken_apart = map(find, tables)
    fallback = find("torch._inductor.lowering.fallback_handler")
    if known is None or taken_apart is None or fallback is None:
        yield
        return
    aten = torch.ops.aten
    pooling = (aten.max_pool2d_with_indices.default, aten.max_pool2d_with_indices_backward.default)
    before = {op: known[op] for op in pooling if op in known}
    rules = {op: taken_apart.pop(op) for op in before if op in taken_apart}
    known.update({op: fallback(op, add_to_fallback_set=False) for op in before})
    try:
        yield
    finally:
        known.update(before)
        taken_apart.update(rules)


@contextmanager
def differentiable_on_meta() -> Iterator[None]:
    """Losses and layers with their derivatives on the meta device.

    While torch traces it takes the shapes of some composed operations, `nll_loss` one of them, for kernels of
    that device, which have no derivative; their parts have one.
    """
    names = ("DispatchKey", "_dispatch_has_kernel_for_dispatch_key", "_dispatch_get_all_op_names")
    key, has_kernel, operators = (find(f"torch._C.{name}") for name in names)
    if key is None or has_kernel is None or operators is None:
        yield
        return
    changed = []
    for name in operators():
        if not name.startswith("aten::") or not has_kernel(name, "CompositeImplicitAutograd"):
            continue
        packet, _, overload = name.removeprefix("aten::").partition(".")
        op = getattr(getattr(torch.ops.aten, packet, None), overload or "default", None)
        if op is None or key.Meta not in op.py_kernels or key.AutogradMeta in op.py_kernels:
            continue
        op.py_impl(key.AutogradMeta)(op.decompose)
        changed.append(op)
    try:
        yield
    finally:
        for op in changed:
            del op.py_kernels[key.AutogradMeta]
            op._dispatch_cache.clear()


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
