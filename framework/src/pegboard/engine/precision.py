"""Device and number formats of a run."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from ..config.nodes import DEVICES, Trainer
from ..errors import PegboardError


@dataclass(frozen=True)
class Precision:
    """How forward and loss are computed."""

    name: str
    device: str  # its type
    scaler: torch.amp.GradScaler | None = None

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


def choose_precision(name: str, device: str) -> Precision:
    """The format that a config means on a device."""
    kind = device.partition(":")[0]
    if name == "auto":
        name = "bf16" if kind == "cuda" and torch.cuda.is_bf16_supported() else "fp32"
    scaler = torch.amp.GradScaler(kind) if name == "fp16" and kind != "meta" else None
    return Precision(name, "cpu" if kind == "meta" else kind, scaler)


@contextmanager
def numeric_settings(trainer: Trainer, precision: Precision) -> Iterator[None]:
    """Torch's process-wide switches as the run needs them, put back afterwards."""
    matmul = torch.get_float32_matmul_precision()
    deterministic = torch.get_deterministic_debug_mode()
    # The fuller switch tells the compiler too, and loads it for that.
    demand = torch.set_deterministic_debug_mode if trainer.compile == "off" else _demand_everywhere
    filled = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    threads = torch.get_num_threads()
    try:
        torch.set_float32_matmul_precision("high" if precision.name == "tf32" else "highest")
        demand(2 if trainer.deterministic else 0)
        # Filling fresh memory finds bugs of kernels, not of runs, and costs time in every step.
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
        if trainer.threads is not None:
            torch.set_num_threads(trainer.threads)
        yield
    finally:
        torch.set_float32_matmul_precision(matmul)
        demand(deterministic)
        torch.utils.deterministic.fill_uninitialized_memory = filled  # type: ignore[attr-defined]
        torch.set_num_threads(threads)


def _demand_everywhere(mode: int) -> None:
    torch.use_deterministic_algorithms(mode > 0, warn_only=mode == 1)
