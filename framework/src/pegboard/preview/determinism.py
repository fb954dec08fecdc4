"""Operations without a deterministic kernel on CUDA, found before a run on CUDA meets them.

`trainer.deterministic` makes torch refuse them there, in the middle of a step or of an evaluation. They are
found on any device, by what is called: operations whose gradient has no deterministic kernel where they are
called on something that is differentiated. The list is that of `torch.use_deterministic_algorithms` of torch
2.13, with two operations that refuse without being listed.
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from ..engine import torch_private
from ..engine.torch_private import schema

# How an operation is called in the documentation, by its name in ATen.
DIFFERENTIATED = {  # refused where a gradient is taken
    "avg_pool3d": "torch.nn.AvgPool3d",
    "_adaptive_avg_pool2d": "torch.nn.AdaptiveAvgPool2d",  # 1d too; a single place is a mean
    "_adaptive_avg_pool3d": "torch.nn.AdaptiveAvgPool3d",
    "adaptive_max_pool2d": "torch.nn.AdaptiveMaxPool2d",
    "fractional_max_pool2d": "torch.nn.FractionalMaxPool2d",
    "fractional_max_pool3d": "torch.nn.FractionalMaxPool3d",
    "upsample_linear1d": "torch.nn.functional.interpolate",
    "upsample_bilinear2d": "torch.nn.functional.interpolate",
    "upsample_bicubic2d": "torch.nn.functional.interpolate",
    "upsample_trilinear3d": "torch.nn.functional.interpolate",
    "_upsample_bilinear2d_aa": "torch.nn.functional.interpolate",
    "_upsample_bicubic2d_aa": "torch.nn.functional.interpolate",
    "reflection_pad1d": "torch.nn.ReflectionPad1d",
    "reflection_pad2d": "torch.nn.ReflectionPad2d",
    "reflection_pad3d": "torch.nn.ReflectionPad3d",
    "replication_pad1d": "torch.nn.ReplicationPad1d",  # by itself; functional.pad has another way
    "replication_pad2d": "torch.nn.ReplicationPad2d",
    "replication_pad3d": "torch.nn.ReplicationPad3d",
    "_ctc_loss": "torch.nn.CTCLoss",
    "_embedding_bag": "torch.nn.EmbeddingBag",
    "grid_sampler_2d": "torch.nn.functional.grid_sample",
    "grid_sampler_3d": "torch.nn.functional.grid_sample",
}
CALLED = {  # refused at all
    "max_unpool2d": "torch.nn.MaxUnpool2d",  # 1d too
    "max_unpool3d": "torch.nn.MaxUnpool3d",
    "nll_loss2d_forward": "torch.nn.NLLLoss",
    "put": "torch.Tensor.put_",
    "put_": "torch.Tensor.put_",
    "histc": "torch.histc",
    "bincount": "torch.bincount",
    "median": "torch.median",
    "nanmedian": "torch.nanmedian",
    "cumsum": "torch.cumsum",
    "cumsum_": "torch.cumsum",
    "scatter_reduce": "torch.Tensor.scatter_reduce",
    "scatter_reduce_": "torch.Tensor.scatter_reduce",
    "resize_": "torch.Tensor.resize_",
    "kthvalue": "torch.kthvalue",  # not listed
    "index_reduce": "torch.Tensor.index_reduce",  # not listed
    "index_reduce_": "torch.Tensor.index_reduce",
}
# What a gradient is called where it is taken past autograd, as torch.func does.
BACKWARD = {f"{name}_backward": name for name in DIFFERENTIATED}
TORCH = f"{Path(torch.__file__).parent}/"
REPLACED = {functional.interpolate: ("bilinear", "trilinear"), functional.pad: ("replicate",)}


def refused(call: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """What CUDA refuses of this call in deterministic mode, in words; "" where it takes it."""
    name = schema(call).name.removeprefix("aten::")
    if name in CALLED:
        given = dict(zip((a.name for a in schema(call).arguments), args, strict=False)) | dict(kwargs)
        what = _condition(name, call, given)
        return "" if what is None else f"{CALLED[name]}{what}"
    if name in DIFFERENTIATED:
        wanted = torch.is_grad_enabled() and any(isinstance(t, Tensor) and t.requires_grad for t in args)
        return _gradient(name, args) if wanted else ""
    if name in BACKWARD:
        return _gradient(BACKWARD[name], ())
    return ""


def _gradient(name: str, args: Sequence[Any]) -> str:
    if name == "_embedding_bag" and (len(args) < 5 or args[4] != 2):
        return ""
    kind = " of mode max" if name == "_embedding_bag" else ""
    if "upsample" in name:
        kind = f" of mode {name.removeprefix('_').split('_')[1][:-2]}"
    return f"the gradient of {DIFFERENTIATED[name]}{kind}"


def _condition(name: str, call: Any, given: Mapping[str, Any]) -> str | None:
    """With what the operation is refused; None where it is not."""
    match name.removesuffix("_"):
        case "cumsum":
            dtype = given.get("dtype") or given["self"].dtype
            return " of floating point numbers" if dtype.is_floating_point or dtype.is_complex else None
        case "bincount":
            return None if given.get("weights") is None else " with weights"
        case "median" | "nanmedian":
            return " with indices" if "dim" in given else None
        case "scatter_reduce":
            return " with prod" if given.get("reduce") == "prod" else None
        case "nll_loss2d_forward":
            return None if given.get("reduction") == 0 else " over places (batch, classes, ...)"
        case "resize":
            return " of quantized numbers" if given["self"].is_quantized else None
    return ""


@dataclass(frozen=True)
class Finding:
    """A call that CUDA refuses in deterministic mode."""

    operation: str  # in words
    path: str  # place in the config of the part that calls it, or what was being done
    where: str = ""  # file:line: source

    def __str__(self) -> str:
        return f"{self.path} calls {self.operation}" + (f"\n  {self.where}" if self.where else "")


# Says of the calls at work, the innermost first, which part they are of, and the line of it.
Culprit = Callable[[Sequence[FrameType]], tuple[str, FrameType | None]]


@dataclass
class Findings:
    """What was found, each operation of a part once."""

    culprit: Culprit
    around: FrameType | None = None  # of the call that began to look
    found: dict[tuple[str, str], Finding] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.found.values())

    def note(self, operation: str) -> None:
        frame: FrameType | None = sys._getframe(1)
        frames = []
        while frame is not None and frame is not self.around:
            frames.append(frame)
            frame = frame.f_back
        path, line = self.culprit(frames)
        # A backward pass of autograd calls again what the forward pass was found for.
        if line is None and any(operation == known for known, _ in self.found):
            return
        where = ""
        if line is not None:
            file, number = line.f_code.co_filename, line.f_lineno
            where = f"{file}:{number}: {linecache.getline(file, number).strip()}"
        self.found.setdefault((operation, path), Finding(operation, path, where))


class _Dispatched(torch_private.SeenMode):
    """Notes what is refused, of tensors that would be on the device."""

    def __init__(self, findings: Findings) -> None:
        super().__init__()
        self.findings = findings
        self.replaced = 0  # inside functions that torch computes in another way on CUDA
        self.host: dict[int, Tensor] = {}  # by their storage, which must not be used again
        self.quiet = set[str]()  # gradients of what was computed in another way

    def __torch_dispatch__(self, call: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if what := refused(call, args, kwargs):
            if self.replaced:
                self.quiet.add(what)
            elif what not in self.quiet and not self._elsewhere((args, kwargs)):
                self.findings.note(what)
        result = call(*args, **kwargs)
        if self.host and self._elsewhere((args, kwargs)):
            self.keep(result)
        return result

    def keep(self, result: Any) -> None:
        """Remember that tensors are on the host."""
        for tensor in _tensors(result):
            self.host[_place(tensor)] = tensor

    def _elsewhere(self, given: Any) -> bool:
        tensors = [t for t in _tensors(given) if t.dim()]
        if any(t.is_meta for t in tensors):
            return False
        return any(_place(t) in self.host for t in tensors)


def _place(tensor: Tensor) -> int:
    return 0 if tensor.is_meta or tensor.layout != torch.strided else tensor.untyped_storage().data_ptr()


def _tensors(values: Any) -> list[Tensor]:
    """All tensors in nested containers."""
    if isinstance(values, Mapping):
        return _tensors(list(values.values()))
    if isinstance(values, list | tuple):
        return [tensor for value in values for tensor in _tensors(value)]
    return [values] if isinstance(values, Tensor) else []


class _Functions(TorchFunctionMode):
    """Tells the operations what torch does in another way on CUDA, and what is copied to the host."""

    def __init__(self, dispatched: _Dispatched) -> None:
        super().__init__()
        self.dispatched = dispatched

    def __torch_function__(self, call: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if call in REPLACED and any(how in REPLACED[call] for how in (*args[1:], *kwargs.values()) if how):
            self.dispatched.replaced += 1
            try:
                return call(*args, **kwargs)
            finally:
                self.dispatched.replaced -= 1
        result = call(*args, **kwargs)
        if (call is Tensor.cpu or (call is Tensor.to and _to_host(args, kwargs))) and not result.is_meta:
            result = result.clone()  # else it would be the tensor on the device itself
            self.dispatched.keep(result)
        return result


def _to_host(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a text or a device says that a tensor goes to the CPU."""
    return any(isinstance(v, str | torch.device) and str(v) == "cpu" for v in (*args[1:], *kwargs.values()))


def nobody(frames: Sequence[FrameType]) -> tuple[str, FrameType | None]:
    """The innermost call outside torch, of whatever it is."""
    outside = [f for f in frames if not f.f_code.co_filename.startswith((TORCH, __file__))]
    return "it", next(iter(outside), None)


@contextmanager
def scanning(culprit: Culprit = nobody) -> Iterator[Findings]:
    """Collect what CUDA refuses in deterministic mode of all that is called in here, on any device."""
    findings = Findings(culprit, sys._getframe(2))  # past contextlib
    dispatched = _Dispatched(findings)
    with _Functions(dispatched), torch_private.watching(dispatched):
        yield findings


def refuses(device: str) -> bool:
    """Whether such operations are refused on a device."""
    return device.partition(":")[0] not in ("cpu", "mps", "meta")
