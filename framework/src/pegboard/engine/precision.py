"""Device and number formats of a run."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ..base.errors import PegboardError
from ..config.nodes import DEVICES, Trainer
from ..planning.plan import Plan


@dataclass(frozen=True)
class Precision:
    """How forward and loss are computed."""

    name: str
    device: str  # its type
    scaler: torch.amp.GradScaler | None = None
    why: str = ""  # it is this one, where the config leaves it open

    def wrap(self, compute: Callable[..., Any]) -> Callable[..., Any]:
        """The computation under autocast, where the format asks for it."""
        if self.name in ("fp32", "tf32"):
            return compute
        kind, dtype = self.device, torch.bfloat16 if self.name == "bf16" else torch.float16

        def cast(*args: Any) -> Any:
            with torch.autocast(kind, dtype):
                return compute(*args)

        return cast


def choose_device(name: str) -> str:
    """The device that a config or a person means; one that is not there is an error."""
    if not re.fullmatch(DEVICES.pattern, name):
        raise PegboardError(f"unknown device {name!r}: expected {DEVICES.shown}")
    if name == "auto":
        if torch.cuda.is_available():
            return "cuda"
        return "mps" if torch.backends.mps.is_available() else "cpu"
    kind, _, number = name.partition(":")
    if kind == "cuda":
        count = torch.cuda.device_count()
        if int(number or 0) >= count:
            raise PegboardError(
                f"the device is to be {name!r}, but torch sees {count} CUDA devices; use auto or cpu"
            )
    if kind == "mps" and not torch.backends.mps.is_available():
        raise PegboardError("the device is to be 'mps', which is not available here; use auto or cpu")
    return name


def planned_device(name: str) -> str:
    """The device that a config means, also where this machine has none such: a plan runs on no device."""
    return choose_device(name) if name == "auto" else name


def choose_precision(name: str, device: str, full: str = "") -> Precision:
    """The format that a config means on a device; `full` says why `auto` is to stay in 32 bits."""
    kind = device.partition(":")[0]
    why = ""
    if name == "auto":
        name, why = _automatic(device, full)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*GradScaler is enabled, but")  # a plan for another machine
        scaler = torch.amp.GradScaler(kind) if name == "fp16" and kind != "meta" else None
    return Precision(name, "cpu" if kind == "meta" else kind, scaler, why)


def _automatic(device: str, full: str) -> tuple[str, str]:
    """What `auto` becomes, and why."""
    kind = device.partition(":")[0]
    if kind in ("cpu", "meta"):
        return "fp32", f"auto: {full or 'the device is a CPU'}"
    if full:
        return "fp32", f"auto: {full}"
    native = has_bf16(device)
    if native is None:
        return "bf16", f"auto: if {device} computes it natively, else fp32; it is not in this machine"
    if native:
        return "bf16", f"auto: {device} computes it natively"
    return "fp32", f"auto: {device} does not compute bf16 natively"


def has_bf16(device: str) -> bool | None:
    """Whether a device computes bf16 without emulation; None where the machine has no such device."""
    kind = device.partition(":")[0]
    module = getattr(torch, kind, None)
    supported = getattr(module, "is_bf16_supported", None)
    if supported is None:
        return False
    if not module.is_available():  # type: ignore[union-attr]
        return None
    with module.device(device):  # type: ignore[union-attr]  # it asks the current one
        return bool(supported(including_emulation=False))


def full_precision(plan: Plan, model: nn.Module) -> str:
    """Why a plan is to be computed in 32 bits where its config leaves that open; "" where it need not be."""
    if (reference := plan.settings.reference) is not None:
        return f"reference ({reference.entry.part.name}) is an exact optimum that the run is measured beside"
    for path, entry in plan.entries():
        if why := getattr(entry.part, "full_precision", ""):
            return f"{path} ({entry.part.name}): {why}"
    if any(p.dtype == torch.float64 for p in model.parameters()):
        return "the model has weights in double precision"
    return ""


@contextmanager
def numeric_settings(trainer: Trainer) -> Iterator[None]:
    """Torch's process-wide switches as the run needs them, put back afterwards."""
    deterministic = torch.get_deterministic_debug_mode()
    demand = torch.set_deterministic_debug_mode  # the fuller switch would load the compiler, to tell it too
    filled = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    threads = torch.get_num_threads()
    with rounding(trainer.precision == "tf32"):
        try:
            demand(2 if trainer.deterministic else 0)
            # Filling fresh memory finds bugs of kernels, not of runs, and costs time in every step.
            torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
            if trainer.threads is not None:
                torch.set_num_threads(trainer.threads)
            yield
        finally:
            demand(deterministic)
            torch.utils.deterministic.fill_uninitialized_memory = filled  # type: ignore[attr-defined]
            torch.set_num_threads(threads)


@contextmanager
def rounding(tf32: bool) -> Iterator[None]:
    """Whether products of 32 bits, of matrices and in convolutions and recurrent layers, round to TF32.

    Torch has two sets of switches for that, and refuses to read the older where the two disagree. Both are
    set, so that whoever reads either reads the truth, and both are put back as they were. The older ones are
    left alone where they could not be read before.
    """
    legacy = [(write, _readable(read), value) for read, write, value in _older(tf32)]
    newer = [(part, part.fp32_precision) for part in _newer()]
    try:
        for write, before, value in legacy:
            if before is not None:
                write(value)
        for part, _ in newer:
            part.fp32_precision = "tf32" if tf32 else "ieee"
        yield
    finally:
        for write, before, _ in legacy:
            if before is not None:
                write(before)
        for part, before in newer:
            part.fp32_precision = "none"  # as what stands above it, where that is how it was
            if part.fp32_precision != before:
                part.fp32_precision = before


def _older(tf32: bool) -> list[tuple[Callable[[], Any], Callable[[Any], None], Any]]:
    """How each of the older switches is read and written, and what it is to be."""
    backend: Any = torch.backends.cudnn
    return [
        (
            torch.get_float32_matmul_precision,
            torch.set_float32_matmul_precision,
            "high" if tf32 else "highest",
        ),
        (lambda: backend.allow_tf32, lambda value: setattr(backend, "allow_tf32", value), tf32),
    ]


def _newer() -> list[Any]:
    """What has a switch of its own, where this torch has such switches."""
    cuda, cudnn = torch.backends.cuda, torch.backends.cudnn
    cpu = getattr(torch.backends, "mkldnn", None)  # which rounds on processors that can
    found = [
        cuda.matmul,
        *(getattr(cudnn, name, None) for name in ("conv", "rnn")),
        *(getattr(cpu, name, None) for name in ("matmul", "conv", "rnn")),
    ]
    return [part for part in found if getattr(part, "fp32_precision", None) is not None]


def _readable(read: Callable[[], Any]) -> Any:
    """What a switch says, None where torch refuses to read it."""
    try:
        return read()
    except RuntimeError:
        return None
