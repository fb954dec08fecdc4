"""The private names of torch that compiling whole steps needs, each looked up here and nowhere else.

Torch may change or drop such a name in any release, and this plugin says in its own requirements with which
releases it was tested. Where a name is gone all the same, less is compiled or told, and a run says so in one
line. The compiler, whose import takes as long as that of torch itself, is not imported before a run may
compile something, and names of it are looked up then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from pegboard.engine import torch_private as core
from pegboard.engine.torch_private import Private
from torch import Tensor, nn

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
    Private(
        "torch._inductor.config.deterministic",
        "the compiler knows that a run asks for deterministic kernels",
        "the compiler is not told that a run asks for deterministic kernels",
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
NAMES = (*STEPS, KERNELS, *MODEL, *MORE)


def missing_for_steps() -> str:
    """Why this torch makes no graphs of whole steps; "" where it does."""
    return next(iter(core.gone(STEPS)), "")


def missing_for_kernels() -> str:
    """Why this torch makes no kernels of a graph; "" where it does. Asked late: to import them takes long."""
    return next(iter(core.gone([KERNELS])), "")


def missing_for_models() -> str:
    """Why this torch compiles no forward pass; "" where it does."""
    return next(iter(core.gone(MODEL)), "")


def missing_for_trials() -> str:
    """Why no step can be traced on the meta device; "" where it can."""
    return next(iter(core.gone([name for name in MORE if name.without == _UNTRIED])), "")


def gone_early() -> list[str]:
    """A line for each name without which less is kept or told, of those that are quick to look up."""
    return core.gone([name for name in MORE if name.without != _POOLING])


def gone_late() -> list[str]:
    """The same of what is imported with the first kernels."""
    return core.gone([name for name in MORE if name.without == _POOLING])


def compile_graph(*args: Any, **options: Any) -> Any:
    """Kernels for a graph."""
    return core.find("torch._inductor.compile_fx.compile_fx")(*args, **options)


def switches(**values: bool) -> AbstractContextManager[Any]:
    """Inside, switches of the compiler have these values, those that it has."""
    config = core.find("torch._dynamo.config")
    found = {k: v for k, v in values.items() if core.find(f"torch._dynamo.config.{k}") is not None}
    patched: AbstractContextManager[Any] = config.patch(**found) if found else nullcontext()
    return patched


@contextmanager
def told_determinism() -> Iterator[None]:
    """Inside, the compiler knows whether torch is to use deterministic kernels alone."""
    if core.find("torch._inductor.config.deterministic") is None:
        yield
        return
    with core.find("torch._inductor.config").patch(
        deterministic=torch.are_deterministic_algorithms_enabled()
    ):
        yield


def cache_folder() -> str | None:
    """Where torch keeps graphs unless told otherwise."""
    default = core.find("torch._inductor.runtime.cache_dir_utils.default_cache_dir")
    return None if default is None else str(default())


def side_effects() -> tuple[Any, list[Any]]:
    """What the step that is being traced changes outside of itself, and the things that it changes."""
    translator = core.find("torch._dynamo.symbolic_convert.InstructionTranslator")
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
    if (mark := core.find("torch._dynamo.mark_static_address")) is not None:
        mark(tensor)


def mode_options(mode: str) -> dict[str, Any]:
    """What a `compile_mode` stands for."""
    listed = core.find("torch._inductor.list_mode_options")
    return {} if listed is None else dict(listed(mode))


def unique_graphs() -> int:
    """Graphs that torch has made in this process."""
    counters = core.find("torch._dynamo.utils.counters")
    return 0 if counters is None else int(counters["stats"]["unique_graphs"])


def last_reason() -> str:
    """Why torch made its last graph again, in one line."""
    measured = core.find("torch._dynamo.utils.get_compilation_metrics")
    metrics = measured() if measured is not None else None
    reason = (getattr(metrics[-1], "recompile_reason", None) if metrics else None) or "no reason given"
    return str(reason).splitlines()[0]


def is_compilers(error: Exception) -> bool:
    """Whether it was the compiler that gave up, before anything was computed."""
    names = [name.path for name in MORE if name.without == _GUESSED]
    kinds = [core.find(name) for name in names]
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
    known, taken_apart = map(core.find, tables)
    fallback = core.find("torch._inductor.lowering.fallback_handler")
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
    key, has_kernel, operators = (core.find(f"torch._C.{name}") for name in names)
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
