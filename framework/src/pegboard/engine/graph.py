"""A function of tensors as one compiled graph, and what torch says where it cannot be one."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from ..planning import Plan

LIGHT = 2**20  # multiplications in a product, for fewer of which a second thread costs more than it saves


class Unfit(Exception):
    """Something cannot become part of a graph; the text says what and why."""


@contextmanager
def tracing() -> Iterator[None]:
    """Torch's switches for tracing a step, put back afterwards; what was compiled is kept between runs."""
    import torch._dynamo
    from torch._inductor.runtime.cache_dir_utils import default_cache_dir

    if os.environ.get("TORCHINDUCTOR_CACHE_DIR", default_cache_dir()) == default_cache_dir():
        with suppress(OSError, RuntimeError):  # nobody's home, or one that cannot be written: torch's own
            folder = cache_folder()
            folder.mkdir(parents=True, exist_ok=True)
            if os.access(folder, os.W_OK):  # torch's own does not outlive a reboot
                os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder)
    # What draws from numpy's stream is no part of a graph, which would draw from torch's instead.
    with torch._dynamo.config.patch(trace_autograd_ops=True, use_numpy_random_stream=True):
        yield


def cache_folder() -> Path:
    """Where compiled graphs are kept, unless TORCHINDUCTOR_CACHE_DIR names another place."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "pegboard" / "compiled"


class Graph:
    """A function of tensors, compiled, that can be called past the checks once it has shown to need none."""

    def __init__(self, function: Callable[..., list[Tensor]], options: dict[str, Any], plan: Plan) -> None:
        self.plan, self.options = plan, options
        self.made = 0
        self._call = torch.compile(function, backend=self._compile, fullgraph=True, dynamic=False)
        self._inner: Callable[..., Sequence[Tensor]] | None = None
        self._inputs: tuple[Any, ...] = ()  # of the last call, as the graph takes them
        self._results: Sequence[Any] = ()
        self._assigns = False  # whether it hands tensors over to Python after the call
        self._slots: list[tuple[int, int]] | None = None  # (place in the graph's inputs, place in ours)

    def _compile(self, graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Callable[..., Any]:
        from torch._inductor.compile_fx import compile_fx

        if any(_forgotten(value) for value in inputs):
            raise Unfit(
                "a tensor of one float64 without axes would not be changed by a graph; give it an axis"
            )
        refuse_moves(graph)
        assigns = assignments()
        asked = self.plan.settings.trainer.threads  # who names a number gets it
        alone = asked is None and torch.get_num_threads() > 1 and is_light(graph)
        make = on_one_thread(compile_fx) if alone else compile_fx
        with _torchs_pooling(inputs):
            try:
                inner: Any = make(graph, inputs, config_patches=self.options)
            except Exception:  # some kernels cannot be called from C++
                if not self.options["cpp_wrapper"]:
                    raise
                self.options = {**self.options, "cpp_wrapper": False}
                inner = make(graph, inputs, config_patches=self.options)
        if alone:
            inner = on_one_thread(inner)
        self.made += 1
        self._slots = None

        def call(*args: Any) -> Any:
            self._inner, self._inputs, self._assigns = inner, args, assigns
            self._results = inner(*args)
            return self._results

        return call

    def checked(self, *fresh: Any) -> list[Tensor]:
        """The function, if need be compiled again because something that it depends on has changed."""
        before, ran = self._inputs, self._inner
        tensors = flat(fresh)
        try:
            results = self._call(*fresh)
        except Exception as error:
            if not is_compilers(error):
                raise
            raise Unfit(reason(error, self.plan)) from error
        slots = [(at, i) for at, x in enumerate(self._inputs) for i, t in enumerate(tensors) if x is t]
        ours = {at for at, _ in slots}
        pairs = zip(before, self._inputs, strict=False)
        kept = all(a is b for at, (a, b) in enumerate(pairs) if at not in ours)
        returned = len(self._results) == len(results) and all(map(_is, self._results, results))
        # Two calls in a row of one graph on the same objects, with nothing but the results to hand over.
        same = ran is self._inner and not self._assigns and kept and returned
        self._slots = slots if same else None
        return results

    def direct(self, tensors: Sequence[Tensor]) -> bool:
        """Call the graph past the checks, with the tensors of a call in their order; False where none has
        shown yet that this is the same."""
        if self._slots is None or self._inner is None:
            return False
        inputs = list(self._inputs)
        for at, i in self._slots:
            inputs[at] = tensors[i]
        self._inner(*inputs)
        return True


def is_light(graph: torch.fx.GraphModule) -> bool:
    """Whether every operation of a model on the CPU is too small to be worth a second thread.

    Of a product of matrices, the root of the product of the three sizes is the number of multiplications.
    """
    work = [0.0]
    for node in graph.graph.nodes:
        values = [n.meta.get("example_value") for n in (node, *node.all_input_nodes)]
        if isinstance(values[0], Tensor) and values[0].requires_grad:
            if values[0].device.type != "cpu":
                return False
            sizes = sorted(v.numel() for v in values if isinstance(v, Tensor))
            work.append(math.prod(sizes[-3:]) ** 0.5)
    return 0 < max(work) < LIGHT


def on_one_thread(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, called with a single thread of torch's; to set that takes a tenth of a microsecond."""

    def call(*args: Any, **options: Any) -> Any:
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            return function(*args, **options)
        finally:
            torch.set_num_threads(before)

    return call


