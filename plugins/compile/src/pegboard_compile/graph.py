"""A function of tensors as one compiled graph, and what torch says where it cannot be one."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from pegboard import Stepper
from pegboard.base.files import cache_folder
from pegboard.planning.plan import Plan
from torch import Tensor

from . import torch_private

LIGHT = 2**20  # multiplications in a product, for fewer of which a second thread costs more than it saves


class Unfit(Exception):
    """Something cannot become part of a graph; the text says what and why."""


@contextmanager
def tracing() -> Iterator[None]:
    """Torch's switches for tracing a step, put back afterwards; what was compiled is kept between runs."""
    default = torch_private.cache_folder()
    if default is not None and os.environ.get("TORCHINDUCTOR_CACHE_DIR", default) == default:
        with suppress(OSError, RuntimeError):  # nobody's home, or one that cannot be written: torch's own
            folder = cache_folder() / "compiled"
            folder.mkdir(parents=True, exist_ok=True)
            if os.access(folder, os.W_OK):  # torch's own does not outlive a reboot
                os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder)
    # What draws from numpy's stream is no part of a graph, which would draw from torch's instead.
    with torch_private.switches(trace_autograd_ops=True, use_numpy_random_stream=True):
        yield


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
        if why := torch_private.missing_for_kernels():
            raise Unfit(why)
        if any(_forgotten(value) for value in inputs):
            raise Unfit(
                "a tensor of one float64 without axes would not be changed by a graph; give it an axis"
            )
        refuse_moves(graph)
        assigns = assignments()
        asked = self.plan.settings.trainer.threads  # who names a number gets it
        alone = asked is None and torch.get_num_threads() > 1 and is_light(graph)
        make = on_one_thread(torch_private.compile_graph) if alone else torch_private.compile_graph
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
            if not torch_private.is_compilers(error):
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
    """On the CPU, max pooling by torch's own kernels: those of the compiler take three times as long."""
    if any(isinstance(value, Tensor) and value.device.type != "cpu" for value in inputs):
        yield
        return
    with torch_private.torchs_pooling():
        yield


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
    (effects, changed), found = torch_private.side_effects(), False
    for item in changed:
        changes = effects.store_attr_mutations.get(item, {})
        if item.source is None or set(changes) == {"grad"}:  # made in the step, or put in and taken out again
            continue
        if not changes or not all(value.is_tensor() for value in changes.values()):
            stack = torch_private.stack_of(effects, item)
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
        options |= torch_private.mode_options(mode)
    if device.startswith("cuda"):
        options["triton.cudagraphs"] = True
    return options


def reason(error: Exception, plan: Plan) -> str:
    """What a compiler could not do, in one line, with the part and the place it was in."""
    text = str(getattr(error, "inner_exception", error))  # what a backend raised
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = lines[0] if lines else type(error).__name__
    places = re.findall(r'File "([^"]+)", line (\d+)', text)
    for file, line in reversed(places):
        found = plan.part_in(file)
        if found is not None and found[0] != Stepper.kind:  # which calls all the others
            path, entry = found
            return f"{path} ({entry.part.name}, {Path(file).name}:{line}): {said}"
    where = f" ({Path(places[-1][0]).name}:{places[-1][1]})" if places else ""
    return f"{said}{where}"