@contextmanager
def _torchs_pooling(inputs: Sequence[Any]) -> Iterator[None]:
    """On the CPU, max pooling by torch's own kernels: those of the compiler take three times as long.

    The compiler's tables are changed and put back; given one of our own it would keep no graphs between runs.
    """
    from torch._inductor import decomposition, lowering

    if any(isinstance(value, Tensor) and value.device.type != "cpu" for value in inputs):
        yield
        return
    aten, known = torch.ops.aten, cast(dict[Any, Any], lowering.lowerings)
    taken_apart = decomposition.decompositions
    fallback = cast(Callable[..., Any], lowering.fallback_handler)
    pooling = (aten.max_pool2d_with_indices.default, aten.max_pool2d_with_indices_backward.default)
    before = {op: known[op] for op in pooling if op in known}
    rules = {op: taken_apart.pop(op) for op in before if op in taken_apart}
    known.update({op: fallback(op, add_to_fallback_set=False) for op in before})
    try:
        yield
    finally:
        known.update(before)
        taken_apart.update(rules)


def _forgotten(value: Any) -> bool:
    """What torch 2.13 takes for a constant on the CPU, even where the graph writes to it."""
    return isinstance(value, Tensor) and value.dtype == torch.float64 and value.dim() == 0


def flat(values: Any) -> list[Tensor]:
    """All tensors in nested tuples and lists."""
    if isinstance(values, Tensor):
        return [values]
    return [t for value in values for t in flat(value)] if isinstance(values, list | tuple) else []


def _is(a: Any, b: Any) -> bool:
    return a is b


def assignments() -> bool:
    """Whether the step that is being traced assigns tensors in Python, which torch does after every call.

    Other values in Python it must not change: each would make a graph of its own.
    """
    from torch._dynamo.symbolic_convert import InstructionTranslator

    effects, found = InstructionTranslator.current_tx().output.side_effects, False
    for item in effects._get_modified_vars():
        changes = effects.store_attr_mutations.get(item, {})
        if item.source is None or set(changes) == {"grad"}:  # made in the step, or put in and taken out again
            continue
        if not changes or not all(value.is_tensor() for value in changes.values()):
            stack = effects.mutation_user_stacks[item][0]
            frames = "".join(f'\n  File "{frame.filename}", line {frame.lineno}' for frame in stack)
            what = ", ".join(changes) or f"a {item.python_type_name()}"
            raise Unfit(
                f"it changes {what} in Python in every update, and a graph changes only tensors{frames}"
            )
        found = True
    return found


def refuse_moves(graph: torch.fx.GraphModule) -> None:
    """Tensors that a step is given must stay where they are in memory, by which all know them."""
    for node in graph.graph.nodes:
        if node.target is torch.Tensor.set_ and node.args[0].op == "placeholder":
            places = node.meta.get("stack_trace", "")
            raise Unfit(
                f"it gives a tensor other memory (p.data = x) instead of new values (p.copy_(x))\n{places}"
            )


@contextmanager
def differentiable_on_meta() -> Iterator[None]:
    """Losses and layers with their derivatives on the meta device.

    While torch traces it takes the shapes of some composed operations, `nll_loss` one of them, for kernels of
    that device, which have no derivative; their parts have one.
    """
    from torch._C import DispatchKey

    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    changed = []
    for name in torch._C._dispatch_get_all_op_names():
        if not name.startswith("aten::") or not has_kernel(name, "CompositeImplicitAutograd"):
            continue
        packet, _, overload = name.removeprefix("aten::").partition(".")
        op = getattr(getattr(torch.ops.aten, packet, None), overload or "default", None)
        if op is None or DispatchKey.Meta not in op.py_kernels or DispatchKey.AutogradMeta in op.py_kernels:
            continue
        op.py_impl(DispatchKey.AutogradMeta)(op.decompose)
        changed.append(op)
    try:
        yield
    finally:
        for op in changed:
            del op.py_kernels[DispatchKey.AutogradMeta]
            op._dispatch_cache.clear()


def only_traced(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Callable[..., Any]:
    """A backend that compiles nothing and computes nothing."""
    refuse_moves(graph)
    assignments()
    (results,) = graph.graph.output_node().args
    return lambda *args: (None,) * len(results)  # type: ignore[arg-type]


def inductor_options(mode: str, device: str, together: int) -> dict[str, Any]:
    """How a graph is compiled. Random numbers are torch's own, so that a graph draws what a step would."""
    options: dict[str, Any] = {
        "fallback_random": True,
        "emulate_precision_casts": True,  # short formats are rounded where a step in Python rounds them
        "size_asserts": False,  # the checks have seen to sizes
        "cpp.min_chunk_size": 4096,  # numbers of a thread: for fewer, waking another takes longer
        # Kernels called from C++ instead of Python: a tenth less time, and half as much again to compile.
        "cpp_wrapper": device == "cpu" and together > 1,
    }
    if mode != "default":
        import torch._inductor

        options |= torch._inductor.list_mode_options(mode)
    if device.startswith("cuda"):
        options["triton.cudagraphs"] = True
    return options


def is_compilers(error: Exception) -> bool:
    """Whether it was the compiler that gave up, before anything was computed."""
    from torch._dynamo.exc import FailOnRecompileLimitHit, TorchDynamoException
    from torch._inductor.exc import CppCompileError, InductorError, InvalidCxxCompiler

    kinds = (
        TorchDynamoException | FailOnRecompileLimitHit | InductorError | CppCompileError | InvalidCxxCompiler
    )
    return isinstance(error, kinds)


def last_reason() -> str:
    """Why torch made its last graph again, in one line."""
    metrics = torch._dynamo.utils.get_compilation_metrics()
    said = (getattr(metrics[-1], "recompile_reason", None) if metrics else None) or "no reason given"
    return str(said).splitlines()[0]


def unique_graphs() -> int:
    """Graphs that torch has made in this process."""
    return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])


def reason(error: Exception, plan: Plan) -> str:
    """What a compiler could not do, in one line, with the part and the place it was in."""
    text = str(getattr(error, "inner_exception", error))  # what a backend raised
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = lines[0] if lines else type(error).__name__
    places = re.findall(r'File "([^"]+)", line (\d+)', text)
    for file, line in reversed(places):
        if (found := plan.part_in(file)) is not None:
            path, entry = found
            return f"{path} ({entry.part.name}, {Path(file).name}:{line}): {said}"
    where = f" ({Path(places[-1][0]).name}:{places[-1][1]})" if places else ""
    return f"{said}{where}"
